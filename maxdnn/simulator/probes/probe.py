"""A probe: a question that kernels of a few lengths answer, in blocks of a few sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .frame import Kernel, kernel, once


@dataclass(frozen=True)
class Probe:
    """`body`: the instructions of a length; `lengths`: those that are run, whose difference is what an instruction
    costs; `warps`: of the blocks that run it; `words`: what each thread of a block has in R8. `blocks`: of the grid;
    `n`, `step`: the kernel's parameters; `big`: bytes of the buffer that is given as data instead of the words;
    `chase`: (footprint, stride) of a chain of addresses in it. `dynamic`: bytes of shared memory beside the static.
    `stack`, `constants`: bytes of local memory of a thread and of constants in bank 3. `once`: in a kernel that begins
    and ends with the clock. `quiet`: the first lane of a warp alone keeps its clocks."""

    name: str
    body: Callable[[int], list[str]]
    lengths: Sequence[int]
    warps: Sequence[int]
    setup: Sequence[str] = ()
    shared: int = 0
    words: Sequence[int] = field(default=(0,) * 1024, repr=False)
    drain: bool = True
    blocks: int = 1
    n: int = 1
    step: int = 0
    big: int = 0
    chase: tuple[int, int] = (0, 0)
    dynamic: int = 0
    meet: bool = True
    once: bool = False
    stack: int = 0
    constants: int = 0
    quiet: bool = False

    def kernels(self, number: int) -> list[Kernel]:
        """A kernel for each length, named by the probe's number."""
        if self.once:
            return [once(f"probe_{number}_{length}", self.body(length), shared=self.shared) for length in self.lengths]
        return [
            kernel(
                f"probe_{number}_{length}",
                self.body(length),
                setup=self.setup,
                shared=self.shared,
                meet=self.meet,
                drain=self.drain,
                stack=self.stack,
                constants=self.constants,
                quiet=self.quiet,
            )
            for length in self.lengths
        ]
