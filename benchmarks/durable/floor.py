"""The floor: the calls that a claim and an end are made of, one after the other, and nothing else.

No slots, no threads, no heartbeats, no checks and no second try: what driver and server give to one who works in
batches. It waits for each call, so a worker that overlaps its calls may be faster than this.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime

from pymongo import WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.collection import Collection
from pymongo.database import Database

from benchmarks.documents import Document
from benchmarks.durable.documents import BY_ID, ORDER, claim, completed, due, run_of
from benchmarks.sizes import ACTION

Note = Callable[[str], None]


class Floor:
    """Works on jobs in batches.

    Args:
        db: Where the jobs are.
        collection: What their collection is called. Its indexes are the library's.
    """

    def __init__(self, db: Database[Document], collection: str) -> None:
        self.jobs: Collection[Document] = db[collection].with_options(write_concern=WriteConcern("majority"))

    def claim(self, limit: int, note: Note = lambda _: None) -> tuple[str, list[Document]]:
        """Starts up to ``limit`` jobs in three calls and gives their token and them.

        Args:
            limit: At most so many.
            note: What is told the name of each call when it is answered.
        """
        now = datetime.now(UTC)
        found = list(self.jobs.find(due(now, ACTION), {"_id": 1}, sort=ORDER, limit=limit))
        note("find")
        ids, token = [job["_id"] for job in found], secrets.token_hex(16)
        if not ids:
            return token, []
        self.jobs.update_many(*claim(ids, token, now), hint=BY_ID)
        note("update")
        started = list(self.jobs.find(run_of(ids, token), hint=BY_ID))
        note("read")
        return token, started

    def complete(self, token: str, jobs: list[Document]) -> None:
        """Ends runs in one call."""
        self.jobs.update_many(run_of([job["_id"] for job in jobs], token), completed(), hint=BY_ID)

    def work_off(self, slots: int, handler: Callable[[Document], object]) -> None:
        """Works until nothing is queued."""
        while True:
            token, jobs = self.claim(slots)
            if not jobs:
                return
            for job in jobs:
                handler(job)
            self.complete(token, jobs)


class AwaitedFloor:
    """The same over the driver that awaits, which has more to do for each call.

    Args: as for ``Floor``.
    """

    def __init__(self, db: AsyncDatabase[Document], collection: str) -> None:
        self.jobs: AsyncCollection[Document] = db[collection].with_options(write_concern=WriteConcern("majority"))

    async def claim(self, limit: int, note: Note = lambda _: None) -> tuple[str, list[Document]]:
        """Starts up to ``limit`` jobs in three calls and gives their token and them."""
        now = datetime.now(UTC)
        found = await self.jobs.find(due(now, ACTION), {"_id": 1}, sort=ORDER, limit=limit).to_list()
        note("find")
        ids, token = [job["_id"] for job in found], secrets.token_hex(16)
        if not ids:
            return token, []
        await self.jobs.update_many(*claim(ids, token, now), hint=BY_ID)
        note("update")
        started = await self.jobs.find(run_of(ids, token), hint=BY_ID).to_list()
        note("read")
        return token, started

    async def complete(self, token: str, jobs: list[Document]) -> None:
        """Ends runs in one call."""
        await self.jobs.update_many(run_of([job["_id"] for job in jobs], token), completed(), hint=BY_ID)

    async def work_off(self, slots: int, handler: Callable[[Document], object]) -> None:
        """Works until nothing is queued."""
        while True:
            token, jobs = await self.claim(slots)
            if not jobs:
                return
            for job in jobs:
                handler(job)
            await self.complete(token, jobs)
