"""Where there is no PyTorch, nothing here is collected; `make test-torch` installs it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
