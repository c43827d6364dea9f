"""In the place of maxdnn.selftest.trial: a process that behaves as the environment says."""

import json
import os
import sys
import time

MARK = "maxdnn trial: "


def say(**step):
    print(MARK + json.dumps(step), flush=True)


def end(state, text="as it was told"):
    say(step="ended", state=state, text=text)


behaviour = os.environ["TRIAL_WORKER"]
code = sys.stdin.buffer.read()
if behaviour == "passes":
    say(step="native")
    print("what libraries print")
    say(step="plan")
    end("passed", f"{len(code)} bytes")
elif behaviour == "wrong":
    say(step="native")
    end("failed", "a wrong result")
elif behaviour == "dies":
    say(step="native")
    os.kill(os.getpid(), 9)
elif behaviour == "hangs":
    say(step="native")
    time.sleep(600)
elif behaviour == "goes on":
    say(step="native")
    while True:
        say(step="plan")
        time.sleep(0.05)
elif behaviour == "babbles":
    say(step="native")
    print(MARK + "{not JSON", flush=True)
elif behaviour == "leaves":
    say(step="native")
elif behaviour == "no device":
    end("undecided", "all devices are busy")
elif behaviour == "never ready":
    time.sleep(600)
elif behaviour == "broken":
    sys.exit(3)
