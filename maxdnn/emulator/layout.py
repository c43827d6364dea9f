"""Memory layout shared by compiled kernels, the runtime and Python: one record per warp, one per worker thread."""

from collections.abc import Mapping

from ..semantics.machine import WINDOWS

LANES = 32
VECTOR_BYTES = 4 * LANES
STACK_DEPTH = 512  # entries; deeper nesting is reported as a fault
STACK_ENTRY = 16  # kind, target, mask, unused: i32 each
BANKS = 18
SITE_BYTES = 32
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


WARP: Mapping[str, tuple[int, str]] = _fields(0, f"""
    pc:i32 active:i32 alive:i32 state:i32 depth:i32 index:i32 fuel:i64 issued:i64
    bar_id:i32 bar_count:i32 bar_kind:i32 bar_bits:i32 bar_result:i32 trace_runs:i32 trace_rows:i32
    initial:i32 synced:i32
    blocked:i32 masks:{VECTOR_BYTES * CONVERGENCE} where:{VECTOR_BYTES} waits:{VECTOR_BYTES}
    uniform:{VECTOR_BYTES * UNIFORMS}
    preds:64 flags:64 tid:{3 * VECTOR_BYTES} stack:{STACK_DEPTH * STACK_ENTRY} written:1024""")
REGS_OFFSET = WARP["_end"][0]

CTX: Mapping[str, tuple[int, str]] = _fields(0, f"""
    launch:ptr run_full:ptr run_partial:ptr warps:ptr shared:ptr local_base:ptr local:ptr sites:ptr scratch:ptr
    runs:ptr rows:ptr
    warp_bytes:i64 register_bytes:i64 local_stride:i64 shared_bytes:i64 local_bytes:i64
    warp_count:i32 block_busy:i32 next_warp:i32 first_pc:i32
    live:i32 ctaid_x:i32 ctaid_y:i32 ctaid_z:i32 slice:i64 runs_room:i32 rows_room:i32 issued:i64
    fault_kind:i32 fault_lane:i32 fault_address:i64 fault_space:i32 fault_warp:i32 fault_size:i32 fault_pc:i32
    shadow:ptr epoch:i32 fault_other:i32 fault_other_pc:i32 budget:i64
    banks:{8 * BANKS} bank_bytes:{8 * BANKS} barriers:{BARRIER_IDS * BARRIER_BYTES}""")

LAUNCH: Mapping[str, tuple[int, str]] = _fields(0, """
    next:i64 total:i64 grid_x:i32 grid_y:i32 grid_z:i32 block_x:i32 block_y:i32 block_z:i32
    allocations:ptr allocation_count:i64 textures:ptr texture_count:i64 order:ptr stop:i32 cancel:i32""")

# What a compiled kernel's run function returns.
EXITED, BARRIER, YIELDED, FAULT, SWITCH, BAD_PC, TRACE_FULL = range(7)
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
               "undecodable", "unsupported", "undefined register", "race", "barrier", "trap", "inactive lane")
SPACES = ("global", "shared", "local", "constant", "texture", "generic")
SHARED_WINDOW, LOCAL_WINDOW = WINDOWS["S"], WINDOWS["L"]  # top byte of a generic address's low word
