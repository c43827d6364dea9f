# ruff: noqa: F403, F405
"""Bandwidth of what serves requests one behind the other, compiled: what is taken of it, by stretches of cycles."""

from .columns import *
from .jit import compiled


@compiled
def bucket(X, row, number):
    """The cell of a stretch of BUCKET cycles; a ring, so an old stretch makes room."""
    cell = row + 2 + (number & BUCKETS - 1) * 2
    if X[cell] != number:
        X[cell], X[cell + 1] = number, 0
    return cell + 1


@compiled
def room(X, resource, start):
    """(number, cell) of the first stretch of cycles from `start` on in which a resource is not taken."""
    row = X[T_BOOK] + resource * BOOK_SIZE
    number = start // BUCKET
    if X[row] <= number < X[row + 1]:
        number = X[row + 1]
    first = number
    cell = bucket(X, row, number)
    while X[cell] >= BUCKET * TICK:
        number += 1
        cell = bucket(X, row, number)
    if first == X[row + 1]:
        X[row + 1] = number
    elif number - first > X[row + 1] - X[row]:
        X[row], X[row + 1] = first, number
    return number, cell


@compiled
def book(X, resource, ticks, start):
    """Take `ticks` of a bandwidth-limited resource from cycle `start` on: the cycle it is served.

    Requests do not come in the order of their starts (a texture unit's queue reaches into the future), so what is taken
    is kept per stretch of cycles: a request late in time does not delay an earlier one that comes after it."""
    number, cell = room(X, resource, start)
    served = max(start * TICK, number * BUCKET * TICK + X[cell])
    X[cell] += ticks
    while X[cell] > BUCKET * TICK:
        over = X[cell] - BUCKET * TICK
        X[cell] = BUCKET * TICK
        number += 1
        cell = bucket(X, X[T_BOOK] + resource * BOOK_SIZE, number)
        X[cell] += over
    return (served + TICK - 1) // TICK


@compiled
def book_l2(X, resource, ticks, start):
    """`book` of L2. What was left of it in the cycles before may be taken, too: SMs that are not in step take by turns
    what they would else take at once."""
    return max(start, book(X, resource, ticks, max(start - X[P_L2_SLACK], 0)))


@compiled
def room_of_dram(X, start):
    """`room` of DRAM, of what was left of it in the cycles before, too."""
    return room(X, B_DRAM, max(start - X[P_DRAM_SLACK], 0))


@compiled
def book_dram(X, ticks, start):
    return max(start, book(X, B_DRAM, ticks, max(start - X[P_DRAM_SLACK], 0)))


@compiled
def l2_ticks(X, n, store):
    """What a request for n sectors of a line costs L2: what they take, and at least what a line takes."""
    if store:
        return max(n * X[P_L2_WRITE_TICKS], X[P_L2_STORE_LEAST])
    return max(n * X[P_L2_LOAD_TICKS], X[P_L2_LOAD_LEAST])
