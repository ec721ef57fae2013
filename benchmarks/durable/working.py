"""A backlog that worker processes work off, timed by what is stored."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.durable.place import Place
from benchmarks.durable.processes import Process
from benchmarks.sizes import TIMEOUT, Colour, SampleError, Side, check_all_done

LOOK_EVERY = 0.02
"""Seconds between looks at whether all has ended: each reads one key of an index."""


@dataclass(frozen=True, slots=True)
class Worked:
    """What came of it.

    Attributes:
        rate: Jobs per second, from the first claim to the last stored completion.
        calls: How many jobs each process worked on.
        megabytes: What each process took, before it drained.
    """

    rate: float
    calls: list[int]
    megabytes: list[float]


def worked(place: Place, side: Side, colour: Colour, slots: int, jobs: int, workers: int = 1) -> Worked:
    """Has new processes work off a backlog, once all of them are up.

    Raises:
        SampleError: Not every job was run once and completed.
    """
    with place.collection() as name, ExitStack() as stack:
        place.backlog(name, jobs)
        order = place.order(side, colour, name, slots)
        processes = [stack.enter_context(Process.of("worker", order)) for _ in range(workers)]
        for process in processes:
            process.next()
        for process in processes:
            process.begin()
        for process in processes:
            process.next()
        until_worked_off(place, name)
        ends = [process.end() for process in processes]
        calls = [int(end["calls"]) for end in ends]
        rate = _rate(place, name, side, jobs, sum(calls))
    return Worked(rate, calls, [float(end["megabytes"]) for end in ends])


def until_worked_off(place: Place, name: str) -> None:
    """Waits until all jobs of a collection have ended.

    Not only until all are claimed: a worker that is told to drain just then gives back what it has not begun.

    Raises:
        SampleError: That takes too long.
    """
    ends = time.monotonic() + TIMEOUT
    for status in ("queued", "running"):
        while place.db[name].find_one({"status": status}, {"_id": 1}) is not None:
            if time.monotonic() > ends:
                raise SampleError(f"after {TIMEOUT:.0f} s there are jobs that are {status}")
            time.sleep(LOOK_EVERY)


def _rate(place: Place, name: str, side: Side, jobs: int, called: int) -> float:
    """Jobs per second by the stored times; both sides take each just before the call that stores it."""
    summary = {
        "_id": None,
        "first": {"$min": "$started_at"},
        "last": {"$max": "$finished_at"},
        "completed": {"$sum": {"$cond": [{"$eq": ["$status", "completed"]}, 1, 0]}},
        "attempts": {"$sum": "$durable.attempt"},
    }
    found = next(iter(place.db[name].aggregate([{"$group": summary}])))
    check_all_done(side, jobs, called, int(found["completed"]))
    if found["attempts"] != jobs:
        raise SampleError(f"{side}: {jobs} jobs took {found['attempts']} attempts")
    return float(jobs / (found["last"] - found["first"]).total_seconds())
