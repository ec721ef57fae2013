"""The job under test: where it is kept, and how it comes from one run to the next.

What takes time elsewhere is done at once: a lease ends, a job is due. All else is decided as for any job.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.database import Database

from durabl_ext.claims import Claim
from durabl_ext.decisions import Decisions
from durabl_ext.job import DurableJob, durable_from, new_durable
from durabl_ext.memory import DummyBackend
from durabl_ext.mongo import MongoJobQueue
from durabl_ext.options import Enqueue, Request, checked
from durabl_ext.orchestrator.orchestration import Body, Orchestration
from durabl_ext.testing import stage
from simplequeue.job import Document
from simplequeue.states import Status

COLLECTION = "orchestration_harness"
"""Not the application's: whoever works on its jobs must not find this one."""

LEASE = timedelta(minutes=5)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a job runs under test: ``OrchestrationHarness`` says what each is."""

    data: Any
    job_id: str
    action: str
    now: datetime
    seed: str
    step_timeout: float
    max_duration: float | None
    max_attempts: int


class Bench:
    """One job and its store.

    Args:
        terms: What it is.
        db: The database; None means in memory.

    Attributes:
        waiting: Its store, for code that waits.
        awaited: Its store, for code that awaits.
        attempts: How many runs of it have started.
    """

    def __init__(self, terms: Terms, db: Database[Any] | None) -> None:
        if isinstance(db, AsyncDatabase):
            raise TypeError(
                "db: a harness waits, and an AsyncDatabase belongs to the loop that it was first used on: give a "
                "Database of the same server, of which step.session is a session then"
            )
        backend = DummyBackend() if db is None else MongoJobQueue(db, collection=COLLECTION, push=False)
        self.terms = terms
        self.attempts = 0
        self.waiting: Decisions = backend.here
        self.awaited: Decisions = backend.through(stage.calls.here())
        self._jobs = self.awaited._jobs
        asked = Enqueue(terms.action, terms.data, max_attempts=terms.max_attempts)
        self._request: Request = checked(asked, self._jobs.codec)

    def orchestration(self, body: Body) -> Orchestration:
        """A body as the handler that runs it."""
        terms, seed = self.terms, uuid5(NAMESPACE_OID, self.terms.seed).hex
        logger = logging.getLogger("durabl_ext")
        return Orchestration(body, terms.step_timeout, terms.max_duration, logger, lambda: seed, stage.steps)

    async def place(self) -> None:
        """Stores the job as it is when it is new, in place of one of an earlier test."""
        await self._jobs.delete_many({"_id": self.terms.job_id})
        await self._jobs.insert_one({**new_durable(self._request, self.terms.now), "_id": self.terms.job_id})

    async def claim(self) -> Claim:
        """Starts the next run, whatever became of the last one.

        Raises:
            RuntimeError: The job cannot be started, since somebody else has ended or deleted it.
        """
        await self._end_lease()
        if (await self.document()).get("status") == Status.FAILED:
            await self.awaited.retry(self.terms.job_id)
        here = {"_id": self.terms.job_id, "status": Status.QUEUED.value}
        await self._jobs.update_one(here, {"$min": {"durable.run_at": LONG_AGO}})
        claim = await self.awaited.claim_by_id(self.terms.job_id, lease=LEASE)
        if claim is None:
            raise RuntimeError(
                f"job {self.terms.job_id} cannot be started: it is {(await self.document()).get('status', 'gone')}. "
                "Something besides the harness has changed it"
            )
        self.attempts += 1
        return claim

    async def document(self) -> Document:
        """The job as it is stored; empty when it is not."""
        return await self._jobs.find_one({"_id": self.terms.job_id}) or {}

    async def job(self) -> DurableJob:
        """The job."""
        return durable_from(await self.document())

    async def _end_lease(self) -> None:
        """Has the last run lose its lease and its job; one that was completed is as it was before that was stored."""
        ended = {"durable.lease_expires_at": LONG_AGO}
        undone = {**ended, "status": Status.RUNNING.value, "finished_at": None}
        running = {"_id": self.terms.job_id, "status": Status.RUNNING.value}
        completed = {"_id": self.terms.job_id, "status": Status.COMPLETED.value}
        changed = [
            (await self._jobs.update_one(filter, {"$set": update})).matched_count
            for filter, update in ((running, ended), (completed, undone))
        ]
        if any(changed):
            await self.awaited.recover()
