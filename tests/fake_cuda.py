"""A stand-in for pycuda.driver and libcuda where there is no GPU: memory is host memory, loading and launching are
recorded. It shows what the loader asks of a driver, never what a kernel computes."""

import sys
import types

import numpy as np


class Error(Exception):
    pass


class LogicError(Error):
    pass


class Driver:
    """The recorded driver. `log` holds what was asked of it in order, as tuples that begin with a verb."""

    def __init__(self, capability=(9, 0), count=2):
        self.capability, self.count = capability, count
        self.log = []
        self.stack = []
        self.failing = None  # text of the error that loading a module raises

    def module(self):
        """A module to put in sys.modules as pycuda.driver."""
        log, driver = self.log, self
        fake = types.ModuleType("pycuda.driver")
        fake.Error, fake.LogicError, fake.MemoryError = Error, LogicError, type("MemoryError", (Error,), {})
        fake.init = lambda: None
        fake.get_driver_version = lambda: 12040
        fake.event_flags = types.SimpleNamespace(DISABLE_TIMING=2)
        fake.device_attribute = types.SimpleNamespace(MULTIPROCESSOR_COUNT=16, CLOCK_RATE=39, TEXTURE_ALIGNMENT=512,
                                                      MEMORY_CLOCK_RATE=3500, GLOBAL_MEMORY_BUS_WIDTH=256)

        class Context:
            def __init__(self, handle):
                self.handle = handle

            def push(self):
                driver.stack.append(self.handle)

            @staticmethod
            def pop():
                driver.stack.pop()

            @staticmethod
            def synchronize():
                log.append(("synchronize", driver.stack[-1]))

        class Device:
            def __init__(self, ordinal):
                self.ordinal = ordinal

            count = staticmethod(lambda: driver.count)
            name = staticmethod(lambda: "fake GPU")
            compute_capability = staticmethod(lambda: driver.capability)
            get_attribute = staticmethod(lambda attribute: attribute)
            total_memory = staticmethod(lambda: 1 << 30)

            def retain_primary_context(self):
                return Context(1000 + self.ordinal)

        class Memory:
            def __init__(self, nbytes):
                self.data = np.zeros(nbytes, np.uint8)

            def __int__(self):
                return self.data.ctypes.data

            def free(self):
                log.append(("free", int(self)))

        class Stream:
            handle = 77

            def synchronize(self):
                log.append(("synchronize stream",))

            def wait_for_event(self, event):
                log.append(("wait", event))

        class Event:
            def __init__(self, flags=0):
                self.flags = flags

            def record(self, stream=None):
                log.append(("record", stream))

            def synchronize(self):
                log.append(("synchronize event",))

        def mem_alloc(nbytes):
            log.append(("alloc", nbytes))
            return Memory(nbytes)

        fake.Context, fake.Device, fake.Stream, fake.Event = Context, Device, Stream, Event
        fake.mem_alloc = mem_alloc
        fake.memcpy_htod = lambda to, data: log.append(("to device", to, bytes(data), None))
        return fake


class LibCuda:
    """In place of maxdnn.runtime.devices.driver.Driver. `owners`: pointer -> (context handle, ordinal);
    `capturing`: stream -> number of its capture."""

    def __init__(self, driver, error):
        self.driver, self.error, self.owners, self.capturing = driver, error, {}, {}
        self.images, self.symbols, self.functions, self.modules = {}, {}, {}, 0

    def current_context(self):
        return self.driver.stack[-1] if self.driver.stack else 0

    def context_of(self, pointer):
        return self.owners.get(pointer, (1000, 0))[0]

    def ordinal_of(self, pointer):
        return self.owners.get(pointer, (1000, 0))[1]

    def order(self, first, then):
        self.driver.log.append(("order", first, then))

    def capture_of(self, stream):
        return self.capturing.get(stream, 0)

    def while_capturing(self, work):
        return work()

    def load(self, image):
        assert self.current_context(), "no context is current"
        if self.driver.failing:
            raise self.error(self.driver.failing)
        self.driver.log.append(("load", bytes(image)))
        self.modules += 1
        self.images[self.modules] = image
        return self.modules

    def unload(self, module):
        assert self.current_context(), "no context is current"
        self.driver.log.append(("unload", module))
        del self.images[module]

    def function(self, module, name):
        return self.functions.setdefault((module, name), len(self.functions) + 1)

    def facts(self, function):
        return 144, 0, 0

    def symbol(self, module, name):
        data = self.symbols.setdefault((module, name), np.zeros(1 << 16, np.uint8))
        return data.ctypes.data, data.nbytes

    def bind_texture(self, module, name, address, nbytes, channels):
        self.driver.log.append(("texture", name, address, nbytes))

    def launcher(self, launches, context=0):
        def go(stream):
            if context and self.current_context() != context:
                return None
            assert self.current_context(), "no context is current"
            for launch in launches:
                module, name = next(key for key, handle in self.functions.items() if handle == launch.function)
                assert module in self.images, "the kernel's module has been unloaded"
                self.driver.log.append(("launch", name, launch.grid, launch.block, bytes(launch.arguments),
                                        launch.shared_bytes, stream))
            return bool(self.capturing.get(stream))
        return go

    def copy_in(self, address, data, stream):
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


def install(monkeypatch, driver):
    """Give maxdnn.runtime.devices.cuda this driver; returns the module, freshly imported, and the libcuda beside it."""
    package = types.ModuleType("pycuda")
    package.driver = driver.module()
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver)
    from maxdnn.runtime import devices
    monkeypatch.delitem(sys.modules, "maxdnn.runtime.devices.cuda", raising=False)
    monkeypatch.delattr(devices, "cuda", raising=False)
    from maxdnn.runtime.devices import cuda as gpu
    from maxdnn.runtime.devices.driver import DriverError
    library = LibCuda(driver, DriverError)
    monkeypatch.setattr(gpu, "_driver", library)
    return gpu, library
