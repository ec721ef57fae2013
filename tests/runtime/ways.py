"""The three ways to write a handler with a transaction, behind one: ``def``, ``async def``, and that on a sync queue.

A body is written once, as a coroutine. Under ``def`` it is run in one step, since nothing in it suspends there.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, JobQueue
from simplequeue.embedded import Mongod
from simplequeue.jobs import run
from simplequeue.threads import LoopThread
from tests.runtime.fronts import Front
from tests.watching import DEADLINE

WAYS = ("def", "async def", "async def on a JobQueue")

Body = Callable[[Any, Any], Awaitable[object]]


class Way:
    """Queues whose handlers are written in one way.

    Args:
        name: Which way.
        url: The server.
        database: The name of the database.
        listeners: What is told of the driver's commands.

    Attributes:
        waits: Whether handlers are ``def``.
        db: The database as handlers reach it: to be called through ``made``.
    """

    def __init__(self, name: str, url: str, database: str, listeners: Sequence[Any] = ()) -> None:
        self.name = name
        self.waits = name == "def"
        self.is_async = name == "async def"
        kind: Any = AsyncMongoClient if self.is_async else MongoClient
        self.client: Any = kind(url, event_listeners=listeners)
        self.db: Any = self.client[database]
        self._loop = LoopThread("test-queue") if self.is_async else None
        self._fronts: list[Front] = []

    def open(self, backend: Any = None, **options: Any) -> Front:
        """A queue on that database, or on a backend."""
        kind: Any = AsyncJobQueue if self.is_async else JobQueue
        front = Front(kind(self.db if backend is None else backend, **options), self._loop)
        self._fronts.append(front)
        return front

    def handler(self, body: Body) -> Any:
        """The body as a handler."""

        async def awaits(job: Any, ctx: Any) -> None:
            await body(job, ctx)

        def waits(job: Any, ctx: Any) -> None:
            run(awaits(job, ctx))

        return waits if self.waits else awaits

    def close(self) -> None:
        for front in self._fronts:
            front.shutdown(0)
        if self._loop is None:
            self.client.close()
        else:
            self._loop.call(self.client.close())
            self._loop.close()


async def made(result: Any) -> Any:
    """What a call of the driver or of a queue gives, in either colour."""
    return await result if inspect.isawaitable(result) else result


@asynccontextmanager
async def block(ctx: Any) -> AsyncIterator[Any]:
    """The block of ``ctx.transaction()``, as the way of the handler writes it."""
    opened = ctx.transaction()
    if hasattr(opened, "__enter__"):
        with opened as session:
            yield session
    else:
        async with opened as session:
            yield session


async def held(event: threading.Event) -> None:
    """Waits for an event of the test, and lets the loop go on meanwhile where there is one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        assert event.wait(DEADLINE)
        return
    assert await asyncio.to_thread(event.wait, DEADLINE)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, db: Database[dict[str, Any]], mongo_url: str) -> Iterator[Way]:
    """Each way in turn, on the test's database."""
    one = Way(request.param, mongo_url, db.name)
    yield one
    one.close()


@pytest.fixture(params=WAYS)
def own_way(request: pytest.FixtureRequest, server: Mongod, own_db: Database[dict[str, Any]]) -> Iterator[Way]:
    """Each way in turn, on a server that a test may freeze and make fail.

    Its driver looks at the server twice a second: one that said it was going down is asked again at the next look only,
    which comes every ten seconds.
    """
    one = Way(request.param, server.uri + "&serverSelectionTimeoutMS=2000&heartbeatFrequencyMS=500", own_db.name)
    yield one
    one.close()
