"""The hand-written side for asyncio: ``loop.py`` with tasks in the place of threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Self

from pymongo import ReturnDocument, WriteConcern
from pymongo.asynchronous.change_stream import AsyncChangeStream
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from benchmarks.documents import (
    ADDED,
    INDEX,
    INDEX_KEYS,
    POLL,
    QUEUED,
    Document,
    ended,
    new,
    new_ones,
    started,
    this_run,
)

Handler = Callable[[Document], Awaitable[object]]


class AsyncLoop:
    """Adds jobs and works on them in tasks. Made by ``open``."""

    def __init__(self, jobs: AsyncCollection[Document]) -> None:
        self._jobs = jobs

    @classmethod
    async def open(cls, db: AsyncDatabase[Document], collection: str) -> Self:
        """Makes the index and the object."""
        jobs = db[collection].with_options(write_concern=WriteConcern("majority"))
        await jobs.create_index(INDEX_KEYS, name=INDEX, partialFilterExpression=QUEUED)
        return cls(jobs)

    async def add(self, action: str, data: Document) -> None:
        """Adds a job."""
        await self._jobs.insert_one(new(action, data))

    async def add_many(self, jobs: Iterable[tuple[str, Document]]) -> None:
        """Adds jobs in one go."""
        await self._jobs.insert_many(new_ones(jobs))

    @asynccontextmanager
    async def listen(self, handler: Handler, *, concurrency: int = 16) -> AsyncIterator[None]:
        """Works on the backlog in as many tasks, and on what is pushed in one more, until the block ends."""
        stream = await self._jobs.watch(ADDED, max_await_time_ms=1_000)
        stopped = asyncio.Event()
        workers = [asyncio.create_task(self._work(handler, stopped)) for _ in range(concurrency)]
        watcher = asyncio.create_task(self._watch(stream, handler))
        try:
            yield
        finally:
            stopped.set()
            await asyncio.gather(*workers)
            watcher.cancel()
            await asyncio.wait((watcher,))

    async def _work(self, handler: Handler, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            if (job := await self._claim()) is not None:
                await self._run(handler, job)
                continue
            try:
                await asyncio.wait_for(stopped.wait(), POLL)
            except TimeoutError:
                continue

    async def _watch(self, stream: AsyncChangeStream[Document], handler: Handler) -> None:
        async with stream:
            while True:
                if await stream.try_next() is not None and (job := await self._claim()) is not None:
                    await self._run(handler, job)

    async def _claim(self) -> Document | None:
        return await self._jobs.find_one_and_update(
            QUEUED, started(), sort=[("_id", 1)], hint=INDEX, return_document=ReturnDocument.AFTER
        )

    async def _run(self, handler: Handler, job: Document) -> None:
        problem = None
        try:
            await handler(job)
        except Exception as error:
            problem = error
        await self._jobs.update_one(this_run(job), ended(problem))
