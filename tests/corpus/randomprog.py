"""Random but valid CUDA C programs that mix every instruction kind, for mining encodings and latencies.

A program is one kernel `random_kernel(const u32 *in, u32 *out, int n)`.  For any n >= 1 and whole warps it stays in
bounds (`out` has n + 16 elements), every loop ends, and each thread writes the hash of its variables to out[i]; the
last 16 elements take commutative atomics.  Without `approximate`, every operation's bits are defined and no NaN payload
reaches a hash, so that the results of two machines can be compared.
"""

from __future__ import annotations

import random
import re

# Expression templates by result type: u (u32), l (u64), f (float), d (double), p (bool).  Letters in braces draw an
# operand of that type; {c} draws a 32-bit literal, {t} one in 1..31, {g} a float literal.
EXACT = {
    "u": """{u} + {u}; {u} - {u}; {u} * {u}; {u} * {c}; {u} * {u} + {u}; {u} & {u}; {u} | ~{u}; {u} ^ {u} ^ {u}
        ; ~{u} & {u}; ({u} & {u}) ^ (~{u} & {u}); {u} << {t}; {u} >> {t}; (u32)((int){u} >> {t}); {u} << ({u} & 31)
        ; {u} >> ({u} & 31); ({u} << {t}) + {u}; __umulhi({u}, {u}); (u32)__mulhi((int){u}, (int){u}); {u} / ({u} | 1)
        ; {u} % ({u} | 1); {u} / {t}; (u32)((int){u} / {t}); {u} % 1000003u; min({u}, {u}); max({u}, {u})
        ; (u32)min((int){u}, (int){u}); (u32)max((int){u}, (int){c}); (u32)abs((int)({u} >> 1)); (u32)__popc({u})
        ; (u32)__clz((int){u}); __brev({u}); (u32)__ffs((int){u}); __byte_perm({u}, {u}, {u} & 0x7777)
        ; __byte_perm({u}, {u}, 0x3715); __funnelshift_l({u}, {u}, {u}); __funnelshift_r({u}, {u}, {t})
        ; __funnelshift_rc({u}, {u}, {u} & 63); ({u} >> {t}) & {c}; {u} + {c}; {u} ^ {c}; {p} ? {u} : {u}; (u32){p}
        ; __sad((int)({u} >> 1), (int)({u} >> 1), {u}); __uhadd({u}, {u}); (u32)(u8){u}; (u32)(int)(short){u}
        ; (u32)(int)(s8)({u} >> 8); (u32)(u16){u} * (u16){u}; (u32){l}; (u32)({l} >> 32); __float2uint_rz({f})
        ; (u32)__float2int_rn({f}); (u32)__float2int_rd({f}); bits({f}); (u32)__double2int_rz({d}); wide_bits({d})
        ; __vadd4({u}, {u}); __vabsdiffu4({u}, {u}); __vmaxs2({u}, {u}); __vavgu4({u}, {u}); (u32)__clzll((s64){l})
        ; bfe({u}, {u} & 31, {u} & 31); bfi({u}, {u}, {u} & 31, {t}); mad_hi({u}, {u}, {u}); vadd({u}, {u}, {u})
        ; vmad({u}, {u}, {u}); lop3<{t}>({u}, {u}, {u}); lop3<{t} * 8>({u}, {u}, {u}); carry({u}, {u}, {u})
        ; call0({u}, {u}); call1({u}, {u}); table[{u} & 63]; in[{u} % n]; ((const u8 *)in)[{u} % n]; local[{u} & 15]
        ; ((const short *)in)[{u} % n]; __ldg(&in[{u} % n]); (u32)half({f}); (u32)__popcll({l}); lane""",
    "l": """{l} + {l}; {l} - {l}; {l} * {l}; {l} ^ {l}; {l} & ~{l}; {l} << {t}; {l} >> {t}; {l} >> ({u} & 63)
        ; (u64)((s64){l} >> {t}); (u64){u} * {u}; (u64)((s64)(int){u} * (int){u}); (u64){u} << 32 | {u}
        ; __umul64hi({l}, {l}); {p} ? {l} : {l}; min({l}, {l}); (u64)max((s64){l}, (s64){l}); {l} / ({u} | 1)
        ; (u64)__float2ll_rz({f}); __double2ull_rz({d}); (u64){u} * {u} + {l}; __brevll({l}); {l} + {u}""",
    "f": """__fadd_rn({f}, {f}); __fsub_rn({f}, {f}); __fmul_rn({f}, {f}); __fmaf_rn({f}, {f}, {f}); halves({u})
        ; __fmaf_rn({f}, {g}, {f}); __fadd_rz({f}, {f}); __fmul_ru({f}, {f}); __fmaf_rd({f}, {f}, {f}); fminf({f}, {f})
        ; fmaxf({f}, {f}); fabsf({f}); -{f}; __fdiv_rn({f}, {f}); __fsqrt_rn({f}); __frcp_rn({f}); floorf({f})
        ; truncf({f}); rintf({f}); __saturatef({f}); (float)(int){u}; __uint2float_rz({u}); (float)(u8)({u} >> 16)
        ; __ll2float_rn((s64){l}); __double2float_rn({d}); {p} ? {f} : {f}; __fmul_rn({f}, {g}); __fadd_rn({f}, {g})
        ; add_ftz({f}, {f}); mul_ftz({f}, {f}); __uint_as_float({u} & 0xbfffffffu); __fsub_rn({g}, {f})""",
    "d": """__dadd_rn({d}, {d}); __dmul_rn({d}, {d}); __fma_rn({d}, {d}, {d}); __ddiv_rn({d}, {d}); __dsqrt_rn({d})
        ; (double){f}; (double)(int){u}; __ull2double_rz({l}); fmin({d}, {d}); fabs({d}); {p} ? {d} : {d}; floor({d})
        ; __dadd_rd({d}, {d}); __dsub_rn({d}, {d}); __dmul_rn({d}, 0.3)""",
    "p": """{u} < {u}; {u} == {u}; (int){u} >= (int){u}; {f} < {f}; {f} != {f}; !({f} >= {f}); {d} < {d}; {l} < {l}
        ; (s64){l} > (s64){l}; ({u} & {t}) != 0; {p} && {p}; {p} || {p}; {p} != {p}; isnan({f}) != 0; (int){u} < {t}""",
}
APPROXIMATE = {
    "f": """__expf({f}); __logf({f}); __sinf({f}); __cosf({f}); rsqrtf({f}); __fdividef({f}, {f}); expf({f}); logf({f})
        ; sinf({f}); exp2f({f}); __powf({f}, {f}); tanhf({f}); atanf({f}); cbrtf({f}); __frsqrt_rn({f})""",
    "d": "exp({d}); log({d}); rsqrt({d}); sin({d})",
    "u": "(u32)clock(); __float_as_uint(__log2f({f}))",
}
C_TYPES = {"u": "u32", "l": "u64", "f": "float", "d": "double", "p": "bool"}
WEIGHTS = {"u": 9, "l": 3, "f": 6, "d": 2, "p": 1}

PROLOGUE = """#include "common.cuh"
__constant__ u32 table[64];
static __device__ u32 bits(float x) { return x == x ? __float_as_uint(x) : 0x7fffffffu; }
static __device__ u32 wide_bits(double x) { return x == x ? __double2hiint(x) * 31u + __double2loint(x) : 7u; }
static __device__ u32 half(float x) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return x == x ? h : 1; }
static __device__ float halves(u32 x) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)(x & 0xbbff))); return f; }
static __device__ float add_ftz(float x, float y) { float r; asm("add.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
static __device__ float mul_ftz(float x, float y) { float r; asm("mul.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
static __device__ u32 bfe(u32 x, u32 p, u32 q) { u32 r; asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(p), "r"(q)); return r; }
static __device__ u32 bfi(u32 x, u32 y, u32 p, u32 q) { u32 r; asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(x), "r"(y), "r"(p), "r"(q)); return r; }
static __device__ u32 mad_hi(u32 x, u32 y, u32 z) { u32 r; asm("mad.hi.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); return r; }
static __device__ u32 vadd(u32 x, u32 y, u32 z) { u32 r; asm("vadd.s32.s32.u32.add %0, %1.b1, %2.h0, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); return r; }
static __device__ u32 vmad(u32 x, u32 y, u32 z) { u32 r; asm("vmad.s32.s32.u32 %0, %1.h1, %2.b2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); return r; }
template <int T> static __device__ u32 lop3(u32 x, u32 y, u32 z) { u32 r; asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(x), "r"(y), "r"(z), "n"(T & 255)); return r; }
static __device__ u32 carry(u32 x, u32 y, u32 z) { u32 r, s; asm("add.cc.u32 %0, %2, %3; madc.hi.u32 %1, %3, %4, %2;" : "=&r"(r), "=r"(s) : "r"(x), "r"(y), "r"(z)); return r ^ s; }
"""  # noqa: E501


def _split(templates: dict[str, str]) -> dict[str, list[str]]:
    return {kind: [" ".join(part.split()) for part in text.split(";")] for kind, text in templates.items()}


class _Writer:
    """Grows one function body; `scopes` holds the variables in sight by type."""

    def __init__(self, rng: random.Random, approximate: bool) -> None:
        self.rng = rng
        self.templates = _split(EXACT)
        if approximate:
            for kind, extra in _split(APPROXIMATE).items():
                self.templates[kind] += extra * 2
        self.scopes: list[dict[str, list[str]]] = []
        self.lines: list[str] = []
        self.count = 0

    def emit(self, text: str) -> None:
        self.lines.append("    " * len(self.scopes) + text)

    def variable(self, kind: str, assignable: bool = False) -> str:
        """One of the latest variables in sight; a loop's counter, written with a cast, may only be read."""
        names = [name for scope in self.scopes for name in scope.get(kind, []) if not (assignable and name[0] == "(")]
        return self.rng.choice(names[-12:])

    def operand(self, match: re.Match[str]) -> str:
        kind, rng = match[1], self.rng
        if kind == "c":
            return f"{rng.choice([rng.getrandbits(32), rng.getrandbits(16), rng.getrandbits(19)]):#x}u"
        if kind == "t":
            return str(rng.randint(1, 31))
        if kind == "g":
            return f"{rng.choice([0.5, 2.0, -1.0, 3.25, 0.1, -7.7, 1e-20, 1e15])!r}f"
        return self.variable(kind)

    def expression(self, kind: str) -> str:
        return re.sub(r"\{(\w)\}", self.operand, self.rng.choice(self.templates[kind]))

    def declare(self, kind: str, text: str | None = None) -> None:
        name = f"{kind}_{self.count}"
        self.count += 1
        self.emit(f"{C_TYPES[kind]} {name} = {text or self.expression(kind)};")
        self.scopes[-1].setdefault(kind, []).append(name)

    def assign(self) -> None:
        kind = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if self.rng.random() < 0.6:
            self.declare(kind)
        else:
            self.emit(f"{self.variable(kind, assignable=True)} = {self.expression(kind)};")

    def block(self, head: str, size: int, depth: int, tail: str = "}") -> None:
        self.emit(head)
        self.scopes.append({})
        for _ in range(size):
            self.statement(depth + 1)
        self.close()
        self.emit(tail)

    def statement(self, depth: int) -> None:
        choice, rng = self.rng.random(), self.rng
        if depth >= 3 or choice < 0.74:
            self.assign()
        elif choice < 0.80:
            self.emit(f"local[{self.variable('u')} & 15] = {self.expression('u')};")
        elif choice < 0.87:
            self.block(f"if ({self.expression('p')}) {{", rng.randint(1, 5), depth)
            if rng.random() < 0.5:
                self.block("else {", rng.randint(1, 4), depth)
        elif choice < 0.93:
            self.loop(depth)
        elif choice < 0.96:
            self.block(f"switch ({self.variable('u')} & 7) {{ default:", 0, depth, "")
            for label in range(rng.randint(3, 7)):
                self.block(f"case {label}: {{", rng.randint(1, 2), depth, "} break;")
            self.emit("}")
        elif choice < 0.98:
            kind = rng.randrange(4)  # one operation per element, so that their order does not matter
            place = f"&out[n + {4 * kind + rng.randrange(4)}]"
            self.emit(f"atomic{['Add', 'Xor', 'Max', 'Or'][kind]}({place}, {self.variable('u')});")
        elif depth == 0:
            self.exchange()
        else:
            self.assign()

    def loop(self, depth: int) -> None:
        trips = self.rng.choice(["3", "5", f"(int)({self.variable('u')} & 7)", f"(int)({self.variable('u')} & 3) + 1"])
        index = f"k{self.count}"
        self.count += 1
        unroll = self.rng.choice(["", "#pragma unroll 1", "#pragma unroll 2"])
        if unroll:
            self.lines.append(unroll)
        self.emit(f"for (int {index} = 0; {index} < {trips}; {index}++) {{")
        self.scopes.append({"u": [f"(u32){index}"]})
        for _ in range(self.rng.randint(2, 5)):
            self.assign()
            if self.rng.random() < 0.15:
                self.emit(f"if ({self.expression('p')}) {self.rng.choice(['break', 'continue'])};")
        self.close()
        self.emit("}")

    def close(self) -> None:
        """End a scope; what it computed last goes on in an outer variable, lest the compiler drop it."""
        scope = self.scopes.pop()
        for kind, names in scope.items():
            outer = self.variable(kind, assignable=True)
            last = names[-1]
            self.scopes.append({})
            self.emit(f"{outer} = " + {"u": f"{outer} + {last};", "l": f"{outer} ^ {last};", "p": f"{outer} != {last};",
                      "f": f"__fadd_rn({outer}, {last});", "d": f"__dadd_rn({outer}, {last});"}[kind])  # fmt: skip
            self.scopes.pop()

    def exchange(self) -> None:
        """Something the whole block does together; only where no thread has gone elsewhere."""
        x, y = self.variable("u"), self.variable("u")
        self.declare("u", self.rng.choice([
            f"__shfl_xor_sync(0xffffffffu, {x}, {self.rng.randint(1, 31)})", f"__shfl_sync(0xffffffffu, {x}, {y} & 31)",
            f"__shfl_up_sync(0xffffffffu, {x}, 3)", f"__ballot_sync(0xffffffffu, {x} & 1)",
            f"(u32)__any_sync(0xffffffffu, {x} < {y})", f"(u32)__syncthreads_count({x} & 2)",
        ]))  # fmt: skip
        if self.rng.random() < 0.4:
            self.emit(f"shared[threadIdx.x] = {x};")
            self.emit("__syncthreads();")
            self.declare("u", f"shared[(threadIdx.x + {y}) % blockDim.x]")
            self.emit("__syncthreads();")


def _helper(name: str, rng: random.Random, approximate: bool) -> str:
    """A small function that is called, not inlined: pure integer arithmetic."""
    writer = _Writer(rng, approximate)
    writer.scopes.append({"u": ["x", "y"]})
    writer.templates = {
        "u": [t for t in writer.templates["u"] if not re.search(r"\{[lfdp]\}|call|in\[|in\)|local|lane|clock", t)]
    }
    for _ in range(rng.randint(3, 8)):
        writer.declare("u")
    body = "\n".join(writer.lines)
    return (
        f"static __device__ __noinline__ u32 {name}(u32 x, u32 y) {{\n{body}\n    return {writer.variable('u')};\n}}\n"
    )


def program(seed: int, statements: int = 120, approximate: bool = True) -> str:
    """CUDA C text, the same for the same arguments; about 10 instructions per statement on sm_52."""
    rng = random.Random(f"maxdnn corpus {seed}")
    helpers = "".join(_helper(f"call{k}", rng, approximate) for k in range(2))
    writer = _Writer(rng, approximate)
    writer.scopes.append({})
    for text in ("in[i]", "in[n - 1 - i] * 2654435761u", "(u32)i", "in[i] >> 7 ^ in[(i + 1) % n] << 9"):
        writer.declare("u", text)
    for kind, text in (("l", "(u64)in[i] << 32 | in[(i + 3) % n]"), ("l", "in[i] * 77ull"), ("f", "(float)(int)in[i]"),
                       ("f", "0.37f * (float)(i & 255)"), ("d", "(double)in[i]"), ("d", "1.0 / (1 + (i & 63))"),
                       ("p", "(in[i] & 1) != 0"), ("p", "i > n / 2")):  # fmt: skip
        writer.declare(kind, text)
    for _ in range(statements):
        writer.statement(0)
    scope = writer.scopes[0]
    forms = {"u": "{0}", "l": "(u32)({0} ^ {0} >> 32)", "f": "bits({0})", "d": "wide_bits({0})", "p": "(u32){0}"}
    hashes = [f"    hash = hash * 31 + {form.format(name)};" for kind, form in forms.items() for name in scope[kind]]
    shared = "    __shared__ u32 shared[1024];\n    u32 local[16], hash = 0, lane;\n"
    setup = (
        "    int index = blockIdx.x * blockDim.x + threadIdx.x, i = min(index, n - 1);\n"
        '    asm("mov.u32 %0, %%laneid;" : "=r"(lane));\n'
        "    for (int k = 0; k < 16; k++) local[k] = in[i] * k;\n"
    )
    ends = ["    hash ^= local[hash & 15];", "    if (index < n) out[i] = hash;", "}", ""]
    head = 'extern "C" __global__ void random_kernel(const u32 *in, u32 *out, int n)\n{\n'
    return PROLOGUE + helpers + head + shared + setup + "\n".join([*writer.lines, *hashes, *ends])
