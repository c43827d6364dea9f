"""A plan: the launches that compute a problem, with memory called by name.

Pure data; no array, no device. (The module is not called `plan` because the package offers a function of that name.)
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..build.interface import FFMA, KernelSpec
from ..errors import LaunchError
from ..problem.problem import Operand, Problem
from ..problem.shape import ConvShape, ProductShape
from .cost import BETWEEN, Chip, Work

REGION_ALIGNMENT = 512  # bytes; no GPU asks more of the base address of a texture
FLOAT_BYTES = 4
DIRECT_ERROR = 1e-6
"""Documented for sums of products as they stand, relative to the sum of |terms|; measured on the ten layers: 4e-7."""
MAX_TEXELS = 2**28  # 1D texture over linear memory (CUDA C Programming Guide, technical specifications)
_LAUNCH_BYTES = 1 << 12  # on the host, about
Place = tuple[int, int]  # device address, bytes


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of the workspace, in bytes from its start.

    It holds something from launch `first` to launch `last` of the plan; regions whose lives do not overlap may share
    bytes.
    """

    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Part:
    """Named memory from byte `offset` on."""

    name: str
    offset: int


def begin(memory: str | Part) -> tuple[str, int]:
    """The name of named memory, and the byte offset into it."""
    return (memory.name, memory.offset) if isinstance(memory, Part) else (memory, 0)


Value = int | float | str | Part
"""Of a kernel parameter: a number (0 for no memory) or a name."""


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel launch.

    `doing`: what it is for, in words. `values`: per kernel parameter a number or a name: of memory (an operand's role,
    a region of the workspace; a Part begins inside one) or of a scalar of the problem. `textures`: texture reference ->
    memory. `tables`: constant symbol -> its content, the same in every call. `writes`: the memory whose content it
    changes. `work`: for estimates. `flops`: its share of the problem's useful work, 0 for copies.
    """

    spec: KernelSpec
    grid: tuple[int, int, int]
    values: Mapping[str, Value]
    work: Work
    doing: str
    writes: tuple[str, ...]
    textures: Mapping[str, str | Part] = field(default_factory=dict)
    tables: Mapping[str, bytes] = field(default_factory=dict)
    flops: int = 0

    @functools.cached_property
    def block(self) -> tuple[int, int, int]:
        """Threads along x, y, z."""
        return self.spec.threads, 1, 1

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The parameters that are numbers."""
        return {name: value for name, value in self.values.items() if isinstance(value, int)}

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Everything mentioned: operands, regions, scalars."""
        every = (*self.values.values(), *self.textures.values())
        return frozenset(begin(v)[0] for v in every if not isinstance(v, (int, float)))

    def check(self) -> None:
        """Raises LaunchError unless parameters, textures and constants are those that the kernel declares."""
        spec = self.spec
        for what, given, wanted in (("values", self.values, [p.name for p in spec.params]),
                                    ("textures", self.textures, spec.textures),
                                    ("tables", self.tables, [c.name for c in spec.constants])):
            if set(given) != set(wanted):
                raise LaunchError(f"{spec.name}: {what} must be given for {', '.join(wanted) or 'nothing'} "
                                  f"(got {', '.join(given) or 'nothing'})")
        for param in spec.params:
            value = self.values[param.name]
            if isinstance(value, int) and not 0 <= value < 1 << 8 * param.nbytes:
                raise LaunchError(f"{spec.name}: {param.name} has {param.nbytes} bytes (got {value})")
            # A pointer may be 0: a flag tells the kernel not to use it.
            fits = {"ptr": not isinstance(value, float) and (value == 0 or not isinstance(value, int)),
                    "f32": not isinstance(value, int)}
            if not fits.get(param.type, isinstance(value, int)):
                raise LaunchError(f"{spec.name}: {param.name} is a {param.type} (got {value!r})")

    def arguments(self, places: Mapping[str, Place], scalars: Mapping[str, Any]) -> list[Any]:
        """The kernel's arguments in order."""
        values, names = self._in_order
        values = values.copy()
        for at, name, offset in names:
            values[at] = places[name][0] + offset if name in places else scalars[name]
        return values

    @functools.cached_property
    def _in_order(self) -> tuple[list[Any], list[tuple[int, str, int]]]:
        """The values in the kernel's order, and which of them are names."""
        values = [self.values[p.name] for p in self.spec.params]
        names = [(at, *begin(v)) for at, v in enumerate(values) if not isinstance(v, (int, float))]
        return values, names

    def bound(self, places: Mapping[str, Place]) -> dict[str, tuple[int, int, int]]:
        """Where each texture reference begins, how many bytes it reaches, how many floats a texel has."""
        found = {}
        for texture, memory in self.textures.items():
            name, offset = begin(memory)
            address, nbytes = places[name]
            channels = self.spec.channels[texture]
            found[texture] = address + offset, min(nbytes - offset, MAX_TEXELS * FLOAT_BYTES * channels), channels
        return found


@dataclass(frozen=True, slots=True)
class Terms:
    """The arguments of `planning.select.choose` that a plan was chosen by.

    `families`: those whose candidates were ranked.
    """

    algorithm: str
    max_error: float
    arithmetic: str
    prepared: bool
    families: tuple[Any, ...]
    tuned: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """A problem made ready; good for any number of calls.

    Attributes
    ----------
    problem : Problem
        What is computed.
    family : str
        What made the plan.
    spec : KernelSpec
        The kernel that does the arithmetic.
    launches : tuple of Launch
        In the order in which they run.
    workspace : mapping of str to Region
        Regions by name.
    notes : tuple of str
        What else the user may want to know.
    error : float
        The largest documented, relative to the sum of an output's |terms|, for arrays uniform in [-1, 1].
    algorithm : str
        "direct", "winograd" or "fft".
    chosen : str
        Why it was taken of all candidates.
    terms : Terms or None
        By what another may take its place; None where it was asked for by name.
    name : str
        Of the candidate that it is.
    account : callable or None
        Gives lines on the estimate and on the candidates that were not taken.
    code : callable or None
        Gives lines on what runs as machine code of the chip, what is translated, and why.
    """

    problem: Problem
    family: str
    spec: KernelSpec
    launches: tuple[Launch, ...]
    workspace: Mapping[str, Region]
    notes: tuple[str, ...] = ()
    error: float = DIRECT_ERROR
    algorithm: str = "direct"
    chosen: str = ""
    terms: Terms | None = None
    name: str = ""
    account: Callable[[], list[str]] | None = None
    code: Callable[[], list[str]] | None = None

    @property
    def arithmetic(self) -> str:
        """What its products are computed by: "FFMA", or what else a launch uses."""
        return next((launch.spec.arithmetic for launch in self.launches if launch.spec.arithmetic != FFMA), FFMA)

    def computes(self, arithmetic: str) -> bool:
        """Whether its products are computed as a caller asks.

        Parameters
        ----------
        arithmetic : {"auto", "ffma"}
            As for `conv_fprop`.

        Returns
        -------
        bool
            True for "auto", and for "ffma" if no launch uses tensor cores.
        """
        return arithmetic == "auto" or self.arithmetic == FFMA

    @property
    def shape(self) -> Any:
        """Sizes of the problem: a ConvShape, ProductShape or SumShape."""
        return self.problem.shape

    @property
    def layout(self) -> str:
        """"CHWN" or "NCHW"."""
        return self.problem.layout

    @property
    def passes(self) -> tuple[Launch, ...]:
        """The launches of `spec`, without copies and layout changes."""
        return tuple(x for x in self.launches if x.spec is self.spec)

    @functools.cached_property
    def workspace_bytes(self) -> int:
        """Peak extra device memory of a call, beside the output."""
        return max((r.offset + r.nbytes for r in self.workspace.values()), default=0)

    @functools.cached_property
    def host_bytes(self) -> int:
        """About what it takes on the host, as it is and made ready to run: that of its tables, and of all else."""
        tables = {id(content): len(content) for launch in self.launches for content in launch.tables.values()}
        return sum(tables.values()) + _LAUNCH_BYTES * (1 + len(self.launches))

    @property
    def flops(self) -> int:
        """Useful work, see ConvShape.flops."""
        return int(self.shape.flops)

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """The operands that a call changes."""
        return frozenset(n for x in self.launches for n in x.writes) - self.workspace.keys()

    @functools.cached_property
    def archs(self) -> tuple[str, ...]:
        """The architectures that some of its kernels are for alone."""
        return tuple(dict.fromkeys(x.spec.arch for x in self.launches if x.spec.arch))

    @functools.cached_property
    def sources(self) -> tuple[str, ...]:
        """Those of its kernels."""
        return tuple(dict.fromkeys(x.spec.source.removesuffix(".sass") for x in self.launches))

    @functools.cached_property
    def textured(self) -> tuple[str, ...]:
        """The operands that are read as textures where they are."""
        found = {begin(memory)[0] for x in self.launches for memory in x.textures.values()}
        return tuple(role for role in self.problem.roles if role in found)

    def array_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the operands.

        Returns
        -------
        mapping of str to tuple of int
            By role: "images", "filters", "gradients", "bias", "out".
        """
        return self._array_shapes

    @functools.cached_property
    def _array_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.problem.shapes

    def clocks(self, chip: Chip) -> float:
        """Estimate that plans are ranked by.

        Parameters
        ----------
        chip : Chip
            The chip that it would run on.

        Returns
        -------
        float
            Clocks of the SMs for a call.
        """
        between = 0 if chip.runs_maxwell else BETWEEN * (len(self.launches) - 1)
        return between + sum(x.work.clocks(chip) for x in self.launches)

    @functools.cached_property
    def apart(self) -> tuple["Plan | None", "Plan"]:
        """What is done to the filters alone, and the rest.

        The first is None if nothing is. Operands of the rest are the results of the first in place of the filters.
        """
        memory, known = {*self.problem.roles, *self.workspace}, {"filters"}
        each_call = {*self.problem.roles}  # memory whose content is of a call
        before: list[Launch] = []
        after: list[Launch] = []
        for launch in self.launches:
            writes = set(launch.writes)
            if (launch.names & memory) - writes <= known and not writes & each_call:
                before.append(launch)
                known |= writes
            else:
                after.append(launch)
                each_call |= writes
        if not before:
            return None, self
        needed = {name for launch in after for name in launch.names & known}
        kept = [Operand(name, (region.nbytes // FLOAT_BYTES,)) for name, region in self.workspace.items()
                if name in needed]
        others = [o for o in self.problem.operands if o.role != "filters" or "filters" in needed]
        return (self._part(before, [self.problem.operand("filters"), *kept]), self._part(after, [*others, *kept]))

    def _part(self, launches: list[Launch], operands: list[Operand]) -> "Plan":
        """Some of the launches as a plan of its own."""
        used = {name for launch in launches for name in launch.names} - {operand.role for operand in operands}
        regions = {name: region.nbytes for name, region in self.workspace.items() if name in used}
        made = make(replace(self.problem, operands=tuple(operands)), self.family, self.spec, launches, regions,
                    self.notes, self.error, self.algorithm)
        return replace(made, name=self.name)

    def explain(self, verbose: bool = False) -> str:
        """What a call does and what it costs, in words.

        Parameters
        ----------
        verbose : bool
            Whether to tell of the candidates that were not taken: what each costs, or why it does not serve.

        Returns
        -------
        str
            The launches in order, equal ones in one line, then the notes, and why this plan was chosen.
        """
        lines = [self.problem.describe()]
        same: dict[tuple[str, str], list[Launch]] = {}
        for launch in self.launches:
            same.setdefault((launch.spec.name, launch.doing), []).append(launch)
        for (kernel, doing), found in same.items():
            x, y, z = found[0].grid
            times = f"{len(found)} launches, each of " if len(found) > 1 else ""
            lines.append(f"{kernel}: {times}{x} x {y} x {z} blocks of {found[0].spec.threads} threads, {doing}")
        if isinstance(self.shape, ConvShape):
            lines.append(f"algorithm {self.algorithm}, error at most {self.error:.2g} of the sum of |terms|")
        if isinstance(self.shape, (ConvShape, ProductShape)):
            lines.append(f"arithmetic: float32 by {self.arithmetic}")
        lines += self.notes
        lines.append(f"workspace {self.workspace_bytes / 2**20:.1f} MiB")
        if self.chosen:
            lines.append(f"chosen {self.chosen}")
        if self.code is not None:
            lines += self.code()
        if verbose and self.account is not None:
            lines += self.account()
        return "\n".join(lines)


def make(problem: Problem, family: str, spec: KernelSpec, launches: Iterable[Launch], regions: Mapping[str, int],
         notes: Iterable[str] = (), error: float = DIRECT_ERROR, algorithm: str = "direct") -> Plan:
    """A plan whose workspace has regions of the given bytes.

    A region lives from the first launch that mentions it to the last; the largest are placed first, each as low as
    those alive with it allow.
    """
    launches = tuple(launches)
    lives = {name: _life(name, launches) for name in regions}
    placed: dict[str, Region] = {}
    for name in sorted(regions, key=lambda n: -regions[n]):
        first, last = lives[name]
        taken = sorted((r.offset, r.offset + r.nbytes) for r in placed.values()
                       if r.first <= last and first <= r.last)
        offset = 0
        for start, end in taken:
            if offset + regions[name] > start:
                offset = max(offset, -(-end // REGION_ALIGNMENT) * REGION_ALIGNMENT)
        placed[name] = Region(offset, regions[name], first, last)
    return Plan(problem, family, spec, launches, {name: placed[name] for name in regions}, tuple(notes),
                error, algorithm)


def _life(name: str, launches: tuple[Launch, ...]) -> tuple[int, int]:
    used = [at for at, launch in enumerate(launches) if name in launch.names]
    assert used and name in launches[used[0]].writes, f"region {name} is read before anything is written there"
    return used[0], used[-1]
