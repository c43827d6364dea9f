"""What an access costs, row by row in NumPy: the reference of the compiled reduction (maxdnn/simulator/access.py)."""

import numpy as np

NOBODY = np.uint64(0xFFFFFFFFFFFFFFFF)


def _ways(words):
    return int(np.bincount(np.unique(words) % 32, minlength=32).max()) if words.size else 0


def _neighbours_agree(lanes):
    index = np.arange(lanes.size)
    taking = lanes != NOBODY
    return any(bool((lanes == lanes[index ^ step])[taking].all()) for step in (1, 2))


def _words(lanes, count):
    a = lanes[lanes != NOBODY].astype(np.int64)
    return np.unique((a[:, None] // 4 + np.arange(count)).ravel())


def shared_phases(addresses, nbytes, pair_merge=True):
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


def cache_lines(addresses, nbytes):
    a = np.asarray(addresses, np.uint64)
    a = a[a != NOBODY].astype(np.int64)
    sectors = np.unique(np.concatenate([a // 32, (a + nbytes - 1) // 32]))
    lines, start = np.unique(sectors // 4, return_index=True)
    masks = np.add.reduceat(1 << (sectors % 4), start) if lines.size else np.zeros(0, np.int64)
    return lines, masks


def global_requests(addresses, nbytes):
    lanes = np.asarray(addresses, np.uint64)
    per = {4: 8, 8: 4, 16: 2}[max(4, nbytes)]
    tags = [np.unique(a[a != NOBODY] // np.uint64(128)).size for a in np.split(lanes, 32 // per)]
    return sum(-(-t // 4) for t in tags)


def constant_lines(addresses):
    a = np.asarray(addresses, np.uint64)
    a = a[a != NOBODY].astype(np.int64)
    return np.unique(a // 64), int(np.unique(a).size)
