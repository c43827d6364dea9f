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
        fake.event_flags = types.SimpleNamespace(DISABLE_TIMING=2)
        fake.array_format = types.SimpleNamespace(FLOAT="float32")
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

        class Function:
            num_regs, local_size_bytes, shared_size_bytes = 144, 0, 0

            def __init__(self, name):
                self.name = name

            def _launch_kernel(self, grid, block, arguments, shared, stream):
                log.append(("launch", self.name, grid, block, arguments, shared, stream))

        class TextureReference:
            def __init__(self, name):
                self.name = name

            def set_format(self, kind, channels):
                log.append(("texture format", self.name, kind, channels))

            def set_address(self, address, nbytes):
                log.append(("texture", self.name, address, nbytes))

        class Module:
            def __init__(self, image):
                self.image = image
                self.symbols = {}

            def get_function(self, name):
                return Function(name)

            def get_global(self, name):
                self.symbols.setdefault(name, np.zeros(1 << 16, np.uint8))
                return self.symbols[name].ctypes.data, self.symbols[name].nbytes

            def get_texref(self, name):
                return TextureReference(name)

        def module_from_buffer(image, **_):
            if driver.failing:
                raise LogicError(driver.failing)
            log.append(("load", bytes(image)))
            return Module(image)

        def mem_alloc(nbytes):
            log.append(("alloc", nbytes))
            return Memory(nbytes)

        fake.Context, fake.Device, fake.Stream, fake.Event = Context, Device, Stream, Event
        fake.module_from_buffer, fake.mem_alloc = module_from_buffer, mem_alloc
        fake.memcpy_htod = lambda to, data: log.append(("to device", to, bytes(data), None))
        fake.memcpy_htod_async = lambda to, data, stream=None: log.append(("to device", to, bytes(data), stream))
        fake.memcpy_dtoh_async = lambda to, source, stream=None: log.append(("to host", source, stream))
        return fake


class LibCuda:
    """The calls maxdnn.devices.cuda makes past pycuda. `owners`: pointer -> (context handle, ordinal)."""

    def __init__(self, driver):
        self.driver, self.owners = driver, {}

    def current_context(self):
        return self.driver.stack[-1] if self.driver.stack else 0

    def context_of(self, pointer):
        return self.owners.get(pointer, (1000, 0))[0]

    def ordinal_of(self, pointer):
        return self.owners.get(pointer, (1000, 0))[1]

    def order(self, first, then):
        self.driver.log.append(("order", first, then))


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
    """Give maxdnn.devices.cuda this driver; returns the module, freshly imported, and the libcuda beside it."""
    package = types.ModuleType("pycuda")
    package.driver = driver.module()
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver)
    from maxdnn import devices
    monkeypatch.delitem(sys.modules, "maxdnn.devices.cuda", raising=False)
    monkeypatch.delattr(devices, "cuda", raising=False)
    from maxdnn.devices import cuda as gpu
    library = LibCuda(driver)
    monkeypatch.setattr(gpu, "_driver", library)
    return gpu, library
