"""What is measured of the sync side: each function takes one sample, in a collection of its own."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Any

from pymongo.database import Database

from benchmarks.documents import Document
from benchmarks.loop import Loop
from benchmarks.sizes import ACTION, DATA, SLOTS, TIMEOUT, Side, Sizes, check_all_done, gap
from simplequeue import Queue, create_queue


class Measures:
    """Takes samples on a database.

    Args:
        db: A database that holds nothing else.
        sizes: How much a sample holds.
    """

    def __init__(self, db: Database[Document], sizes: Sizes) -> None:
        self._db = db
        self._sizes = sizes
        self._samples = 0

    def add(self, side: Side) -> list[float]:
        """Jobs added per second, one call after the other."""
        jobs, _ = self._jobs(side)
        began = time.perf_counter()
        for _ in range(self._sizes.adds):
            jobs.add(ACTION, DATA)
        return [self._sizes.adds / (time.perf_counter() - began)]

    def add_many(self, side: Side) -> list[float]:
        """Jobs added per second in batches."""
        jobs, _ = self._jobs(side)
        batch = [(ACTION, DATA)] * self._sizes.batch
        began = time.perf_counter()
        for _ in range(self._sizes.batches):
            jobs.add_many(batch)
        return [self._sizes.batches * self._sizes.batch / (time.perf_counter() - began)]

    def listen(self, side: Side) -> list[float]:
        """Jobs worked on per second out of a backlog, from the first call of the handler to the last."""
        jobs, name = self._jobs(side)
        count = self._sizes.jobs
        jobs.add_many([(ACTION, DATA)] * count)
        called: list[float] = []
        done = threading.Event()

        def handler(_: Any) -> None:
            called.append(time.perf_counter())
            if len(called) == count:
                done.set()

        with jobs.listen(handler, concurrency=SLOTS):
            done.wait(TIMEOUT)
        check_all_done(side, count, len(called), self._db[name].count_documents({"status": "completed"}))
        return [(count - 1) / (called[-1] - called[0])]

    def latency(self, side: Side) -> list[float]:
        """Milliseconds from before an add to the call of the handler, one job at a time."""
        jobs, _ = self._jobs(side)
        called: SimpleQueue[float] = SimpleQueue()
        latencies = []
        with jobs.listen(lambda _: called.put(time.perf_counter()), concurrency=SLOTS):
            for _ in range(self._sizes.unsampled + self._sizes.pickups):
                time.sleep(gap())
                began = time.perf_counter()
                jobs.add(ACTION, DATA)
                latencies.append((called.get(timeout=TIMEOUT) - began) * 1_000)
        return latencies[self._sizes.unsampled :]

    def _jobs(self, side: Side) -> tuple[Queue | Loop, str]:
        """The side on a new collection, which has the index from the beginning, and the name of that."""
        self._samples += 1
        name = f"sync_{self._samples}"
        loop = Loop(self._db, name)
        return (create_queue(self._db, collection=name) if side == "ours" else loop), name
