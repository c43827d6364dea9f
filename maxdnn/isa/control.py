"""Control codes: the 21 bits per instruction that tell the scheduler what this hardware does not find out by itself."""

from dataclasses import dataclass

_NONE = 7  # barrier field value for "no barrier"
_LONGEST = 11  # stall count that is a number of cycles without the yield hint
CONTROL_BITS = 0x1FFFFF
CONTROL_LSB = 105  # of the control code inside a word of 128 bits


@dataclass(frozen=True, slots=True)
class Control:
    """Stall cycles (0..15; 0 = issue together with the next), yield hint, the scoreboards (0..5) released when the
    result is written and when the sources have been read, the mask of scoreboards to wait for, and the reuse bits."""

    stall: int = 15
    yield_hint: bool = False
    write_barrier: int | None = None
    read_barrier: int | None = None
    wait_mask: int = 0
    reuse: int = 0

    @property
    def counts_cycles(self) -> bool:
        """Whether `stall` is a number of cycles: of the longest ones only with the yield hint."""
        return self.stall <= _LONGEST or self.yield_hint

    @classmethod
    def unpack(cls, bits: int) -> "Control":
        write, read = bits >> 5 & 7, bits >> 8 & 7
        return cls(bits & 15, not bits >> 4 & 1, None if write == _NONE else write,
                   None if read == _NONE else read, bits >> 11 & 63, bits >> 17 & 15)

    def pack(self) -> int:
        write = _NONE if self.write_barrier is None else self.write_barrier
        read = _NONE if self.read_barrier is None else self.read_barrier
        return (self.stall | (not self.yield_hint) << 4 | write << 5 | read << 8
                | self.wait_mask << 11 | self.reuse << 17)

    def __str__(self) -> str:
        """The dialect's spelling `wait:read:write:yield:stall`, barriers counted from 1."""
        wait = f"{self.wait_mask:02x}" if self.wait_mask else "--"
        read = "-" if self.read_barrier is None else self.read_barrier + 1
        write = "-" if self.write_barrier is None else self.write_barrier + 1
        return f"{wait}:{read}:{write}:{'Y' if self.yield_hint else '-'}:{self.stall:x}"


def split_control_word(word: int) -> tuple[int, int, int]:
    """The three 21-bit fields of a group's control word, first instruction first."""
    return word & 0x1FFFFF, word >> 21 & 0x1FFFFF, word >> 42 & 0x1FFFFF


def join_control_word(fields: tuple[int, int, int]) -> int:
    return fields[0] | fields[1] << 21 | fields[2] << 42
