"""A worker process, ours or the floor: ``python -m benchmarks.durable.worker ORDER``.

It says that it is up, begins when it is sent a line, and when its input ends says how often its handler was called and
how many megabytes it takes, and drains. Ours is started before and gets its handler then, so that start-up is over when
the first job is claimed. Each side imports only what it needs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from pymongo import AsyncMongoClient, MongoClient

from benchmarks.documents import Document
from benchmarks.durable.order import Order, report
from benchmarks.sizes import ACTION
from benchmarks.worker import resident_megabytes


class Calls:
    """Counts the calls of a handler, from any thread."""

    def __init__(self, tells: bool) -> None:
        self._times: list[float] = []
        self._tells = tells

    def note(self, _: Any = None) -> None:
        """Takes note of one."""
        now = time.monotonic()
        self._times.append(now)
        if self._tells:
            report(at=now)

    def report(self) -> None:
        """Says what became of the worker, while it still is one."""
        report(calls=len(self._times), megabytes=resident_megabytes())


def work(order: Order) -> None:
    """Works in threads."""
    from durabl_ext import JobQueue

    calls = Calls(order.tells)

    def handler(job: Any, context: Any) -> None:
        calls.note()

    with MongoClient[Document](order.uri) as client:
        queue = JobQueue(client[order.database], collection=order.collection)
        with queue:
            _wait()
            queue.process(ACTION, handler, concurrency=order.slots)
            report(begun=True)
            sys.stdin.readline()
            calls.report()


async def work_async(order: Order) -> None:
    """Works in tasks."""
    from durabl_ext import AsyncJobQueue

    calls = Calls(order.tells)

    async def handler(job: Any, context: Any) -> None:
        calls.note()

    async with AsyncMongoClient[Document](order.uri) as client:
        queue = AsyncJobQueue(client[order.database], collection=order.collection)
        async with queue:
            await asyncio.to_thread(_wait)
            queue.process(ACTION, handler, concurrency=order.slots)
            report(begun=True)
            await asyncio.to_thread(sys.stdin.readline)
            calls.report()


def work_at_the_floor(order: Order) -> None:
    """Works in batches, one call of the driver after the other."""
    from benchmarks.durable.floor import Floor

    calls = Calls(order.tells)
    with MongoClient[Document](order.uri) as client:
        floor = Floor(client[order.database], order.collection)
        client.admin.command("ping")
        _wait()
        report(begun=True)
        floor.work_off(order.slots, calls.note)
        sys.stdin.readline()
        calls.report()


async def await_at_the_floor(order: Order) -> None:
    """Works in batches, one awaited call after the other."""
    from benchmarks.durable.floor import AwaitedFloor

    calls = Calls(order.tells)
    async with AsyncMongoClient[Document](order.uri) as client:
        floor = AwaitedFloor(client[order.database], order.collection)
        await client.admin.command("ping")
        await asyncio.to_thread(_wait)
        report(begun=True)
        await floor.work_off(order.slots, calls.note)
        await asyncio.to_thread(sys.stdin.readline)
        calls.report()


def follow_at_the_floor(order: Order) -> None:
    """Claims what the change stream announces, and says how long each call took; ends with its input's process."""
    from benchmarks.durable.documents import ADDED
    from benchmarks.durable.floor import Floor

    with MongoClient[Document](order.uri) as client:
        floor = Floor(client[order.database], order.collection)
        with floor.jobs.watch(ADDED, max_await_time_ms=1_000) as stream:
            _wait()
            report(begun=True)
            while True:
                if stream.try_next() is not None:
                    times = {"event": time.monotonic()}
                    token, jobs = floor.claim(order.slots, _noting(times))
                    report(at=time.monotonic(), times=times)
                    floor.complete(token, jobs)


async def follow_awaited_at_the_floor(order: Order) -> None:
    """The same over the driver that awaits."""
    from benchmarks.durable.documents import ADDED
    from benchmarks.durable.floor import AwaitedFloor

    async with AsyncMongoClient[Document](order.uri) as client:
        floor = AwaitedFloor(client[order.database], order.collection)
        async with await floor.jobs.watch(ADDED, max_await_time_ms=1_000) as stream:
            await asyncio.to_thread(_wait)
            report(begun=True)
            while True:
                if await stream.try_next() is not None:
                    times = {"event": time.monotonic()}
                    token, jobs = await floor.claim(order.slots, _noting(times))
                    report(at=time.monotonic(), times=times)
                    await floor.complete(token, jobs)


def _noting(times: dict[str, float]) -> Callable[[str], None]:
    def note(name: str) -> None:
        times[name] = time.monotonic()

    return note


def _wait() -> None:
    report(up=True)
    sys.stdin.readline()


def main(order: Order) -> None:
    """Does as ordered."""
    if order.side == "loop" and order.tells and order.colour == "async":
        asyncio.run(follow_awaited_at_the_floor(order))
    elif order.side == "loop" and order.tells:
        follow_at_the_floor(order)
    elif order.side == "loop" and order.colour == "async":
        asyncio.run(await_at_the_floor(order))
    elif order.side == "loop":
        work_at_the_floor(order)
    elif order.colour == "sync":
        work(order)
    else:
        asyncio.run(work_async(order))


if __name__ == "__main__":
    main(Order.of_argument(sys.argv[1]))
