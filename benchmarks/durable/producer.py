"""A process that enqueues, ours or the floor, and prints jobs per second.

Run as ``python -m benchmarks.durable.producer ORDER``. Connections are opened before the clock starts, by a few calls
that do not count.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable

from pymongo import AsyncMongoClient, MongoClient, WriteConcern

from benchmarks.documents import Document
from benchmarks.durable.documents import new_job
from benchmarks.durable.order import Order, report
from benchmarks.sizes import ACTION, DATA

WARM_UP = 3
"""Calls of each caller, or batches, before the clock starts."""

Call = Callable[[], object]
AsyncCall = Callable[[], Awaitable[object]]


def produce(order: Order) -> float:
    """Enqueues from threads, or in batches from one; gives jobs per second."""
    with MongoClient[Document](order.uri) as client:
        one, many = _calls(client, order)
        if order.calls:
            return order.slots * order.calls / _seconds_in_threads(one, order)
        for _ in range(WARM_UP):
            many()
        began = time.perf_counter()
        for _ in range(order.batches):
            many()
        return order.batches * order.batch / (time.perf_counter() - began)


async def produce_async(order: Order) -> float:
    """Enqueues from tasks, or in batches from one; gives jobs per second."""
    async with AsyncMongoClient[Document](order.uri) as client:
        one, many = _async_calls(client, order)

        async def caller(calls: int) -> None:
            for _ in range(calls):
                await one()

        async def callers(calls: int) -> None:
            await asyncio.gather(*(caller(calls) for _ in range(order.slots)))

        if order.calls:
            await callers(WARM_UP)
            began = time.perf_counter()
            await callers(order.calls)
            return order.slots * order.calls / (time.perf_counter() - began)
        for _ in range(WARM_UP):
            await many()
        began = time.perf_counter()
        for _ in range(order.batches):
            await many()
        return order.batches * order.batch / (time.perf_counter() - began)


def _calls(client: MongoClient[Document], order: Order) -> tuple[Call, Call]:
    """How to store one job, and how to store a batch."""
    database = client[order.database]
    if order.side == "ours":
        from durabl_ext import Enqueue, JobQueue

        queue = JobQueue(database, collection=order.collection)
        return (
            lambda: queue.enqueue(ACTION, DATA),
            lambda: queue.enqueue_many([Enqueue(ACTION, DATA) for _ in range(order.batch)]),
        )
    jobs = database[order.collection].with_options(write_concern=WriteConcern("majority"))
    return (
        lambda: jobs.insert_one(new_job()),
        lambda: jobs.insert_many([new_job() for _ in range(order.batch)]),
    )


def _async_calls(client: AsyncMongoClient[Document], order: Order) -> tuple[AsyncCall, AsyncCall]:
    database = client[order.database]
    if order.side == "ours":
        from durabl_ext import AsyncJobQueue, Enqueue

        queue = AsyncJobQueue(database, collection=order.collection)
        return (
            lambda: queue.enqueue(ACTION, DATA),
            lambda: queue.enqueue_many([Enqueue(ACTION, DATA) for _ in range(order.batch)]),
        )
    jobs = database[order.collection].with_options(write_concern=WriteConcern("majority"))
    return (
        lambda: jobs.insert_one(new_job()),
        lambda: jobs.insert_many([new_job() for _ in range(order.batch)]),
    )


def _seconds_in_threads(call: Call, order: Order) -> float:
    began: list[float] = []
    together = threading.Barrier(order.slots, action=lambda: began.append(time.perf_counter()))

    def caller() -> None:
        for _ in range(WARM_UP):
            call()
        together.wait()
        for _ in range(order.calls):
            call()

    threads = [threading.Thread(target=caller) for _ in range(order.slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began[0]


def main(order: Order) -> None:
    """Does as ordered."""
    report(rate=produce(order) if order.colour == "sync" else asyncio.run(produce_async(order)))


if __name__ == "__main__":
    main(Order.of_argument(sys.argv[1]))
