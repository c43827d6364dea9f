"""Where the words of a program lie. Maxwell packs three instructions behind one control word, 32 bytes in all; Hopper's
words of 16 bytes have it inside. Each table says which."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Addressing:
    """Words of so many bytes, one behind the other or, if `group` is not 0, in groups of so many bytes that begin
    with a control word."""

    word: int
    group: int = 0

    def normal(self, address: int) -> int:
        """The address of an instruction; that of a control word means the instruction behind it."""
        return address + self.word if self.group and address % self.group == 0 else address

    def following(self, address: int) -> int:
        """The address of the next instruction."""
        return self.normal(address + self.word)

    def index_of(self, address: int) -> int:
        """Instruction index of a byte address, which may be that of a control word."""
        if not self.group:
            return address // self.word
        return address // self.group * self.per_group + max(address % self.group // self.word - 1, 0)

    def address_of(self, index: int) -> int:
        """Byte address of an instruction by index."""
        if not self.group:
            return index * self.word
        return index // self.per_group * self.group + (index % self.per_group + 1) * self.word

    def aliases(self, address: int) -> tuple[int, ...]:
        """All addresses that mean this instruction: its own, and that of the control word in front of it."""
        before = address - self.word
        return (address, before) if self.group and before % self.group == 0 else (address,)

    def count(self, nbytes: int) -> int:
        """Instructions in so many bytes of code."""
        return nbytes // self.group * self.per_group if self.group else nbytes // self.word

    @property
    def per_group(self) -> int:
        return self.group // self.word - 1
