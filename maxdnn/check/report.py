"""What a check found: findings are errors, advice is not. Both print as text and as plain data for JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..isa import Instruction


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction: byte address, control code, text."""

    address: int
    control: str
    text: str

    @classmethod
    def of(cls, inst: Instruction) -> "Place":
        return cls(inst.address, str(inst.control), inst.text())

    def __str__(self) -> str:
        return f"{self.address:04x}  {self.control}  {self.text}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One hazard or one piece of advice. `producer` is the earlier instruction (None where only one is involved);
    `required` and `guaranteed` are cycles between the two issues (None where cycles are not the question)."""

    kind: str
    resource: str
    producer: Place | None
    consumer: Place
    required: int | None
    guaranteed: int | None
    message: str
    fix: str

    def __str__(self) -> str:
        cycles = "" if self.required is None else f" ({self.required} cycles required, {self.guaranteed} guaranteed)"
        lines = [f"{self.kind}: {self.resource}: {self.message}{cycles}"]
        if self.producer is not None:
            lines.append(f"    {self.producer}")
        return "\n".join([*lines, f"    {self.consumer}", f"    fix: {self.fix}"])


@dataclass(frozen=True)
class Report:
    """All findings (errors) and advice for one kernel, in address order."""

    kernel: str
    instructions: int
    findings: tuple[Finding, ...]
    advice: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return not self.findings

    def text(self, advice: bool = False) -> str:
        head = (f"{self.kernel}: {self.instructions} instructions, {len(self.findings)} errors, "
                f"{len(self.advice)} pieces of advice")
        return "\n".join([head, *map(str, self.findings), *(map(str, self.advice) if advice else ()), *self.notes])

    def as_dict(self) -> Mapping[str, Any]:
        return asdict(self)
