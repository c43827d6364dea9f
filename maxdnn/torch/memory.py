"""PyTorch's allocator as the place where workspaces come from (shortage.py)."""

from typing import Any

import torch

from .. import errors, shortage
from ..runtime import engine


class OutOfMemoryError(errors.OutOfMemoryError, torch.cuda.OutOfMemoryError):
    """No memory for any plan's workspace: an error of this library and one of PyTorch, whoever catches it."""


def out_of_memory(error: Exception, nbytes: int, free: int | None) -> OutOfMemoryError:
    """What PyTorch's allocator says of a workspace, as an error of this library."""
    found = OutOfMemoryError(str(error), nbytes, free)
    found.workspace = True
    return found


class TorchMemory:
    """What PyTorch's allocator can give on the GPU with this number: see shortage.Memory. An estimate: pieces may be
    free that no workspace fits in."""

    def __init__(self, where: int, device: Any) -> None:
        self._where, self._device = where, device

    def free(self) -> int | None:
        where = self._where
        free, total = torch.cuda.mem_get_info(where)
        fraction = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(where)  # of PyTorch 2.8 on
        reserved = torch.cuda.memory_reserved(where)
        new = min(free, int(fraction * total) - reserved)
        return max(new, 0) + reserved - torch.cuda.memory_allocated(where) + engine.of(self._device).idle_bytes

    def release(self) -> None:
        shortage.of(self._device).memory.release()
