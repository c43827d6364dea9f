"""One worker: the records and memories that one thread needs to run blocks, and the loop around the compiled
scheduler."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from . import helpers, layout
from .compiled import CompiledKernel
from .host import HostCalls
from .layout import CTX, LANES, LAUNCH, REGS_OFFSET, VECTOR_BYTES, WARP
from .memory import GlobalMemory, aligned_bytes
from .record import Record
from .runtime.tensor import TENSOR_BYTES

_REGISTERS = 260  # R254 as the start of a quad must stay inside the record
_WARP_BYTES = REGS_OFFSET + VECTOR_BYTES * _REGISTERS
SLICE = 1 << 20  # instructions a warp may run before the block's other warps get a turn


@dataclass
class LaunchPlan:
    """What every worker of a launch shares."""

    compiled: CompiledKernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    local_bytes: int
    banks: Sequence[np.ndarray]
    allocations: np.ndarray
    memory: Sequence[np.ndarray]  # what the allocations are made of: kept alive for the launch
    textures: np.ndarray
    budget: int
    checks: frozenset[str] = frozenset()
    order: np.ndarray | None = None
    host: HostCalls | None = None  # functions outside the code that it may call
    record: Record = field(init=False)
    level: int = field(init=False)  # of optimization

    def __post_init__(self) -> None:
        r = Record(aligned_bytes(LAUNCH["_end"][0]), LAUNCH)
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        r["total"] = blocks if self.order is None else len(self.order)
        for axis, grid, block in zip("xyz", self.grid, self.block, strict=True):
            r[f"grid_{axis}"], r[f"block_{axis}"] = grid, block
        r["allocations"], r["allocation_count"] = self.allocations.ctypes.data, len(self.allocations)
        r["textures"], r["texture_count"] = self.textures.ctypes.data, len(self.textures)
        r["order"] = 0 if self.order is None else self.order.ctypes.data
        self.record = r
        self.level = self.compiled.level(r["total"] * -(-self.threads // LANES))

    def use(self, allocations: np.ndarray, memory: Sequence[np.ndarray]) -> None:
        """Take another table of allocations; only between the steps of the launch's only worker."""
        self.allocations, self.memory = allocations, memory
        r = self.record
        r["allocations"], r["allocation_count"] = allocations.ctypes.data, len(allocations)

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


class Worker:
    """Memory of one thread; `run()` works through the grid until it is done or a fault stops it."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.warps = -(-plan.threads // LANES)
        self.ctx = Record(aligned_bytes(CTX["_end"][0]), CTX)
        self._warps = aligned_bytes(_WARP_BYTES * self.warps)
        self.shared = aligned_bytes(plan.shared_bytes + 16)
        self._stride = (plan.local_bytes + 15) // 16 * 16  # every lane's local memory is as aligned as its address
        self._local = aligned_bytes(self._stride * LANES * self.warps)
        self._sites = aligned_bytes(layout.SITE_BYTES * (len(plan.compiled.kernel.code) // 8 + 1))
        self._shadow = aligned_bytes(layout.SHADOW_BYTES * plan.shared_bytes) if "race" in plan.checks else None
        self._scratch = aligned_bytes(layout.SCRATCH_BYTES)
        units = plan.compiled.has_units
        sizes = {"tensor": TENSOR_BYTES, "copies": layout.COPY_BYTES * layout.COPIES,
                 "granules": layout.GRANULE_BYTES * (plan.shared_bytes // 16 + 2)}
        self._units = {name: aligned_bytes(size) for name, size in sizes.items()} if units else {}
        self._fill()

    def warp(self, index: int) -> Record:
        return Record(self._warps, WARP, _WARP_BYTES * index)

    def _fill(self) -> None:
        c, plan = self.ctx, self.plan
        for name, where in (("launch", plan.record.data), ("warps", self._warps), ("shared", self.shared),
                            ("local_base", self._local), ("sites", self._sites), ("scratch", self._scratch)):
            c[name] = where.ctypes.data
        c["shadow"] = 0 if self._shadow is None else self._shadow.ctypes.data
        for name, where in self._units.items():
            c[name] = where.ctypes.data
        c["registers"] = plan.compiled.kernel.registers
        c["first_pc"] = plan.compiled.kernel.addressing.address_of(0)
        c["warp_bytes"], c["warp_count"] = _WARP_BYTES, self.warps
        c["register_bytes"] = VECTOR_BYTES * min(plan.compiled.kernel.registers, _REGISTERS)
        c["local_stride"], c["local_bytes"] = self._stride, plan.local_bytes
        c["shared_bytes"] = plan.shared_bytes
        c["slice"], c["budget"] = min(SLICE, plan.budget), plan.budget
        banks, sizes = c.array("banks", np.uint64, layout.BANKS), c.array("bank_bytes", np.uint64, layout.BANKS)
        for number, bank in enumerate(plan.banks):
            banks[number], sizes[number] = bank.ctypes.data, bank.nbytes
        for index in range(self.warps):
            self._fill_warp(index)

    def _fill_warp(self, index: int) -> None:
        x, y, _ = self.plan.block
        threads = np.arange(index * LANES, (index + 1) * LANES, dtype=np.uint32)
        warp = self.warp(index)
        tid = warp.array("tid", np.uint32, 3 * LANES).reshape(3, LANES)
        tid[0], tid[1], tid[2] = threads % x, threads // x % y, threads // (x * y)
        warp["index"] = index
        count = min(LANES, self.plan.threads - index * LANES)
        warp["initial"] = (1 << count) - 1

    # -- running -----------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Returns layout.DONE, or layout.FAULTED with the fault in `ctx`."""
        step = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(helpers.load().address("rt_run"))
        while True:
            status = step(self.ctx.address)
            if status in (layout.WANT_FULL, layout.WANT_PARTIAL):
                self._attach(status == layout.WANT_FULL)
            elif status == layout.WANT_PC:
                if not self._new_entry():
                    return layout.FAULTED
            elif status == layout.WANT_ROOM:
                self.collect()
            else:
                return int(status)

    def collect(self) -> None:
        """Take what a traced block recorded; plain launches record nothing."""

    def _attach(self, full: bool) -> None:
        name = "run_full" if full else "run_partial"
        self.ctx[name] = self.plan.compiled.run_address(full, self.plan.checks, self.plan.level)

    def _new_entry(self) -> bool:
        warp = self.warp(self.ctx["fault_warp"])
        if self.plan.host is not None and self.plan.host.serves(warp["pc"]):
            self.plan.host.call(self, self.ctx["fault_warp"])
            return self._return(warp)
        if not self.plan.compiled.add_entry(warp["pc"]):
            self.ctx["fault_kind"] = layout.FAULT_KINDS.index("bad target")
            self.ctx["fault_pc"] = self.ctx["fault_address"] = warp["pc"]
            return False
        self.ctx["run_full"] = self.ctx["run_partial"] = 0
        return True

    def _return(self, warp: Record) -> bool:
        """Go back from a function that the host ran, as RET does; False if nothing called it."""
        self.ctx["fault_pc"] = warp["pc"]
        leave = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)(
            helpers.load().address("rt_leave"))
        how = leave(self.ctx.address, warp.address, layout.CALL, warp["active"])
        if how != 1:
            self.ctx["fault_kind"] = layout.FAULT_KINDS.index("unmatched")
        return how == 1

    # -- for functions that the host runs ----------------------------------------------------------------------

    @property
    def kernel_name(self) -> str:
        return self.plan.compiled.kernel.name

    def shared_bytes(self, index: int, lane: int) -> np.ndarray:
        return self.shared[:self.plan.shared_bytes]

    def local_bytes_of(self, index: int, lane: int) -> np.ndarray:
        start = (index * LANES + lane) * self._stride
        return self._local[start:start + self.plan.local_bytes]

    def refresh_allocations(self, memory: GlobalMemory) -> None:
        """The kernel itself has changed what is allocated: memory instructions forget what they touched last."""
        self.plan.use(*memory.table())
        self._sites[:] = 0
