"""What is measured of the async side: ``measures.py`` on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from benchmarks.async_loop import AsyncLoop
from benchmarks.documents import Document
from benchmarks.sizes import ACTION, DATA, SLOTS, TIMEOUT, Side, Sizes, check_all_done, gap
from simplequeue import AsyncQueue, create_queue


class AsyncMeasures:
    """Takes samples on a database.

    Args:
        db: A database that holds nothing else.
        sizes: How much a sample holds.
    """

    def __init__(self, db: AsyncDatabase[Document], sizes: Sizes) -> None:
        self._db = db
        self._sizes = sizes
        self._samples = 0

    async def add(self, side: Side) -> list[float]:
        """Jobs added per second, one call after the other."""
        jobs, _ = await self._jobs(side)
        began = time.perf_counter()
        for _ in range(self._sizes.adds):
            await jobs.add(ACTION, DATA)
        return [self._sizes.adds / (time.perf_counter() - began)]

    async def add_many(self, side: Side) -> list[float]:
        """Jobs added per second in batches."""
        jobs, _ = await self._jobs(side)
        batch = [(ACTION, DATA)] * self._sizes.batch
        began = time.perf_counter()
        for _ in range(self._sizes.batches):
            await jobs.add_many(batch)
        return [self._sizes.batches * self._sizes.batch / (time.perf_counter() - began)]

    async def listen(self, side: Side) -> list[float]:
        """Jobs worked on per second out of a backlog, from the first call of the handler to the last."""
        jobs, name = await self._jobs(side)
        count = self._sizes.jobs
        await jobs.add_many([(ACTION, DATA)] * count)
        called: list[float] = []
        done = asyncio.Event()

        async def handler(_: Any) -> None:
            called.append(time.perf_counter())
            if len(called) == count:
                done.set()

        async with _listening(jobs, handler):
            await asyncio.wait_for(done.wait(), TIMEOUT)
        check_all_done(side, count, len(called), await self._db[name].count_documents({"status": "completed"}))
        return [(count - 1) / (called[-1] - called[0])]

    async def latency(self, side: Side) -> list[float]:
        """Milliseconds from before an add to the call of the handler, one job at a time."""
        jobs, _ = await self._jobs(side)
        called: asyncio.Queue[float] = asyncio.Queue()
        latencies = []

        async def handler(_: Any) -> None:
            called.put_nowait(time.perf_counter())

        async with _listening(jobs, handler):
            for _ in range(self._sizes.unsampled + self._sizes.pickups):
                await asyncio.sleep(gap())
                began = time.perf_counter()
                await jobs.add(ACTION, DATA)
                latencies.append((await asyncio.wait_for(called.get(), TIMEOUT) - began) * 1_000)
        return latencies[self._sizes.unsampled :]

    async def _jobs(self, side: Side) -> tuple[AsyncQueue | AsyncLoop, str]:
        """The side on a new collection, which has the index from the beginning, and the name of that."""
        self._samples += 1
        name = f"async_{self._samples}"
        loop = await AsyncLoop.open(self._db, name)
        return (create_queue(self._db, collection=name) if side == "ours" else loop), name


@asynccontextmanager
async def _listening(jobs: AsyncQueue | AsyncLoop, handler: Callable[[Any], Awaitable[None]]) -> AsyncIterator[None]:
    if isinstance(jobs, AsyncQueue):
        async with await jobs.listen(handler, concurrency=SLOTS):
            yield
    else:
        async with jobs.listen(handler, concurrency=SLOTS):
            yield
