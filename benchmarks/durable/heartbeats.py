"""How many writes keep many runs alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from pymongo import MongoClient

from benchmarks.documents import Document
from benchmarks.durable.counting import Writes
from benchmarks.durable.documents import new_job
from benchmarks.durable.place import Place
from benchmarks.durable.report import Line, by_ours, line
from benchmarks.durable.sizes import BEATING, Sizes
from benchmarks.pairs import Pair
from benchmarks.report import Target
from benchmarks.sizes import ACTION, TIMEOUT, SampleError
from durabl_ext import JobQueue

INTERVAL = 0.5
"""Seconds between the heartbeats of a run."""

LOTS = 4
"""In so many lots the jobs are stored, so that they start under several tokens, as jobs do that come over time."""

ONE = Target("at most", 1.05)
"""Writes for each token and interval, and a little: a window is not as long as its intervals to the millisecond."""

HANDFUL = Target("at most", 5)


def heartbeats(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Counts the writes of a worker whose runs do nothing but wait."""
    counts = [_counted(place, sizes.beats) for _ in range(sizes.pairs["heartbeats"][0])]
    each = [Pair([writes / tokens], [1.0]) for writes, _, tokens in counts]
    yield line(f"heartbeats of {BEATING} runs, a token", "", "writes", "one", each, ONE, compare=by_ours)
    together = [Pair([commands], [float(tokens)]) for _, commands, tokens in counts]
    yield line(f"heartbeats of {BEATING} runs, commands", "", "writes", "tokens", together, HANDFUL, compare=by_ours)


def _counted(place: Place, beats: int) -> tuple[float, float, int]:
    """Writes and commands an interval, and the number of tokens."""
    listener, stop, running = Writes(), threading.Event(), threading.Semaphore(0)

    def handler(job: Any, context: Any) -> None:
        running.release()
        stop.wait(TIMEOUT)

    with place.collection() as name, MongoClient[Document](place.uri, event_listeners=[listener]) as client:
        queue = JobQueue(client[place.db.name], collection=name)
        queue.process(ACTION, handler, concurrency=BEATING, heartbeat_interval=INTERVAL)
        queue.start(reaper=False)
        try:
            for _ in range(LOTS):
                place.fill(name, (new_job() for _ in range(BEATING // LOTS)))
                for _ in range(BEATING // LOTS):
                    if not running.acquire(timeout=TIMEOUT):
                        raise SampleError("not all of the runs have begun")
            time.sleep(1.5 * INTERVAL)  # to the middle between two beats, so that none is at an end of the window
            began, writes, commands = time.monotonic(), listener.writes, listener.commands
            time.sleep(beats * INTERVAL)
            intervals = (time.monotonic() - began) / INTERVAL
            writes, commands = listener.writes - writes, listener.commands - commands
            tokens = len(place.db[name].distinct("durable.token", {"status": "running"}))
        finally:
            stop.set()
            queue.shutdown()
    return writes / intervals, commands / intervals, tokens
