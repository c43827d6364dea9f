"""Operations under a rounding mode other than nearest even: the processor's own mode is switched around them, so
results are exact with nothing emulated. LLVM text, because llvmlite's builder has no constrained operations."""

MODES = {"RZ": 0, "RP": 2, "RM": 3}  # numbers of llvm.set.rounding; 1 is nearest even
_LLVM = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64"}
_ARITHMETIC = {"fadd": 2, "fmul": 2, "fma": 3}
_CONVERSIONS = [("fptrunc", "f64", "f32")] + [
    (op, source, to) for op in ("sitofp", "uitofp") for source in ("i32", "i64") for to in ("f32", "f64")]
_META = 'metadata !"round.dynamic", metadata !"fpexcept.strict"'


def function_name(operation: str, source: str, to: str, mode: str) -> str:
    return f"rt_{operation}_{source}_{to}_{mode}"


def operations() -> list[tuple[str, str, str, int]]:
    """(operation, source type, result type, number of arguments)."""
    return [(op, t, t, n) for op, n in _ARITHMETIC.items() for t in ("f32", "f64")] + [
        (op, source, to, 1) for op, source, to in _CONVERSIONS]


def names() -> list[str]:
    return [function_name(op, source, to, mode) for op, source, to, _ in operations() for mode in MODES]


def text() -> str:
    """All of them, for vectors of 32 lanes."""
    parts = ["declare void @llvm.set.rounding(i32)"]
    for op, source, to, count in operations():
        given, result = f"<32 x {_LLVM[source]}>", f"<32 x {_LLVM[to]}>"
        suffix = f"v32{to}" if source == to else f"v32{to}.v32{source}"
        callee = f"@llvm.experimental.constrained.{op}.{suffix}"
        parts.append(f"declare {result} {callee}({', '.join([given] * count)}, metadata, metadata)")
        for mode, number in MODES.items():
            names_ = [f"%a{k}" for k in range(count)]
            signature = ", ".join(f"{given} {n}" for n in names_)
            parts.append(
                f"define {result} @{function_name(op, source, to, mode)}({signature}) strictfp noinline {{\n"
                f"  call void @llvm.set.rounding(i32 {number}) strictfp\n"
                f"  %r = call {result} {callee}({signature}, {_META}) strictfp\n"
                f"  call void @llvm.set.rounding(i32 1) strictfp\n"
                f"  ret {result} %r\n}}")
    return "\n".join(parts)
