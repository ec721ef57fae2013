"""Every measure, sync and async, behind one kind of call, on one server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import AsyncMongoClient, MongoClient

from benchmarks.async_measures import AsyncMeasures
from benchmarks.documents import Document
from benchmarks.measures import Measures
from benchmarks.memory import Workers
from benchmarks.pairs import Sample
from benchmarks.report import machine
from benchmarks.sizes import Colour, Side, Sizes

Samples = dict[tuple[str, Colour], Sample]


@contextmanager
def open_samples(address: str, sizes: Sizes) -> Iterator[tuple[Samples, dict[str, Any]]]:
    """How to sample each measure, sync and async, in a database that is dropped in the end; and the machine."""
    name = f"benchmark_{uuid.uuid4().hex}"
    with MongoClient[Document](address) as client, asyncio.Runner() as runner:
        async_client = AsyncMongoClient[Document](address)
        sync = Measures(client[name], sizes)
        other = AsyncMeasures(async_client[name], sizes)
        workers = Workers(client[name], address, sizes)

        def awaited(sample: Callable[[Side], Awaitable[list[float]]]) -> Sample:
            async def take(side: Side) -> list[float]:
                return await sample(side)

            return lambda side: runner.run(take(side))

        try:
            yield (
                {
                    ("add", "sync"): sync.add,
                    ("add", "async"): awaited(other.add),
                    ("add_many", "sync"): sync.add_many,
                    ("add_many", "async"): awaited(other.add_many),
                    ("listen", "sync"): sync.listen,
                    ("listen", "async"): awaited(other.listen),
                    ("latency", "sync"): sync.latency,
                    ("latency", "async"): awaited(other.latency),
                    ("memory", "sync"): lambda side: workers.resident(side, "sync"),
                    ("memory", "async"): lambda side: workers.resident(side, "async"),
                },
                machine(client.server_info()["version"]),
            )
        finally:
            runner.run(async_client.close())
            client.drop_database(name)
