"""Four worker processes on one collection beside one: whether they get on, and whether each gets its part."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.durable.place import Place
from benchmarks.durable.report import Line, by_ours, line
from benchmarks.durable.sizes import Sizes
from benchmarks.durable.working import worked
from benchmarks.pairs import Pair, alternate
from benchmarks.report import Target
from benchmarks.sizes import Side

MANY = 4
SLOTS = (16, 64)
TOGETHER = Target("at least", 1.0)
LEAST = Target("at least", 0.15)
MOST = Target("at most", 0.35)


def workers(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs, with few slots in each process and with more; the shares come from the same runs."""
    for slots in SLOTS:
        shares: list[list[float]] = []

        def sample(side: Side, slots: int = slots, shares: list[list[float]] = shares) -> list[float]:
            count = MANY if side == "ours" else 1
            result = worked(place, "ours", "async", slots, sizes.shared, count)
            if side == "ours":
                shares.append([calls / sizes.shared for calls in result.calls])
            return [result.rate]

        pairs = alternate(sample, *sizes.pairs["workers"], warm_up=False)
        named = f"{MANY} workers, {slots} slots"
        yield line(named, "async", "jobs/s", "one worker", pairs, TOGETHER, better="more")
        for which, target, pick in (("least", LEAST, min), ("greatest", MOST, max)):
            parts = [Pair([pick(share)], [1 / MANY]) for share in shares]
            yield line(f"{which} share of {named}", "async", "share", "even", parts, target, compare=by_ours)
