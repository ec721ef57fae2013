"""Pairs of samples, ours beside the loop's, and what they say.

Other programs share the machine, so a figure by itself means little. Each pair is taken within a moment, and only the
ratio inside a pair, over many pairs, is judged. Nothing here knows what is measured.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.sizes import Side

Sample = Callable[[Side], list[float]]
"""Takes one sample of one side: a rate, a size, or a number of latencies."""

LEAST = 5
RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Pair:
    """A sample of ours and one of the loop, taken one right after the other."""

    ours: list[float]
    loop: list[float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the pairs say: the value of each side, ours against the loop, and how far chance may have moved that."""

    ours: float
    loop: float
    against: float
    low: float
    high: float


Compare = Callable[[Sequence[Pair]], tuple[float, float, float]]
"""Gives the value of ours, that of the loop, and ours against the loop."""


def alternate(sample: Sample, pairs: int, seconds: float, *, warm_up: bool) -> list[Pair]:
    """Takes pairs of samples, of which the other begins each time; one more before them is only to warm up.

    Args:
        sample: How to take one.
        pairs: How many to take.
        seconds: Take fewer, though at least five, when the machine is so busy that they take longer than this.
        warm_up: Whether there is anything to warm up.
    """
    ends = time.monotonic() + seconds
    if warm_up:
        sample("ours")
        sample("loop")
    taken: list[Pair] = []
    while len(taken) < min(pairs, LEAST) or (len(taken) < pairs and time.monotonic() < ends):
        if len(taken) % 2:
            loop = sample("loop")
            ours = sample("ours")
        else:
            ours = sample("ours")
            loop = sample("loop")
        taken.append(Pair(ours, loop))
    return taken


def compared(pairs: Sequence[Pair], compare: Compare) -> Comparison:
    """Compares the sides, and once more on many random choices of the pairs: the middle nine tenths of what those give.

    The random choices are the same in each run, so that the same pairs give the same result.
    """
    chosen = random.Random(len(pairs))
    again = sorted(compare(chosen.choices(pairs, k=len(pairs)))[2] for _ in range(RESAMPLES))
    return Comparison(*compare(pairs), low=again[RESAMPLES // 20], high=again[-(RESAMPLES // 20) - 1])


def by_ratio(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The medians of both sides, and the median of the ratios of the pairs."""
    return _middle(pair.ours for pair in pairs), _middle(pair.loop for pair in pairs), _ratio(pairs)


def by_difference(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The medians of both sides, and the median of the differences of the pairs."""
    difference = median(median(pair.ours) - median(pair.loop) for pair in pairs)
    return _middle(pair.ours for pair in pairs), _middle(pair.loop for pair in pairs), difference


def by_percentile(percent: int) -> Compare:
    """A percentile of all values of each side, and the ratio of the two; one pair has too few values for that."""

    def compare(pairs: Sequence[Pair]) -> tuple[float, float, float]:
        ours = _percentile([value for pair in pairs for value in pair.ours], percent)
        loop = _percentile([value for pair in pairs for value in pair.loop], percent)
        return ours, loop, ours / loop

    return compare


def _middle(samples: Iterable[list[float]]) -> float:
    return median(median(sample) for sample in samples)


def _ratio(pairs: Sequence[Pair]) -> float:
    return median(median(pair.ours) / median(pair.loop) for pair in pairs)


def _percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]
