"""How much memory a worker process takes that has worked on a backlog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from benchmarks.durable.place import Place
from benchmarks.durable.report import Line, by_ours, line
from benchmarks.durable.sizes import Sizes
from benchmarks.durable.working import worked
from benchmarks.pairs import alternate
from benchmarks.report import Target
from benchmarks.sizes import Colour, Side

SLOTS = 64
MOST = Target("at most", 80)
"""Megabytes, whatever the floor takes."""


def memory(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs, for both queues."""
    for colour in get_args(Colour):

        def sample(side: Side, colour: Colour = colour) -> list[float]:
            return worked(place, side, colour if side == "ours" else "sync", SLOTS, sizes.worked).megabytes

        pairs = alternate(sample, *sizes.pairs["memory"], warm_up=False)
        yield line(f"memory, {SLOTS} slots", colour, "MB", "floor", pairs, MOST, compare=by_ours, better="less")
