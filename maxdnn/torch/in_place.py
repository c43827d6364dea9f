"""`x += y` and its like in traced graphs. torch.fx follows them as `x = x + y`, which is something else where `x` has
views or other names; here they are calls that change a tensor in place."""

import operator
from typing import Any

from torch import fx

_NAMES = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor", "ilshift",
          "irshift")


class Proxy(fx.Proxy):
    """Of a tracer that follows what is done in place."""


def _made(name: str) -> Any:
    does = getattr(operator, name)

    def function(x: Any, y: Any) -> Any:
        return does(x, y)
    function.__name__ = function.__qualname__ = name

    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})
    setattr(Proxy, f"__{name}__", method)
    return function


FUNCTIONS = {name: _made(name) for name in _NAMES}
globals().update(FUNCTIONS)  # where the code of a graph finds them
