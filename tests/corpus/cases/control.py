"""References of control.cu: each thread as plain Python on wrapped integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.corpus.cases._values import Rows, elementwise, integers
from tests.corpus.cases.int_arith import I32, U32, trunc_mod
from tests.corpus.exact import fma32
from tests.corpus.runner import Array


def s32(x: int) -> int:
    """Wrap to int32."""
    return (x + 2**31 & 0xFFFFFFFF) - 2**31


def u32(x: int) -> int:
    return x & 0xFFFFFFFF


def per_thread(function: Callable[..., tuple[int, ...]], *operands: Array) -> Rows:
    """Rows from one Python call per thread; the last argument of `function` is the thread's index."""
    results = [function(*map(int, row), i) for i, row in enumerate(zip(*operands, strict=True))]
    return list(np.array([[s32(v) for v in row] for row in results], I32).T)


def loops(x: int, i: int) -> tuple[int, ...]:
    total = steps = 0
    for k in range(50):
        steps += 1
        if (x >> (k & 15) & 3) == 3:
            continue
        total += k * (x & 7)
        if total > 200 + (x & 63):
            break
        if k > (x >> 8 & 31):
            total ^= 0x55
            if total & 1:
                continue
            total += 3
    c, length = (x & 1023) + 1, 0
    while c != 1 and length < 400:
        c = 3 * c + 1 if c & 1 else c >> 1
        length += 1
    products = (p * 100 + q for p in range(1, 12) for q in range(p, 12) if p * q == x & 127)
    return total, steps, length, next(products, -1), sum(map(int, str(x & 0xFFFF)))


def nested(x: int, y: int, i: int) -> tuple[int, ...]:
    r = 0
    if x & 1:
        r = y
        if x & 2:
            r += 10
            if y & 4:
                r *= 3
            else:
                r -= 7
                if (x ^ y) & 8:
                    for _ in range(x & 7):
                        r = r * 2 + 1
            r = s32(r) ^ 0x1234
        elif y > 0:
            r = -r
    else:
        while r < (y & 31):
            r += (x & 6) + 1
            if r == 9:
                r += 5
        if x > y or (x & y & 16):
            r += 1000
    s = 0
    for k in range(8):
        if x >> k & 1:
            s += k if y >> k & 1 else 2 * k
        elif y >> k & 1:
            s -= k
        else:
            s ^= k
    t = x - y if (x > 5 and y < 3) or (x < -5 and y > -3) else x + y if x < y and not x & 1 else 7
    return r, s, t


def action(op: int, x: int, y: int) -> int:
    results: list[Callable[[], int]] = [
        lambda: x + y,
        lambda: x - y,
        lambda: x * y,
        lambda: x & y,
        lambda: x | ~y,
        lambda: x ^ (y >> 3),
        lambda: x << (y & 7),
        lambda: min(x, y) * 3,
        lambda: u32(x).bit_count() - y,
        lambda: (x >> 5) + (y >> 7),
        lambda: 1 if x == y else -1,
        lambda: 32 - u32(x ^ y).bit_length(),
        lambda: max(x, s32(-y)),
        lambda: x * 9 - y,
    ]
    return s32(results[op]()) if op < len(results) else op


def switch(x: int, y: int, program: int, i: int) -> tuple[int, ...]:
    first = action(program & 15, x, y)
    for k in range(8):
        x, y = action(program >> (4 * k) & 15, x, y), x
    kinds = {1: 10, 7: 25, 9: 5, 100: y, 128: 3, 129: 3, 130: 3, 255: -1}
    return first, x, kinds.get(x & 255, 0)


def mix(x: int, y: int) -> int:
    return s32((x ^ s32(y * 31)) + (x >> 3))


def calls(a: Array) -> Rows:
    def integer_part(x: int, i: int) -> tuple[int, ...]:
        r = mix(x, 5) if x & 1 else x
        for k in range(x & 7):
            r = mix(r, k)
        w = mix(s32(x << 20), i) + x * 3
        v = [x, i, s32(x + i), s32(x - i)]
        for k in range(5):
            v = [s32(v[1] + k), v[2], v[3] ^ k, v[0]]
        return mix(x, i), r, s32(w), s32(w >> 32), v[0] ^ s32(v[1] + v[2]) ^ v[3]

    rows = list(per_thread(integer_part, a))
    x, trips = (a & 255).astype(np.float32), a >> 8 & 7
    for j in range(7):
        x = np.where(j < trips, fma32(x, np.float32(0.75), np.float32(0.125) * np.float32(j)), x)
    return [*rows[:2], x.astype(np.float32).view(I32), *rows[2:]]


def fibonacci(k: int) -> int:
    return k if k < 2 else fibonacci(k - 1) + fibonacci(k - 2)


def pointers(x: int, y: int, i: int) -> tuple[int, ...]:
    first = {0: x + y, 1: x - y * 2}.get(trunc_mod(y, 3), x ^ y)
    for k in range(4):
        x = s32(x - (k + 3) * 2) if x >> k & 1 else x ^ (k + 3)
    return first, x


def leave(a: int, i: int) -> tuple[int, ...]:
    x = a & 63
    return (x, -1, -2) if x < 8 else (x, x * 2, x + 1000 if x <= 41 else x + 2000)


def goto(x: int, i: int) -> tuple[int, ...]:
    state, trips, value, label = x & 3, 0, x, "start"
    while label != "done":
        if label == "middle":
            value = s32(value * 3 + 1)
            state = (state + value) & 3
            label = "start"
            if not value & 256:
                trips += 2
                label = "start" if state else "done"
            continue
        trips += 1
        if trips > 20:
            break
        if state == 0:
            value = s32(value + 3)
            state = value & 3
        elif state == 1:
            value, state, label = value ^ value >> 2, 2, "middle"
        elif state == 2:
            label = "middle"
        else:
            value = s32(value - 5)
            state = value >> 1 & 3
            label = "done" if value & 64 else "start"
    last = 9 if x > 1000 and value & 1 else 5 if value & 4 else 1 if value > 0 else 0
    return value, trips, last


def _one(rng: np.random.Generator) -> list[Array]:
    return [integers(rng, I32, 500)]


def _two(rng: np.random.Generator) -> list[Array]:
    return [integers(rng, I32, 500), rng.permutation(integers(rng, I32, 500))]


def _program(rng: np.random.Generator) -> list[Array]:
    return [*_two(rng), rng.integers(0, 2**32, 500).astype(U32)]


CASES = [
    elementwise("control.cu", "control_loops", _one, lambda a: per_thread(loops, a), I32),
    elementwise("control.cu", "control_nested", _two, lambda a, b: per_thread(nested, a, b), I32),
    elementwise("control.cu", "control_switch", _program, lambda *v: per_thread(switch, *v), I32),
    elementwise("control.cu", "control_calls", _one, calls, I32),
    elementwise(
        "control.cu",
        "control_recursion",
        _one,
        # ackermann(0, k) = k + 1, ackermann(1, k) = k + 2
        lambda a: per_thread(lambda x, i: (fibonacci(x & 7), (x >> 3 & 3) + 1 + (x & 1)), a),
        I32,
    ),
    elementwise("control.cu", "control_pointers", _two, lambda a, b: per_thread(pointers, a, b), I32),
    elementwise("control.cu", "control_exit", _one, lambda a: per_thread(leave, a), I32),
    elementwise("control.cu", "control_goto", _one, lambda a: per_thread(goto, a), I32),
]
