"""Machine code spoiled on purpose, on the GPU that is there, as if its architecture had never been measured: no damage
may reach a user's result, and every one must be remembered.

    python -m tests.gpu.spoiled [--kinds PART] [--seconds S] [--out FILE]

First every source of the GPU's machine code as it is: what its first use takes. Then each kind of damage: the chosen
source is spoiled, a product is asked for, the trial in another process must tell, the product must be right, and a
process that knows nothing must find the verdict without a trial. Exits with 1 if any of that fails."""

import argparse
import contextlib
import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from maxdnn import cubin
from maxdnn.build.cubins import cubin as built
from maxdnn.isa import Instruction
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import chip_of, choose
from maxdnn.problem.operands import view
from maxdnn.problem.problem import product
from maxdnn.runtime import apart, trust
from maxdnn.runtime.engine import Engine
from maxdnn.selftest import trial
from maxdnn.selftest.kernels import Guarded

PROBLEM = product((300, 200), (200, 260))
WORD = 16  # bytes
CONTROL = (1 << 21) - 1 << 105
GUARD = 0xF << 12
NOP, PT = 0x918, 0x7 << 12

Words = list[int]
Code = Sequence[Instruction]
Damage = Callable[[Words, Code], None]


def _where(code: Code, *opcodes: str) -> list[int]:
    return [i for i, inst in enumerate(code) if inst.opcode in opcodes]


def _loop(code: Code) -> int:
    """The branch back of the loop with most FFMA."""
    back = [i for i in _where(code, "BRA") if code[i]["target"].value < code[i].address]
    return max(back, key=lambda i: sum(x.opcode == "FFMA" and x.address > code[i]["target"].value for x in code[:i]))


def _middle(code: Code) -> int:
    """An FFMA of registers alone in the middle of that loop."""
    end = _loop(code)
    inside = [i for i in _where(code, "FFMA") if code[end]["target"].value <= code[i].address < code[end].address]
    return inside[len(inside) // 2]


def _flip(bit: int, where: Callable[[Code], int]) -> Damage:
    def spoil(words: Words, code: Code) -> None:
        words[where(code)] ^= 1 << bit
    return spoil


def _further(nbytes: int, *opcodes: str, some: slice = slice(None)) -> Damage:
    """Addresses so many bytes further."""
    def spoil(words: Words, code: Code) -> None:
        for i in _where(code, *opcodes)[some]:
            offset = (words[i] >> 40) + nbytes & 0xFFFFFF
            words[i] = words[i] & ~(0xFFFFFF << 40) | offset << 40
    return spoil


def _without(*opcodes: str, some: slice = slice(None)) -> Damage:
    def spoil(words: Words, code: Code) -> None:
        for i in _where(code, *opcodes)[some]:
            words[i] = words[i] & CONTROL | NOP | PT
    return spoil


def _bits(mask: int, value: int, *opcodes: str) -> Damage:
    def spoil(words: Words, code: Code) -> None:
        for i in _where(code, *opcodes):
            words[i] = words[i] & ~mask | value
    return spoil


def _first(opcode: str) -> Damage:
    """The last instruction of a kind in the place of the first of all. The last BRA branches to itself."""
    def spoil(words: Words, code: Code) -> None:
        words[0] = words[_where(code, opcode)[-1]]
    return spoil


def _left_out(words: Words, code: Code) -> None:
    i = _middle(code)
    words[i] = words[i] & CONTROL | NOP | PT


def _illegal(words: Words, code: Code) -> None:
    words[_middle(code)] = 0xFFF | PT


def _guards(words: Words, code: Code) -> None:
    for i in _where(code, "STG"):
        words[i] ^= 1 << 15


def _never_ends(words: Words, code: Code) -> None:
    i = _loop(code)
    words[i] = words[i] & ~GUARD | PT


def _parameters(words: Words, code: Code) -> None:
    for i in _where(code, "ULDC"):
        words[i] += 8 << 38


def _hasty(words: Words, code: Code) -> None:
    """No instruction waits for a barrier."""
    for i in range(len(words)):
        words[i] &= ~(0x3F << 116)


def _stalls(words: Words, code: Code) -> None:
    for i in range(_loop(code)):
        if words[i] >> 105 & 0xF > 1:
            words[i] = words[i] & ~(0x1F << 105) | 1 << 105


KINDS: dict[str, Damage] = {
    "an FFMA negates a factor": _flip(72, _middle),
    "an FFMA takes another register": _flip(25, _middle),
    "an FFMA adds to another sum": _flip(17, _middle),
    "an FFMA is left out": _left_out,
    "a fetch from the texel behind": _further(16, "LDG", some=slice(1)),
    "fetches off their alignment": _further(4, "LDG"), "a load of shared memory elsewhere": _further(16, "LDS"),
    "stores to shared memory elsewhere": _further(0x40, "STS", some=slice(None, None, 2)),
    "shared memory beyond its end": _further(0x20000, "STS"),
    "nothing is stored": _without("STG"),
    "every second store is left out": _without("STG", some=slice(None, None, 2)),
    "results a float further": _further(4, "STG"),
    "results 512 bytes further": _further(0x200, "STG"),
    "results 7 MB further": _further(0x700000, "STG"),
    "stores through no register": _bits(0xFF << 24, 0xFF << 24, "STG"),
    "stores by the opposite predicate": _guards,
    "one turn of the loop": _flip(15, _loop),
    "a loop without an end": _never_ends,
    "a branch to itself": _first("BRA"),
    "an end at the beginning": _first("EXIT"),
    "an illegal instruction": _illegal,
    "a barrier for more threads than there are": _bits(0xFFF << 42, 992 << 42, "BAR"),
    "parameters 8 bytes further": _parameters,
}
FILES: dict[str, Callable[[bytes], bytes]] = {
    "half a file": lambda image: image[:len(image) // 2], "no file": lambda image: b"",
    "kernels by other names": lambda image: image.replace(b"sm90_", b"sm91_"),
}
TIMED: dict[str, Damage] = {"nothing is awaited": _hasty, "stalls of one cycle": _stalls}
"""Which an emulator does not notice."""


def spoilt(image: bytes, kind: str) -> bytes:
    """A cubin all of whose kernels have one kind of damage."""
    if kind in FILES:
        return FILES[kind](image)
    for kernel in cubin.read(image).kernels.values():
        at = image.index(kernel.code)
        words = [int.from_bytes(kernel.code[i:i + WORD], "little") for i in range(0, len(kernel.code), WORD)]
        (KINDS | TIMED)[kind](words, kernel.instructions)
        image = image[:at] + b"".join(w.to_bytes(WORD, "little") for w in words) + image[at + len(kernel.code):]
    return image


@contextlib.contextmanager
def unmeasured(images: dict[str, bytes]) -> Iterator[None]:
    """As if no architecture had been measured, with cubins by source in the place of those that there are."""
    def taken(source: str, arch: str) -> bytes:
        return images[source] if source in images else built(source, arch)
    with patch.object(trust, "MEASURED", frozenset()), patch.object(trust, "cubin", taken), \
            patch.object(trust, "_known", {}):
        yield


def planned(device: Any) -> Plan:
    return choose(PROBLEM, chip_of(device), algorithm="direct", arithmetic="ffma", tuned=False)


def error(device: Any, plan: Plan) -> float:
    """Of a call, relative to the sum of |terms|; infinite where something beside the result was written."""
    rng = np.random.default_rng(0)
    given = {role: rng.uniform(-1, 1, shape).astype(np.float32) for role, shape in PROBLEM.shapes.items()}
    placed = {role: Guarded(device, PROBLEM.operand(role), x, np.float32(np.nan) if role == "out" else None)
              for role, x in given.items()}
    views = {role: view(role, x, rank=None) for role, x in placed.items()}
    engine = Engine(device)
    engine.run(plan, views, {"alpha": np.float32(1)}, None)
    device.synchronize()
    a, b = given["a"].astype(float), given["b"].astype(float)
    with np.errstate(invalid="ignore"):
        return float(np.max(abs(placed["out"].get("out") - a @ b) / (abs(a) @ abs(b))))


def judged(device: Any, source: str, kind: str) -> dict[str, Any]:
    """What becomes of a damage; `right`: the result was, the verdict is bad, told by explain(), and remembered."""
    image = spoilt(built(source, chip_of(device).arch), kind)
    with unmeasured({source: image}):
        start = time.perf_counter()
        plan = planned(device)
        seconds = time.perf_counter() - start
        standing = trust.standing(chip_of(device), source)
        off = error(device, plan)
        said = plan.explain()
    with unmeasured({source: image}), patch.object(trust, "tried", side_effect=AssertionError("tried again")):
        again = trust.standing(chip_of(device), source)
    remembered = not again.on and again.why.split(": ", 1)[-1] == standing.why.split(": ", 1)[-1]
    right = off <= 2e-6 and not standing.on and source not in plan.sources and standing.why in said and remembered
    return {"kind": kind, "right": bool(right), "error": off, "verdict": standing.why, "seconds": round(seconds, 2),
            "remembered": remembered}


def first_uses(device: Any) -> Iterator[dict[str, Any]]:
    """What the first use of each source takes, as it is."""
    chip = chip_of(device)
    for source in trial.sources(chip):
        with unmeasured({}):
            start = time.perf_counter()
            standing = trust.standing(chip, source)
            yield {"source": source, "on": standing.on, "why": standing.why,
                   "seconds": round(time.perf_counter() - start, 2)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="", metavar="PART", help="part of a kind's name (default: all)")
    parser.add_argument("--seconds", type=float, default=240, help="no further damage begins after so long")
    parser.add_argument("--out", metavar="FILE", help="write the results there, as JSON")
    args = parser.parse_args(arguments)
    from maxdnn.runtime.devices import cuda as gpus

    device, end = gpus.device(0), time.monotonic() + args.seconds
    found: dict[str, Any] = {"gpu": device.name, "driver": device.chip.driver, "first": [], "damage": []}
    say = functools.partial(print, flush=True)
    with tempfile.TemporaryDirectory() as folder, patch.dict("os.environ", MAXDNN_CACHE=folder), \
            patch.object(apart, "STEP", 5.0):
        for one in first_uses(device):
            found["first"].append(one)
            say(f"{one['seconds']:6.2f} s  {one['source']}: {'on' if one['on'] else 'OFF'}, {one['why']}")
        with unmeasured({}):
            source = next(s for s in planned(device).sources if trust.native(device.chip, s))
        for kind in (k for k in (*KINDS, *FILES, *TIMED) if args.kinds in k):
            if time.monotonic() > end:
                break
            one = judged(device, source, kind)
            found["damage"].append(one)
            say(f"{one['seconds']:6.2f} s  {kind}: {'ok' if one['right'] else 'NOT OK'}, {one['verdict']}")
    if args.out:
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n")
    bad = [one for one in found["damage"] if not one["right"]] + [one for one in found["first"] if not one["on"]]
    say(f"{len(found['first'])} sources, the slowest in {max((x['seconds'] for x in found['first']), default=0)} s; "
        f"{len(found['damage'])} kinds of damage; {len(bad)} not as they should be")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
