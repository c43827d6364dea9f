"""printf of device code: a C format and packed arguments to text, as the CUDA C Programming Guide describes it.

Arguments lie one behind the other, each aligned to its size: 4 bytes for int, 8 for long, long long, double and
pointers. Conversions: d i u o x X c s p e E f F g G a A %, flags - + space # 0, width and precision with *, sizes h hh
l ll. An unknown conversion is printed as it stands."""

import math
import re
import struct
from collections.abc import Callable

_SPEC = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?(.)", re.DOTALL)
_INTEGERS, _FLOATS = "diuoxX", "eEfFgGaA"
_BITS = {"hh": 8, "h": 16, None: 32}


class Arguments:
    """Reads packed values; `read(offset, size)` gives bytes of the buffer."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._at = 0
        self.count = 0

    def take(self, size: int, form: str) -> int | float:
        self._at = (self._at + size - 1) // size * size
        data = self._read(self._at, size)
        self._at += size
        self.count += 1
        value: int | float = struct.unpack("<" + form, data)[0]
        return value


def formatted(text: str, arguments: Arguments, string: Callable[[int], str]) -> str:
    """The text that printf prints; `string` reads a string at an address."""
    def one(match: re.Match[str]) -> str:
        flags, width, precision, size, kind = match.groups()
        if kind == "%":
            return "%"
        if kind not in _INTEGERS + _FLOATS + "csp":
            return match[0]
        if width == "*":
            wide = int(arguments.take(4, "i"))
            flags, width = flags + "-" * (wide < 0), str(abs(wide))
        if precision == "*":
            digits = int(arguments.take(4, "i"))
            precision = None if digits < 0 else str(digits)
        number = None if precision is None else int(precision or 0)
        return _pad(*_convert(kind, flags, number, size, arguments, string), flags, int(width or 0))

    return _SPEC.sub(one, text)


def _convert(kind: str, flags: str, precision: int | None, size: str | None, arguments: Arguments,
             string: Callable[[int], str]) -> tuple[str, str, bool]:
    """Sign or prefix, the rest, and whether zeros may fill up between them."""
    if kind == "c":
        return "", chr(int(arguments.take(4, "I")) & 0xFF), False
    if kind == "s":
        found = string(int(arguments.take(8, "Q")))
        return "", found if precision is None else found[:precision], False
    if kind == "p":
        return "0x", f"{int(arguments.take(8, 'Q')):x}", False
    if kind in _FLOATS:
        value = float(arguments.take(8, "d"))
        sign, body = _sign(math.copysign(1, value) < 0, flags), _float(abs(value), kind, "#" in flags, precision)
        if kind in "aA" and math.isfinite(value):
            sign, body = sign + body[:2], body[2:]
        return sign, body, math.isfinite(value)
    bits = _BITS.get(size, 64)
    value = int(arguments.take(8 if bits == 64 else 4, "Q" if bits == 64 else "I")) & ((1 << bits) - 1)
    if kind in "di":
        value -= (value >> bits - 1) << bits
        prefix = _sign(value < 0, flags)
    else:
        prefix = "0" + kind if "#" in flags and kind in "xX" and value else ""
    body = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(kind, "d"))
    body = "" if precision == 0 and not value else body.rjust(precision or 0, "0")
    if kind == "o" and "#" in flags and not body.startswith("0"):
        body = "0" + body
    return prefix, body, precision is None


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _float(value: float, kind: str, alternate: bool, precision: int | None) -> str:
    if not math.isfinite(value):
        word = "nan" if math.isnan(value) else "inf"
        return word.upper() if kind.isupper() else word
    if kind in "aA":
        return _hexadecimal(value, alternate, precision, kind)
    return ("%" + "#" * alternate + f".{6 if precision is None else precision}{kind}") % value


def _hexadecimal(value: float, alternate: bool, precision: int | None, kind: str) -> str:
    """0x1.8p+1: one hexadecimal digit, the others of the mantissa, a binary exponent."""
    mantissa, exponent = math.frexp(value)
    if value and exponent < -1021:  # denormal
        mantissa, exponent = math.ldexp(mantissa, exponent + 1021), -1021
    whole = int(math.ldexp(mantissa, 53))  # one digit and 52 bits
    exponent = exponent - 1 if value else 0
    digits = 13 if precision is None else precision
    if digits < 13:
        shift = 4 * (13 - digits)
        half, rest = 1 << shift - 1, whole & (1 << shift) - 1
        whole = (whole >> shift) + (rest > half or (rest == half and whole >> shift & 1))
        first, after = whole >> 4 * digits, whole & (1 << 4 * digits) - 1
        tail = f"{after:0{digits}x}" if digits else ""
    else:
        first, tail = whole >> 52, f"{whole & (1 << 52) - 1:013x}".ljust(digits, "0")
    if precision is None:
        tail = tail.rstrip("0")
    text = f"0x{first:x}{'.' * bool(tail or alternate)}{tail}p{exponent:+d}"
    return text.upper() if kind == "A" else text


def _pad(prefix: str, body: str, zeros: bool, flags: str, width: int) -> str:
    room = width - len(prefix) - len(body)
    if room <= 0:
        return prefix + body
    if "-" in flags:
        return prefix + body + " " * room
    return prefix + "0" * room + body if zeros and "0" in flags else " " * room + prefix + body
