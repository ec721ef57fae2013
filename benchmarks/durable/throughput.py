"""Jobs per second of one worker process with handlers that do nothing, beside the floor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from benchmarks.durable.place import Place
from benchmarks.durable.report import Line, line
from benchmarks.durable.sizes import Sizes
from benchmarks.durable.working import worked
from benchmarks.pairs import Sample, alternate
from benchmarks.report import Target
from benchmarks.sizes import Colour

USUAL = Target("at least", 0.75)
TARGETS = {("sync", 256): Target("at least", 0.6)}
"""So many threads share one interpreter lock with the loop that claims."""


def throughput(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs, for both queues and each number of slots, and those of the two drivers' floors."""
    for colour in get_args(Colour):
        for slots in sizes.jobs:
            pairs = alternate(_sample(place, sizes, colour, slots), *sizes.pairs["throughput"], warm_up=False)
            target = TARGETS.get((colour, slots), USUAL)
            yield line(f"throughput, {slots} slots", colour, "jobs/s", "floor", pairs, target, better="more")

    for slots in sizes.jobs:
        pairs = alternate(_floors(place, sizes, slots), *sizes.pairs["floors"], warm_up=False)
        yield line(f"floor awaited, {slots} slots", "async", "jobs/s", "floor", pairs, None, better="more")


def _sample(place: Place, sizes: Sizes, colour: Colour, slots: int) -> Sample:
    # Beside the same floor for both queues, the one that waits.
    return lambda side: [
        worked(place, side, colour if side == "ours" else "sync", slots, sizes.jobs[slots]).rate,
    ]


def _floors(place: Place, sizes: Sizes, slots: int) -> Sample:
    """The floor over the driver that awaits, which no async queue can do without, beside the one that waits."""
    return lambda side: [worked(place, "loop", "async" if side == "ours" else "sync", slots, sizes.jobs[slots]).rate]
