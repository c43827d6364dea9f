"""Whether a GPU runs a source's machine code, or translations in its place: trust on first use.

Where kernels were measured (MEASURED) their machine code runs. On any other architecture that there is machine code for
it is off until this very card has passed a trial of it, once: in another process the kernels of the source run on small
problems between guard zones, beside float64 and a translation (selftest/trial.py). A wrong bit, a fault or a hang means
translations for good, and a line that asks to report it.

A verdict belongs to the GPU, its driver, the library's version and the bytes of the cubin. It is an entry of the cache,
so that a damaged or foreign one is none. That a trial begins is remembered first: where the whole machine stops twice
the next process finds that, and tries no more. What decides nothing (no memory, no other process) means translations in
this process and is not remembered."""

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
LONGEST = 2 * apart.LONGEST  # seconds after which a trial is over, whatever became of it
_KEY, _SUFFIX, _BEGUN = "maxdnn trial 1", ".trial", "begun"
TRIES = 2  # that may begin and never end, as where the machine stops
_FIELDS = {"state": str, "text": str, "when": str, "at": float, "tries": int, "process": int, "host": str}
_LOOK = 0.1  # seconds after which the trial of another process is looked at again


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
    """What the process of a trial runs: machine code of this source, as it was given, and of no other that has a
    translation; of none while `on` is false."""

    source: str
    code: bytes
    on: bool = True


trying: Trying | None = None
"""Set in the process of a trial alone."""

_known: dict[tuple[str, str, str], Standing] = {}  # by GPU, driver, source
_deciding = FreshLock()


def native(chip: Chip, source: str) -> str:
    """The architecture whose machine code of a source a chip runs; "" where there is none or nobody could run it."""
    archs = _architectures(source)
    return chip.arch if chip.arch in archs and (HOPPER in archs or chip.runs_maxwell) else ""


def image(source: str, arch: str) -> bytes:
    """The cubin of a source, in a trial the one that is tried."""
    return trying.code if trying is not None and trying.on and trying.source == source else cubin(source, arch)


def load(device: Device, source: str, arch: str | None = None) -> Module:
    """A new module of a source: as machine code, where the device runs that and it may. `arch`: of a source that runs
    nowhere else as a translation. Raises DeviceError for one whose machine code is off."""
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
    """What MAXDNN_NATIVE decides; None where it is not set. Raises MaxdnnError for what it cannot be."""
    value = os.environ.get(ENVIRONMENT, "")
    if value not in ("", "0", "1"):
        raise MaxdnnError(f"{ENVIRONMENT} must be 0 (translations alone) or 1 (machine code, tried or not) "
                          f"(got {value[:80]!r})")
    return bool(int(value)) if value else None


def standing(chip: Chip, source: str) -> Standing:
    """How a source runs on a chip; tries it out where nobody knows yet."""
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
    """Whether nothing is to be tried there: no card, or one whose architecture was measured."""
    return not chip.trial or chip.arch in MEASURED


def refused(chip: Chip) -> frozenset[str]:
    """The sources whose machine code is known to be off, without a trial of any."""
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
    """Whether all of these sources may run as machine code where there is some; tries them out in their order until
    one may not."""
    return all(standing(chip, source).on for source in wanted)


def said(chip: Chip, wanted: Iterable[str]) -> list[str]:
    """Lines on how sources run, and on what is off: in the words of `standing`, without a trial."""
    found: dict[str, list[str]] = {}
    for source in dict.fromkeys([*wanted, *sorted(refused(chip))]):
        arch = native(chip, source)
        told = _told(chip, source, arch) if arch else None
        if told is not None:
            found.setdefault(f"machine code of {arch} {'runs' if told.on else 'is translated instead'} ({told.why})",
                             []).append(source)
    return [f"{text}: {', '.join(names)}" for text, names in found.items()]


def again(chip: Chip, source: str) -> Standing:
    """Try a source out of which the chip has machine code, whatever is known of it, and remember what comes of that."""
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
    """What is known without asking the cache or the card."""
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
    """By the cache, or by a trial now."""
    subject = _subject(chip, source, arch)
    found = _remembered(subject)
    if found is None:
        found = _tried(chip, subject, cubin(source, arch), arch)
    return found


def _remembered(subject: Subject) -> Standing | None:
    """The verdict that the cache has; that of a trial which another process has begun, when it is there."""
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
    """Whether the process that began a trial may still be at it."""
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
    """Also which process it was, and how many trials began and did not end."""
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
        if not done:  # nobody knows, or the user interrupted it
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
    """What the user should know of a trial."""
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
