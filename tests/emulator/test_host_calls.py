"""Device code that calls the host: printf, malloc, free, failed assertions; and calls that lead nowhere."""

import ctypes
import random
import struct

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.emulator.printf import Arguments, formatted
from maxdnn.errors import EmulationFault
from tests import oracles
from tests.emulator.test_gpu import fetch, on_device

SOURCE = r"""
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
extern "C" __global__ void hello(int n, double d) {
    if (threadIdx.x % 2) printf("block %d thread %d: %.3f %s|%5d|%-5llx|%c%%\n", blockIdx.x, threadIdx.x, d*threadIdx.x,
                                n ? "yes" : "no", n, 0x123456789abULL, 'x');
    else if (threadIdx.x == 0) printf("first\n");
}
extern "C" __global__ void counts(int* out) {
    out[0] = printf("%d %f %s\n", 1, 2.0, "three");
    out[1] = printf("none\n"); }
extern "C" __global__ void chain(int n, int* out) {
    struct Node { Node* next; int value; } *head = nullptr;
    for (int i = 0; i < n; i++) { Node* one = new Node; one->next = head; one->value = i * threadIdx.x; head = one; }
    int sum = 0;
    while (head) { Node* next = head->next; sum += head->value; delete head; head = next; }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void grab(size_t n, unsigned long long* out) {
    out[threadIdx.x] = (unsigned long long)malloc(n); }
extern "C" __global__ void poke(int at) {
    char* p = (char*)malloc(64); if (at < 0) { free(p); at = 0; } p[at] = 1; }
extern "C" __global__ void twice(char* p) { char* q = (char*)malloc(8); if (p) q = p; free(q); free(q); }
extern "C" __global__ void check(int n) {
    if (threadIdx.x + n == 40) __assertfail("x != 40", "file.cu", 17, "check", 1); }
extern "C" __global__ void badly(const char* format) { printf(format, 1); }
"""
NOWHERE = r"""
__device__ __noinline__ int f(int a) { return a * 3 + 1; }
__device__ __noinline__ int g(int a) { return a ^ 5; }
typedef int (*F)(int);
__device__ F table[3] = {f, g, nullptr};
extern "C" __global__ void call(int* p, int n) { p[0] = table[n](7); }
"""


@pytest.fixture(scope="module")
def cubin():
    return oracles.compile_cuda(SOURCE)


def test_printf_prints_in_the_order_of_blocks_and_lanes(cubin):
    found = []
    gpu = VirtualGpu(output=found.append, workers=4)
    gpu.load(cubin).function("hello").launch((3, 1, 1), (40, 1, 1), [3, np.float64(0.25)])
    want = []
    for block in range(3):
        for warp in (range(32), range(32, 40)):
            odd = [f"block {block} thread {t}: {t / 4:.3f} yes|    3|123456789ab|x%\n" for t in warp if t % 2]
            want.append(set(odd) | ({"first\n"} if 0 in warp else set()))
    parts = iter(found)
    for part in want:
        lines = [next(parts) for _ in part]
        assert set(lines) == part
        assert [line for line in lines if line != "first\n"] == sorted(
            part - {"first\n"}, key=lambda line: int(line.split()[3].rstrip(":")))
    again = []
    gpu.host.output = again.append
    gpu.load(cubin).function("hello").launch((3, 1, 1), (40, 1, 1), [3, np.float64(0.25)])
    assert again == found


def test_printf_goes_to_standard_output_and_gives_the_number_of_arguments(cubin, capsys):
    gpu = VirtualGpu()
    (out,) = on_device(gpu, np.zeros(2, np.int32))
    gpu.load(cubin).function("counts").launch((1, 1, 1), (1, 1, 1), [out])
    assert capsys.readouterr().out == "1 2.000000 three\nnone\n"
    assert fetch(gpu, out, np.zeros(2, np.int32)).tolist() == [3, 0]


def test_new_and_delete_build_and_take_down_a_list(cubin):
    gpu = VirtualGpu(undefined=True)
    (out,) = on_device(gpu, np.zeros(40, np.int32))
    gpu.load(cubin).function("chain").launch((1, 1, 1), (40, 1, 1), [5, out])
    assert fetch(gpu, out, np.zeros(40, np.int32)).tolist() == [10 * t for t in range(40)]
    assert gpu.host.heap.used == 0


def test_the_heap_ends_and_is_aligned(cubin):
    gpu = VirtualGpu(heap_bytes=1000)
    (out,) = on_device(gpu, np.zeros(4, np.uint64))
    gpu.load(cubin).function("grab").launch((1, 1, 1), (4, 1, 1), [np.uint64(300), out])
    got = fetch(gpu, out, np.zeros(4, np.uint64))
    assert got[3] == 0 and len(set(got[:3].tolist())) == 3 and (got % 16 == 0).all() and (got[:3] > 0).all()


def fault(cubin, name, args, threads=1):
    with pytest.raises(EmulationFault) as found:
        VirtualGpu().load(cubin).function(name).launch((1, 1, 1), (threads, 1, 1), args)
    return str(found.value)


def test_misuse_of_the_heap_is_found(cubin):
    VirtualGpu().load(cubin).function("poke").launch((1, 1, 1), (33, 1, 1), [63])
    assert "0 bytes past the end of the allocation of 64 bytes" in fault(cubin, "poke", [64])
    assert "inside a freed allocation of 64 bytes" in fault(cubin, "poke", [-1])
    assert "twice: block (0, 0, 0), warp 0, lane 0: free of 0x" in fault(cubin, "twice", [np.uint64(0)])
    assert "free of 0x1234, which malloc did not give" in fault(cubin, "twice", [np.uint64(0x1234)])


def test_a_failed_assertion_says_where(cubin):
    VirtualGpu().load(cubin).function("check").launch((1, 1, 1), (64, 1, 1), [100])
    assert fault(cubin, "check", [3], 64) == (
        "check: block (0, 0, 0), warp 1, lane 5: assertion failed: file.cu:17: check: x != 40")


def test_a_format_that_is_nowhere_is_a_fault(cubin):
    assert "vprintf reads 1 bytes out of bounds at 0x5" in fault(cubin, "badly", [np.uint64(5)])


def test_a_call_through_a_null_pointer_does_not_restart_the_kernel():
    cubin = oracles.compile_cuda(NOWHERE)
    gpu = VirtualGpu(instruction_budget=10000)
    (out,) = on_device(gpu, np.zeros(1, np.int32))
    function = gpu.load(cubin).function("call")
    for n, want in enumerate((22, 2)):
        function.launch((1, 1, 1), (1, 1, 1), [out, n])
        assert fetch(gpu, out, np.zeros(1, np.int32)) == [want]
    with pytest.raises(EmulationFault, match=r"jump to an address outside the kernel at 0x.*BRX"):
        function.launch((1, 1, 1), (1, 1, 1), [out, 2])


def test_formats_are_those_of_the_c_library():
    library, rng = ctypes.CDLL(None), random.Random(4)
    for _ in range(3000):
        kind = rng.choice("diuoxXcseEfFgGaA")
        flags = "" if kind in "cs" else "".join(rng.sample("-+ #0", rng.randrange(4)))
        width, precision = rng.choice(["", "", "5", "12", "*"]), rng.choice(["", "", ".0", ".3", ".", ".10", ".*"])
        precision = "" if kind == "c" else precision
        size = rng.choice(["", "l", "ll", "h", "hh"]) if kind in "diuoxX" else ""
        raw, args = bytearray(), []

        def put(form, value, kept, raw=raw, args=args):
            raw += bytes(-len(raw) % struct.calcsize(form)) + struct.pack("<" + form, value)
            args.append(kept)
        for place in (width, precision):
            if "*" in place:  # with the flag 0 the library pads a negative width with zeros; C says blanks
                number = rng.randrange(0 if "0" in flags else -15, 15)
                put("i", number, ctypes.c_int(number))
        if kind in "diuoxX":
            wide = size in ("l", "ll")
            value = rng.choice([0, 1, -1, -100, rng.getrandbits(63 if wide else 31)])
            put("q" if wide else "i", value, (ctypes.c_longlong if wide else ctypes.c_int)(value))
        elif kind == "c":
            put("i", 65, ctypes.c_int(65))
        elif kind == "s":
            put("Q", 77, ctypes.c_char_p(b"strings"))
        else:
            value = rng.choice([0.0, -0.0, 1.5, float("inf"), 5e-324, rng.gauss(0, 1) * 10.0**rng.randrange(-30, 30)])
            put("d", value, ctypes.c_double(value))
        text = f"[%{flags}{width}{precision}{size}{kind}]"
        want = ctypes.create_string_buffer(500)
        library.snprintf(want, 500, text.encode(), *args)
        got = formatted(text, Arguments(lambda at, n, raw=raw: bytes(raw[at:at + n])), lambda _: "strings")
        assert got == want.value.decode(), (text, args)
