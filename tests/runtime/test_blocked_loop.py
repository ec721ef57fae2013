"""Handlers of an async queue that block their loop: a warning, and with ``lease_client=`` no harm."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from durabl_ext import AsyncDummyBackend, AsyncJobQueue, MongoJobQueue
from simplequeue import Status

LEASE = 1.5
LONG = 3.3


def sleeps(seconds: float) -> None:
    time.sleep(seconds)


def computes(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(1_000))


@contextmanager
def reaping(backend: MongoJobQueue) -> Iterator[None]:
    """Recovers what has expired, five times a second, as a reaper elsewhere would."""
    stop = threading.Event()

    def reap() -> None:
        while not stop.wait(0.2):
            backend.recover()

    thread = threading.Thread(target=reap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("block", [sleeps, computes])
def test_with_a_lease_client_a_handler_that_blocks_the_loop_keeps_its_lease(
    db: Database[dict[str, Any]], mongo_url: str, client: MongoClient[dict[str, Any]], block: Callable[[float], None]
) -> None:
    runs: list[int] = []

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as asynchronous:
            queue = AsyncJobQueue(asynchronous[db.name], visibility_timeout=LEASE, lease_client=client)
            ended = asyncio.Event()

            @queue.process("a")
            async def handle(job: Any, ctx: Any) -> None:
                runs.append(job.attempt)
                block(LONG)
                ended.set()

            id = await queue.enqueue("a")
            assert id is not None
            await queue.start(reaper=False)
            with reaping(MongoJobQueue(db)):
                await asyncio.wait_for(ended.wait(), 60)
                assert await queue.shutdown()
            job = await queue.get(id)
            assert job is not None
            assert (job.status, job.attempt) == (Status.COMPLETED, 1)

    asyncio.run(main())
    assert runs == [1]


def test_a_blocked_loop_is_warned_of(
    db: Database[dict[str, Any]], mongo_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with (
            AsyncMongoClient[dict[str, Any]](mongo_url) as asynchronous,
            AsyncJobQueue(asynchronous[db.name], visibility_timeout=6) as queue,
        ):
            ended = asyncio.Event()

            @queue.process("a")
            async def handle(job: Any, ctx: Any) -> None:
                sleeps(1.5)  # a quarter of the lease
                ended.set()

            await queue.enqueue("a")
            await asyncio.wait_for(ended.wait(), 60)

    with caplog.at_level(logging.WARNING, "durabl_ext"):
        asyncio.run(main())
    warned = re.search(r"the event loop was blocked for (\d+\.\d) s", caplog.text)
    assert warned is not None
    assert 1.2 <= float(warned[1]) < 60  # its look at the clock may have been due while it was blocked
    assert "lease_client=" in caplog.text


def test_what_cannot_renew_leases_is_refused(mongo_url: str, client: MongoClient[dict[str, Any]]) -> None:
    asynchronous = AsyncMongoClient[dict[str, Any]](mongo_url, connect=False)
    with pytest.raises(TypeError, match="expected a MongoClient"):
        AsyncJobQueue(asynchronous.app, lease_client=asynchronous)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(TypeError, match="only a queue on MongoDB"):
        AsyncJobQueue(AsyncDummyBackend(), lease_client=client)
