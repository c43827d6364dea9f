"""PTX of what CUDA C has no words for: products of tensor cores (wgmma), barriers in shared memory (mbarrier), bulk
copies, fences between proxies, registers given away. ptxas 12.9 makes code for sm_90a of it."""

import functools
import itertools

from tests import oracles

ARCH = "sm_90a"
_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_PARAMS = "(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)"
DEPTH = {"f16": 16, "bf16": 16, "tf32": 8}  # k of one product

# Bodies of small kernels. %rd1, %rd2: pointers; %r1, %r2: numbers; %r3: thread; %r9: shared memory; %r4: %r1 bytes on.
# Each leaves something in %r10 and %rd10, which are stored.
SMALL = {
    "arrive_tx": "mbarrier.arrive.expect_tx.shared.b64 %rd10, [%r4], %r2; mov.u32 %r10, %r2;",
    "expect_tx": "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r4], %r2;",
    "complete_tx": "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r4], %r2;",
    "arrive": "mbarrier.arrive.shared.b64 %rd10, [%r4];",
    "arrive_n": "mbarrier.arrive.shared.b64 %rd10, [%r4], %r2;",
    "arrive_drop": "mbarrier.arrive_drop.shared.b64 %rd10, [%r4];",
    "arrive_cluster": "mapa.shared::cluster.u32 %r5, %r4, %r2; "
                      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];",
    "test_parity": "mbarrier.test_wait.parity.shared.b64 %p1, [%r4], %r2; selp.u32 %r10, 1, 0, %p1;",
    "try_parity": "mbarrier.try_wait.parity.shared.b64 %p1, [%r4], %r2; selp.u32 %r10, 1, 0, %p1;",
    "inval": "mbarrier.inval.shared.b64 [%r4];",
    "init": "mbarrier.init.shared.b64 [%r4], %r2;",
    "copies_arrive": "cp.async.ca.shared.global [%r4], [%rd2], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%r9+64]; "
                     "cp.async.mbarrier.arrive.shared.b64 [%r9+64];",
    "copies_in": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd2], %r2, [%r9];",
    "copies_in_kept": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                      "[%r4], [%rd2], %r2, [%r9], %rd1;",
    "copies_in_many": "cvt.u16.u32 %h1, %r1; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                      ".multicast::cluster [%r4], [%rd2], %r2, [%r9], %h1;",
    "copies_across": "mapa.shared::cluster.u32 %r5, %r4, %r2; cp.async.bulk.shared::cluster.shared::cta"
                     ".mbarrier::complete_tx::bytes [%r5], [%r9], %r2, [%r5];",
    "copies_out": "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r4], %r2; cp.async.bulk.commit_group; "
                  "cp.async.bulk.wait_group 1; cp.async.bulk.wait_group.read 0;",
    "sums_out": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r4], %r2; "
                "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
    "prefetches": "cp.async.bulk.prefetch.L2.global [%rd2], %r2;",
    "fence": "fence.proxy.async;",
    "fence_global": "fence.proxy.async.global;",
    "fence_shared": "fence.proxy.async.shared::cta;",
    "elects": "elect.sync %r10|%p1, %r2; @!%p1 mov.u32 %r10, 7;",
    "cluster": "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r10, %cluster_ctarank;",
    "dependent": "griddepcontrol.wait; griddepcontrol.launch_dependents;",
    "matrices": "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r1, %r2, %r3, %r9}; "
                "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r4+512], {%r1, %r2}; "
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r4]; "
                "add.u32 %r10, %r10, %r11; add.u32 %r10, %r10, %r12; add.u32 %r10, %r10, %r13;",
    "conversions": "mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.f16x2.f32 %r11, %f1, %f2; "
                   "cvt.rn.bf16x2.f32 %r12, %f1, %f2; cvt.rn.tf32.f32 %r13, %f2; mov.b32 {%h1, %h2}, %r11; "
                   "cvt.f32.f16 %f3, %h1; cvt.f32.f16 %f4, %h2; sub.f32 %f2, %f2, %f3; sub.f32 %f1, %f1, %f4; "
                   "cvt.rn.f16x2.f32 %r14, %f1, %f2; add.u32 %r10, %r11, %r12; xor.b32 %r10, %r10, %r13; "
                   "add.u32 %r10, %r10, %r14;",
    "narrow": "cvt.u16.u32 %h1, %r1; cvt.rn.f16x2.e4m3x2 %r10, %h1; cvt.rn.satfinite.e4m3x2.f16x2 %h2, %r2; "
              "cvt.u32.u16 %r11, %h2; add.u32 %r10, %r10, %r11;",
}


def _kernel(body: str, registers: str = "", bounds: str = ".maxntid 256") -> str:
    return f"""{_HEAD}.extern .shared .align 1024 .b8 sm[];
.visible .entry k{_PARAMS} {bounds}
{{ .reg .b32 %r<64>; .reg .b64 %rd<64>; .reg .pred %p<16>; .reg .f32 %f<512>; .reg .b16 %h<16>; {registers}
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u32 %r1, [p2]; ld.param.u32 %r2, [p3];
  mov.u32 %r3, %tid.x; mov.u32 %r9, sm; add.u32 %r4, %r9, %r1; mov.u32 %r10, %r2; mov.u64 %rd10, %rd2;
{body}
  ret; }}
"""


@functools.cache
def small(name: str) -> bytes:
    """The cubin of one of SMALL."""
    return oracles.ptxas(_kernel(SMALL[name] + "\n  st.global.u32 [%rd1], %r10; st.global.u64 [%rd1+8], %rd10;"), ARCH)


def _product(n: int, kind: str, how: str, a: str, d: list[str], wide: bool) -> str:
    """One wgmma: `how` is what follows its operands."""
    return (f"  wgmma.mma_async.sync.aligned.m64n{n}k{DEPTH[kind]}.{'f32' if wide else 'f16'}.{kind}.{kind} "
            f"{{{', '.join(d)}}}, {a}, %rd2, {how};\n")


@functools.cache
def products(n: int, kind: str = "f16", registers: bool = False, wide: bool = True) -> bytes:
    """Kernel k: products of 64 x n of every sign and transposition that PTX has, the first in place of what was there,
    the last where a number is not 0. `registers`: A lies there; `wide`: sums are float32."""
    count = n // 2 if wide else n // 4
    d = [f"%{'f' if wide else 'd'}{i}" for i in range(count)]
    a = "{%r20, %r21, %r22, %r23}" if registers else "%rd1"
    turns = [()] if kind == "tf32" else list(itertools.product((0, 1), repeat=1 if registers else 2))
    body = "".join(f"  add.u32 %r{20 + i}, %r1, {i};\n" for i in range(4)) + "  setp.ne.u32 %p1, %r2, 0;\n"
    body += "".join(f"  mov.b32 {x}, 0;\n" for x in d) + "  wgmma.fence.sync.aligned;\n"
    scale = "0"
    for turn in turns:
        for signs in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
            body += _product(n, kind, ", ".join(map(str, (scale, *signs, *turn))), a, d, wide)
            scale = "1"
    body += _product(n, kind, ", ".join(map(str, ("%p1", 1, 1, *turns[0]))), a, d, wide)
    body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
    body += "".join(f"  st.global.b32 [%rd1+{4 * i}], {x};\n" for i, x in enumerate(d))
    return oracles.ptxas(_kernel(body, "" if wide else f".reg .b32 %d<{count}>;"), ARCH)


_STAGES = """  setp.ne.u32 %p1, %r3, 0;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [%r9], 1;
  mbarrier.init.shared.b64 [%r9+8], 1;
  mbarrier.init.shared.b64 [%r9+16], 2;
  mbarrier.init.shared.b64 [%r9+24], 2;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
READY:
  bar.sync 0;
  setp.gt.u32 %p2, %r3, 127;
  mov.u32 %r6, 0;
  @%p2 bra CONSUMER;
  setmaxnreg.dec.sync.aligned.u32 40;
  @%p1 bra END;
  mov.u32 %r5, 1;
FILL:
  and.b32 %r7, %r6, 1; shl.b32 %r8, %r7, 3; add.u32 %r8, %r8, %r9;
EMPTY:
  mbarrier.try_wait.parity.shared.b64 %p4, [%r8+16], %r5;
  @!%p4 bra EMPTY;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 24576;
  shl.b32 %r11, %r7, 15; add.u32 %r11, %r11, %r9; add.u32 %r11, %r11, 1024; add.u32 %r12, %r11, 8192;
  mul.wide.u32 %rd5, %r6, 16384; add.u64 %rd6, %rd1, %rd5; add.u64 %rd7, %rd2, %rd5;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd6], 8192, [%r8];
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%rd7], 16384, [%r8];
  xor.b32 %r5, %r5, %r7;
  add.u32 %r6, %r6, 1; setp.lt.u32 %p6, %r6, %r2;
  @%p6 bra FILL;
  bra END;
CONSUMER:
  setmaxnreg.inc.sync.aligned.u32 232;
  mov.u32 %r5, 0;
"""
_CONSUMER = """SUM:
  and.b32 %r7, %r6, 1; shl.b32 %r8, %r7, 3; add.u32 %r8, %r8, %r9;
FULL:
  mbarrier.try_wait.parity.shared.b64 %p4, [%r8], %r5;
  @!%p4 bra FULL;
  shl.b32 %r11, %r7, 15; add.u32 %r11, %r11, %r9; add.u32 %r11, %r11, 1024;
  shr.u32 %r11, %r11, 4; and.b32 %r11, %r11, 0x3fff;
  cvt.u64.u32 %rd8, %r11; or.b64 %rd8, %rd8, 0x4000004000010000; add.u64 %rd9, %rd8, 512;
  wgmma.fence.sync.aligned;
"""


@functools.cache
def pipeline() -> bytes:
    """Kernel k: one warpgroup copies stages, two multiply and add them up outside of the tensor cores."""
    d, sums = [f"%f{i}" for i in range(64)], [f"%f{i}" for i in range(64, 128)]
    body = _STAGES + "".join(f"  mov.f32 {x}, 0f00000000;\n" for x in sums) + _CONSUMER
    for step in range(4):
        body += f"  wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{', '.join(d)}}}, %rd8, %rd9, "
        body += f"{int(step > 0)}, 1, 1, 0, 0;\n  add.u64 %rd8, %rd8, 2; add.u64 %rd9, %rd9, 2;\n"
    body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
    body += """  and.b32 %r12, %r3, 127; setp.ne.u32 %p7, %r12, 0;
  @!%p7 mbarrier.arrive.shared.b64 _, [%r8+16];
"""
    body += "".join(f"  add.f32 {s}, {s}, {x};\n" for s, x in zip(sums, d, strict=True))
    body += """  xor.b32 %r5, %r5, %r7; add.u32 %r6, %r6, 1; setp.lt.u32 %p6, %r6, %r2;
  @%p6 bra SUM;
  mul.wide.u32 %rd10, %r3, 256; add.u64 %rd10, %rd10, %rd1;
"""
    body += "".join(f"  st.global.f32 [%rd10+{4 * i}], {s};\n" for i, s in enumerate(sums)) + "END:\n"
    return oracles.ptxas(_kernel(body, bounds=".maxntid 384\n.maxnreg 168"), ARCH)


@functools.cache
def every() -> dict[str, bytes]:
    """Name -> cubin of all of them: every n where the operands lie in shared memory, some n for the rest."""
    found = {name: small(name) for name in SMALL} | {"pipeline": pipeline()}
    found |= {f"n{n}": products(n) for n in range(8, 257, 8)}
    for kind in DEPTH:
        for n in (8, 96, 256):
            found |= {f"{kind}_{n}": products(n, kind), f"{kind}_{n}_registers": products(n, kind, True)}
    return found | {f"half_{n}": products(n, "f16", wide=False) for n in (8, 24, 256)}
