"""Random programs in C that a host compiler and the vendor's compile to the same results.

`program(seed)` is the text of one kernel `net_SEED(const u32 *in, u32 *out)` in a namespace of its own, for the frame
of net.h, which gives both compilers the same names. No behaviour is undefined by construction: signed sums and products
go through unsigned types, shift counts are masked, divisors are not zero, floats are in range where they become
integers, indices are masked, every loop ends, and lanes exchange values only where all threads of the block come by.
Floats are never contracted (--fmad=false, -ffp-contract=off).

Block and grid are fixed: BLOCKS blocks of THREADS threads; thread i reads in[4 * i .. 4 * i + 3] and writes its hash to
out[2 * i .. 2 * i + 1]; the last TAIL words of `out` take atomics of one commutative kind each.
"""

from __future__ import annotations

import random
from collections.abc import Callable

THREADS, BLOCKS, TAIL = 64, 2, 8
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
KINDS = (*INTEGERS, "float", "double")
TO_REAL = ("s8", "s16", "s32", "s64", "u64")  # no u32: ptxas 12.9 makes (float)n of (float)(u32)n of a short n
WEIGHTS = (4, 4, 6, 5, 8, 9, 8, 10, 6, 1)
ATOMICS = ("atomicAdd", "atomicXor", "atomicOr", "atomicMax")  # on tail words 0..3; And, Min on 4, 5; u64 Add on 6
EDGES = (0, 1, 2, 5, 31, 63, 127, 128, 255, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
         0x123456789, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF)  # fmt: skip


def bits(kind: str) -> int:
    return int(kind[1:])


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.scopes: list[list[tuple[str, str]]] = [[]]  # (name, type) of what may be read
        self.fixed: set[str] = set()  # loop counters
        self.arrays: list[tuple[str, str]] = []
        self.functions: list[tuple[str, str, list[str]]] = []
        self.count = 0
        self.loops = 0
        self.returns = ""  # the type of the function being written; "" in the kernel

    # -- expressions -------------------------------------------------------------------------------------------

    def kind(self) -> str:
        return self.rng.choices(KINDS, WEIGHTS)[0]

    def constant(self, kind: str) -> str:
        if kind == "float":  # no 0.0f: GCC 12 makes 0.0f - (float)n of an integer n = 0 to -0.0f
            return self.rng.choice(["0.5f", "(-1.0f)", "3.25f", "0.1f", "(-7.7f)", "1e-20f", "1e15f", "2.0f"])
        if kind == "double":
            return self.rng.choice(["0.5", "(-1.0)", "0.1", "1e-30", "3e20"])
        value = self.rng.choice([self.rng.choice(EDGES), self.rng.getrandbits(self.rng.choice([4, 8, 16, 19, 32, 64]))])
        value &= (1 << bits(kind)) - 1
        return f"({kind}){value:#x}{'ull' if bits(kind) == 64 else 'u'}"

    def leaf(self, kind: str) -> str:
        names = [name for scope in self.scopes for name, k in scope if k == kind]
        others = [n for scope in self.scopes for n, k in scope if k in (INTEGERS if kind in INTEGERS else TO_REAL)]
        draw = self.rng.random()
        if names and draw < 0.75:
            return self.rng.choice(names[-6:])
        if others and draw < 0.9:
            return f"({kind}){self.rng.choice(others[-8:])}"
        return self.constant(kind)

    def expression(self, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.rng.random() < 0.12:
            return self.leaf(kind)
        if kind in ("float", "double"):
            return self.real(kind, depth - 1)
        return self.integer(kind, depth - 1)

    def real(self, kind: str, depth: int) -> str:
        draw, e = self.rng.random(), lambda: self.expression(kind, depth)
        f = "f" if kind == "float" else ""
        if draw < 0.5:
            return f"({e()} {self.rng.choice('+-*')} {e()})"
        if draw < 0.6:
            return f"fma{f}({e()}, {e()}, {e()})"
        if draw < 0.68:
            return f"({self.condition(depth)} ? {e()} : {e()})"
        if draw < 0.74:
            return f"(-{e()})"
        if draw < 0.80:
            return f"{self.rng.choice(['fabs', 'floor', 'trunc', 'ceil', 'rint'])}{f}({e()})"
        if draw < 0.83 and kind == "float":
            return f"({e()} / {e()})"
        if draw < 0.86 and self.functions and not self.returns:
            return self.call(kind, depth)
        if draw < 0.88:
            return f"({kind}){self.expression('double' if f else 'float', depth)}"
        return f"({kind}){self.expression(self.rng.choice(TO_REAL), depth)}"

    def integer(self, kind: str, depth: int) -> str:
        rng, e = self.rng, lambda k=kind: self.expression(k, depth)
        wide = "u64" if bits(kind) == 64 else "u32"
        choices: list[tuple[float, Callable[[], str]]] = [
            (8, lambda: f"({kind})(({wide}){e()} {rng.choice('++-')} ({wide}){e()})"),
            (3, lambda: f"({kind})(({wide}){e()} {rng.choice('+-')} ({wide}){e()} {rng.choice('+-')} ({wide}){e()})"),
            (3, lambda: f"({kind})(({wide}){e()} * ({wide}){e()})"),
            (5, lambda: f"({kind})({e()} {rng.choice('&|^')} {e()})"),
            (2, lambda: f"({kind})(({wide}){e()} << ({self.expression('u32', depth)} & {bits(kind) - 1}))"),
            (2, lambda: f"({kind})(({wide}){e()} << {rng.randrange(bits(kind))})"),
            (3, lambda: f"({kind})({e()} >> ({self.expression('u32', depth)} & {bits(kind) - 1}))"),
            (2, lambda: f"({kind})({e()} >> {rng.randrange(bits(kind))})"),
            (2, lambda: f"({kind})~{e()}"),
            (3, lambda: f"({kind})-{e()}" if bits(kind) < 32 else f"({kind})(0 - ({wide}){e()})"),
            (3, lambda: f"({self.condition(depth)} ? {e()} : {e()})"),
            (6, lambda: f"({kind}){e(rng.choice(INTEGERS))}"),
            (1, lambda: f"({kind})({e()} / ({kind}){rng.choice([3, 5, 7, 10, 100])})"),
            (1, lambda: f"({kind})({e()} % ({kind}){rng.choice([3, 5, 7, 10, 100])})"),
            (2, lambda: f"({kind})to_int({self.expression('float', depth)})"),
            (1, lambda: f"({kind})to_int({self.expression('double', depth)})"),
            (2, lambda: f"{rng.choice(['lesser', 'greater'])}<{kind}>({e()}, {e()})"),
            (1, lambda: f"magnitude<{kind}, {wide}>({e()})"),
        ]
        if kind[0] == "u":
            choices.append((0.4 if bits(kind) < 64 else 0.1, lambda: f"({kind})({e()} / ({e()} | 1))"))
        if kind == "u32":
            u = lambda: self.expression("u32", depth)  # noqa: E731
            choices += [
                (1, lambda: f"(u32)__popc({u()})"), (1, lambda: f"(u32)__clz((s32){u()})"),
                (1, lambda: f"__brev({u()})"), (1, lambda: f"__umulhi({u()}, {u()})"),
                (1, lambda: f"(u32)__mulhi((s32){u()}, (s32){u()})"),
                (1, lambda: f"__byte_perm({u()}, {u()}, {u()} & 0x7777)"),
            ]  # fmt: skip
        if kind == "u64":
            choices += [(1, lambda: f"__umul64hi({e()}, {e()})"), (1, lambda: f"(u64)__popcll({e()})"),
                        (2, lambda: f"(u64){e('u32')} * {e('u32')}")]  # fmt: skip
        if self.arrays:
            array, _ = rng.choice(self.arrays)
            choices.append((4, lambda: f"({kind}){array}[{self.expression('u32', depth)} & 3]"))
        if self.functions and not self.returns:
            choices.append((3, lambda: self.call(kind, depth)))
        return rng.choices([c for _, c in choices], [w for w, _ in choices])[0]()

    def call(self, kind: str, depth: int) -> str:
        """A call of one of the program's functions."""
        name, of, takes = self.rng.choice(self.functions)
        convert = "to_int" if of in ("float", "double") and kind in INTEGERS else ""
        return f"({kind}){convert}({name}({', '.join(self.expression(k, depth) for k in takes)}))"

    def condition(self, depth: int) -> str:
        draw, kind = self.rng.random(), self.kind()
        e = lambda: self.expression(kind, depth)  # noqa: E731
        if draw < 0.6 or kind in ("float", "double"):
            return f"({e()} {self.rng.choice(['<', '<=', '==', '!=', '>', '>='])} {e()})"
        if draw < 0.82:
            return f"(({e()} {self.rng.choice('&&|^')} {e()}) {self.rng.choice(['!=', '=='])} 0)"
        if depth <= 0:
            return f"({e()} != 0)"
        return f"({self.condition(depth - 1)} {self.rng.choice(['&&', '||', '!='])} {self.condition(depth - 1)})"

    # -- statements --------------------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        self.lines.append("    " * len(self.scopes) + text)

    def declare(self, kind: str, text: str) -> None:
        name = f"v{self.count}"
        self.count += 1
        self.emit(f"{kind} {name} = {text};")
        self.scopes[-1].append((name, kind))

    def assign(self) -> None:
        targets = [(n, k) for scope in self.scopes for n, k in scope if n not in self.fixed]
        if self.rng.random() < (0.2 if len(self.scopes) > 1 else 0.4) or not targets:
            kind = self.kind()
            self.declare(kind, self.expression(kind))
            return
        name, kind = self.rng.choice(targets)
        if self.arrays and self.rng.random() < 0.2:
            array, of = self.rng.choice(self.arrays)
            self.emit(f"{array}[{self.expression('u32', 1)} & 3] = ({of}){self.expression('u32')};")
        elif kind in ("u32", "u64") and self.rng.random() < 0.4:
            self.emit(f"{name} {self.rng.choice(['+=', '-=', '^=', '*='])} {self.expression(kind)};")
        else:
            self.emit(f"{name} = {self.expression(kind)};")

    def block(self, size: int, depth: int) -> None:
        """`size` statements in a scope; braces are the caller's."""
        self.scopes.append([])
        for _ in range(size):
            self.statement(depth + 1)
        self.scopes.pop()

    def statement(self, depth: int) -> None:
        rng, draw = self.rng, self.rng.random()
        if not depth and rng.random() < 0.25:
            rng.choice([self.shuffle, self.shuffle, self.vote, self.mailbox, self.histogram])()
        elif self.loops and rng.random() < 0.12:
            self.emit(f"if {self.condition(1)} {rng.choice(['break', 'continue'])};")
        elif depth >= 3 or draw < 0.54:
            self.assign()
        elif draw < 0.68:
            self.emit(f"if {self.condition(1)} {{")
            self.block(rng.randint(1, 2), depth)
            if rng.random() < 0.5:
                self.emit("} else {")
                self.block(1, depth)
            self.emit("}")
        elif draw < 0.84:
            self.loop(depth)
        elif draw < 0.91:
            self.switch(depth)
        elif self.returns:
            self.emit(f"if {self.condition(1)} return {self.expression(self.returns, 1)};")
        else:
            self.atomic()

    def loop(self, depth: int) -> None:
        rng, index = self.rng, f"k{self.count}"
        self.count += 1
        if self.loops >= 2:
            self.assign()
            return
        trips = rng.choice(["2", "3", f"({self.expression('u32', 1)} & 3)", f"({self.expression('u32', 1)} & 7)"])
        heads = [(f"for (u32 {index} = 0; {index} < {trips}; {index}++) {{", "}"),
                 (f"for (u32 {index} = {trips}; {index}-- > 0;) {{", "}"),
                 (f"u32 {index} = 0; while ({index}++ < {trips}) {{", "}"),
                 (f"u32 {index} = 0; do {{", f"}} while (++{index} < {trips});")]  # fmt: skip
        head, tail = rng.choice(heads)
        self.emit("{")
        if head.startswith("for") and rng.random() < 0.3:
            self.lines.append("#pragma unroll 1")
        self.emit(head)
        self.fixed.add(index)
        self.scopes.append([(index, "u32")])
        self.loops += 1
        self.block(rng.randint(1, 2), depth)
        self.loops -= 1
        self.scopes.pop()
        self.emit(tail)
        self.emit("}")

    def switch(self, depth: int) -> None:
        self.emit(f"switch ({self.expression('u32', 1)} & 7) {{")
        loops, self.loops = self.loops, 0  # a break inside would leave the switch, a continue skip its rest
        for label in self.rng.sample(range(8), self.rng.randint(2, 4)):
            self.emit(f"case {label}: {{")
            self.block(1, depth)
            self.emit("}" if self.rng.random() < 0.3 else "} break;")
        self.emit("default: {")
        self.block(1, depth)
        self.emit("} }")
        self.loops = loops

    def atomic(self) -> None:
        at = self.rng.randrange(6)
        if at == 0 and self.rng.random() < 0.5:
            self.emit(f"atomicAdd((u64 *)(tail + 6), {self.expression('u64')});")
            return
        name = (*ATOMICS, "atomicAnd", "atomicMin")[at]
        self.emit(f"{name}(tail + {at}, {self.expression('u32')});")

    # -- what all threads of a block do together ---------------------------------------------------------------

    def shuffle(self) -> None:
        kind = self.rng.choice(["u32", "s32", "u64", "s64", "float"])
        value = self.expression(kind, 1)
        width = self.rng.choice([32, 32, 32, 16, 8])
        how = self.rng.choice([f"__shfl_sync(~0u, {value}, {self.expression('u32', 1)} & 31",
                               f"__shfl_xor_sync(~0u, {value}, {self.rng.randrange(1, width)}",
                               f"__shfl_up_sync(~0u, {value}, {self.rng.randrange(1, width)}",
                               f"__shfl_down_sync(~0u, {value}, {self.rng.randrange(1, width)}"])  # fmt: skip
        self.declare(kind, f"{how}, {width})")

    def vote(self) -> None:
        test = self.condition(1)
        self.declare("u32", self.rng.choice([f"__ballot_sync(~0u, {test})", f"(u32)__any_sync(~0u, {test})",
                                             f"(u32)__all_sync(~0u, {test})", f"(u32)__syncthreads_count({test})"]))

    def mailbox(self) -> None:
        """Through shared memory: every thread leaves a value and takes another's."""
        kind, name = self.rng.choice(["u32", "u64", "u8", "s16", "float"]), f"box{self.count}"
        self.emit(f"__shared__ {kind} {name}[{THREADS}];")
        self.emit(f"{name}[threadIdx.x] = {self.expression(kind, 1)};")
        self.emit("__syncthreads();")
        self.declare(kind, f"{name}[{self.expression('u32', 1)} & {THREADS - 1}]")

    def histogram(self) -> None:
        """Atomics on shared memory between two barriers."""
        name = f"box{self.count}"
        self.emit(f"__shared__ u32 {name}[8];")
        self.emit(f"if (threadIdx.x < 8) {name}[threadIdx.x] = 0;")
        self.emit("__syncthreads();")
        guard = f"if {self.condition(1)} " if self.rng.random() < 0.5 else ""
        where = f"{name} + ({self.expression('u32', 1)} & 7)"
        self.emit(f"{guard}{self.rng.choice(ATOMICS)}({where}, {self.expression('u32', 1)});")
        self.emit("__syncthreads();")
        self.declare("u32", f"{name}[{self.expression('u32', 1)} & 7]")


def _function(name: str, rng: random.Random) -> tuple[str, tuple[str, str, list[str]]]:
    """The text of a function and how it is called."""
    writer = _Writer(rng)
    writer.returns = writer.kind()
    takes = [writer.kind() for _ in range(rng.randint(1, 3))]
    writer.scopes[0] = [(f"a{n}", kind) for n, kind in enumerate(takes)]
    for _ in range(rng.randint(1, 3)):
        writer.statement(1)
    body = "\n".join([*writer.lines, f"    return {writer.expression(writer.returns)};"])
    inline = rng.choice(["FUNCTION", "FUNCTION", "CALLED"])
    head = f"{inline} {writer.returns} {name}({', '.join(f'{k} a{n}' for n, k in enumerate(takes))})"
    return f"{head}\n{{\n{body}\n}}\n", (name, writer.returns, takes)


def program(seed: int) -> str:
    """The same text for the same seed."""
    rng = random.Random(f"maxdnn net {seed}")
    functions = [_function(f"f{n}", rng) for n in range(rng.randint(0, 2))]
    writer = _Writer(rng)
    writer.functions = [call for _, call in functions]
    for n in range(4):
        kind = writer.kind()
        writer.emit(f"{kind} a{n}; load(a{n}, in[4 * i + {n}], in[4 * i + {(n + 1) % 4}]);")
        writer.scopes[0].append((f"a{n}", kind))
    if rng.random() < 0.5:
        of = rng.choice(INTEGERS)
        writer.emit(f"{of} list[4];")
        writer.emit(f"for (u32 k = 0; k < 4; k++) list[k] = ({of})(in[4 * i + k] >> k);")
        writer.arrays.append(("list", of))
    for _ in range(rng.randint(2, 6)):
        writer.statement(0)
    for name, _ in writer.scopes[0]:
        writer.emit(f"hash = mix(hash, {name});")
    for name, _ in writer.arrays:
        writer.emit(f"for (u32 k = 0; k < 4; k++) hash = mix(hash, {name}[k]);")
    head = f'extern "C" KERNEL net_{seed}(const u32 *in, u32 *out)\n{{\n'
    start = (f"    u32 i = blockIdx.x * {THREADS} + threadIdx.x, *tail = out + {2 * THREADS * BLOCKS};\n"
             "    u64 hash = 1;\n")  # fmt: skip
    end = "    out[2 * i] = (u32)hash, out[2 * i + 1] = (u32)(hash >> 32);\n}\n"
    text = "".join(t for t, _ in functions) + head + start + "\n".join(writer.lines) + "\n" + end
    return f"namespace p{seed} {{\n{text}}}\n"
