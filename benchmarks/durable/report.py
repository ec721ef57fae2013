"""What a run of the extension says: a line a measure, as a table and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TextIO

from benchmarks.pairs import Compare, Comparison, Pair, by_ratio, compared
from benchmarks.report import Target, columns

HEAD = ("measure", "queue", "runs", "unit", "ours", "beside", "", "judged", "90 % within", "target", "verdict")
DIGITS = {"ms": 2, "MB": 1, "writes": 2, "share": 3}
Better = Literal["more", "less"]


@dataclass(frozen=True, slots=True)
class Line:
    """The outcome of one measure.

    Attributes:
        measure: What was measured.
        queue: ``sync`` or ``async``; empty where that makes no difference.
        unit: Of ``ours`` and of what it is compared with.
        beside: What it is compared with.
        comparison: The medians of both, what is judged, and how far chance may have moved that.
        ratio: Ours to the other side, whatever is judged.
        pairs: The runs.
        target: What is to be reached; None where the figure is there to be seen only.
        better: In which direction the ratio of both is to go; None where it is not compared with an earlier run, since
            it is a count, or the tail of a distribution.
        detail: Further figures, for those who read the JSON.
    """

    measure: str
    queue: str
    unit: str
    beside: str
    comparison: Comparison
    ratio: float
    pairs: Sequence[Pair]
    target: Target | None
    better: Better | None = None
    detail: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What tells the line from the others of a run, and is the same in the next."""
        return f"{self.measure}, {self.queue}" if self.queue else self.measure

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.is_met(self.comparison.against)

    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        said, digits = self.comparison, DIGITS.get(self.unit, 0)
        shown: Callable[[float], str] = "{:.2f}".format if self.target is None else self.target.shown
        return (
            self.measure,
            self.queue,
            str(len(self.pairs)),
            self.unit,
            f"{said.ours:,.{digits}f}",
            f"{said.loop:,.{digits}f}",
            self.beside,
            shown(said.against),
            f"{shown(said.low)} … {shown(said.high)}",
            "" if self.target is None else str(self.target),
            {True: "met", False: "MISSED", None: ""}[self.met],
        )

    def as_json(self) -> dict[str, Any]:
        """The same for programs, with the median of each run."""
        said = self.comparison
        runs = [(median(pair.ours), median(pair.loop)) for pair in self.pairs]
        ours, other = [run[0] for run in runs], [run[1] for run in runs]
        return {
            "name": self.name,
            "measure": self.measure,
            "queue": self.queue,
            "unit": self.unit,
            "beside": self.beside,
            "ours": short(said.ours),
            "other": short(said.loop),
            "judged": short(said.against),
            "low": short(said.low),
            "high": short(said.high),
            "target": None if self.target is None else str(self.target),
            "met": self.met,
            "ratio": short(self.ratio),
            "better": self.better,
            "spread": {"ours": [short(min(ours)), short(max(ours))], "other": [short(min(other)), short(max(other))]},
            "runs": [[short(value) for value in run] for run in runs],
            "detail": {name: short(value) for name, value in self.detail.items()},
        }


def short(value: float) -> float:
    """A figure with no more digits than it can be worth."""
    return float(f"{value:.5g}")


def line(
    measure: str,
    queue: str,
    unit: str,
    beside: str,
    pairs: Sequence[Pair],
    target: Target | None,
    *,
    compare: Compare = by_ratio,
    better: Better | None = None,
    detail: Mapping[str, float] | None = None,
) -> Line:
    """Compares the sides of pairs."""
    said = compared(pairs, compare)
    ratio = said.against if compare is by_ratio else said.ours / said.loop
    return Line(measure, queue, unit, beside, said, ratio, pairs, target, better, detail or {})


def by_ours(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The medians of both sides, and of ours once more: what is judged by itself."""
    ours, other, _ = by_ratio(pairs)
    return ours, other, ours


def table(lines: Iterable[Line]) -> str:
    """The lines under their heads; a Markdown table as well."""
    return columns(HEAD, [line.cells() for line in lines])


def write(result: Mapping[str, Any], file: TextIO) -> None:
    """Writes a result so that a difference between two of them shows line by line."""
    parts = [f'"{name}": {json.dumps(value)}' for name, value in result.items() if name != "lines"]
    lines = ",\n  ".join(json.dumps(line) for line in result["lines"])
    file.write("{\n " + ",\n ".join([*parts, f'"lines": [\n  {lines}\n ]']) + "\n}\n")


def load() -> list[float]:
    """How many programs want to run on this machine: on average of the last one, five and fifteen minutes."""
    return [round(average, 2) for average in os.getloadavg()]
