"""Which function gives an instruction its meaning."""

from collections.abc import Callable

from ..isa import Instruction
from .machine import Machine

Semantic = Callable[[Machine, Instruction], None]
SEMANTICS: dict[str, Semantic] = {}
HOPPER: dict[str, Semantic] = {}
MEANINGS = {"Maxwell": SEMANTICS, "Hopper": HOPPER, "Ampere": HOPPER}  # by the name of a table


def semantics(*mnemonics: str) -> Callable[[Semantic], Semantic]:
    """Register a function for full mnemonics or bare opcodes (`LEA.HI`, `FADD`)."""
    return _registering(SEMANTICS, mnemonics)


def hopper(*opcodes: str) -> Callable[[Semantic], Semantic]:
    """Register a function for opcodes of Hopper; those it shares with Maxwell are named by `same`."""
    return _registering(HOPPER, opcodes)


def _registering(meanings: dict[str, Semantic], names: tuple[str, ...]) -> Callable[[Semantic], Semantic]:
    def register(function: Semantic) -> Semantic:
        for name in names:
            if name in meanings:
                raise ValueError(f"{name} has two meanings")
            meanings[name] = function
        return function
    return register


def same(*opcodes: str, **others: str) -> None:
    """Opcodes of Hopper that mean what they mean on Maxwell, there perhaps by another mnemonic (`UMOV="MOV"`)."""
    for name, there in {**{name: name for name in opcodes}, **others}.items():
        hopper(name)(SEMANTICS[there])


def meaning(inst: Instruction) -> Semantic | None:
    """The function of an instruction: by mnemonic, else by opcode; None for control flow and what has none here."""
    found = MEANINGS[inst.row.table.name]
    return found.get(inst.mnemonic) or found.get(inst.opcode)
