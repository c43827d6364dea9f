"""What a card answered, by probe: clocks of an instruction, from runs of two lengths."""

import json
from pathlib import Path
from typing import Any


class Answers:
    """The lines that `run.report` wrote."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(text) for text in path.read_text().splitlines()]
        self.device: dict[str, Any] = lines[0].get("device", {})
        self.rows = {(row["probe"], row["length"], row["warps"]): row for row in lines if "length" in row}
        self.others = [row for row in lines if "probe" in row and "length" not in row]

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _, _ in self.rows))

    def lengths(self, name: str) -> list[int]:
        return sorted({length for n, length, _ in self.rows if n == name})

    def warps(self, name: str) -> list[int]:
        return sorted({warps for n, _, warps in self.rows if n == name})

    def clocks(self, name: str, length: int, warps: int, run: int = -1) -> int:
        """From the first start to the last end of a run."""
        return int(self.rows[name, length, warps]["clocks"][run])

    def slope(self, name: str, warps: int) -> float:
        """Clocks that one more instruction takes, least of the warm runs; of a probe of one length the clocks."""
        lengths = self.lengths(name)
        every = [self.rows[name, length, warps]["clocks"] for length in lengths]
        least = [min(clocks[1:] or clocks) for clocks in every]
        if len(lengths) == 1:
            return float(least[0])
        return (least[-1] - least[0]) / (lengths[-1] - lengths[0])

    def slopes(self) -> dict[str, dict[str, float]]:
        """Of every probe, by the warps of a block."""
        return {name: {str(warps): round(self.slope(name, warps), 3) for warps in self.warps(name)}
                for name in self.names()}
