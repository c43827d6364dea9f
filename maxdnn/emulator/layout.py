"""Memory layout shared by compiled kernels, the runtime and Python: one record per warp, one per worker thread."""

from collections.abc import Mapping

from ..semantics.machine import WINDOWS

LANES = 32
VECTOR_BYTES = 4 * LANES
STACK_DEPTH = 512  # entries; deeper nesting is reported as a fault
STACK_ENTRY = 16  # kind, target, mask, unused: i32 each
BANKS = 18
SITE_BYTES = 32
POISON = 0xFF  # shared memory and registers are undefined when a block starts: every byte reads so
SHADOW_BYTES = 36  # what race detection keeps for a byte of shared memory
# A worker's scratch: idle lanes touch its start; then a texel of zeros, registers to throw away, zeros to store,
# addresses of atomics.
SCRATCH_TEXEL, SCRATCH_REGISTERS, SCRATCH_ZEROS, SCRATCH_HOSTS, SCRATCH_BYTES = 64, 256, 1024, 2048, 4096
BARRIER_IDS = 16
CONVERGENCE = 17  # barriers of a warp: B0 to B15, and one for WARPSYNC; each lane knows which lanes it waits for
UNIFORMS = 64  # uniform registers of a warp, each kept as a row of lanes that are all alike
BARRIER_BYTES = 16


def _fields(start: int, spec: str) -> dict[str, tuple[int, str]]:
    """"name:type name:type" to byte offsets; types i32, i64, ptr, or a byte count."""
    at, out = start, {}
    for item in spec.split():
        name, kind = item.split(":")
        size = {"i32": 4, "i64": 8, "ptr": 8}.get(kind) or int(kind)
        align = 64 if size > 8 else size
        at = (at + align - 1) // align * align
        out[name] = (at, kind)
        at += size
    out["_end"] = ((at + 63) // 64 * 64, "0")
    return out


# A number for each warpgroup of a block: how many groups of its products are known to be done.
_WARPGROUPS = " ".join(f"known{n}:i32" for n in range(8))

WARP: Mapping[str, tuple[int, str]] = _fields(0, f"""
    pc:i32 active:i32 alive:i32 state:i32 depth:i32 index:i32 fuel:i64 issued:i64
    bar_id:i32 bar_count:i32 bar_kind:i32 bar_bits:i32 bar_result:i32 trace_runs:i32 trace_rows:i32
    initial:i32 synced:i32
    blocked:i32 masks:{VECTOR_BYTES * CONVERGENCE} where:{VECTOR_BYTES} waits:{VECTOR_BYTES}
    uniform:{VECTOR_BYTES * UNIFORMS}
    preds:64 flags:64 tid:{3 * VECTOR_BYTES} stack:{STACK_DEPTH * STACK_ENTRY} written:1024
    committed:i32 done:i32 arrivals:i32 fences:i32 limit:i32 waiting:i32 groups:i32 {_WARPGROUPS}
    inflight:1024 owner:1024 touched:1024""")
REGS_OFFSET = WARP["_end"][0]

CTX: Mapping[str, tuple[int, str]] = _fields(0, f"""
    launch:ptr run_full:ptr run_partial:ptr warps:ptr shared:ptr local_base:ptr local:ptr sites:ptr scratch:ptr
    runs:ptr rows:ptr
    warp_bytes:i64 register_bytes:i64 local_stride:i64 shared_bytes:i64 local_bytes:i64
    warp_count:i32 block_busy:i32 next_warp:i32 first_pc:i32
    live:i32 ctaid_x:i32 ctaid_y:i32 ctaid_z:i32 slice:i64 runs_room:i32 rows_room:i32 issued:i64
    fault_kind:i32 fault_lane:i32 fault_address:i64 fault_space:i32 fault_warp:i32 fault_size:i32 fault_pc:i32
    shadow:ptr epoch:i32 fault_other:i32 fault_other_pc:i32 budget:i64
    tensor:ptr granules:ptr copies:ptr copy_count:i32 fenced:i32 moved:i32 special:i32 pool:i32 registers:i32
    told:{32 * BARRIER_IDS}
    banks:{8 * BANKS} bank_bytes:{8 * BANKS} barriers:{BARRIER_IDS * BARRIER_BYTES}""")

# What is known of 16 bytes of shared memory where a kernel works asynchronously (runtime/proxies.py).
GRANULE: Mapping[str, tuple[int, str]] = _fields(0, """
    writer:i32 written:i32 fences:i32 pc:i32 copying:i32 copied:i32 barriers:i32 completed:i32
    loader:i32 group:i32
    reading:i32 reading1:i32 reading2:i32 reading3:i32 reading4:i32 reading5:i32 reading6:i32 reading7:i32
    first:i32 first1:i32 first2:i32 first3:i32 first4:i32 first5:i32 first6:i32 first7:i32
    second:i32 second1:i32 second2:i32 second3:i32 second4:i32 second5:i32 second6:i32 second7:i32""")
GRANULE_BYTES = GRANULE["_end"][0]
COPY: Mapping[str, tuple[int, str]] = _fields(0, "to:i32 barrier:i32 source:i64 size:i32 pc:i32")
COPY_BYTES, COPIES = COPY["_end"][0], 4096

LAUNCH: Mapping[str, tuple[int, str]] = _fields(0, """
    next:i64 total:i64 grid_x:i32 grid_y:i32 grid_z:i32 block_x:i32 block_y:i32 block_z:i32
    allocations:ptr allocation_count:i64 textures:ptr texture_count:i64 order:ptr stop:i32 cancel:i32""")

# What a compiled kernel's run function returns.
EXITED, BARRIER, YIELDED, FAULT, SWITCH, BAD_PC, TRACE_FULL, BLOCKED = range(8)
# What the scheduler returns to Python.
DONE, FAULTED, WANT_FULL, WANT_PARTIAL, WANT_PC, WANT_ROOM = range(6)
# Warp states of the scheduler.
READY, WAITING, FINISHED = range(3)
# Entries of the divergence stack.
DIV, SSY, PBK, PCNT, CALL = range(5)
# Barrier kinds: 0 sync, 1 arrive, 2.. reductions.
BAR_SYNC, BAR_ARRIVE, BAR_POPC, BAR_AND, BAR_OR = range(5)
# Faults.
FAULT_KINDS = ("none", "bounds", "misaligned", "stack overflow", "unmatched", "bad target", "deadlock", "budget",
               "undecodable", "unsupported", "undefined register", "race", "barrier", "trap", "inactive lane",
               "in flight", "unordered", "busy", "arriving", "unfenced", "mbarrier", "arrivals", "together",
               "registers", "copies")
SPACES = ("global", "shared", "local", "constant", "texture", "generic")
SHARED_WINDOW, LOCAL_WINDOW = WINDOWS["S"], WINDOWS["L"]  # top byte of a generic address's low word
