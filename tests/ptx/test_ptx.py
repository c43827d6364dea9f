"""Translation to PTX, judged by the vendor's assembler here and by running it where there is a GPU (tests/gpu)."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.algorithms.registry import kernels
from maxdnn.build.assemble import assemble
from maxdnn.build.cubins import cubin as built
from maxdnn.cli import main
from maxdnn.cubin import Relocation
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import CubinError, TranslationError
from maxdnn.ptx import translate as ptx
from maxdnn.ptx.targets import PTX_VERSIONS, for_capability
from maxdnn.ptx.translate import translate
from maxdnn.runtime.launch import ArgumentPacker
from maxdnn.selftest.items import SAME, Stand
from maxdnn.selftest.probes import questions
from tests import oracles
from tests.corpus import cases, compiler
from tests.emulator.test_undefined import HEADER
from tests.gpu import programs
from tests.gpu.test_translated import test_texels_of_few_channels_in_and_out_of_range as texels_out_of_range

TARGETS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
KERNELS = sorted({spec.source.removesuffix(".sass") for spec in kernels().values() if spec.arch is None})
SOURCES = sorted({case.source for case in cases.ALL})

EVERY_SPACE = r"""
__constant__ float table[16];
__device__ int counter = 7;
extern "C" __global__ void spaces(float *a, const float4 *b, int n, const short *h) {
    __shared__ float near[64];
    extern __shared__ float far[];
    float local[16];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    near[threadIdx.x] = b[i].x * table[n & 15] + b[i].w;
    far[threadIdx.x] = h[i];
    for (int j = 0; j < 16; ++j) local[j] = near[(j * n) & 63];
    __syncthreads();
    for (int j = 0; j < n; ++j)
        if (i < n + j) a[i] = near[63 - threadIdx.x] + local[j & 15] + far[j] + __shfl_sync(~0u, a[j], 3);
    atomicAdd(&counter, __popc(__ballot_sync(~0u, i < n)));
    if (__syncthreads_or(i == n)) atomicMax((unsigned *)a, 5u);
}
"""

RECURSIVE = r"""
__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recurse(int *a) { a[threadIdx.x] = ackermann(1, threadIdx.x); }
"""


def of_source(source, target="sm_90"):
    return translate(cubin.read(oracles.compile_cuda(source)), target)


def of_sass(tmp_path, body, bits=0, **changes):
    """The translation of an assembled kernel; `bits` of its second instruction are flipped, and fields replaced."""
    (tmp_path / "probe.sass").write_text(HEADER + body)
    assemble(tmp_path / "probe.sass", tmp_path / "probe.cubin")
    whole = cubin.read(tmp_path / "probe.cubin")
    code = bytearray(whole.kernel().code)
    code[16:24] = (int.from_bytes(code[16:24], "little") ^ bits).to_bytes(8, "little")
    kernel = dataclasses.replace(whole.kernel(), **{"code": bytes(code)} | changes)
    return translate(dataclasses.replace(whole, kernels={kernel.name: kernel}), "sm_90")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", [EVERY_SPACE, RECURSIVE], ids=["spaces", "recursion"])
def test_the_vendors_assembler_accepts_a_translation(source, target):
    assert oracles.ptxas(of_source(source, target), target)


@pytest.mark.sampled(2, 10)
@pytest.mark.parametrize(("program", "target"), [(program, target) for program in [*KERNELS, *SOURCES]
                                                 for target in TARGETS])
def test_the_vendors_assembler_accepts_kernels_and_corpus(program, target):
    data = compiler.compile_source(program) if program in SOURCES else built(program, "sm_52")
    text = translate(cubin.read(data), target)
    assert f".version {PTX_VERSIONS[target]}\n.target {target}\n" in text
    assert oracles.ptxas(text, target)


@pytest.mark.parametrize("name", programs.SOURCES)
def test_the_programs_for_the_tests_on_a_gpu_translate(name):
    text = translate(cubin.read(oracles.compile_cuda(programs.SOURCES[name])), "sm_90")
    assert oracles.ptxas(text, "sm_90")
    assert name != "in_step" or "bar.warp.sync" in text


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_texels_out_of_range_are_zeros_on_the_virtual_gpu(channels):
    """And in a translation: see tests/gpu, which runs this on both."""
    texels_out_of_range(VirtualGpu(), channels)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", PTX_VERSIONS)
def test_every_known_target_is_one_to_the_vendors_assembler(target):
    source = 'extern "C" __global__ void one(int *a) { a[threadIdx.x] = 1; }'
    assert oracles.ptxas(of_source(source, target), target)


def test_an_unknown_target_is_refused_before_any_work(capsys):
    assert main(["ptx", "no-such-file.cubin", "--target", "sm_999"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "'sm_999'" in line and all(target in line for target in PTX_VERSIONS)


@pytest.mark.parametrize(("capability", "target"), [((9, 0), "sm_90"), ((8, 8), "sm_87"), ((11, 0), "sm_103"),
                                                    ((12, 1), "sm_121"), ((13, 0), "sm_121")])
def test_a_gpu_gets_the_newest_target_it_runs(capability, target):
    assert for_capability(*capability) == target


def test_a_gpu_older_than_all_targets_is_refused():
    with pytest.raises(TranslationError, match=r"capability 3\.5"):
        for_capability(3, 5)


def test_a_static_stack_leaves_no_stack_behind():
    text = of_source(EVERY_SPACE)
    assert "brx" not in text
    assert text.count("bar.sync") >= 1


def test_symbols_keep_their_place_in_the_arrays():
    text = of_source(EVERY_SPACE)
    assert "maxdnn_bank3[64]" in text
    assert "maxdnn_global_init[4] = {7}" in text


# -- nothing is replaced in silence -------------------------------------------------------------------------------

END = "\n--:-:-:-:f      EXIT;\n"
CODE_WITHOUT_END = b"".join((word).to_bytes(8, "little") for word in (0x001f8000fc0007e0, *[0x50b0000000070f00] * 3))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", [
    ("S2R R0, SR_AFFINITY", "special register SR_AFFINITY"),
    ("S2R R0, SR_MACHINE_ID_0", "special register SR_MACHINE_ID_0"),
    ("MOV R0, c[0x0][0x140]", "no constant bank 5", 5 << 34),
    ("MOV R0, c[0x0][0x140]", "no constant bank 3", 3 << 34),
    ("LDC R0, c[0x3][R1]", "no constant bank 3"),
    ("LDC R0, c[0x0][R1]", "only parameters"),
    ("MOV R0, c[0x0][0x28]", "0x28 of constant bank 0"),
    ("MOV R0, c[0x0][0x140]", "0x148 of constant bank 0", (0x148 ^ 0x140) // 4 << 20),
    ("CSETP.CSM_TA.AND P0, PT, CC, PT", "condition test CSM_TA"),
    ("BRA CC.FCSM_TR, 0x8", "condition test FCSM_TR"),
    ("LDL R0, [R1]", "no local memory"),
    ("LDG.128 R248, [R0]", None),
    ("LDG.128 R248, [R0]", "beyond R254", 248 ^ 252),
    ("MEMBAR.VC", "level VC"),
    ("BAR.SYNC 0x0, 0x21", "multiple of 32"),
    ("BPT.PAUSE", "breakpoint"),
    ("BPT.TRAP", None),
    ("RAM", "no meaning"),
    ("BRX R0 -0x10", "does not say where"),
    ("LDC.IL R0, c[0x3][R1]", "LDC.IL"),
    ("TLD.LZ.T R0, R1, RZ, 0x10, 2D, 0xf", "one-dimensional"),
    ("TLD.LZ.T R0, R1, RZ, 0x10, 1D, 0xf", "0x40 of constant bank 0"),
])
def test_what_cannot_be_translated_is_refused_with_its_place(tmp_path, case):
    """The third number of a case changes bits of the word, where the assembler refuses it too."""
    line, why, bits = (*case, 0)[:3]
    body = f"--:-:-:-:1      NOP;\n--:-:-:-:d      {line};{END}"
    if why is None:
        assert oracles.ptxas(of_sass(tmp_path, body), "sm_90")
        return
    with pytest.raises(TranslationError, match=f"probe: cannot translate 0x0010: {line.split()[0].split('.')[0]}") as e:
        of_sass(tmp_path, body, bits)
    assert why in str(e.value)


def test_code_that_runs_on_behind_its_end_is_refused(tmp_path):
    with pytest.raises(TranslationError, match="0x0018: NOP: the code ends behind it"):
        of_sass(tmp_path, f"--:-:-:-:1      NOP;\n--:-:-:-:d      NOP;{END}", code=CODE_WITHOUT_END)


def test_a_jump_outside_the_kernel_is_refused(tmp_path):
    with pytest.raises(TranslationError, match="0x0010: BRA 0x48: there is no code at 0x48"):
        of_sass(tmp_path, f"--:-:-:-:1      NOP;\n--:-:-:-:d      BRA 0x48;{END}")


def test_a_call_out_of_the_cubin_names_the_function():
    for call, name in (('printf("%d", a[0])', "vprintf"), ("a[0] = *(int *)malloc(4)", "malloc")):
        source = f'extern "C" __global__ void caller(int *a) {{ {call}; }}'
        with pytest.raises(CubinError, match=f"calls {name}, which is not in it: a translation cannot"):
            of_source(source)


@pytest.mark.parametrize("section", [".text.probe", ".nv.constant3", ".nv.global.init", ".nv.constant4"])
def test_an_address_that_nothing_fills_in_is_refused(tmp_path, section):
    (tmp_path / "probe.sass").write_text(f"{HEADER}--:-:-:-:1      NOP;\n--:-:-:-:6      MOV32I R0, 0x0;{END}")
    assemble(tmp_path / "probe.sass", tmp_path / "probe.cubin")
    whole = dataclasses.replace(cubin.read(tmp_path / "probe.cubin"),
                                relocations=(Relocation(section, 0x10, 2, "elsewhere"),))
    with pytest.raises(CubinError, match=f"against elsewhere at {section} . 0x10 is not resolved"):
        translate(whole)


@pytest.mark.parametrize("changes", [{"shared_bytes": 50000}, {"local_bytes": -8}, {"local_bytes": 1 << 20},
                                     {"name": "a b"}, {"name": "maxdnn_shared"}, {"constants": {1: bytes(1 << 17)}}])
def test_what_ptx_has_no_room_or_name_for_is_refused(tmp_path, changes):
    with pytest.raises(TranslationError, match="cannot translate: "):
        of_sass(tmp_path, f"--:-:-:-:1      NOP;{END}", **changes)


def test_a_barrier_under_a_guard_is_reached_by_all_lanes_that_run_together(tmp_path):
    """A warp arrives as soon as one of its lanes does: the lanes vote, then all of them go or none."""
    text = of_sass(tmp_path, f"--:-:-:-:1      S2R R0, SR_TID.X;\n--:-:-:-:d      ISETP.EQ.AND P0, PT, R0, RZ, PT;\n"
                             f"--:-:-:-:d @P0  BAR.SYNC 0x0;{END}")
    assert oracles.ptxas(text, "sm_90")
    assert text.index("vote.sync.ballot") < text.index("bar.sync")


def waits(text):
    """The masks that lanes wait for, once for each place, but those taken at that place."""
    at_once = re.findall(r"activemask\.b32 (%r\d+);\s+// end inline asm\s+// begin inline asm\s+"
                         r"bar\.warp\.sync \1;", text)
    return [mask for mask in re.findall(r"bar\.warp\.sync (%r\d+);", text) if mask not in at_once]


# Lanes leave a loop at different times, by its end, a break out of an inner entry or an exit, then exchange values.
LEFT_LOOP = r"""
extern "C" __global__ void left_loop(int *out, const int *in, int n) {
    int t = threadIdx.x, v = in[t], sum = 0;
    #pragma unroll 1
    for (int i = 0; i < n; i++) {
        v = v * 5 + 1;
        if (v & 64) continue;
        sum += __ballot(1) & 0xffff;
        if (i && (v & 0x300) == 0x100) break;
        if (i > 2 && (v & 0x7000) == 0x1000) { out[t] = sum; return; }
        sum ^= v;
    }
    out[t] = sum + __shfl_xor(v, 7) + __popc(__ballot(1)) * 1000000;
}
"""


def test_lanes_that_leave_a_loop_wait_for_each_other_before_they_exchange():
    """SSY in each turn, left by SYNC and dropped by BRK, which wait at one place, and PBK around the loop, left before
    VOTE and SHFL. An exit has none of them, and does not run on to the end of the others."""
    text = of_source(LEFT_LOOP)
    inner, outer = sorted(waits(text), key=lambda mask: text.index(f"bar.warp.sync {mask};"))
    behind = text.index(f"bar.warp.sync {outer};")
    assert text.index(f"activemask.b32 {outer};") < text.index(f"activemask.b32 {inner};") < behind
    assert behind < text.index("shfl.sync")
    assert "exit;" in text
    assert oracles.ptxas(text, "sm_90")


def test_calls_that_call_themselves_keep_the_lanes_of_each_entry_in_memory():
    text = of_source(RECURSIVE.replace("return n + 1", "return n + __popc(__ballot(1))"))
    assert "activemask" not in of_source(RECURSIVE)
    assert 1 <= len(waits(text)) <= 2  # for SYNC and for RET
    assert oracles.ptxas(text, "sm_90")


def test_lanes_wait_for_each_other_only_where_something_is_exchanged_behind():
    loop = "for (int i = 0; i < m; i++) if ((t * i & 63) == 5) break; else n += i ^ t;"
    body = {"alone": f"{loop} a[t] = n;", "before": f"n = __shfl_xor(t, 1); {loop} a[t] = n;",
            "behind": f"{loop} a[t] = __shfl_xor(n, 1);"}
    head = 'extern "C" __global__ void f(int *a, int m) { int t = threadIdx.x, n = 0;'
    found = {name: bool(waits(of_source(f"{head} {code} }}"))) for name, code in body.items()}
    assert found == {"alone": False, "before": False, "behind": True}


def test_a_texel_of_few_channels_out_of_range_has_no_alpha():
    """1.0 only inside: the 1.0 that a missing channel reads is chosen by the same test as the texel's address."""
    text = translate(cubin.read(oracles.compile_cuda(programs.SOURCES["texels"])), "sm_90")
    assert re.search(r"selp\.b32\s+%r\d+, 1065353216, 0, %p\d+", text)


def test_a_volatile_load_is_one():
    """A loop that waits for another block must not read once."""
    for kind, load in (("int", "u32"), ("double", "v2.u32"), ("unsigned char", "u8")):
        text = of_source(f'extern "C" __global__ void wait(volatile {kind} *a) {{ while (a[1] == 0); a[0] = 1; }}')
        assert f"ld.volatile.global.{load}" in text
        assert oracles.ptxas(text, "sm_90")


def test_signs_of_sixteen_bits_wrap():
    """neg.s16 and abs.s16 of -32768, which ptxas for sm_90 leaves at 32768 before a conversion, are written in 32 bits
    and cut. LLVM makes them where it likes (random C program 409), so the text is judged."""
    lines = "\tabs.s16 \t%rs2, %rs1;\n\tneg.s16 \t%rs1, %rs2;\n\tabs.s32 \t%r2, %r1;\n"
    text = f""".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{
\t.reg .b16 \t%rs<3>;\n\t.reg .b32 \t%r<3>;\n\tmov.b16 \t%rs1, -32768;\n\tmov.b32 \t%r1, 5;\n{lines}\tret;\n}}\n"""
    wrapping = ptx.wrapping(text)
    assert not re.search(r"(neg|abs)\.s16", wrapping)
    for sign, to, of in (("abs", 2, 1), ("neg", 1, 2)):
        assert (f"{{ .reg .b32 %wide; cvt.s32.s16 %wide, %rs{of}; {sign}.s32 %wide, %wide; "
                f"cvt.u16.u32 %rs{to}, %wide; }}") in wrapping
    assert "abs.s32 \t%r2, %r1;" in wrapping
    oracles.ptxas(wrapping, "sm_90")


class Translating(VirtualGpu):
    """Runs the vendor's code of translations, which take all arguments as one block. Without textures."""

    def load(self, data):
        given, module = cubin.read(data), super().load(oracles.ptxas(translate(cubin.read(data), "sm_52"), "sm_52"))

        def function(name):
            pack, launch = ArgumentPacker(given.kernel(name)), module.function(name).launch
            return SimpleNamespace(name=name, launch=lambda grid, block, args, textures: launch(
                grid, block, [np.frombuffer(pack(args), np.uint8)]))
        return SimpleNamespace(function=function)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", ["flags", "floats", "integers"])
def test_translations_answer_the_questions_of_the_self_test_as_the_virtual_gpu_does(source):
    """NaN payloads, denormals, corners of integers: instruction by instruction."""
    question = next(q for q in questions() if q.source == source)
    stand = Stand(Translating())
    stand.card = True  # it is the one that is asked
    found = question.run(stand)
    assert found.state == SAME, found.text


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machine_code_of_another_instruction_set_is_refused_in_words(arch):
    """It used to end in a KeyError."""
    with pytest.raises(TranslationError, match=f"machine code of {arch}; translations are made of code for sm_50 to"):
        translate(cubin.read(compiler.compile_source("int_arith.cu", arch)), "sm_90")
