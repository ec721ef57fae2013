"""What a job's log costs: writes of jobs that log beside those of jobs that do not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pymongo import MongoClient

from benchmarks.documents import Document
from benchmarks.durable.counting import Writes
from benchmarks.durable.place import Place
from benchmarks.durable.report import Line, line
from benchmarks.durable.sizes import LINES, Sizes
from benchmarks.durable.working import until_worked_off
from benchmarks.pairs import alternate, by_difference
from benchmarks.report import Target
from benchmarks.sizes import ACTION, SLOTS, SampleError, Side
from durabl_ext import JobQueue

EXTRA = Target("writes more", 2)

PAUSE = 0.002
"""Seconds between two lines, so that they do not all come at once."""


def logs(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs."""

    def sample(side: Side) -> list[float]:
        return [_writes(place, sizes.logging, LINES if side == "ours" else 0)]

    pairs = alternate(sample, *sizes.pairs["logs"], warm_up=False)
    yield line(f"writes a job, {LINES} lines", "sync", "writes", "no lines", pairs, EXTRA, compare=by_difference)


def _writes(place: Place, jobs: int, lines: int) -> float:
    """Writes a job, from its claim to its end."""
    listener = Writes()

    def handler(job: Any, context: Any) -> None:
        for number in range(LINES):
            time.sleep(PAUSE)  # as long without lines, so that claims and ends go together as they do with them
            if number < lines:
                context.log(f"line {number}")

    with place.collection() as name, MongoClient[Document](place.uri, event_listeners=[listener]) as client:
        place.backlog(name, jobs)
        queue = JobQueue(client[place.db.name], collection=name)
        queue.process(ACTION, handler, concurrency=SLOTS)
        queue.start(reaper=False)
        until_worked_off(place, name)
        queue.shutdown()
        kept = place.db[name].count_documents({"status": "completed", "durable.logs": {"$size": lines}})
        if lines and kept != jobs:
            raise SampleError(f"{kept} of {jobs} jobs have completed with all lines")
    return listener.writes / jobs
