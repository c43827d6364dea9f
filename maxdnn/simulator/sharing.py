# ruff: noqa: F403, F405
"""Lines of L2 that several SMs load, and store parts of sectors of, compiled: such a store takes long where other SMs
have loaded the line since it was stored last, and an SM has so many of them at a time (probes "LDG and STG of 132 SMs,
any words of n MiB"). Whole sectors and atomics have none of this ("any sectors of n MiB", "LDG and REDG of 132 SMs,
..."), nor has what one SM does alone. The last bit of a sector's arrival says that others have loaded its line."""

from .columns import *
from .jit import compiled, narrow
from .partial import SECTORS, absent

AT_A_TIME = 32


@compiled
def is_part(mask):
    """Whether a store leaves out bytes of the sectors that it writes."""
    return mask & FILLED == 0


@compiled
def loaded_by_others(X, fill):
    """Other SMs have loaded sectors of a line."""
    Y = narrow(X)
    for sector in range(fill, fill + SECTORS):
        if Y[sector] >= 0:
            Y[sector] |= 1


@compiled
def store_part(X, dirty, fill, mask, begin):
    """Parts of sectors of a line are stored: when that is done. Nothing else is done for the line meanwhile."""
    Y, done, shared = narrow(X), begin, False
    for sector in range(fill, fill + SECTORS):
        done = max(done, Y[sector])
        shared |= Y[sector] >= 0 and Y[sector] & 1
    done = done + X[P_SHARE] * shared & -2
    here = absent(X, fill) ^ 15 | mask & 15
    for sector in range(SECTORS):
        if here >> sector & 1:
            Y[fill + sector] = done
    Y[dirty] |= mask & 15
    return done


@compiled
def store_shared(X, sm, dirty, fill, mask, begin):
    """`store_part` of the SM that is simulated."""
    done, at = store_part(X, dirty, fill, mask, begin), X[T_SM] + sm * M_SIZE + M_ASKS
    X[at] = max(X[at], begin) + (done - begin) // AT_A_TIME
    return done
