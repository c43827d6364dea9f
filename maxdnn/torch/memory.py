"""PyTorch's allocator as the place where tensors and workspaces come from (engine.py, shortage.py)."""

from collections.abc import Callable
from typing import Any

import torch

from .. import errors
from ..runtime import engine


class OutOfMemoryError(errors.OutOfMemoryError, torch.cuda.OutOfMemoryError):
    """PyTorch's allocator has no room: an error of this library and one of PyTorch, whoever catches it."""


def having_room(make: Callable[[], Any], nbytes: int, where: int, device: Any, workspace: bool = False) -> Any:
    """What `make` gets from PyTorch's allocator for the current stream of the GPU with this number; where there is no
    room once more after letting go of what is idle, unless that stream is being captured. Raises OutOfMemoryError."""
    try:
        return make()
    except torch.cuda.OutOfMemoryError as e:
        failed = [e]

    def attempt() -> Any:
        try:
            if failed:
                raise failed.pop()
            return make()
        except torch.cuda.OutOfMemoryError as e:
            raise OutOfMemoryError(str(e), nbytes, free_bytes(where, device), workspace) from None
    return engine.of(device).having_room(attempt, torch._C._cuda_getCurrentRawStream(where))


def free_bytes(where: int, device: Any) -> int | None:
    """What PyTorch's allocator can give on the GPU with this number, see shortage.Free. An estimate: pieces may be free
    that no workspace fits in."""
    free = device.free_bytes()
    if free is None:
        return None
    total = torch.cuda.get_device_properties(where).total_memory
    fraction = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(where)  # of PyTorch 2.8 on
    reserved = torch.cuda.memory_reserved(where)
    new = min(free, int(fraction * total) - reserved)
    return max(new, 0) + reserved - torch.cuda.memory_allocated(where) + engine.of(device).idle_bytes
