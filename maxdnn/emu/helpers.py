"""The compiled runtime, loaded once per process; its functions become visible to kernels loaded later."""

import functools

from . import runtime
from .native import Code, cached_object, export


@functools.cache
def load() -> Code:
    code = Code(cached_object(b"runtime", runtime.text))
    for name in runtime.exported():
        export(name, code.address(name))
    return code
