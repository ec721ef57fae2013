"""What a run says: the machine, a line a measure, and whether the target is met."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pymongo

from benchmarks.pairs import Comparison
from benchmarks.sizes import Colour

HEAD = ("measure", "queue", "pairs", "unit", "ours", "loop", "ours to loop", "90 % within", "target", "verdict")


@dataclass(frozen=True, slots=True)
class Target:
    """What ours against the other side may be: at least or at most so many times as much, or so much more of a unit."""

    kind: Literal["at least", "at most", "MB more", "ms more", "writes more"]
    bound: float

    @property
    def unit(self) -> str | None:
        """The unit of a difference; None where it is a ratio, or a figure by itself, that is judged."""
        return self.kind.removesuffix(" more") if self.kind.endswith(" more") else None

    def is_met(self, against: float) -> bool:
        """Whether it is."""
        return against >= self.bound if self.kind == "at least" else against <= self.bound

    def __str__(self) -> str:
        if self.unit is not None:
            return f"≤ {self.bound:+g} {self.unit}"
        return f"{'≥' if self.kind == 'at least' else '≤'} {self.bound:.2f}"

    def shown(self, against: float) -> str:
        """Ours against the other side, as a text."""
        return f"{against:.2f}" if self.unit is None else f"{against:+.1f} {self.unit}"


@dataclass(frozen=True, slots=True)
class Line:
    """The outcome of one measure."""

    measure: str
    colour: Colour
    pairs: int
    unit: str
    target: Target
    comparison: Comparison

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.target.is_met(self.comparison.against)

    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        said = self.comparison
        digits = 2 if self.unit == "ms" else 1 if self.unit == "MB" else 0
        return (
            self.measure,
            self.colour,
            str(self.pairs),
            self.unit,
            f"{said.ours:,.{digits}f}",
            f"{said.loop:,.{digits}f}",
            self.target.shown(said.against),
            f"{self.target.shown(said.low)} … {self.target.shown(said.high)}",
            str(self.target),
            "met" if self.met else "MISSED",
        )

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {**asdict(self), "met": self.met}


def machine(server_version: str) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pymongo": pymongo.version,
        "mongodb": server_version,
    }


def table(lines: Iterable[Line]) -> str:
    """The lines under their heads, in columns; a Markdown table as well."""
    return columns(HEAD, [line.cells() for line in lines])


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells under their heads, each column as wide as its widest cell."""
    all_rows = [head, *rows]
    widths = [max(len(row[column]) for row in all_rows) for column in range(len(head))]
    written = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in all_rows
    ]
    return "\n".join([written[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *written[1:]])
