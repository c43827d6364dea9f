"""Hopper's instructions where they are not Maxwell's: carries in predicates, 64-bit products, uniform registers,
addresses with descriptors. What means the same has the same function (`same`). Sources: the PTX ISA, compiled code."""

from . import asynchronous, convert, double, half, integer, logic, memory, move, single  # noqa: F401  (register)
