"""How soon an idle worker starts a job: from before its enqueue here to its handler's first line in another process.

The floor is a process that makes the same calls in a row and does nothing else: an insert here, then there the delivery
of its event and the three calls of a claim, by the driver that the worker uses. So it is the sum of the calls that this
makes, taken in turns with ours.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import get_args

from benchmarks.durable.documents import new_job
from benchmarks.durable.floor import Floor
from benchmarks.durable.place import Place
from benchmarks.durable.processes import Process
from benchmarks.durable.report import Line, line
from benchmarks.durable.sizes import Sizes
from benchmarks.pairs import Pair, alternate, by_percentile
from benchmarks.report import Target
from benchmarks.sizes import ACTION, DATA, SLOTS, Colour, Side
from durabl_ext import JobQueue

MEDIAN = Target("ms more", 1.0)
TAIL = Target("at most", 3.0)


def pickup(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs, for both queues, on workers that stay up all the time."""
    for colour in get_args(Colour):
        with ExitStack() as stack:
            ours, loop = (stack.enter_context(place.collection()) for _ in get_args(Side))
            idle = {
                "ours": Idle(stack.enter_context(idle_worker(place, "ours", colour, ours)), enqueuing(place, ours)),
                "loop": Idle(stack.enter_context(idle_worker(place, "loop", colour, loop)), _inserting(place, loop)),
            }

            def sample(side: Side, idle: dict[str, Idle] = idle) -> list[float]:
                return [idle[side].pick_up() for _ in range(sizes.pickups)]

            pairs = alternate(sample, *sizes.pairs["pickup"], warm_up=True)
        calls = {name: median(times) for name, times in idle["loop"].calls.items()}
        tail = {"floor p99": by_percentile(99)(pairs)[1]}
        yield line(
            "pickup p50", colour, "ms", "its calls", pairs, MEDIAN, compare=by_medians, better="less", detail=calls
        )
        yield line("pickup p99", colour, "ms", "its p50", pairs, TAIL, compare=by_tail, detail=tail)


def by_medians(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The medians of all values of each side, and their difference."""
    ours, loop, _ = by_percentile(50)(pairs)
    return ours, loop, ours - loop


def by_tail(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """The p99 of ours, its median, and how many times as much the former is."""
    p50, p99 = by_percentile(50)(pairs)[0], by_percentile(99)(pairs)[0]
    return p99, p50, p99 / p50


class Idle:
    """A worker that waits for jobs.

    Args:
        worker: Its process.
        add: Stores a job for it.
    """

    def __init__(self, worker: Process, add: Callable[[], object]) -> None:
        self.calls: dict[str, list[float]] = {}
        self._worker = worker
        self._add = add

    def pick_up(self) -> float:
        """Milliseconds from the start of an enqueue to the start of the handler; notes those of the floor's calls."""
        time.sleep(random.uniform(0.02, 0.04))  # the end of the job before is stored by then
        began = time.monotonic()
        self._add()
        added = time.monotonic()
        said = self._worker.next()
        self._note("insert", added - began)
        before = began  # the event comes when the insert is stored, before or after its answer
        for name, at in said.get("times", {}).items():
            self._note(name, at - before)
            before = at
        return (float(said["at"]) - began) * 1_000

    def _note(self, call: str, seconds: float) -> None:
        self.calls.setdefault(call, []).append(seconds * 1_000)


@contextmanager
def idle_worker(place: Place, side: Side, colour: Colour, name: str) -> Iterator[Process]:
    """A worker process that has nothing to do and tells the time of each call of its handler."""
    with Process.of("worker", place.order(side, colour, name, SLOTS, tells=True)) as process:
        process.next()
        process.begin()
        process.next()
        yield process


def enqueuing(place: Place, name: str) -> Callable[[], object]:
    """Enqueues a job from here."""
    queue = JobQueue(place.db, collection=name)
    return lambda: queue.enqueue(ACTION, DATA)


def _inserting(place: Place, name: str) -> Callable[[], object]:
    floor = Floor(place.db, name)
    return lambda: floor.jobs.insert_one(new_job())
