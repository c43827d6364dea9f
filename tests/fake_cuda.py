"""A stand-in for libcuda, and for pycuda beside it, where there is no GPU: memory is host memory, loading and launching
are recorded. It shows what the loader asks of a driver, never what a kernel computes. Like CUDA it refuses what a
capture forbids, and counts that as a capture lost (`Driver.lost`)."""

import contextlib
import itertools
import sys
import threading
import types

import numpy as np

from maxdnn.runtime.devices.driver import DriverError


class Error(Exception):
    pass


class Driver:
    """The recorded driver. `log` holds what was asked of it in order, as tuples that begin with a verb."""

    def __init__(self, capability=(9, 0), count=2):
        self.capability, self.count = capability, count
        self.log = []
        self.stack = []
        self.failing = None  # text of the error that loading a module raises
        self.memory = 1 << 30
        self.capturing = {}  # stream -> number of its capture, 0 for none
        self.lost = []  # what was asked for while that is forbidden
        self.launches = 0  # so far
        self.completed = None  # how many of them are over; None for all
        self.room = None  # bytes that can still be allocated; None for any number
        self.thread = threading.local()
        self.ended = False  # whether pycuda has given back its contexts

    def unsafe(self, what):
        """What CUDA forbids while a stream is captured, but to a thread that has asked to be let."""
        if any(self.capturing.values()) and not getattr(self.thread, "relaxed", 0):
            self.forbidden(what)

    def forbidden(self, what):
        self.lost.append(what)
        raise DriverError(f"{what}: operation not permitted when stream is capturing")

    def over(self, launch):
        return self.completed is None or launch <= self.completed

    def module(self):
        """A module to put in sys.modules as pycuda.driver."""
        driver = self
        fake = types.ModuleType("pycuda.driver")
        fake.Error = Error
        fake.init = lambda: None

        class Context:
            def __init__(self, handle):
                self.handle = handle

            def push(self):
                if driver.ended:
                    raise Error("invalid device context")
                driver.stack.append(self.handle)
                driver.log.append(("pycuda", self.handle))

            @staticmethod
            def pop():
                driver.stack.pop()

        class Device:
            def __init__(self, ordinal):
                self.ordinal = ordinal

            def retain_primary_context(self):
                return Context(1000 + self.ordinal)

        fake.Context, fake.Device = Context, Device
        return fake


class Graph:
    """`alive`: for tests to change."""

    alive = True


class LibCuda:
    """In place of maxdnn.runtime.devices.driver.Driver. `owners`: pointer -> (context handle, ordinal);
    `graphs`: by the number of the capture."""

    def __init__(self, driver):
        self.driver, self.owners, self.graphs = driver, {}, {}
        self.images, self.symbols, self.functions, self.names, self.modules = {}, {}, {}, {}, 0
        self.last_use, self.events, self.numbers = {}, {}, itertools.count(1)

        self.memory = {}

    def version(self):
        return 12040

    def count(self):
        return self.driver.count

    def name(self, ordinal):
        return "fake GPU"

    def fact(self, ordinal, which):
        major, minor = self.driver.capability
        return {"sms": 16, "clock_khz": 39, "texture_alignment": 512, "memory_khz": 3500, "bus_bits": 256,
                "l2_bytes": 4 << 20, "major": major, "minor": minor}[which]

    def total_memory(self, ordinal):
        return self.driver.memory

    def primary_context(self, ordinal):
        return 1000 + ordinal

    def push(self, context):
        self.driver.stack.append(context)

    def pop(self):
        self.driver.stack.pop()

    def synchronize(self):
        if any(self.driver.capturing.values()):
            self.driver.forbidden("cuCtxSynchronize")
        self.driver.completed = None
        self.driver.log.append(("synchronize", self.driver.stack[-1]))

    def alloc(self, nbytes):
        driver = self.driver
        assert self.current_context(), "no context is current"
        driver.unsafe("cuMemAlloc")
        if driver.room is not None:
            if nbytes > driver.room:
                raise DriverError("cuMemAlloc_v2 failed: out of memory (2)", 2)
            driver.room -= nbytes
        driver.log.append(("alloc", nbytes))
        data = np.zeros(nbytes, np.uint8)
        self.memory[data.ctypes.data] = data
        return data.ctypes.data

    def free(self, address):
        driver = self.driver
        assert self.current_context(), "no context is current"
        driver.unsafe("cuMemFree")
        driver.log.append(("free", address))
        nbytes = self.memory.pop(address).nbytes
        if driver.room is not None:
            driver.room += nbytes

    def free_bytes(self):
        return self.driver.memory if self.driver.room is None else self.driver.room

    def seconds(self, first, then):
        return (self.events[then] - self.events[first]) * 1e-3

    def current_context(self):
        return self.driver.stack[-1] if self.driver.stack else 0

    def context_of(self, pointer):
        return self.owners.get(pointer, (1000, 0))[0]

    def ordinal_of(self, pointer):
        return self.owners.get(pointer, (1000, 0))[1]

    def order(self, first, then):
        self.driver.log.append(("order", first, then))

    def graph_of(self, stream):
        number = self.driver.capturing.get(stream, 0)
        return self.graphs.setdefault(number, Graph()) if number else None

    @contextlib.contextmanager
    def relaxed(self):
        thread = self.driver.thread
        thread.relaxed = getattr(thread, "relaxed", 0) + 1
        try:
            yield
        finally:
            thread.relaxed -= 1

    def own_stream(self):
        return 999

    def event(self, timed=False):
        event = next(self.numbers)
        self.events[event] = 0  # launches that it waits for
        return event

    def destroy_event(self, event):
        del self.events[event]

    def record(self, event, stream):
        if not self.driver.capturing.get(stream):
            self.events[event] = self.driver.launches

    def passed(self, event):
        self.driver.unsafe("cuEventQuery")
        return self.driver.over(self.events[event])

    def wait(self, event):
        self.driver.unsafe("cuEventSynchronize")
        self.driver.log.append(("wait", event))
        if self.driver.completed is not None:
            self.driver.completed = max(self.driver.completed, self.events[event])

    def load(self, image):
        assert self.current_context(), "no context is current"
        self.driver.unsafe("cuModuleLoadData")
        if self.driver.failing:
            raise DriverError(self.driver.failing)
        self.driver.log.append(("load", bytes(image)))
        self.modules += 1
        self.images[self.modules] = image
        return self.modules

    def unload(self, module):
        assert self.current_context(), "no context is current"
        self.driver.unsafe("cuModuleUnload")
        assert self.driver.over(self.last_use.get(module, 0)), "the module's kernels are not over"
        self.driver.log.append(("unload", module))
        del self.images[module]

    def function(self, module, name):
        self.functions.setdefault((module, name), len(self.functions) + 1)
        self.names[self.functions[module, name]] = module, name
        return self.functions[module, name]

    def allow_shared(self, function, nbytes):
        assert function in self.names and 48 << 10 < nbytes <= 227 << 10

    def facts(self, function):
        return 144, 0, 0

    def symbol(self, module, name):
        data = self.symbols.setdefault((module, name), np.zeros(1 << 16, np.uint8))
        return data.ctypes.data, data.nbytes

    def bind_texture(self, module, name, address, nbytes, channels):
        self.driver.log.append(("texture", name, address, nbytes))

    def launcher(self, launches, context=0):
        def go(stream, event=0):
            if context and self.current_context() != context:
                return None
            assert self.current_context(), "no context is current"
            for launch in launches:
                module, name = self.names[launch.function]
                assert module in self.images, "the kernel's module has been unloaded"
                self.driver.launches += 1
                self.last_use[module] = self.driver.launches
                self.driver.log.append(("launch", name, launch.grid, launch.block, bytes(launch.arguments),
                                        launch.shared_bytes, stream))
            captured = bool(self.driver.capturing.get(stream))
            if event and not captured:
                self.record(event, stream)
            return captured
        return go

    def copy_in(self, address, data, stream):
        if self.driver.capturing.get(stream):
            self.driver.forbidden("cuStreamSynchronize")
        self.driver.unsafe("cuMemcpyHtoDAsync of pageable memory")
        self.driver.log.append(("to device", address, bytes(data), stream))

    def copy_out(self, out, address, stream):
        self.driver.log.append(("to host", address, stream))


class Array:
    """An array on the fake GPU."""

    def __init__(self, shape, alignment=512):
        room = np.zeros(4 * int(np.prod(shape)) + 1024, np.uint8)
        first = -room.ctypes.data % 512 + alignment % 512
        self.host = room[first:first + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
        self.gpudata = self.host.ctypes.data
        self.__cuda_array_interface__ = {"shape": tuple(shape), "typestr": "<f4", "strides": None, "version": 3,
                                         "data": (self.host.ctypes.data, False)}


def install(monkeypatch, driver, pycuda=False):
    """Give maxdnn.runtime.devices.cuda this driver, with pycuda installed or not; returns the module, freshly imported,
    and the libcuda."""
    package = types.ModuleType("pycuda")
    package.driver = driver.module()
    monkeypatch.setitem(sys.modules, "pycuda", package if pycuda else None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver if pycuda else None)
    monkeypatch.setenv("MAXDNN_NATIVE", "1")  # no other process could try kernels out on it
    from maxdnn.runtime import devices
    for name in [name for name in sys.modules if name.startswith("maxdnn.runtime.devices.cuda")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(devices, "cuda", raising=False)
    from maxdnn.runtime.devices import cuda as gpu
    from maxdnn.runtime.devices import find
    monkeypatch.setattr(find, "_cuda", lambda: gpu)
    library = LibCuda(driver)
    monkeypatch.setattr(gpu.context, "_driver", library)
    return gpu, library
