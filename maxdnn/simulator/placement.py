"""Which blocks of a grid an SM gets, of sm_90: the SM that is simulated has those of the one with the most to do."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .state import Places, Work


def instructions(work: Work) -> np.ndarray:
    """How many each block issues, its warps together."""
    lengths = np.concatenate([[0], np.cumsum(work.runs[:, 1])])
    paths = (lengths[work.path_ptr[1:]] - lengths[work.path_ptr[:-1]])[work.path]
    classes = int(work.class_of.max()) + 1
    return np.asarray(paths.reshape(classes, -1).sum(1)[work.class_of])


def turns(blocks: int, sms: int, ahead: Mapping[str, int]) -> np.ndarray:
    """The SM of each block while there is room: some take a block more often than one in a turn of all (probe
    placing.py)."""
    number = np.arange(blocks)
    since = np.where(number < ahead["first"], number, (number - ahead["first"]) % ahead["every"])
    mine = since < ahead["sms"]
    others = (np.cumsum(~mine) - 1) % (sms - ahead["sms"]) + ahead["sms"]
    return np.where(mine, since, others)


CPCS = 3  # of a GPC


class Gpcs:
    """The SMs of a chip by GPC, in the order in which a grid takes them; `tpcs`: pairs of SMs of each GPC, `first`: SMs
    of the first GPC that come before all others (probe placing.py). They are numbered so, then the pairs of all GPCs by
    turns. `of`: the GPC of each SM; `cpc`: its CPC, of which a GPC has three, whose TPCs take turns (probe chosen.py:
    the first GPC's first TPCs come last there)."""

    def __init__(self, first: int, tpcs: Sequence[int]) -> None:
        ahead = first // 2
        left = [tpcs[0] - ahead, *tpcs[1:]]
        turns = [(gpc, n) for n in range(max(left)) for gpc, count in enumerate(left) if n < count]
        every = [(0, left[0] + n) for n in range(ahead)] + turns
        self.first, self.of = first, np.repeat([gpc for gpc, _ in every], 2)
        self.cpc = np.repeat([CPCS * gpc + n % CPCS for gpc, n in every], 2)

    def filled(self, blocks: int) -> np.ndarray:
        """The SMs that have one block more than others: one of each pair before the second ones."""
        sms = np.arange(len(self.of))
        return np.concatenate([sms[:self.first], sms[self.first::2], sms[self.first + 1::2]])[:blocks]

    def rounds(self, blocks: int) -> np.ndarray:
        """The SM of each block of a small grid: GPC by GPC, again and again, less the SMs that have none in the last
        round."""
        order = np.argsort(self.of, kind="stable")
        last = order[np.isin(order, self.filled(blocks % len(order)))]
        return np.concatenate([np.tile(order, blocks // len(order)), last])

    def places(self, order: np.ndarray, distance: Mapping[str, int]) -> Places:
        """Where the SMs in an order are; distance: of each TPC by its number."""
        of_first = len(distance) - self.first // 2  # the TPCs that come first have the last numbers
        far = np.roll(np.array(list(distance.values())), -of_first)
        loads = 2 * CPCS * (int(self.of.max()) + 1)
        return Places(loads + int(self.of.max()) + 1, 2 * self.cpc[order], loads + self.of[order], far[order // 2])

    def crowd(self, blocks: int) -> float:
        """How many of the SMs with a block are in the GPC that has the most of them, by how many these are where all
        SMs have one."""
        most, of_all = (np.bincount(self.of[self.filled(n)]).max() / n for n in (blocks, len(self.of)))
        return float(most / of_all)


def gpcs_of(sms: int, ahead: Mapping[str, int], tpcs: Mapping[str, int]) -> Gpcs | None:
    """The GPCs of a machine; None where another number of SMs was asked for."""
    known = 2 * sum(tpcs.values()) == sms and 2 * next(iter(tpcs.values())) >= ahead["sms"]
    return Gpcs(ahead["sms"], list(tpcs.values())) if known else None


def shares(costs: np.ndarray, sms: int, fit: int, ahead: Mapping[str, int], gpcs: Gpcs | None) -> list[list[int]]:
    """The blocks of each SM: of large grids as `turns` says until all are full, of others as `gpcs` says, if they are
    known, then by whose block ends first. `fit`: how many are on an SM at a time."""
    taken: list[list[int]] = [[] for _ in range(sms)]
    ends: list[tuple[int, int]] = []
    if len(costs) >= ahead["grid"]:
        order = turns(4 * sms * fit + len(costs), sms, ahead)
    else:
        order = gpcs.rounds(len(costs)) if gpcs else np.arange(len(costs)) % sms
    wanted, block = iter(order.tolist()), 0
    while block < min(len(costs), sms * fit):
        sm = next(wanted)
        if len(taken[sm]) < fit:
            taken[sm].append(block)
            heapq.heappush(ends, (int(costs[block]), sm))
            block += 1
    for later in range(block, len(costs)):
        end, sm = heapq.heappop(ends)
        taken[sm].append(later)
        heapq.heappush(ends, (end + int(costs[later]), sm))
    return taken


def lines(work: Work) -> np.ndarray:
    """How many lines of memory each block asks for, its warps together."""
    rows = work.records
    own = np.where(rows[:, 3] >= 0, rows[:, 2], rows[np.where(rows[:, 3] >= 0, 0, rows[:, 1]), 2])
    before = np.concatenate([[0], np.cumsum(own)])
    streams = before[work.record_ptr[1:]] - before[work.record_ptr[:-1]]
    return np.asarray(streams.reshape(int(work.class_of.max()) + 1, -1).sum(1)[work.class_of])


def most_lines_first(work: Work) -> Work:
    """The same work, each block of which is on an SM of its own, with that one first that asks for the most lines:
    blocks at the border of a map ask for few."""
    first = int(lines(work).argmax())
    order = np.concatenate([[first], np.delete(np.arange(len(work.class_of)), first)])
    return replace(work, class_of=work.class_of[order], shift=work.shift[order])


def placed(work: Work, sms: int, fit: int, ahead: Mapping[str, int], gpcs: Gpcs | None) -> Work:
    """The same work with its blocks in an order in which every `sms`th is of the SM that has the most to do. Where all
    blocks issue as many instructions it stays as it is."""
    costs = instructions(work)
    if len(costs) <= sms // 2 or costs.min() == costs.max():
        return work
    most = max(shares(costs, sms, fit, ahead, gpcs), key=lambda blocks: int(costs[blocks].sum()))
    rest = np.setdiff1d(np.arange(len(costs)), most, assume_unique=True)
    rounds = -(-len(costs) // sms)
    mine = most[:rounds]
    if len(mine) < rounds:  # what it lacks are the shortest
        few = rest[np.argsort(costs[rest], kind="stable")][:rounds - len(mine)]
        mine, rest = [*mine, *few.tolist()], np.setdiff1d(rest, few, assume_unique=True)
    order = np.empty(len(costs), np.int64)
    own = np.arange(len(costs)) % sms == 0
    order[own], order[~own] = mine, np.concatenate([rest, most[rounds:]]).astype(np.int64)
    return replace(work, class_of=work.class_of[order], shift=work.shift[order])


def by_sms(work: Work, sms: int, fit: int, ahead: Mapping[str, int], gpcs: Gpcs | None) -> tuple[Work, np.ndarray]:
    """The same work with its blocks in the order in which SMs that take one each by turns, those with more blocks
    first, get those that they have at first; and which SMs these are."""
    costs = instructions(work)
    taken = [blocks[:fit] for blocks in shares(costs[:sms * fit], sms, fit, ahead, gpcs)]
    order = sorted(range(sms), key=lambda sm: -len(taken[sm]))
    first = [taken[sm][n] for n in range(fit) for sm in order if n < len(taken[sm])]
    blocks = np.array([*first, *range(len(first), len(costs))])
    return replace(work, class_of=work.class_of[blocks], shift=work.shift[blocks]), np.array(order)
