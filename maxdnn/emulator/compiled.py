"""A kernel's compiled variants: made when first needed, shared by all workers, kept on disk."""

import gc
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from llvmlite import ir

from ..cubin import CubinKernel
from ..runtime.forks import compiling
from . import helpers
from .beside import OPCODES
from .converge import ConvergenceLowering
from .lower import Lowering
from .native import Code, cached_object
from .program import Program

_LOWERINGS = {"stack": Lowering, "barriers": ConvergenceLowering}
Variant = tuple[bool, frozenset[str], int]  # full; extra checks; level of optimization
_FEW_WARPS = 8192  # so many of a kernel run in less time than optimizing it takes


@contextmanager
def _uncollected() -> Iterator[None]:
    """A module is some 10^5 objects that all live until it is printed: collecting among them only takes time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CompiledKernel:
    """Native code of one kernel of one module. `bank_bytes`: size of each constant bank."""

    def __init__(self, kernel: CubinKernel, bank_bytes: tuple[int, ...]) -> None:
        self.kernel = kernel
        self.bank_bytes = bank_bytes
        self._entries: frozenset[int] = frozenset()
        self._variants: dict[Variant, Code] = {}
        self._warps = 0  # launched so far
        self._old: list[Code] = []  # code that a worker may still be running

    @cached_property
    def has_units(self) -> bool:
        """Whether its code may do something beside its warps."""
        table = self.kernel.table
        opcodes = {row.value & 0xFFF for row in table.rows if row.opcode in OPCODES}
        return bool(opcodes) and any(word & 0xFFF in opcodes for _, word, _ in self.kernel.words())

    def level(self, warps: int) -> int:
        """The level of optimization for a launch of so many warps: a kernel is worth optimizing once many have run."""
        self._warps += warps
        return int(self._warps > _FEW_WARPS)

    def run_address(self, full: bool, checks: frozenset[str] = frozenset(), level: int = 1) -> int:
        """The address of `run` of a variant. Without optimization one variant serves any number of active lanes: to
        compile takes longer than to run."""
        helpers.load()
        key = (full and level > 0, checks, level)
        code = self._variants.get(key)
        if code is None:
            with compiling:
                code = self._variants.get(key) or self._compile(*key)
                self._variants[key] = code
        return code.address("run")

    def add_entry(self, address: int) -> bool:
        """Make an address that a branch computed a place where control can enter; False if it is none of the code's or
        was known already."""
        with compiling:
            program = Program(self.kernel, self._entries)
            at = self.kernel.addressing
            if address % at.word or at.normal(address) not in program.words:
                return False
            if address in self._entries:
                return True
            self._entries |= {address}
            self._old += self._variants.values()
            self._variants = {}
            return True

    def _compile(self, full: bool, checks: frozenset[str], level: int) -> Code:
        content = hashlib.sha256(self.kernel.arch.encode() + self.kernel.code)
        content.update(repr((full, sorted(checks), sorted(self._entries), self.bank_bytes,
                             self.kernel.attributes)).encode())

        def make() -> ir.Module:
            with _uncollected():
                lowering = _LOWERINGS[self.kernel.table.divergence]
                return lowering(Program(self.kernel, self._entries), full, self.bank_bytes, checks, level == 0).module

        return Code(cached_object(content.digest(), make, level))

