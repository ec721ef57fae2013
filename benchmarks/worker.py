"""A worker process that works on a backlog and then prints how many megabytes it takes; ``memory.py`` starts it.

Run as ``python -m benchmarks.worker SIDE COLOUR URI DATABASE COLLECTION JOBS``. Each side imports only what it needs.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient, MongoClient

from benchmarks.documents import Document
from benchmarks.sizes import SLOTS, TIMEOUT, SampleError, Side

SETTLED = 0.2
"""Seconds after the last call of the handler in which the last ends are written."""


def work(side: Side, uri: str, database: str, collection: str, count: int) -> float:
    """Works on a backlog in threads and gives the megabytes that took."""
    called: list[None] = []
    done = threading.Event()

    def handler(_: Any) -> None:
        called.append(None)
        if len(called) == count:
            done.set()

    with MongoClient[Document](uri) as client:
        if side == "ours":
            from simplequeue import create_queue

            listening: Any = create_queue(client[database], collection=collection).listen(handler, concurrency=SLOTS)
        else:
            from benchmarks.loop import Loop

            listening = Loop(client[database], collection).listen(handler, concurrency=SLOTS)
        with listening:
            if not done.wait(TIMEOUT):
                raise SampleError(f"{side} worked on {len(called)} of {count} jobs")
            time.sleep(SETTLED)
            return resident_megabytes()


async def work_async(side: Side, uri: str, database: str, collection: str, count: int) -> float:
    """Works on a backlog in tasks and gives the megabytes that took."""
    called: list[None] = []
    done = asyncio.Event()

    async def handler(_: Any) -> None:
        called.append(None)
        if len(called) == count:
            done.set()

    async with AsyncMongoClient[Document](uri) as client:
        if side == "ours":
            from simplequeue import create_queue

            queue = create_queue(client[database], collection=collection)
            listening: Any = await queue.listen(handler, concurrency=SLOTS)
        else:
            from benchmarks.async_loop import AsyncLoop

            listening = (await AsyncLoop.open(client[database], collection)).listen(handler, concurrency=SLOTS)
        async with listening:
            await asyncio.wait_for(done.wait(), TIMEOUT)
            await asyncio.sleep(SETTLED)
            return resident_megabytes()


def resident_megabytes() -> float:
    """The memory of this process that is in use now, or where the system does not tell, the most that was."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main(side: str, colour: str, uri: str, database: str, collection: str, count: str) -> None:
    """Prints the megabytes."""
    chosen: Side = "ours" if side == "ours" else "loop"
    if colour == "sync":
        megabytes = work(chosen, uri, database, collection, int(count))
    else:
        megabytes = asyncio.run(work_async(chosen, uri, database, collection, int(count)))
    sys.stdout.write(f"{megabytes}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
