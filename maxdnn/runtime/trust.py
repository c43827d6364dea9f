"""Whether a GPU runs a source's machine code or its translation: trust on first use.

On architectures where the kernels were measured (MEASURED) their machine code runs. On any other architecture it is
off until this very card has passed a trial of it, once. The trial runs the kernels of the source in another process,
on small problems between guard zones, and compares with float64 and with a translation (selftest/trial.py). After a
wrong bit, a fault or a hang the card runs translations from then on, and a message asks the user to report it.

A verdict belongs to the GPU, its driver, the version of the library and the bytes of the cubin. It is an entry of the
cache, so a damaged or foreign verdict counts as none. The start of a trial is stored before the trial: if the whole
machine stops during two trials, the next process sees that and tries no more. A trial that could not decide (no
memory, no other process) means translations in this process; it is not stored."""

import functools
import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..build.cubins import HOPPER, architectures, cubin, sources
from ..errors import DeviceError, MaxdnnError
from ..planning.cost import Chip, HasChip
from ..planning.records import library
from . import apart, cache, notices
from .apart import FAILED, PASSED, UNDECIDED, Outcome, tried
from .devices.protocol import Device, Module, Translating, able
from .forks import FreshLock

MEASURED = frozenset({HOPPER})
"""Architectures whose machine code was measured."""

ENVIRONMENT = "MAXDNN_NATIVE"
LONGEST = 2 * apart.LONGEST  # seconds: a trial that began longer ago than this has ended
_KEY, _SUFFIX, _BEGUN = "maxdnn trial 1", ".trial", "begun"
TRIES = 2  # trials that may begin without ending, as when the machine stops, before no more are tried
_FIELDS = {"state": str, "text": str, "when": str, "at": float, "tries": int, "process": int, "host": str}
_LOOK = 0.1  # seconds between two looks at the trial of another process


class Standing(NamedTuple):
    """`on`: whether machine code runs. `why`: in words."""

    on: bool
    why: str


@dataclass(frozen=True)
class Subject:
    """What a verdict belongs to. `code`: a digest of the cubin."""

    gpu: str
    driver: str
    library: str
    source: str
    code: str

    @property
    def key(self) -> bytes:
        return json.dumps([_KEY, *asdict(self).values()]).encode()


@dataclass(frozen=True)
class Trying:
    """Set in the process of a trial. Machine code of this source runs, from the bytes given, and machine code of no
    other source that can be translated. While `on` is false no machine code runs."""

    source: str
    code: bytes
    on: bool = True


trying: Trying | None = None
"""Set in the process of a trial alone."""

_known: dict[tuple[str, str, str], Standing] = {}  # by GPU, driver, source
_deciding = FreshLock()


def native(chip: Chip, source: str) -> str:
    """The architecture for which a chip runs machine code of a source; "" if the source has no code for it."""
    archs = _architectures(source)
    return chip.arch if chip.arch in archs and (HOPPER in archs or chip.runs_maxwell) else ""


def image(source: str, arch: str) -> bytes:
    """The cubin of a source; in a trial the one that is tried."""
    return trying.code if trying is not None and trying.on and trying.source == source else cubin(source, arch)


def load(device: Device, source: str, arch: str | None = None) -> Module:
    """A new module of a source: its machine code where that may run, else a translation. `arch`: the architecture of a
    source that cannot be translated. Raises DeviceError for such a source if its machine code is off."""
    known = able(device, HasChip)
    own = native(known.chip, source) if known else ""
    if known is None or not own:
        return device.load(image(source, arch or device.arch))
    found = standing(known.chip, source)
    if found.on or (arch is not None and trying is not None and trying.on):
        return device.load(image(source, own))
    translating = able(device, Translating)
    if arch is not None or translating is None:
        raise DeviceError(f"{source} is machine code of {own}, which {device.name} does not run: {found.why}")
    return translating.load_translated(cubin(source, own))


def asked() -> bool | None:
    """The value of MAXDNN_NATIVE; None if it is not set. Raises MaxdnnError for an invalid value."""
    value = os.environ.get(ENVIRONMENT, "")
    if value not in ("", "0", "1"):
        raise MaxdnnError(f"{ENVIRONMENT} must be 0 (translations alone) or 1 (machine code, tried or not) "
                          f"(got {value[:80]!r})")
    return bool(int(value)) if value else None


def standing(chip: Chip, source: str) -> Standing:
    """How a source runs on a chip. Runs the trial if there is no verdict yet."""
    arch = native(chip, source)
    if not arch:
        return Standing(True, "")
    found = _told(chip, source, arch)
    if found is None:
        with _deciding:
            found = _told(chip, source, arch) or _decided(chip, source, arch)
            _known[chip.name, chip.driver, source] = found
    return found


def certain(chip: Chip) -> bool:
    """Whether no trial is needed on the chip: it is no card, or its architecture was measured."""
    return not chip.trial or chip.arch in MEASURED


def refused(chip: Chip) -> frozenset[str]:
    """The sources whose machine code is known to be off. Runs no trial."""
    if not chip.arch:
        return frozenset()
    wanted = asked()
    if trying is not None or wanted is False:
        return frozenset(s for s in _sources() if native(chip, s) and not standing(chip, s).on)
    if wanted or certain(chip):
        return frozenset()
    return frozenset(s for (gpu, driver, s), found in _known.items()
                     if not found.on and (gpu, driver) == (chip.name, chip.driver))


def settled(chip: Chip, wanted: Iterable[str]) -> bool:
    """Whether machine code of all these sources may run. Runs the trials that are missing, until one fails."""
    return all(standing(chip, source).on for source in wanted)


def said(chip: Chip, wanted: Iterable[str]) -> list[str]:
    """Lines for `explain()`: how the sources run, and which machine code is off. Runs no trial."""
    found: dict[str, list[str]] = {}
    for source in dict.fromkeys([*wanted, *sorted(refused(chip))]):
        arch = native(chip, source)
        told = _told(chip, source, arch) if arch else None
        if told is not None:
            found.setdefault(f"machine code of {arch} {'runs' if told.on else 'is translated instead'} ({told.why})",
                             []).append(source)
    return [f"{text}: {', '.join(names)}" for text, names in found.items()]


def again(chip: Chip, source: str) -> Standing:
    """Run the trial of a source once more, whatever its verdict is, and store the new verdict."""
    arch = native(chip, source)
    with _deciding:
        found = _known[chip.name, chip.driver, source] = _tried(chip, _subject(chip, source, arch),
                                                               cubin(source, arch), arch)
    return found


_architectures = functools.cache(architectures)


@functools.cache
def _sources() -> list[str]:
    return sources()


def _told(chip: Chip, source: str, arch: str) -> Standing | None:
    """The verdict, as far as it is known without reading the cache or using the card."""
    if trying is not None:
        return Standing(trying.on and trying.source == source, "a trial")
    if (wanted := asked()) is not None:
        return Standing(wanted, f"{ENVIRONMENT}={int(wanted)}")
    if arch in MEASURED:
        return Standing(True, f"{arch} was measured")
    if not chip.trial:
        return Standing(True, "a chip described, not a card: never tried")
    return _known.get((chip.name, chip.driver, source))


def _subject(chip: Chip, source: str, arch: str) -> Subject:
    return Subject(chip.name, chip.driver, library(), source, hashlib.sha256(cubin(source, arch)).hexdigest())


def _decided(chip: Chip, source: str, arch: str) -> Standing:
    """The verdict of the cache, or else of a trial that runs now."""
    subject = _subject(chip, source, arch)
    found = _remembered(subject)
    if found is None:
        found = _tried(chip, subject, cubin(source, arch), arch)
    return found


def _remembered(subject: Subject) -> Standing | None:
    """The verdict in the cache. Waits for a trial that another process is running."""
    while True:
        content = cache.load(subject.key, _SUFFIX)
        record = None if content is None else _read(content, subject)
        if record is None:
            return None
        if record["state"] != _BEGUN:
            return _standing(Outcome(record["state"], record["text"]), record["when"])
        if not _goes_on(record):
            return None if record["tries"] < TRIES else Standing(
                False, f"{TRIES} trials began and never ended, the last on {record['when']}; "
                       "`maxdnn selftest --native` tries again")
        time.sleep(_LOOK)


def _goes_on(record: dict[str, Any]) -> bool:
    """Whether the process that began a trial may still be running it."""
    if not 0 <= time.time() - record["at"] < LONGEST:
        return False
    if os.name != "posix" or record["host"] != platform.node():
        return os.name != "posix"
    try:
        os.kill(record["process"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return bool(record["process"] != os.getpid())


def _read(content: bytes, subject: Subject) -> dict[str, Any] | None:
    """The record of an entry; None for anything else."""
    try:
        record: dict[str, Any] = json.loads(content)
        whose, kinds = record["subject"], {name: type(record[name]) for name in _FIELDS}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if whose != asdict(subject) or kinds != _FIELDS or record["process"] < 1:
        return None
    return record if record["state"] in (PASSED, FAILED, _BEGUN) else None


def _remember(subject: Subject, state: str, text: str) -> bool:
    """Store a verdict, with this process and the number of trials that began and did not end."""
    content = cache.load(subject.key, _SUFFIX) if state == _BEGUN else None
    before = None if content is None else _read(content, subject)
    tries = 1 + (before["tries"] if before and before["state"] == _BEGUN else 0)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"subject": asdict(subject), "state": state, "text": text, "when": now, "at": time.time(), "tries": tries,
              "process": os.getpid(), "host": platform.node()}
    return cache.store(subject.key, _SUFFIX, json.dumps(record).encode())


def _tried(chip: Chip, subject: Subject, code: bytes, arch: str) -> Standing:
    notices.say(f"{chip.name} has not run {subject.source} as machine code of {arch} yet: trying it in another process")
    kept = _remember(subject, _BEGUN, "")
    done = False
    try:
        outcome = tried(chip, subject.source, code, arch)
        done = outcome.state != UNDECIDED
    finally:
        if not done:  # undecided, or interrupted by the user
            cache.drop(subject.key, _SUFFIX)
    if done:
        kept = _remember(subject, outcome.state, outcome.text)
    for line in _lines(outcome, chip, subject, arch, kept):
        notices.say(line)
    return _standing(outcome, datetime.now(UTC).isoformat(timespec="seconds"))


def _standing(outcome: Outcome, when: str) -> Standing:
    if outcome.state == PASSED:
        return Standing(True, f"this card passed a trial on {when[:10]}: {outcome.text}")
    if outcome.state == UNDECIDED:
        return Standing(False, f"it could not be tried: {outcome.text}")
    return Standing(False, f"it failed a trial on this card on {when[:10]}: {outcome.text}")


def _lines(outcome: Outcome, chip: Chip, subject: Subject, arch: str, kept: bool) -> list[str]:
    """What to print about a trial."""
    what = f"{subject.source} as machine code of {arch} on {chip.name}"
    lines = []
    if outcome.state == PASSED:
        lines.append(f"{what}: passed, {outcome.text}")
    elif outcome.state == UNDECIDED:
        lines.append(f"{what}: could not be tried ({outcome.text}); translations run in this process")
    else:
        lines.append(f"{what}: {outcome.text}. Translations run instead. Please report this in an issue, with what "
                     "`maxdnn selftest --native` prints")
    if not kept and outcome.state != UNDECIDED:
        lines.append("this is not remembered: there is no cache folder that can be written (MAXDNN_CACHE names one)")
    return lines
