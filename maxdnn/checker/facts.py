"""Facts: what is known where some instruction runs, as a mapping that is never changed in place. None: impossible.

Keys and values:
    p (int)             predicate Pp is True or False
    ("?", i)            the comparison that instruction i made last held or not
    (u, v, "s" or "u")  u - v lies in (lowest, highest), as signed or unsigned integers; v None: u itself
    (u, v, "=", c)      whether u - v equals c
where u and v are ("R", register) or ("C", bank, offset). Differences of two variables are taken not to wrap: a counter
compared with a bound stays on this side of 2^31."""

from typing import Any

Variable = tuple[Any, ...]
Facts = dict[Any, Any]
NOTHING: Facts = {}
_RANGE = {"s": (-(1 << 31), (1 << 31) - 1), "u": (0, (1 << 32) - 1)}
_FAR = 1 << 33


def whole(v: Variable | None, sign: str) -> tuple[int, int]:
    """The interval that says nothing."""
    return _RANGE[sign] if v is None else (-_FAR, _FAR)


def conflict(a: Facts | None, b: Facts | None) -> bool:
    """Whether the two cannot hold together."""
    if a is None or b is None:
        return True
    if len(a) > len(b):
        a, b = b, a
    for key, x in a.items():
        y = b.get(key)
        if y is not None and x != y and (not isinstance(x, tuple) or x[0] > y[1] or y[0] > x[1]):
            return True
    return False


def both(a: Facts | None, b: Facts | None) -> Facts | None:
    """Both hold."""
    if a is None or b is None or conflict(a, b):
        return None
    if not a or not b:
        return a or b
    out = dict(a)
    for key, y in b.items():
        x = out.get(key)
        out[key] = (max(x[0], y[0]), min(x[1], y[1])) if isinstance(x, tuple) else y
    return out


def either(a: Facts | None, b: Facts | None, widen: bool = False) -> Facts | None:
    """What holds whichever of the two does. `widen`: intervals that differ are given up."""
    if a is None or b is None or a is b:
        return b if a is None else a
    out = {}
    for key, x in a.items():
        y = b.get(key)
        if x == y:
            out[key] = x
        elif isinstance(x, tuple) and y is not None and not widen:
            hull = min(x[0], y[0]), max(x[1], y[1])
            if hull != whole(key[1], key[2]):
                out[key] = hull
    return a if out == a else out


def without(facts: Facts | None, keys: frozenset[Any]) -> Facts | None:
    """The facts less those about some predicates or comparisons."""
    if not facts or keys.isdisjoint(facts):
        return facts
    return {key: value for key, value in facts.items() if key not in keys}


def lost(before: Facts, after: Facts) -> Facts:
    """The part of `before` that `after` no longer says."""
    return {key: value for key, value in before.items() if after.get(key) != value} if before is not after else NOTHING


def mentions(facts: Facts, variables: frozenset[Variable]) -> bool:
    return any(isinstance(key, tuple) and len(key) > 2 and (key[0] in variables or key[1] in variables)
               for key in facts)


def moved(facts: Facts | None, clobbered: frozenset[Variable], to: Variable | None, source: Variable | None,
          delta: int) -> Facts | None:
    """The facts after `clobbered` variables were written; `to` = `source` + delta where they are not None."""
    if not facts:
        return facts
    changed = clobbered if source is None else clobbered | {source}
    if not mentions(facts, changed):
        return facts
    out = {}
    for key, value in facts.items():
        if not isinstance(key, tuple) or len(key) < 3:
            out[key] = value
            continue
        if source is not None and source in key[:2]:
            new = _shifted(key, value, source, to, delta)
            if new is not None:
                out[new[0]] = new[1]
        if not clobbered.intersection(key[:2]):
            out[key] = value
    return out


def _shifted(key: Any, value: Any, source: Variable, to: Variable | None, delta: int) -> tuple[Any, Any] | None:
    """What is known about `to` = `source` + delta from a fact about `source`."""
    u, v, *rest = key
    step = delta if u == source else -delta
    u, v = (to if u == source else u), (to if v == source else v)
    if u == v or u is None:
        return None
    if rest[0] == "=":
        return equality(u, v, rest[1] + step, value)
    low, high = value[0] + step, value[1] + step
    least, most = whole(v, rest[0])
    if v is not None:
        low, high = max(low, least), min(high, most)
    if low < least or high > most or (low, high) == (least, most):
        return None  # it may wrap
    return interval(u, v, rest[0], low, high)


def interval(u: Variable, v: Variable | None, sign: str, low: int, high: int) -> tuple[Any, Any]:
    """The fact that low <= u - v <= high, in the one order its variables have."""
    if v is not None and v < u:
        return (v, u, sign), (-high, -low)
    return (u, v, sign), (low, high)


def equality(u: Variable, v: Variable | None, c: int, holds: bool) -> tuple[Any, Any]:
    if v is not None and v < u:
        u, v, c = v, u, -c
    return (u, v, "=", c & 0xFFFFFFFF), holds


def comparison(u: Variable, v: Variable | None, c: int, sign: str, test: str) -> Facts | None:
    """The facts of u - v `test` c, test one of LT LE EQ NE GE GT."""
    least, most = whole(v, sign)
    low, high = {"LT": (least, c - 1), "LE": (least, c), "EQ": (c, c), "NE": (least, most), "GE": (c, most),
                 "GT": (c + 1, most)}[test]
    if test == "NE":
        low, high = low + (c == least), high - (c == most)
    if low > high:
        return None
    out: Facts = {}
    if (low, high) != (least, most):
        key, value = interval(u, v, sign, low, high)
        out[key] = value
    if test in ("EQ", "NE"):
        key, value = equality(u, v, c, test == "EQ")
        out[key] = value
    return out
