"""The memory image of a simulation: one flat int64 array `X`. A row (instruction, warp, scheduler, cache way ...) is
named by where it starts in X, and these are the offsets of its cells. Times are cycles; times of bandwidth-limited
resources are in 1/TICK cycles."""

TICK_BITS = 16
TICK = 1 << TICK_BITS
NEVER = 1 << 62
LONG_AGO = -(1 << 31)  # last use of what nothing has used, in L2's cells of 32 bits too

# Head of the image: the machine, where each table begins, then counters.
(P_SMS, P_WARP_SLOTS, P_BLOCK_SLOTS, P_BLOCK_WARPS, P_BLOCKS, P_MIRROR, P_POLICY, P_CANDIDATES, P_MEMGAP, P_SHQUEUE,
 P_GLQUEUE, P_SHLAT, P_SHWAY, P_L1LAT, P_L1SETS, P_L1WAYS, P_L2LAT, P_L2SETS, P_L2WAYS, P_DRAMLAT, P_CLAT, P_CSETS,
 P_CWAYS, P_C15LAT, P_C15SETS, P_C15WAYS, P_ISETS, P_IWAYS, P_BARLAT, P_LAUNCH, P_RELEASE, P_TRACE_FROM, P_TRACE_TO,
 P_PREFETCH, P_PORT_TICKS, P_L2_TICKS, P_DRAM_TICKS, P_ORDER_LENGTH, P_GROUPS, P_EVENTS_MAX,
 T_CODE, T_WARP, T_SCHED, T_ORDER, T_BLOCK, T_SM, T_RUN, T_PATHPTR, T_PATH, T_CLASS, T_RECPTR, T_RECORD, T_LINE,
 T_SHIFT, T_L1, T_L2, T_CONST, T_CONST15, T_ICACHE, T_STALL, T_EVENT, T_END, T_BOOK, C_STORED) = range(64)

(C_NOW, C_NEXT_BLOCK, C_DONE, C_ROTATE, C_TRACED, C_L1_SECTORS, C_L1_HITS, C_L2_SECTORS, C_L2_HITS, C_DRAM_READ,
 C_DRAM_WRITE, C_C_LOOKUPS, C_C_HITS, C_C15_LOOKUPS, C_C15_HITS, C_I_LOOKUPS, C_I_HITS, C_ISSUED, C_DUAL,
 C_FAILED_DUAL, C_SHARED_BUSY, C_TEX_BUSY, C_LAUNCHED, C_L2_LINE, C_L2_DIRTY,
 C_L2_FILL, C_RESULT, C_READ, T_COUNT, P_ATOMIC, P_TURN, C_TENSOR_BUSY) = range(64, 96)

# Of sm_90 alone: which rules, then its figures and tables.
(P_SM90, P_MIOQUEUE, P_MIODELAY, P_MIOLAG, P_TAKEN, P_BARPER, P_WINDOW, P_XUDELAY, P_L0SETS, P_L0WAYS, P_LINETICKS,
 P_LINELAT, P_WRITE_TICKS, P_SRINTERVAL, T_L0, P_CODEAHEAD, P_L2_WRITE_TICKS) = range(96, 113)
# Of kernels on tensor cores, or with mbarriers or copies (beside.py): whether it is one, its figures and tables.
(P_BESIDE, P_TENSORLAT, P_MBARLAT, P_BULKLAT, P_MBARRIERS, T_MBARRIER, P_BULK_TICKS,
 C_ENDED, T_AHEAD, P_TENSORSTART, P_TENSORQUEUE, P_L2PARTS, T_ASKED, C_ROUND, C_ASKED) = range(113, 128)
P_BLOCKPER = 128
# Of a warm start (warm.py): what each record touches in L2. Sectors that come from DRAM together.
T_WARM, P_DRAM_SECTORS, P_L2_STORE_LEAST, P_L2_LOAD_LEAST, P_DRAM_WRITE_TICKS = range(129, 134)
WARM_LOAD, WARM_STORE, WARM_BULK, WARM_CONSTANT = 1, 2, 3, 4
# Of SMs in step: lists of blocks whose lines differ, and a table to find those that do not.
T_ALIKE, T_FOUND, C_FOUND, T_PLACE, P_L2INVERSE = range(134, 139)
P_L2_LOAD_TICKS = 139  # of loads of threads, L2's own where they have none
# Of sm_90: atomics in L2, whose slices do one after another, by sectors and by lanes; what is added to the
# latency of DRAM: mean, and what its load adds; when the window began in which load is counted, this one's and the last
P_ATOMIC_SECTOR, P_ATOMIC_LANE, P_ATOMIC_FLOAT, C_TURN, T_PLACES, P_DRAM_SPREAD, P_DRAM_WAIT, T_SPREAD = range(140, 148)
C_WINDOW, C_WINDOW_TICKS, C_WINDOW_LAST = range(148, 151)
P_STOREQUEUE, C_PORTEND, P_L2FAR, C_L2_STORED, P_SHARE, P_DRAM_MOST = range(151, 157)
P_L2_SLACK, P_DRAM_SLACK, C_EMPTIED, P_DRAM_OTHERS, P_L2CHOICE = range(157, 162)
P_SPLIT, P_C15FILL, P_JUMPTICKS, P_JUMPNEAR, P_JUMPWAIT, P_SHARING = range(162, 168)
P_BLOCKNEXT, P_BLOCKALL, P_WRITEWAIT, P_WRITEHOLD, P_L2DIRTY, P_L2UNEVEN = range(168, 174)
# Of blocks that differ in what they load and store (slots.py): slots of records, records by slot, how many slots, of
# which loads; whether some have no lane where others have.
T_SLOT, T_BYSLOT, P_SLOTS, P_LOADSLOTS, P_UNEVEN = range(174, 179)
P_DRAM_ALONE_TICKS, C_WINDOW_READS, C_LATELY_READS = range(179, 182)
P_ATOMIC_FILLED, P_ATOMIC_FAR, C_LATELY_TICKS, P_BOARDMOST, P_L2PARTIAL = range(182, 187)
PARTIAL_BITS = 4  # P_L2PARTIAL and P_L2DIRTY are lines of a set, times a power of two's bits
P_DRAM_LEAST, P_DRAM_WRITE_LEAST = range(187, 189)  # what a part of a line takes of DRAM, however little it is
P_CODEAHEAD_TICKS = 189  # of each line of code that a launch brings with it
P_WRITEAFTER, P_WRITEPLACES, P_WIDESINGLE = range(190, 193)  # of what loads of shared memory bring (results.py)
P_STORELINES, C_PORTLEFT, C_TAKEN = range(193, 196)
C_OWED, C_LATE = range(196, 198)  # cycles of the pipe that an access took of others, of loads that L1 lacks (pipe.py)
P_L2_LOAD_STORE = 198  # what loads take of L2's time for stores, in parts of what they take of that for loads
C_AGE, AGE = 199, 1 << 30  # of a warm start's next touch; how long before the begin its first one was, at least
# What the SMs of a CPC and of a GPC get of L2 together, where all SMs are simulated: of loads, of stores.
P_CPC_LOAD_TICKS, P_CPC_STORE_TICKS, P_GPC_LOAD_TICKS = range(200, 203)
# Of two parts of L2 (parts.py): what it takes of L2's time for stores to write a sector into one of them, 0 if they
# keep no copies; of 256 lines that L2 replaces, those that were used least recently but for one; whether this is before
# the launch; what chooses an SM's part for blocks behind the first ones; the block of this SM while others' lines are
# written down; sectors that have come from one part to the other. T_NEXT: of each SM the cycle in which there is
# something for its schedulers to do next.
P_L2_COPY_TICKS, P_L2SECOND, C_WARMS, C_SEED, C_BLOCK, C_CROSSED, T_NEXT = range(203, 210)
P_L2_COMPLETE_TICKS = 210  # of what completing takes of L2's time for stores (partial.py)
HEAD = 224
# Slices of L2: a KiB, which has so many lines (a power of two's bits), is in two of them, every other two lines. Of
# each when it is free, what it had last, and so many different ones before.
PLACES, PLACE_BITS, DIFFERENT = 80, 3, 4
PLACE_SIZE = 2 + DIFFERENT
SPREAD_BITS, SPREAD_ONE = 6, 256  # of a table of how much more than the mean the latency of DRAM is, and 1 in it
WINDOW_BITS = 10

# One row per instruction.
(I_KIND, I_STALL, I_YIELD, I_WB, I_RB, I_WAIT, I_ALU, I_MEM, I_UNIT, I_CLINE, I_LINE, I_D0, I_DOUBLES, I_REUSE, I_LATE,
 I_ISSUED, I_R0, I_R1, I_R2, I_X0, I_X1, I_DN, I_INTERVAL, I_RESULT, I_SERVICE, I_ATOMIC, I_CACHED, I_STORE, I_LATEBY,
 I_DUAL, I_INDEX, I_BURST) = range(32)
I_SIZE = 32

# I_KIND
(K_ALU, K_UNIT, K_SHARED, K_SHUFFLE, K_GLOBAL, K_TEX, K_LDC, K_BAR, K_FLOW, K_EXIT, K_DEPBAR, K_MEMBAR) = range(12)
K_FENCE = 12  # of a block's own, of sm_90
# ... of what works beside warps: copies of threads (LDGSTS) and their groups, operations on mbarriers, bulk copies,
# products of tensor cores and waits for them
(K_COPY, K_COMMIT, K_MBARRIER, K_BULK, K_PRODUCT, K_PRODUCTS) = range(13, 19)
FLOATS = 2  # I_ATOMIC of those that add floating-point numbers
# I_SERVICE of K_MBARRIER
M_BEGIN, M_ARRIVE, M_WAIT, M_TEST = range(4)

# I_UNIT: functional units of a scheduler that are narrower than a warp
U_NONE, U_HALF, U_SFU, U_FP64, U_IMUL = range(5)
# ... of sm_90: integers and comparisons, one of the two pipes of FFMA, which multiplies integers, and others
(U_ALU, U_XU, U_DOUBLE, U_HEAVY, U_UNIFORM, U_MMA16, U_SREG, U_FMA, U_TENSOR, U_MEET, U_LITE,
 U_BOTH) = range(1, 13)
UNITS = 13

# One row per resident warp (W_STALLED: when its stall count ends), then its queue of shared and of global operations in
# flight (times of their ends).
(W_READY, W_REASON, W_PC, W_LEFT, W_RUN, W_RUNEND, W_LINE, W_ALIVE, W_SB0, W_SB1, W_SB2, W_SB3, W_SB4, W_SB5, W_REC,
 W_BLOCK, W_NUMBER, W_SLOT, W_RESUME, W_STORES, W_SHHEAD, W_GLHEAD, W_STREAM, W_SHIFT, W_SM, W_SCHED,
 W_ID, W_BARRIER, W_STALLED) = range(29)
W_GLRING, W_SHRING, W_READS = 29, 45, 97  # sm_90: until when registers of the warp are read for what is no arithmetic
# ... beside it: of the last GROUPS of products that were closed, how many, then their ends; when its copies will have
# come; the barrier a try-wait asks for, and the scoreboard that tells it, plus 1
W_GROUPS, W_GROUPRING = 98, 99
GROUPS = 8
(W_COPIES, W_MBARRIER, W_TRIED) = range(W_GROUPRING + GROUPS, W_GROUPRING + GROUPS + 3)
W_PARTED = 110  # whether its lanes have just parted at a branch
# ... whether what it waits for may come later than its scoreboards say; by scoreboard the loads of shared memory that
# have not brought all
W_LATER, W_COMING0 = 111, 112
# ... by scoreboard the stores that have not left their queue, whose registers are read when they do; when those that
# have had been read
W_UNREAD0, W_READ0 = 118, 124
W_ASKED, W_SENT, W_SIZE = 130, 131, 132  # since when it waits for a place in the queue of its scheduler
RING_LIMITS = W_SHRING - W_GLRING, W_READS - W_SHRING

# One row per scheduler. Reuse entries: two per source slot, register key * 2 + flag, the recently used first. Coming
# reads: the cycle of the first (NEVER if there is none), how many, then for each its cycle and the reads per bank.
(S_CURRENT, S_YIELDED, S_MEMFREE, S_LEAVE1, S_LEAVE2, S_BUSY, S_NEXT, S_BLAMED, S_SINCE, S_SM, S_ORDER, S_HALF,
 S_FREE, S_BANK0, S_BANK1, S_BANK2, S_BANK3, S_REUSE) = range(18)
S_UNIT0 = S_REUSE + 6
S_DUE, S_COMING, S_COMING0 = range(S_UNIT0 + UNITS, S_UNIT0 + UNITS + 3)
# sm_90: what waits for a place in the SM's memory pipes: when each entry of a ring leaves, the oldest, when the last
# has been read; when it may hand on the next access of shared and of global memory; when XU ends its last; the
# last line of code that came, and when; when the tensor core ends its last product, when it began it, when its last
# operand has been read, whose was the last, since when it has not rested; of the last products when they began, a ring,
# and the oldest.
S_MIORING, MIO_PLACES = S_COMING0 + 17, 16
(S_MIOHEAD, S_MIOFREE, S_PORT0, S_PORT1, S_XUEND, S_CODELINE, S_CODETIME, S_TENSOREND, S_TENSORBEGUN, S_TENSORREAD,
 S_TENSORLAST, S_TENSORFROM, S_TENSORHEAD, S_TENSORRING) = range(S_MIORING + MIO_PLACES, S_MIORING + MIO_PLACES + 14)
TENSOR_PLACES = 8
# ... when its last access of shared memory or L1 ends, and the cycles of that.
S_LSUEND, S_LSUCOST = 94, 95
S_JUMP = 93  # when a warp of it jumped last
# ... of what loads of shared memory bring (results.py) that waits to be written: when each came and what it is, a ring,
# the oldest, how many; when a place became free last, when something was written, when arithmetic issued that writes
S_RESULTRING, PLACES_MOST = 96, 8
S_RESULTHEAD = S_RESULTRING + 2 * PLACES_MOST
S_RESULTS, S_PLACEFREE, S_WRITTEN, S_ARITHMETIC = range(S_RESULTHEAD + 1, S_RESULTHEAD + 5)
# ... how many stores wait in its queue, the first of a ring of them, and the ring: whose each is, its instruction and
# which of the warp's records it has, when it has been read, which place of the queue is its, how long it keeps L1, and
# its row of the trace or 0
S_WAITS, S_WAITHEAD, S_WAITRING = range(S_ARITHMETIC + 1, S_ARITHMETIC + 4)
WAIT_WARP, WAIT_CODE, WAIT_REC, WAIT_OUT, WAIT_PLACE, WAIT_CYCLES, WAIT_EVENT, WAIT_SIZE = range(8)
WAIT_PLACES = 32
# Stores sent and left; when the last access of shared memory ends and what it takes, as S_LSUEND and S_LSUCOST of L1.
S_SENT, S_LEFT, S_SHEND, S_SHCOST, S_SIZE = range(S_WAITRING + WAIT_PLACES * WAIT_SIZE,
                                                  S_WAITRING + WAIT_PLACES * WAIT_SIZE + 5)

# One row per run of a path: first instruction's row, length. One row per memory record: service cycles, first line row,
# lines, group of its shift; a negative group is -1 - group, and the second cell the first of the variants to choose
# from. One row per line: number, sector mask. One per block and group: shift in lines, variant.
BANKS = 16  # bits of the service cycles of global memory above which are those of sm_90's banks
RUN_SIZE, RECORD_SIZE, LINE_SIZE, SHIFT_SIZE = 2, 4, 2, 2
TURNS = 4  # bits of a mask above which atomics have how many operations wait for one another, stores how many words
# they write; of sm_90 above which is what either costs on the way to L2, in cycles, and of atomics above that how many
# operations a slice of L2 has for the line; whether they are of all words of the line, or a store of all bytes of the
# sectors
COST, COSTS = 10, 63
WRITTEN = (1 << COST) - (1 << TURNS)
WORK, WORKS = 16, 63
FILLED = 1 << 22
EACH = 24  # of stores the bit of a mask from which on it tells how many words of each sector they write, four bits each

# Cells per way. A set of a sectored cache is the lines of its ways, their last uses, dirty masks, and four arrival
# times each (-1: not there); of a cache of whole lines: lines, last uses, arrival times.
SECTORED, WHOLE = 7, 3

# L2, the largest, has cells of 32 bits (jit.narrow). HOST_LINE: those in a cache line of the processor that runs this.
HOST_LINE = 16
MOST_LINES, MOST_CYCLES = 1 << 31, (1 << 31) - (1 << 26)  # that these can tell, and arrivals some time ahead

# One row per line that another SM in step with this one asks for: its number, sectors, the blocks, its set, then its
# way's mask of dirty sectors, or -1 - that if the way has just been taken for it, and its arrival times; the set in the
# other part of L2 in which all these blocks look for it, 0 if none does, less than 0 if some do.
A_LINE, A_MASK, A_SPAN, A_SET, A_DIRTY, A_FILL, A_COPY, AHEAD_SIZE = range(8)
# Blocks with the same line: the first's distance from this SM's block, + SPAN x the last's, + SPAN^2 x how many.
# Per block slot and group a list of these: its end, then of each this and the lines by which they move. To find them:
# which list, block, place in the list.
SPAN_BITS = 16
SPAN = 1 << SPAN_BITS
ALIKE_SIZE, FOUND, FOUND_SIZE = 2, 512, 3

# One row per bandwidth-limited resource: L2, DRAM, L2 for stores of sm_90, then the L2 port of each SM, and what CPCs
# get for loads and for stores, and GPCs. A row is the first bucket of a stretch known to be full and the one after it,
# then a ring of buckets: which BUCKET cycles it stands for, ticks taken.
B_L2, B_DRAM, B_L2_STORES, B_PORTS = 0, 1, 2, 3
BUCKET, BUCKETS = 16, 4096
BOOK_SIZE = 2 + 2 * BUCKETS

# Lines that SMs in step ask for at a time, by their number's last bits: line, the round, what the next one costs L2.
ASKED, ASKED_SIZE = 512, 3

# One row per block slot: live warps, then for each named barrier the warps that arrived and those it waits for (0: all
# live ones). I_SERVICE of BAR: barrier + BARRIERS x warps it waits for; I_STORE: BAR.ARV, which does not wait itself.
# Of sm_90 when the stores of its warps that have ended are through, how many stores wait, and when its last warp ended.
# One row per SM, one per traced issue.
B_LIVE, B_BARRIER0, BARRIERS = 0, 1, 16
B_ARRIVED, B_WANTED, BARRIER_SIZE = 0, 1, 2
B_STORED = B_BARRIER0 + BARRIERS * BARRIER_SIZE
B_WAITS, B_ENDED, B_SIZE = range(B_STORED + 1, B_STORED + 4)
# One row per block slot and mbarrier: the phase's parity, the arrivals of a phase, those that are missing, bytes that
# are, when the last phase ended, when what has come of this one comes last.
# The line of an operation on one: its number, and arrivals (or the parity asked for) + ARRIVING x (bytes + MOST_BYTES).
MB_PARITY, MB_EXPECTED, MB_MISSING, MB_BYTES, MB_ENDED, MB_LATEST, MB_SIZE = range(7)
ARRIVING, MOST_BYTES = 1 << 20, 1 << 40
M_SHARED, M_TEX0, M_TEX1, M_SREG, M_BAR, M_BULK, M_LAUNCH, M_STORED = range(8)
# Of sm_90: lines that were stored last, so many in each quarter of L1: number << COST, then as a store's mask; and its
# place in the order of all. M_CAME have come, of which those until M_DRAINED have gone on to L2.
STORED = 7
M_DRAINED, M_CAME = range(M_STORED + 2 * 4 * STORED, M_STORED + 2 * 4 * STORED + 2)
# ... of stores that wait: which scheduler had the last turn, and when the next one leaves its queue
M_TURN, M_SENDS = M_CAME + 1, M_CAME + 2
# ... when L1 can begin with the next store, when the last atomic has come to L2, and of a ring when what has been sent
# has.
M_STOREPIPE, M_ATOMICS, M_WAYHEAD, M_WAYRING, WAY_PLACES = *range(M_SENDS + 1, M_SENDS + 5), 32
# ... when each line of a ring has left L2's port, and the oldest.
M_LINEHEAD, LINE_PLACES = M_WAYRING + WAY_PLACES, 32
M_LINERING = M_LINEHEAD + 1
# ... when the SM can take the next place where lanes meet or part, and the next jump, in 1/TICK cycles.
M_MEET = M_LINERING + LINE_PLACES
# ... and when it can ask L2 behind stores to lines of others, and load from L2 behind all stores
M_JUMP, M_ASKS, M_LOADS = range(M_MEET + 1, M_MEET + 4)
# ... which resources its CPC and its GPC are, and how much further away L2 is than in the mean
M_CPC, M_GPC, M_FAR = range(M_LOADS + 1, M_LOADS + 4)
# ... how many loads of shared memory have not brought all to its registers; of those that no scheduler has yet
# (M_RESULTS many) when each comes, whose and what it is, a ring, the oldest, and when one went to its scheduler last
RESULTS, RESULT_SIZE = 64, 3
M_COMING, M_RESULTS, M_RESULTHEAD, M_RESULTTIME, M_RESULTRING = range(M_FAR + 1, M_FAR + 6)
# The pipe of shared memory and L1: of what goes first and of all a stretch of cycles that are taken, then a ring of so
# many cycles (a power of two), each with its number and who has it.
M_FULL, PIPE = M_RESULTRING + RESULTS * RESULT_SIZE, 4096
M_PIPE = M_FULL + 4
M_SIZE = M_PIPE + PIPE
EVENT_SIZE = 8  # cycle, scheduler, warp, instruction, second of a pair, block, result there, operands read

# DEPBAR.LE waits until at most n operations are left on a scoreboard: bit 6 of I_WAIT, and I_SERVICE is n * 8 + board.
# If a kernel has it, or so many loads that a scoreboard may not count them, a ring per warp and scoreboard keeps when
# its operations end: how many there were, then the times.
WAIT_COUNTED, RING = 64, 64
COUNT_SIZE = 1 + RING

# Why a scheduler issued nothing in a cycle; the first six are the scoreboards.
(R_SB0, R_SB1, R_SB2, R_SB3, R_SB4, R_SB5, R_STALL, R_BANK, R_PIPE, R_QUEUE, R_BAR, R_FETCH, R_CONST, R_LAUNCH,
 R_MEMBAR, R_NONE, R_MBARRIER, R_TENSOR) = range(18)
REASONS = ("barrier 1", "barrier 2", "barrier 3", "barrier 4", "barrier 5", "barrier 6", "fixed stall",
           "bank conflict", "pipe busy", "memory queue", "BAR", "instruction fetch", "constant miss", "block launch",
           "memory fence", "no warp", "mbarrier", "tensor cores")
REASON_COUNT = len(REASONS)

POLICIES = ("greedy-then-oldest", "greedy-then-round-robin", "loose-round-robin")
