"""Workers whose handler commits in a transaction: ``python -m tests.drain.committing MODE COLOUR URL DB``."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from pymongo import AsyncMongoClient, MongoClient

from durabl_ext import AsyncJobQueue, JobQueue
from durabl_ext.runtime import transactions
from tests.drain.programs import say

MODES = ("inside", "after", "works", "short")
"""Hangs in the block; hangs after it; works; works with leases that end as soon as such a server ends transactions."""


def stay(mode: str, here: str) -> None:
    if mode == here:
        say(here)
        threading.Event().wait()


def sync_main(mode: str, url: str, name: str) -> None:
    db = MongoClient[dict[str, Any]](url)[name]
    queue = JobQueue(db, visibility_timeout=2)

    def work(job: Any, ctx: Any) -> None:
        with ctx.transaction() as session:
            db.orders.insert_one({"job": job.id}, session=session)
            queue.enqueue("next", {"of": job.id}, session=session)
            stay(mode, "inside")
        stay(mode, "after")

    queue.process("a", work, concurrency=3)
    queue.start(reaper_interval=0.2)
    say("works")
    queue.wait_drained()


async def async_main(mode: str, url: str, name: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        db = client[name]
        queue = AsyncJobQueue(db, visibility_timeout=2)

        async def work(job: Any, ctx: Any) -> None:
            async with ctx.transaction() as session:
                await db.orders.insert_one({"job": job.id}, session=session)
                await queue.enqueue("next", {"of": job.id}, session=session)
                stay(mode, "inside")
            stay(mode, "after")

        queue.process("a", work, concurrency=3)
        await queue.start(reaper_interval=0.2)
        say("works")
        await queue.wait_drained()


if __name__ == "__main__":
    mode, colour, *where = sys.argv[1:]
    assert mode in MODES
    if mode == "short":
        transactions.LIMIT, transactions.BEYOND = 2.0, 0.5
    if colour == "sync":
        sync_main(mode, *where)
    else:
        asyncio.run(async_main(mode, *where))
