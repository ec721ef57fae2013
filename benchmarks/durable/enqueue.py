"""Jobs stored per second: many callers of one process beside plain insert_one, batches beside insert_many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from benchmarks.durable.place import Place
from benchmarks.durable.processes import Process
from benchmarks.durable.producer import WARM_UP
from benchmarks.durable.report import Line, line
from benchmarks.durable.sizes import CALLERS, Sizes
from benchmarks.pairs import alternate
from benchmarks.report import Target
from benchmarks.sizes import Colour, SampleError, Side

SHARED = Target("at least", 2.0)
BATCHES = Target("at least", 0.8)


def enqueue(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs, for both queues, one by one and in batches."""
    for colour in get_args(Colour):

        def one(side: Side, colour: Colour = colour) -> list[float]:
            return [_rate(place, side, colour, calls=sizes.calls)]

        def many(side: Side, colour: Colour = colour) -> list[float]:
            return [_rate(place, side, colour, batches=sizes.batches, batch=sizes.batch)]

        pairs = alternate(one, *sizes.pairs["enqueue"], warm_up=False)
        callers = "threads" if colour == "sync" else "tasks"
        yield line(f"enqueue, {CALLERS} {callers}", colour, "jobs/s", "insert_one", pairs, SHARED, better="more")
        pairs = alternate(many, *sizes.pairs["enqueue"], warm_up=False)
        yield line("enqueue_many", colour, "jobs/s", "insert_many", pairs, BATCHES, better="more")


def _rate(place: Place, side: Side, colour: Colour, *, calls: int = 0, batches: int = 0, batch: int = 0) -> float:
    with place.collection() as name:
        order = place.order(side, colour, name, CALLERS, calls=calls, batches=batches, batch=batch)
        with Process.of("producer", order) as producer:
            rate = float(producer.end()["rate"])
        expected = CALLERS * (WARM_UP + calls) if calls else (WARM_UP + batches) * batch
        if (stored := place.db[name].count_documents({"status": "queued"})) != expected:
            raise SampleError(f"{side}: {expected} jobs were enqueued and {stored} are stored")
    return rate
