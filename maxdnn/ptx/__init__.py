"""Translates Maxwell machine code to PTX, one thread at a time, for GPUs that cannot run it."""
