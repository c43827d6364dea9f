"""What a check found, on two levels, and advice. All print as text and as plain data for JSON.

error    some execution that the code allows reads a wrong value, or the hardware may hang
warning  undecided, not followed, or safe only by timing that nobody promises"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..isa import Instruction

ERROR, WARNING, ADVICE = "error", "warning", "advice"


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
    """One hazard, doubt or piece of advice. `producer` is the earlier instruction (None where only one is involved);
    `required` and `guaranteed` are cycles between the two issues (None where cycles are not the question)."""

    kind: str
    resource: str
    producer: Place | None
    consumer: Place
    required: int | None
    guaranteed: int | None
    message: str
    fix: str
    level: str = ERROR

    def __str__(self) -> str:
        cycles = "" if self.required is None else f" ({self.required} cycles required, {self.guaranteed} guaranteed)"
        lines = [f"{self.level}: {self.kind}: {self.resource}: {self.message}{cycles}"]
        if self.producer is not None:
            lines.append(f"    {self.producer}")
        return "\n".join([*lines, f"    {self.consumer}", f"    fix: {self.fix}"])


@dataclass(frozen=True)
class Report:
    """All findings (errors), warnings and advice for one kernel, each in address order."""

    kernel: str
    instructions: int
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()
    advice: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """No error. There may be warnings: places that were not decided or not followed."""
        return not self.findings

    @property
    def clean(self) -> bool:
        """Neither error nor warning: every path was followed and every use found safe."""
        return not self.findings and not self.warnings

    def text(self, advice: bool = False) -> str:
        head = (f"{self.kernel}: {self.instructions} instructions, {len(self.findings)} errors, "
                f"{len(self.warnings)} warnings, {len(self.advice)} pieces of advice")
        return "\n".join([head, *map(str, self.findings), *map(str, self.warnings),
                          *(map(str, self.advice) if advice else ())])

    def as_dict(self) -> Mapping[str, Any]:
        return asdict(self)
