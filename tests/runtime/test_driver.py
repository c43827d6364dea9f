"""The calls of libcuda, on a library of our own in its place."""

import ctypes
import subprocess
from types import SimpleNamespace

import pytest

from maxdnn.runtime.devices import driver
from maxdnn.runtime.devices.driver import Driver, DriverError, Launch

SOURCE = """
#include <string.h>
extern "C" {
struct Seen { void *function, *stream; unsigned numbers[7]; char bytes[64]; size_t size; } seen[16];
int count, fails_at = -1, capturing, asked_of_the_default;
void *current;
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int started;
int cuInit(unsigned flags) { return started = flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return ordinal < 2 ? 0 : 101; }
int cuDeviceGetName(char *name, int size, int device) {
    strncpy(name, device == 41 ? "the second" : "?", size);
    return 0;
}
int cuDeviceGetAttribute(int *found, int which, int device) { *found = 1000 * device + which; return 0; }
int cuDeviceTotalMem_v2(size_t *size, int device) { *size = ((size_t)device << 32) + 5; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(device + (1ull << 40)); return 0; }
void *under;
int cuCtxPushCurrent_v2(void *context) { under = current; current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = under; return 0; }
int cuCtxSynchronize() { return current ? 0 : 201; }
unsigned long long freed;
int cuMemAlloc_v2(unsigned long long *at, size_t size) {
    *at = (7ull << 40) + size;
    return size > (1ull << 40) ? 2 : 0;
}
int cuMemFree_v2(unsigned long long at) { freed = at; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 3ull << 33; *total = 1ull << 40; return 0; }
int cuEventCreate(void **event, unsigned flags) { *event = (void *)(90ull + flags); return 0; }
int cuEventElapsedTime(float *ms, void *first, void *then) { *ms = (char *)then - (char *)first; return 0; }
int cuStreamIsCapturing(void *stream, int *state) {
    if (!stream) { asked_of_the_default = 1; return 906; }
    *state = capturing;
    return 0;
}
void *recorded, *recorded_on;
int cuEventRecord(void *event, void *stream) {
    recorded = event; recorded_on = stream;
    return event == (void *)13 ? 700 : 0;
}
int mode;
int cuThreadExchangeStreamCaptureMode(int *wanted) { int was = mode; mode = *wanted; *wanted = was; return 0; }
unsigned long long capture;
int cuStreamGetCaptureInfo_v2(void *stream, int *state, unsigned long long *id, void **graph, void *, void *, void *) {
    *state = capturing; *id = capture;
    if (graph) *graph = (void *)(capture + 1000);
    return 0;
}
int retained;
struct Held { void *what; void (*gone)(void *); void *graph; } held[16];
int cuUserObjectCreate(void **made, void *what, void (*gone)(void *), unsigned count, unsigned flags) {
    held[retained] = {what, gone, 0};
    *made = &held[retained++];
    return count == 1 && flags == 1 ? 0 : 1;
}
int cuGraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags) {
    ((Held *)object)->graph = graph;
    return count == 1 && flags == 1 ? 0 : 1;
}
void destroy(void *graph) { for (int n = 0; n < retained; n++) if (held[n].graph == graph) held[n].gone(held[n].what); }
int queried;
int cuEventQuery(void *event) { return queried; }
int cuPointerGetAttribute() { return 1; }
int cuGetErrorString(int code, const char **text) { *text = code == 700 ? "an illegal address" : "?"; return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z, unsigned shared,
                   void *stream, void **params, void **extra) {
    if (count == fails_at) return 700;
    Seen &s = seen[count++];
    s.function = f; s.stream = stream;
    unsigned numbers[] = {gx, gy, gz, x, y, z, shared};
    memcpy(s.numbers, numbers, sizeof numbers);
    if (params || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return 1;
    s.size = *(size_t *)extra[3];
    memcpy(s.bytes, extra[1], s.size);
    return 0;
}
}
"""


class Seen(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("numbers", ctypes.c_uint32 * 7),
                ("bytes", ctypes.c_char * 64), ("size", ctypes.c_size_t)]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libcuda")
    (folder / "cuda.cpp").write_text(SOURCE)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", folder / "libcuda.so", folder / "cuda.cpp"], check=True)
    return folder / "libcuda.so"


@pytest.fixture
def library(built, monkeypatch):
    found = ctypes.CDLL(str(built))
    monkeypatch.setattr(driver, "ctypes", SimpleNamespace(**vars(ctypes) | {"CDLL": lambda name: found}))
    ctypes.c_int.in_dll(found, "count").value, ctypes.c_int.in_dll(found, "fails_at").value = 0, -1
    ctypes.c_void_p.in_dll(found, "recorded").value = None
    ctypes.c_int.in_dll(found, "retained").value = ctypes.c_int.in_dll(found, "queried").value = 0
    ctypes.c_void_p.in_dll(found, "current").value, ctypes.c_int.in_dll(found, "capturing").value = None, 0
    return found


def launches(count):
    rooms = [(ctypes.c_char * (8 * n + 8))(*bytes(range(n, 9 * n + 8))) for n in range(count)]
    return [Launch(100 + n, (2**31 - 1, n, 3), (4, 5, 6), 7 * n, room, f"launching k{n}")
            for n, room in enumerate(rooms)]


def seen(library):
    return list((Seen * 16).in_dll(library, "seen"))[:ctypes.c_int.in_dll(library, "count").value]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_launches_are_put_on_the_stream_in_their_order_with_what_their_arguments_hold_then(count, library):
    made = launches(count)
    go = Driver().launcher(made)
    for launch in made:
        launch.arguments[0] = b"!"
    assert go(2**47 + 5) is False
    found = seen(library)
    assert [s.function for s in found] == [100 + n for n in range(count)]
    for n, s in enumerate(found):
        assert s.stream == 2**47 + 5 and list(s.numbers) == [2**31 - 1, n, 3, 4, 5, 6, 7 * n]
        assert s.size == 8 * n + 8 and ctypes.string_at(ctypes.addressof(s) + Seen.bytes.offset, s.size) == bytes(
            made[n].arguments)
    assert go(0) is False and len(seen(library)) == 2 * count


def test_a_recorded_stream_is_told(library):
    go = Driver().launcher(launches(2))
    for state in (1, 0, 2, 1):  # CU_STREAM_CAPTURE_STATUS_*: 2 is a capture that has gone wrong
        ctypes.c_int.in_dll(library, "capturing").value = state
        assert go(5) is (state == 1)
    assert go(0) is False and not ctypes.c_int.in_dll(library, "asked_of_the_default").value


def test_nothing_is_launched_in_another_context(library):
    go = Driver().launcher(launches(2), context=77)
    for current in (None, 78):
        ctypes.c_void_p.in_dll(library, "current").value = current
        assert go(1) is None and not seen(library)
    ctypes.c_void_p.in_dll(library, "current").value = 77
    assert go(1) is False and len(seen(library)) == 2


def test_the_launch_that_fails_is_named_and_none_comes_after_it(library):
    go = Driver().launcher(launches(3))
    ctypes.c_int.in_dll(library, "fails_at").value = 1
    with pytest.raises(DriverError, match=r"launching k1: cuLaunchKernel failed: an illegal address \(700\)"):
        go(1)
    assert len(seen(library)) == 1


def test_an_event_is_recorded_behind_launches_that_run_and_not_into_a_graph(library):
    go = Driver().launcher(launches(2))
    recorded = ctypes.c_void_p.in_dll(library, "recorded")
    ctypes.c_int.in_dll(library, "capturing").value = 1
    assert go(5, 77) is True and recorded.value is None
    ctypes.c_int.in_dll(library, "capturing").value = 0
    assert go(5) is False and recorded.value is None
    for stream in (5, 0):
        assert go(stream, 77 + stream) is False and recorded.value == 77 + stream
        assert (ctypes.c_void_p.in_dll(library, "recorded_on").value or 0) == stream
    with pytest.raises(DriverError, match=r"cuEventRecord failed: an illegal address \(700\)"):
        go(5, 13)


def test_a_graph_says_when_it_is_gone(library):
    made = Driver()
    capturing, capture = ctypes.c_int.in_dll(library, "capturing"), ctypes.c_uint64.in_dll(library, "capture")
    assert made.graph_of(5) is None
    capturing.value, found = 1, []
    assert made.graph_of(0) is None, "the default stream cannot be captured"
    for capture.value in (7, 7, 8):
        found.append(made.graph_of(5))
    assert found[0] is found[1] is not found[2] and ctypes.c_int.in_dll(library, "retained").value == 2
    library.destroy(ctypes.c_void_p(1007))
    assert [graph.alive for graph in found] == [False, False, True]
    library.destroy(ctypes.c_void_p(1008))
    assert not found[2].alive
    capture.value = 9
    made.graph_of(5)
    assert len(made._graphs) == 1, "of those that are gone nothing is kept"


def test_a_driver_that_cannot_tell_of_graphs_lets_them_live(library, monkeypatch):
    made = Driver()
    ctypes.c_int.in_dll(library, "capturing").value = 1
    real = made._call

    def call(name, *given):
        if name == "cuUserObjectCreate":
            raise AttributeError(name)
        real(name, *given)
    monkeypatch.setattr(made, "_call", call)
    assert made.graph_of(5).alive


def test_gpus_are_asked_by_their_number_and_contexts_and_memory_by_what_the_driver_gave(library):
    made = Driver()
    assert (made.version(), made.count(), made.name(1)) == (13000, 2, "the second")
    assert {which: made.fact(1, which) for which in driver.FACTS} == {
        which: 41_000 + number for which, number in driver.FACTS.items()}
    assert made.total_memory(1) == (41 << 32) + 5, "more than 4 GiB"
    with pytest.raises(DriverError, match="cuDeviceGet failed"):
        made.name(2)
    context = made.primary_context(1)
    with pytest.raises(DriverError, match="cuCtxSynchronize failed"):
        made.synchronize()
    made.push(context)
    assert made.current_context() == context == 41 + (1 << 40)
    made.synchronize()
    made.pop()
    assert made.current_context() == 0
    address = made.alloc(1 << 34)
    assert address == (7 << 40) + (1 << 34) and made.free_bytes() == 3 << 33
    made.free(address)
    assert ctypes.c_uint64.in_dll(library, "freed").value == address
    with pytest.raises(DriverError) as refused:
        made.alloc(1 << 41)
    assert refused.value.code == driver.OUT_OF_MEMORY
    assert (made.event(), made.event(timed=True)) == (92, 90) and made.seconds(90, 92) == pytest.approx(2e-3)


def test_a_thread_is_relaxed_for_a_while_only(library):
    made, mode = Driver(), ctypes.c_int.in_dll(library, "mode")
    with made.relaxed():
        assert mode.value == 2
        with made.relaxed():
            pass
        assert mode.value == 2
    assert mode.value == 0


def test_an_event_has_passed_or_not_or_tells_of_an_error(library):
    made, code = Driver(), ctypes.c_int.in_dll(library, "queried")
    for code.value, right in ((0, True), (600, False)):
        assert made.passed(77) is right
    code.value = 700
    with pytest.raises(DriverError, match="an illegal address"):
        made.passed(77)
