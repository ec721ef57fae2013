"""Two results of ``benchmarks.durable``, one beside the other. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.report import columns

FALL = 0.15
"""How much of a ratio may be lost. Less than that two runs of the same code differ by, on a machine that others use."""

HEAD = ("measure", "ratio before", "now", "change", "")


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a ratio.

    Attributes:
        name: The measure and the queue.
        before: The ratio in the earlier result.
        now: The ratio in the later one.
        gain: How much better it is, as a part of what it was; negative when it is worse.
    """

    name: str
    before: float
    now: float
    gain: float

    @property
    def fell(self) -> bool:
        """Whether it is worse by more than may be."""
        return self.gain < -FALL

    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        return self.name, f"{self.before:.2f}", f"{self.now:.2f}", f"{self.gain:+.0%}", "FELL" if self.fell else ""


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """What became of each ratio that both results have, in the order of the later one.

    Absolute figures are not compared: they mean nothing on another machine, nor on this one at another time.
    """
    earlier = _ratios(before)
    found = []
    for name, (ratio, better) in _ratios(now).items():
        if name in earlier:
            was = earlier[name][0]
            found.append(Change(name, was, ratio, ratio / was - 1 if better == "more" else was / ratio - 1))
    return found


def missing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What the earlier result has a ratio of and the later one has not."""
    later = _ratios(now)
    return [name for name in _ratios(before) if name not in later]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of the machine is another one, apart from how busy it was."""
    return [
        f"{what}: {before['machine'][what]} before, {value} now"
        for what, value in now["machine"].items()
        if not what.startswith("load") and before["machine"].get(what, value) != value
    ]


def table(found: Iterable[Change]) -> str:
    """The changes under their heads."""
    return columns(HEAD, [change.cells() for change in found])


def _ratios(result: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    return {line["name"]: (line["ratio"], line["better"]) for line in result["lines"] if line["better"] is not None}
