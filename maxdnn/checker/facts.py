"""Facts: what is known where some instruction runs, as a mapping that is never changed in place. None: impossible.

Keys and values:
    PREDICATES          the values that P0..P6 may have together: a set of numbers 0..127 (bit n: Pn), as a bit mask
    ("?", i)            the comparison that instruction i made last held or not
    (u, v, "s" or "u")  u - v lies in (lowest, highest), as signed or unsigned integers; v None: u itself
    (u, v, "=", c)      whether u - v equals c
    (u, None, "&", m)   whether u has any bit of m
where u and v are ("R", register) or ("C", bank, offset). Differences of two variables, and signed counters that move by
small steps, are taken not to wrap: a counter compared with a bound stays on this side of 2^31."""

from typing import Any

from . import sets

Variable = tuple[Any, ...]
Facts = dict[Any, Any]
NOTHING: Facts = {}
_RANGE = {"s": (-(1 << 31), (1 << 31) - 1), "u": (0, (1 << 32) - 1)}
_FAR = 1 << 33
_STEP = 1 << 20  # what a counter moves by at the most
PREDICATES = "P"


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
        if y is None or x == y:
            continue
        if not (x[0] <= y[1] and y[0] <= x[1] if isinstance(x, tuple) else key == PREDICATES and x & y):
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
        if isinstance(x, tuple):
            out[key] = max(x[0], y[0]), min(x[1], y[1])
        else:
            out[key] = x & y if key == PREDICATES and x is not None else y
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
        elif key == PREDICATES and y is not None and x | y != sets.ALL:
            out[key] = x | y
    return a if out == a else out


def literal(p: int, value: bool) -> Facts:
    """The fact that predicate p has a value."""
    return {PREDICATES: sets.having(p, value)}


def rewritten(facts: Facts | None, image: sets.Image | None, gone: Any) -> Facts | None:
    """The facts after an instruction wrote predicates as `image` has it and made comparison `gone` again."""
    if facts is None or (gone not in facts and (image is None or (PREDICATES not in facts and not image.tells))):
        return facts
    out = {key: value for key, value in facts.items() if key != gone}
    if image is not None:
        after = image.of(out.pop(PREDICATES, sets.ALL))
        if after != sets.ALL:
            out[PREDICATES] = after
    return out


def lost(before: Facts, after: Facts) -> Facts:
    """The part of `before` that `after` no longer says."""
    return {key: value for key, value in before.items() if after.get(key) != value} if before is not after else NOTHING


def mentions(facts: Facts, variables: frozenset[Variable]) -> bool:
    return any(isinstance(key, tuple) and len(key) > 2 and (key[0] in variables or key[1] in variables)
               for key in facts)


def moved(facts: Facts | None, clobbered: frozenset[Variable], to: Variable | None, source: Variable | None,
          delta: int, flip: int = 0) -> Facts | None:
    """The facts after `clobbered` variables were written; `to` = (`source` + delta) XOR flip where they are not None,
    one of delta and flip being zero."""
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
            new = _flipped(key, value, to, flip) if flip else shifted(key, value, source, to, delta)
            if new is not None:
                out[new[0]] = new[1]
        if not clobbered.intersection(key[:2]):
            out[key] = value
    return out


def shifted(key: Any, value: Any, source: Variable, to: Variable | None, delta: int) -> tuple[Any, Any] | None:
    """What is known about `to` = `source` + delta from a fact about `source`."""
    u, v, *rest = key
    step = delta if u == source else -delta
    u, v = (to if u == source else u), (to if v == source else v)
    if u == v or u is None:
        return None
    if rest[0] == "=":
        return equality(u, v, rest[1] + step, value)
    if rest[0] == "&":
        return _bits(u, rest[1], value, step)
    low, high = value[0] + step, value[1] + step
    least, most = whole(v, rest[0])
    if v is None and (low > most or high < least):  # it wraps whole
        around = most - least + 1 if high < least else least - most - 1
        low, high = low + around, high + around
    elif v is not None or (rest[0] == "s" and abs(step) <= _STEP):
        low, high = max(low, least), min(high, most)
    if low < least or high > most or (low, high) == (least, most):
        return None  # it may wrap
    return interval(u, v, rest[0], low, high)


def _bits(u: Variable, mask: int, value: bool, step: int) -> tuple[Any, Any] | None:
    """Whether u + step has bits of a mask, of which u had some or none: as before where the step leaves them, the
    opposite where it turns the one there is."""
    within = step % (1 << mask.bit_length())
    if within and (mask & (mask - 1) or within != mask):
        return None
    return (u, None, "&", mask), value != bool(within)


def _flipped(key: Any, value: Any, to: Variable | None, flip: int) -> tuple[Any, Any] | None:
    """What is known about `to` = u XOR flip from a fact about u."""
    _, v, *rest = key
    if v is not None or to is None or rest[0] not in ("=", "&"):
        return None
    if rest[0] == "=":
        return equality(to, None, rest[1] ^ flip, value)
    mask = rest[1]
    if mask & flip and mask & (mask - 1):
        return None
    return (to, None, "&", mask), value != bool(mask & flip)


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
