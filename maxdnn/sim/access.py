"""Lane addresses to what the memory pipes see: shared-memory phases, cache lines with sector masks, request counts.

An address row holds the byte address of each of 32 lanes; all ones for a lane that did not take part."""

import numpy as np

from .machine import LINE, SECTOR, SHARED_BANKS

NO_LANE = np.uint64(0xFFFFFFFFFFFFFFFF)


def _ways(words: np.ndarray) -> int:
    """Passes for distinct words: the largest number of different words in one bank."""
    return int(np.bincount(np.unique(words) % SHARED_BANKS, minlength=SHARED_BANKS).max()) if words.size else 0


def _neighbours_agree(lanes: np.ndarray) -> bool:
    """Whether every taking-part lane reads the address of the lane beside it, or every one that of the lane two on."""
    index = np.arange(lanes.size)
    taking = lanes != NO_LANE
    return any(bool((lanes == lanes[index ^ step])[taking].all()) for step in (1, 2))


def _words(lanes: np.ndarray, count: int) -> np.ndarray:
    a = lanes[lanes != NO_LANE].astype(np.int64)
    return np.unique((a[:, None] // 4 + np.arange(count)).ravel())


def shared_phases(addresses: np.ndarray, nbytes: int, pair_merge: bool = True) -> int:
    """Cycles one shared-memory access of `nbytes` (4, 8, 16) per lane occupies the 32 banks.

    32-bit: one phase per conflict way. 64-bit: two half warps, 128-bit: four quarter warps, each with its own ways.
    With `pair_merge`, two neighbouring parts are served as one when all their lanes agree in pairs (lane with lane ^ 1,
    or lane with lane ^ 2), the vendor's rule for later architectures."""
    lanes = np.asarray(addresses, np.uint64)
    parts = max(1, nbytes // 4)
    per = 32 // parts
    phases = 0
    step = 2 if parts > 1 and pair_merge else 1
    for at in range(0, 32, per * step):
        group = lanes[at:at + per * step]
        if step == 2 and not _neighbours_agree(group):
            phases += _ways(_words(group[:per], parts)) + _ways(_words(group[per:], parts))
        else:
            phases += _ways(_words(group, parts))
    return phases


def cache_lines(addresses: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """128-byte lines touched, in ascending order, and for each the mask of its four 32-byte sectors."""
    a = np.asarray(addresses, np.uint64)
    a = a[a != NO_LANE].astype(np.int64)
    first, last = a // SECTOR, (a + nbytes - 1) // SECTOR
    sectors = np.unique(np.concatenate([first, last]))
    lines, start = np.unique(sectors * SECTOR // LINE, return_index=True)
    masks = np.add.reduceat(1 << (sectors % (LINE // SECTOR)), start) if lines.size else np.zeros(0, np.int64)
    return lines, masks.astype(np.uint8)


def global_requests(addresses: np.ndarray, nbytes: int) -> int:
    """Requests a global or local access is split into before the tags: 8 lanes each up to 32 bit, 4 at 64, 2 at 128
    (an NVIDIA engineer on the developer forum, "Pascal L1 cache"), each needing a cycle per four lines it touches."""
    lanes = np.asarray(addresses, np.uint64)
    per = {4: 8, 8: 4, 16: 2}[max(4, nbytes)]
    total = 0
    for at in range(0, 32, per):
        a = lanes[at:at + per]
        tags = np.unique(a[a != NO_LANE] // np.uint64(LINE)).size
        total += -(-tags // 4)
    return total


def constant_lines(addresses: np.ndarray, line: int) -> tuple[np.ndarray, int]:
    """Lines of a constant load (bank << 16 | offset) and its distinct addresses, which are served one after another."""
    a = np.asarray(addresses, np.uint64)
    a = a[a != NO_LANE].astype(np.int64)
    return np.unique(a // line), int(np.unique(a).size)
