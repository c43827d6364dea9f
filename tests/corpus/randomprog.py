"""Random but valid CUDA C programs that mix every instruction kind, for mining encodings and latencies."""

from __future__ import annotations


def program(seed: int) -> str:
    raise NotImplementedError
