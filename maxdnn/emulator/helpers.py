"""The compiled runtime, loaded once per process; its functions become visible to kernels loaded later."""

from ..runtime.forks import compiling
from . import runtime
from .native import Code, cached_object, export

_code: Code | None = None


def load() -> Code:
    """The runtime's code. One thread loads it: kernels keep the addresses exported here for the life of the process."""
    global _code
    if _code is not None:
        return _code
    with compiling:
        if _code is None:
            code = Code(cached_object(b"runtime", runtime.text))
            for name in runtime.exported():
                export(name, code.address(name))
            _code = code
        return _code
