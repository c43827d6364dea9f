"""What was measured of the candidates for problems, remembered between processes: one entry of the cache (cache.py)
for each problem on each GPU, so that processes that tune at the same time lose nothing of each other's, an entry is
whole or not there, a damaged one is noticed, and the space is bounded with everything else in the cache.

A record holds names of candidates and their times, fastest first. Whoever chooses takes the first that there still is,
so what stands here can cost time, never a result. MAXDNN_TUNED=0 switches it off."""

import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from ..build.cubins import ingredients
from ..errors import MaxdnnError
from ..problem.problem import Problem
from ..runtime import cache
from ..runtime.forks import compiling
from ..runtime.remember import remembered
from .cost import Chip

_KEY = "maxdnn tuned 1"
_SUFFIX = ".tuned"
changed: list[Callable[[], None]] = []
"""Functions that are called when this process remembers or forgets something: of those who keep what was chosen."""



@dataclass(frozen=True, eq=False)
class Record:
    """`chip`, `driver`, `library`, `problem`: what it is remembered under. `about`: the problem in words. `results`:
    candidates and their seconds, fastest first. `measured`: when, ISO 8601, UTC. `simulated`: clocks of the timing
    model rather than of a GPU. `left_out`: candidates that there was no time for."""

    chip: str
    driver: str
    library: str
    problem: str
    about: str
    results: tuple[tuple[str, float], ...]
    measured: str
    simulated: bool
    left_out: int = 0

    def why(self, candidate: str) -> str:
        """What the plan of a candidate says of its choice."""
        how = "by simulation of" if self.simulated else "by measurement on"
        rest = f", {self.left_out} more not measured" if self.left_out else ""
        return (f"{how} {self.chip}, {self.measured[:10]}: {dict(self.results)[candidate] * 1e6:.1f} us, "
                f"of {len(self.results)} candidates{rest}")


def enabled() -> bool:
    """Whether choices may follow measurements. Raises MaxdnnError for a MAXDNN_TUNED that is neither 0 nor 1."""
    value = os.environ.get("MAXDNN_TUNED", "1")
    if value not in ("", "0", "1"):
        raise MaxdnnError(f"MAXDNN_TUNED must be 0 (choose by estimate alone) or 1 (got {value[:80]!r})")
    return value != "0"


def recall(chip: Chip, problem: Problem, prepared: bool = False) -> Record | None:
    """What was measured on such a chip for the problem, whatever its last step (bias, beta, activation) is; `prepared`:
    with filters made ready beforehand."""
    if not enabled():
        return None
    found: Record | None = _recalled(chip.name, chip.driver, problem, prepared)
    return found


def measured(chip: Chip, problem: Problem, results: Mapping[str, float], *, simulated: bool, left_out: int,
             prepared: bool = False) -> Record:
    """The record of what was measured just now: seconds by candidate."""
    ranking = tuple(sorted(results.items(), key=lambda item: item[1]))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(chip.name, chip.driver, library(), _name(problem, prepared), _about(problem, prepared), ranking, now,
                  simulated, left_out)


def remember(record: Record) -> bool:
    """Keep what was measured; whether there is a folder to keep it in."""
    kept = cache.store(_key_of(record), _SUFFIX, json.dumps(asdict(record)).encode())
    _change()
    return kept


def records() -> Iterator[Record]:
    """Everything that is remembered, of every GPU and every version of the library."""
    for content in cache.contents(_SUFFIX):
        record = _read(content)
        if record is not None and cache.load(_key_of(record), _SUFFIX) is not None:
            yield record


def forget(record: Record) -> None:
    """Remember it no longer."""
    cache.drop(_key_of(record), _SUFFIX)
    _change()


def _change() -> None:
    _recalled.table.clear()
    for tell in changed:
        tell()


@functools.cache
def library() -> str:
    """Version of the library and a digest of its kernels and of what makes them."""
    try:
        with compiling:  # metadata imports what it reads with
            version = metadata.version("maxdnn")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        version = "source"
    return f"{version} {ingredients()[:12]}"


@remembered()
def _recalled(chip: str, driver: str, problem: Problem, prepared: bool) -> Record | None:
    key = chip, driver, library(), _name(problem, prepared)
    content = cache.load(_key(*key), _SUFFIX)
    record = None if content is None else _read(content)
    return record if record and (record.chip, record.driver, record.library, record.problem) == key else None


def _name(problem: Problem, prepared: bool) -> str:
    """What decides how long a problem takes: all but the last step, which costs every candidate the same."""
    operands = [(o.role, o.shape, o.alignment.name, o.strides) for o in problem.operands if o.role != "bias"]
    return repr((problem.kind, problem.shape, problem.layout, operands, "filters prepared" * prepared))


def _about(problem: Problem, prepared: bool) -> str:
    unaligned = [o.role for o in problem.operands if o.alignment.name != "TEXTURE"]
    text = f"{problem.kind} {problem.layout} {problem.describe()}"
    text += f", {' and '.join(unaligned)} at any address" if unaligned else ""
    return text + ", filters prepared" * prepared


def _key(*parts: str) -> bytes:
    return json.dumps([_KEY, *parts]).encode()


def _key_of(record: Record) -> bytes:
    return _key(record.chip, record.driver, record.library, record.problem)


def _read(content: bytes) -> Record | None:
    """The record of an entry; None for anything else."""
    try:
        found: dict[str, Any] = json.loads(content)
        found["results"] = tuple((str(name), float(seconds)) for name, seconds in found["results"])
        record = Record(**found)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    texts = (record.chip, record.driver, record.library, record.problem, record.about, record.measured)
    if not record.results or not all(isinstance(text, str) for text in texts) or type(record.left_out) is not int:
        return None
    return record if all(math.isfinite(seconds) and seconds >= 0 for _, seconds in record.results) else None
