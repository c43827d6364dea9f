"""The memory image of a simulation (columns.py): how a machine, a kernel and a workload become one flat array."""

from dataclasses import dataclass

import numpy as np

from ..errors import SimulationError
from . import columns as c
from .machine import CONSTANT15_LINE, CONSTANT_LINE, INSTRUCTION_LINE, LINE, SECTOR, Machine

ALIGNED = c.HOST_LINE // 2  # tables begin at multiples of this

# What it takes to write a sector into one part of L2 that keeps copies, in parts of a store: half of what is stored is
# written into both.
_COPY = 2 / 3


@dataclass(frozen=True)
class Work:
    """What the warps do. A path is a list of runs (first instruction, length); a stream is a list of records, one per
    executed memory instruction: service cycles, first line and number of lines in `lines`, group; or (any, first
    variant, any, -1 - group): the record of variant v stands v places after the first. Blocks of a class do the same:
    warp w of block b follows path[k], reads the records from record_ptr[k] on, k = class_of[b] * warps + w, adds
    shift[b, group, 0] to its lines and takes the variants shift[b, group, 1]."""

    runs: np.ndarray  # int64 (n, 2)
    path_ptr: np.ndarray  # int64, paths + 1
    path: np.ndarray  # int64, classes * warps
    class_of: np.ndarray  # int64, blocks
    record_ptr: np.ndarray  # int64, classes * warps + 1
    records: np.ndarray  # int64 (n, 4)
    lines: np.ndarray  # int64 (n, 2): line number, sector mask
    shift: np.ndarray  # int64, blocks x groups x 2
    barriers: int = 0  # mbarriers of a block


@dataclass(frozen=True, slots=True)
class Shape:
    """How much is simulated: SMs, SMs mirrored, resident blocks per SM, warps per block, blocks of the grid, policy.
    trace: the cycles whose issues are kept; windows: for how many such spans there is room; warm: whether the launch
    follows one of its like (warm.py)."""

    sms: int
    mirror: int
    resident: int
    block_warps: int
    blocks: int
    policy: int
    trace: tuple[int, int] = (0, 0)
    windows: int = 1
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """Where each SM is: which of so many resources its CPC has for loads, the next one being that for stores, which one
    its GPC has, and how much further away from L2 it is than the mean of all."""

    resources: int
    cpc: np.ndarray
    gpc: np.ndarray
    far: np.ndarray


def _narrow(cells: np.ndarray) -> np.ndarray:
    """Cells of 32 bits, two in one of the image's."""
    narrow = cells.ravel().astype(np.int32)
    return np.concatenate([narrow, np.zeros(narrow.size % 2, np.int32)]).view(np.int64)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """One array of all parts that begins with a cache line of the processor that runs this."""
    size = sum(part.size for part in parts)
    room = np.empty(size + ALIGNED, np.int64)
    first = -(room.ctypes.data // room.itemsize) % ALIGNED
    return np.concatenate([part.ravel() for part in parts], out=room[first:first + size])


def _behind_l1(machine: Machine) -> dict[int, int]:
    """Figures of L2 and DRAM."""
    m, sets = machine.of_any, machine["l2_kib"] * 1024 // LINE // machine["l2_ways"]
    finer = c.PARTIAL_BITS if m["l2_copies_kib"] else 0  # without copies all sets keep the same number of lines
    ways = m["l2_ways"] << finer
    sector, of_dram = SECTOR * c.TICK, SECTOR * c.TICK / machine.dram_bytes_per_cycle

    def lines(kib: float) -> int:
        """Of a set."""
        return round(kib / m["l2_kib"] * ways) << c.PARTIAL_BITS - finer

    return {
        c.P_L2LAT: m["l2_latency"], c.P_L2WAYS: m["l2_ways"], c.P_L2SETS: sets, c.P_L2INVERSE: (1 << 32) // sets,
        c.P_L2_TICKS: round(sector / m["l2_bytes"]),
        c.P_L2_LOAD_TICKS: round(sector / (m["l2_load_bytes"] or m["l2_bytes"])),
        c.P_L2_LOAD_LEAST: round(m["l2_load_least"] * c.TICK),
        c.P_L2_WRITE_TICKS: round(sector / (m["l2_store_bytes"] or m["l2_bytes"])),
        c.P_L2_STORE_LEAST: round(m["l2_store_least"] * c.TICK),
        c.P_L2_COMPLETE_TICKS: round(m["l2_complete"] * c.TICK),
        c.P_L2_LOAD_STORE: round(m["l2_load_store_cost"] * c.TICK),
        c.P_L2_COPY_TICKS: round(sector / m["l2_store_bytes"] * _COPY) if m["l2_copies_kib"] else 0,
        c.P_L2SECOND: round(m["l2_second"] * 256),
        c.P_L2DIRTY: lines(min(m["l2_dirty_kib"] or m["l2_kib"], m["l2_kib"])),
        c.P_L2PARTIAL: lines(m["l2_partial_kib"]),
        c.P_DRAMLAT: m["dram_latency"], c.P_DRAM_SECTORS: m["dram_sectors"] or 1, c.P_DRAM_TICKS: round(of_dram),
        c.P_DRAM_WRITE_TICKS: round(of_dram * (m["dram_write_cost"] or 1)),
        c.P_DRAM_ALONE_TICKS: round(of_dram * m["dram_write_alone"]),
        c.P_DRAM_LEAST: round(m["dram_least"] * c.TICK / machine.dram_bytes_per_cycle),
        c.P_DRAM_WRITE_LEAST: round(m["dram_write_least"] * c.TICK / machine.dram_bytes_per_cycle),
    }


class Image:
    """The image and the shapes of the tables in it; `X` is what the engine takes."""

    def __init__(
        self, machine: Machine, code: np.ndarray, work: Work, shape: Shape,
        unlike: tuple[np.ndarray, np.ndarray, int] | None = None, kinds: np.ndarray | None = None,
        places: Places | None = None,
    ) -> None:
        self.machine, self.shape, self.instructions = machine, shape, len(code)
        if int(work.lines[:, 0].max(initial=0)) + int(work.shift[:, :, 0].max(initial=0)) >= c.MOST_LINES:
            raise SimulationError(f"addresses must be below {c.MOST_LINES * LINE >> 30} GiB")
        slots = shape.resident * shape.block_warps
        self.order_length = -(-slots // 4) + 1
        each = 4 if machine.sm90 else 8  # issues of an SM in a cycle
        events = max(0, shape.trace[1] - shape.trace[0]) * shape.windows * each * shape.sms
        head = self._head(work, events)
        self._parts: list[np.ndarray] = [head]
        self.at = c.HEAD
        self._add(head, c.T_CODE, code)
        self._add(head, c.T_WARP, np.zeros((shape.sms * slots, c.W_SIZE), np.int64))
        self._add(head, c.T_SCHED, np.zeros((shape.sms * 4, c.S_SIZE), np.int64))
        self._add(head, c.T_ORDER, np.full((shape.sms * 4, self.order_length), -1, np.int64))
        self._add(head, c.T_BLOCK, np.zeros((shape.sms * shape.resident, c.B_SIZE), np.int64))
        self._add(head, c.T_SM, np.zeros((shape.sms, c.M_SIZE), np.int64))
        beside = bool((code[:, c.I_KIND] >= c.K_COPY).any())
        ports = c.B_PORTS + shape.sms * (2 if beside else 1)
        books = np.zeros((ports + (places.resources if places else 0), c.BOOK_SIZE), np.int64)
        books[:, 2::2] = -1
        self._add(head, c.T_BOOK, books)
        self._add_work(head, work)
        if shape.warm:
            self._add(head, c.T_WARM, touches(code, work) if kinds is None else kinds)
        self._add_caches(head)
        self._add(head, c.T_STALL, np.zeros((self.instructions + 1, c.REASON_COUNT), np.int64))
        if (code[:, c.I_WAIT] & c.WAIT_COUNTED).any() or crowded(code, machine.of_any["scoreboard_most"]):
            self._add(head, c.T_COUNT, np.zeros((shape.sms * slots * 6, c.COUNT_SIZE), np.int64))
        if beside:
            head[c.P_BESIDE] = 1
            self._add(head, c.T_MBARRIER, np.zeros((shape.sms * shape.resident * work.barriers, c.MB_SIZE), np.int64))
        self._add(head, c.T_PLACES, np.zeros(c.PLACES * c.PLACE_SIZE, np.int64))
        ranks = (np.arange(1 << c.SPREAD_BITS) + 0.5) / (1 << c.SPREAD_BITS)
        self._add(head, c.T_SPREAD, np.round(-np.log(ranks) * c.SPREAD_ONE).astype(np.int64))
        self._add(head, c.T_ASKED, np.zeros((c.ASKED, c.ASKED_SIZE), np.int64))
        self._add(head, c.T_AHEAD, np.zeros((shape.mirror + 1, c.AHEAD_SIZE), np.int64))
        # Behind L2's table, whose place tells which sets keep one line more (`of_set` in partial.py).
        self._add(head, c.T_NEXT, np.zeros(shape.sms, np.int64))
        if machine.sm90 and shape.mirror and not beside:
            lists = shape.sms * shape.resident * work.shift.shape[1]
            self._add(head, c.T_ALIKE, np.zeros((lists, 1 + shape.mirror * c.ALIKE_SIZE), np.int64))
            self._add(head, c.T_PLACE, np.zeros(shape.mirror + 1, np.int64))
            self._add(head, c.T_FOUND, np.zeros((c.FOUND, c.FOUND_SIZE), np.int64))
            self._add_slots(head, unlike)
            head[c.P_SHARING] = not machine.of_any["l2_copies_kib"] and stores_parts(work.lines)
        self._add(head, c.T_EVENT, np.zeros((events, c.EVENT_SIZE), np.int64))
        self._add(head, c.T_END, np.zeros(1, np.int64))
        self.X = _joined(self._parts)
        self._parts.clear()
        self._bind(slots)
        if places:
            self._put(places, ports)

    def table(self, where: int, rows: int, size: int) -> np.ndarray:
        """A view of a table of the image."""
        start = int(self.X[where])
        return self.X[start:start + rows * size].reshape(rows, size)

    @property
    def code(self) -> np.ndarray:
        return self.table(c.T_CODE, self.instructions, c.I_SIZE)

    def _add(self, head: np.ndarray, where: int, part: np.ndarray) -> None:
        head[where] = self.at
        room = np.zeros(-part.size % ALIGNED, np.int64)  # so that no way of a cache begins amid a line of the host's
        self._parts += [part, room]
        self.at += part.size + room.size

    def _head(self, work: Work, events: int) -> np.ndarray:
        m, s = self.machine.of_any, self.shape
        head = np.zeros(c.HEAD, np.int64)
        head[c.C_L2_LINE] = -1
        for cell, value in {
            c.P_SMS: s.sms, c.P_MIRROR: s.mirror, c.P_BLOCK_SLOTS: s.resident, c.P_BLOCK_WARPS: s.block_warps,
            c.P_WARP_SLOTS: s.resident * s.block_warps, c.P_BLOCKS: s.blocks, c.P_POLICY: s.policy,
            c.P_CANDIDATES: m["candidates"], c.P_MEMGAP: m["memory_issue_gap"], c.P_SHQUEUE: m["shared_queue"],
            c.P_GLQUEUE: m["global_queue"], c.P_SHLAT: m["shared_latency"], c.P_SHWAY: m["shared_way_cycles"],
            c.P_L1LAT: m["l1_latency"], c.P_L1WAYS: m["l1_ways"],
            c.P_L1SETS: m["l1_kib"] * 1024 // (1 if self.machine.sm90 else 2) // LINE // m["l1_ways"],
            c.P_CLAT: m["constant_latency"], c.P_CWAYS: m["constant_ways"],
            c.P_CSETS: m["constant_kib"] * 1024 // CONSTANT_LINE // m["constant_ways"],
            c.P_C15LAT: m["constant15_latency"], c.P_C15WAYS: m["constant15_ways"],
            c.P_C15SETS: m["constant15_kib"] * 1024 // CONSTANT15_LINE // m["constant15_ways"],
            c.P_IWAYS: m["instruction_ways"],
            c.P_ISETS: m["instruction_kib"] * 1024 // INSTRUCTION_LINE // m["instruction_ways"],
            c.P_ATOMIC: int(m["atomic_cycles"]), c.P_ATOMIC_LANE: round(m["atomic_cycles"] * c.TICK),
            c.P_ATOMIC_FLOAT: round(m["atomic_float_cycles"] * c.TICK),
            c.P_ATOMIC_SECTOR: round(m["atomic_sector_cycles"] * c.TICK),
            c.P_ATOMIC_FILLED: round(m["atomic_filled_cycles"] * c.TICK), c.P_ATOMIC_FAR: m["atomic_far"],
            c.P_SHARE: m["share_cycles"], c.P_BOARDMOST: m["scoreboard_most"],
            c.P_DRAM_SPREAD: m["dram_spread"], c.P_DRAM_WAIT: m["dram_wait"],
            c.P_DRAM_MOST: round(m["dram_most"] * c.TICK), c.P_STOREQUEUE: m["store_queue"],
            c.P_STORELINES: m["store_lines"], c.P_L2FAR: m["l2_far"],
            c.P_L2_SLACK: m["l2_slack"] if s.mirror else 0, c.P_DRAM_SLACK: m["dram_slack"],
            c.P_DRAM_OTHERS: m["dram_others"] if s.mirror or s.sms > 1 else 0,
            c.C_AGE: -c.AGE,
            c.P_L2CHOICE: 0 if s.warm or m["l2_copies_kib"] else m["l2_choice"],
            c.P_L2UNEVEN: self.machine.sm90 and s.warm and not m["l2_copies_kib"],
            c.P_TURN: m["turn_stall"],
            c.P_BARLAT: m["barrier_cycles"], c.P_LAUNCH: m["block_launch_cycles"],
            c.P_RELEASE: m["operand_release_cycles"], c.P_PREFETCH: m["instruction_prefetch"],
            c.P_PORT_TICKS: round(SECTOR * c.TICK / m["l2_port_bytes"]),
            c.P_TRACE_FROM: s.trace[0], c.P_TRACE_TO: s.trace[1], c.P_EVENTS_MAX: events,
            c.P_SM90: int(self.machine.sm90), c.P_MIOQUEUE: m["memory_queue"], c.P_MIODELAY: m["memory_queue_cycles"],
            c.P_MIOLAG: m["memory_lag"], c.P_TAKEN: m["taken_cycles"], c.P_SPLIT: m["split_cycles"],
            c.P_BARPER: m["barrier_interval"], c.P_C15FILL: m["constant15_fill"],
            c.P_JUMPTICKS: round(m["jump_cycles"] * c.TICK), c.P_JUMPNEAR: m["jump_near"], c.P_JUMPWAIT: m["jump_wait"],
            c.P_WINDOW: m["operand_window"], c.P_XUDELAY: m["xu_delay"], c.P_SRINTERVAL: m["constant_interval"],
            c.P_LINETICKS: round(m["code_line_cycles"] * c.TICK), c.P_LINELAT: m["code_latency"],
            c.P_CODEAHEAD: m["code_ahead_kib"] * 1024 // INSTRUCTION_LINE,
            c.P_CODEAHEAD_TICKS: round(m["code_ahead_cycles"] * c.TICK),
            c.P_L0SETS: m["code_kib"] * 1024 // INSTRUCTION_LINE // max(m["code_ways"], 1), c.P_L0WAYS: m["code_ways"],
            c.P_WRITE_TICKS: round(SECTOR * c.TICK / (m["l2_write_bytes"] or m["l2_port_bytes"])),
            c.P_TENSORLAT: m["tensor_latency"], c.P_MBARLAT: m["mbarrier_latency"], c.P_BULKLAT: m["bulk_latency"],
            c.P_L2PARTS: m["l2_parts"], c.P_BLOCKPER: m["block_interval"],
            c.P_BLOCKNEXT: m["block_next_cycles"], c.P_BLOCKALL: round(m["block_next_interval"] * m["sms"]),
            c.P_WRITEWAIT: m["write_wait"], c.P_WRITEHOLD: m["write_hold"], c.P_WRITEAFTER: m["write_after"],
            c.P_WRITEPLACES: m["write_places"], c.P_WIDESINGLE: m["wide_single"],
            c.P_TENSORSTART: m["tensor_start"], c.P_TENSORQUEUE: m["tensor_queue"],
            c.P_BULK_TICKS: round(m["bulk_line_cycles"] * c.TICK), c.P_MBARRIERS: work.barriers,
            c.P_ORDER_LENGTH: self.order_length, c.P_GROUPS: work.shift.shape[1] * c.SHIFT_SIZE,
            **_behind_l1(self.machine),
        }.items():
            head[cell] = value
        return head

    def _add_work(self, head: np.ndarray, work: Work) -> None:
        base = int(head[c.T_CODE])
        runs = work.runs.astype(np.int64)
        self._add(head, c.T_RUN, np.stack([base + runs[:, 0] * c.I_SIZE, runs[:, 1]], 1))
        self._add(head, c.T_PATHPTR, work.path_ptr * c.RUN_SIZE + head[c.T_RUN])
        self._add(head, c.T_PATH, work.path)
        self._add(head, c.T_CLASS, work.class_of)
        self._add(head, c.T_RECPTR, work.record_ptr)
        self._add(head, c.T_LINE, work.lines)
        records = work.records.copy()
        plain = records[:, 3] >= 0
        records[:, 1] = np.where(plain, records[:, 1] * c.LINE_SIZE + head[c.T_LINE],
                                 records[:, 1] * c.RECORD_SIZE + self.at)
        self._add(head, c.T_RECORD, records)
        self._add(head, c.T_SHIFT, work.shift)

    def _add_slots(self, head: np.ndarray, found: tuple[np.ndarray, np.ndarray, int] | None) -> None:
        if found is not None:
            of_record, by_slot, head[c.P_LOADSLOTS] = found
            head[c.P_SLOTS] = by_slot.shape[1]
            self._add(head, c.T_SLOT, of_record)
            self._add(head, c.T_BYSLOT, by_slot)

    def _add_caches(self, head: np.ndarray) -> None:
        sms = self.shape.sms
        for where, sets, ways, size in (
                (c.T_L1, int(head[c.P_L1SETS]) * 2 * sms, c.P_L1WAYS, c.SECTORED),
                (c.T_L2, int(head[c.P_L2SETS]), c.P_L2WAYS, c.SECTORED),
                (c.T_CONST, int(head[c.P_CSETS]) * sms, c.P_CWAYS, c.WHOLE),
                (c.T_CONST15, int(head[c.P_C15SETS]) * sms, c.P_C15WAYS, c.WHOLE),
                (c.T_ICACHE, int(head[c.P_ISETS]) * sms, c.P_IWAYS, c.WHOLE),
                (c.T_L0, int(head[c.P_L0SETS]) * 4 * sms, c.P_L0WAYS, c.WHOLE)):
            part = np.zeros((sets, int(head[ways]) * size), np.int64)
            part[:, :int(head[ways])] = -1
            part[:, int(head[ways]):2 * int(head[ways])] = c.LONG_AGO  # taken before what a warm start touches
            self._add(head, where, _narrow(part) if where == c.T_L2 else part)

    def _put(self, places: "Places", first: int) -> None:
        """Where on the chip each SM is; `first`: the row of what its CPC and its GPC get of L2."""
        rows = self.table(c.T_SM, self.shape.sms, c.M_SIZE)
        rows[:, c.M_CPC], rows[:, c.M_GPC], rows[:, c.M_FAR] = first + places.cpc, first + places.gpc, places.far
        for cell, name in ((c.P_CPC_LOAD_TICKS, "cpc_load_bytes"), (c.P_CPC_STORE_TICKS, "cpc_store_bytes"),
                           (c.P_GPC_LOAD_TICKS, "gpc_load_bytes")):
            self.X[cell] = round(SECTOR * c.TICK / self.machine[name])

    def _bind(self, slots: int) -> None:
        """Fill the cells that name other rows."""
        X, sms = self.X, self.shape.sms
        warps = self.table(c.T_WARP, sms * slots, c.W_SIZE)
        schedulers = self.table(c.T_SCHED, sms * 4, c.S_SIZE)
        order = self.table(c.T_ORDER, sms * 4, self.order_length)
        number = np.arange(sms * slots)
        row = X[c.T_WARP] + number * c.W_SIZE
        sid = number // slots * 4 + number % slots % 4
        warps[:, c.W_SM], warps[:, c.W_ID] = number // slots, number
        warps[:, c.W_SCHED] = X[c.T_SCHED] + sid * c.S_SIZE
        index = np.arange(sms * 4)
        schedulers[:, c.S_CURRENT] = schedulers[:, c.S_BLAMED] = -1
        schedulers[:, c.S_SM], schedulers[:, c.S_HALF] = index // 4, 0 if self.machine.sm90 else index % 4 // 2
        schedulers[:, c.S_ORDER] = X[c.T_ORDER] + index * self.order_length
        schedulers[:, c.S_REUSE:c.S_REUSE + 6] = -2
        schedulers[:, c.S_DUE] = c.NEVER
        for s in index:
            mine = row[sid == s]
            order[s, :len(mine)] = mine
            schedulers[s, c.S_BLAMED] = mine[0] if len(mine) else -1
        self.code[:, c.I_INDEX] = np.arange(self.instructions)


def expand(runs: np.ndarray) -> np.ndarray:
    """Indices of the executed instructions of a path, in order."""
    starts, lengths = runs[:, 0].astype(np.int64), runs[:, 1].astype(np.int64)
    offsets = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return offsets + np.arange(int(lengths.sum()))


def crowded(code: np.ndarray, most: int) -> bool:
    """Whether a kernel has more loads that tell one scoreboard than that counts."""
    loads = code[np.isin(code[:, c.I_KIND], (c.K_GLOBAL, c.K_COPY)) & (code[:, c.I_WB] >= 0), c.I_WB]
    return bool(most and np.bincount(loads, minlength=1).max() > most)


def stores_parts(lines: np.ndarray) -> bool:
    """Whether there are stores that leave out bytes of sectors of lines that are loaded, too."""
    masks = lines[:, 1]
    cost, others = masks >> c.COST & c.COSTS, masks & (c.FILLED | c.WORKS << c.WORK)  # of whole sectors, atomics
    parts = np.unique(lines[(cost > 0) & (others == 0) & (masks < 1 << c.EACH + 16), 0])
    return bool(len(parts) and np.isin(parts, lines[cost == 0, 0]).any())


def touches(code: np.ndarray, work: Work) -> np.ndarray:
    """What each record of the streams touches in L2: WARM_*, or 0 for nothing."""
    of_kind = np.zeros(len(code), np.int64)
    memory = np.isin(code[:, c.I_KIND], (c.K_SHARED, c.K_GLOBAL, c.K_TEX, c.K_LDC, c.K_COPY, c.K_MBARRIER, c.K_BULK))
    of_kind[np.isin(code[:, c.I_KIND], (c.K_GLOBAL, c.K_TEX, c.K_COPY))] = c.WARM_LOAD
    of_kind[(code[:, c.I_STORE] > 0) & (of_kind > 0)] = c.WARM_STORE
    of_kind[code[:, c.I_KIND] == c.K_BULK] = c.WARM_BULK
    of_kind[code[:, c.I_KIND] == c.K_LDC] = c.WARM_CONSTANT
    found = np.zeros(len(work.records), np.int64)
    known: dict[int, np.ndarray] = {}
    for stream, path in enumerate(work.path.tolist()):
        if path not in known:
            executed = expand(work.runs[work.path_ptr[path]:work.path_ptr[path + 1]])
            known[path] = of_kind[executed[memory[executed]]]
        found[work.record_ptr[stream]:work.record_ptr[stream + 1]] = known[path]
    return found
