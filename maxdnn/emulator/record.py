"""Records of layout.py from Python: fields of a byte array by name."""

import struct
from collections.abc import Mapping

import numpy as np

_FORMATS = {"i32": "<I", "i64": "<Q", "ptr": "<Q"}


class Record:
    """Fields of the record that starts at byte `base` of `data`."""

    def __init__(self, data: np.ndarray, fields: Mapping[str, tuple[int, str]], base: int = 0) -> None:
        self.data = data
        self.fields = fields
        self.base = base
        self._view = memoryview(data.data)

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data) + self.base

    def __getitem__(self, name: str) -> int:
        offset, kind = self.fields[name]
        return int(struct.unpack_from(_FORMATS[kind], self._view, self.base + offset)[0])

    def __setitem__(self, name: str, value: int) -> None:
        offset, kind = self.fields[name]
        struct.pack_into(_FORMATS[kind], self._view, self.base + offset, value)

    def array(self, name: str, dtype: type, count: int) -> np.ndarray:
        offset, _ = self.fields[name]
        start = self.base + offset
        return self.data[start:start + np.dtype(dtype).itemsize * count].view(dtype)
