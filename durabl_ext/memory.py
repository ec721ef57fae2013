"""The backends in memory, for users' unit tests: the very same decisions on mongomock.

They need the extra ``testing``. Nothing about concurrency is proved on them.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from durabl_ext.claims import Claim
from durabl_ext.core.journal import Limits
from durabl_ext.decisions import Decisions
from durabl_ext.job import DurableJob, durable_from
from durabl_ext.mongo import AsyncMongoJobQueue, MongoJobQueue
from durabl_ext.options import Seconds
from simplequeue.in_memory import InMemoryJobs, locked
from simplequeue.jobs import run
from simplequeue.operations import known_id
from simplequeue.states import Status


class DummyBackend(MongoJobQueue):
    """Records jobs in memory and runs none.

    Priorities, delays and dedupe keys are honoured, since it decides as ``MongoJobQueue`` does.

    Raises:
        ImportError: mongomock is not installed; the extra ``testing`` brings it.
    """

    def __init__(self) -> None:
        self._decisions = Decisions(_in_memory(), False, Limits())

    @property
    def jobs(self) -> list[DurableJob]:
        """All jobs that are stored, in the order they were enqueued."""
        return run(_all(self._decisions))


class AsyncDummyBackend(AsyncMongoJobQueue):
    """Records jobs in memory and runs none, as ``DummyBackend`` does."""

    def __init__(self) -> None:
        Decisions.__init__(self, _in_memory(), False, Limits())

    @property
    def jobs(self) -> list[DurableJob]:
        """All jobs that are stored, in the order they were enqueued."""
        return run(_all(self))


class ImmediateBackend(DummyBackend):
    """Keeps jobs in memory and lets a queued one be claimed by its id at once, whatever its ``run_at`` says."""

    def claim_by_id(self, id: str | UUID, *, lease: Seconds) -> Claim | None:
        """Starts a queued job, due or not."""
        run(_make_due(self._decisions, id))
        return super().claim_by_id(id, lease=lease)


class AsyncImmediateBackend(AsyncDummyBackend):
    """Keeps jobs in memory and lets them be claimed at once, as ``ImmediateBackend`` does."""

    async def claim_by_id(self, id: str | UUID, *, lease: Seconds) -> Claim | None:
        """Starts a queued job, due or not."""
        await _make_due(self, id)
        return await super().claim_by_id(id, lease=lease)


def _in_memory() -> InMemoryJobs:
    try:
        import mongomock
    except ImportError as error:
        raise ImportError(
            "the backends in memory need mongomock, which the extra 'testing' brings, or: pip install mongomock"
        ) from error
    client: Any = mongomock.MongoClient()
    return InMemoryJobs(client.memory.job, locked(client))


async def _all(decisions: Decisions) -> list[DurableJob]:
    return [durable_from(document) for document in await decisions._jobs.find({}, sort=(("_id", 1),))]


async def _make_due(decisions: Decisions, id: str | UUID) -> None:
    # Only of a job that would be refused as not due: a plain one has no time at all.
    waiting = {"_id": known_id(id), "status": Status.QUEUED.value, "durable": {"$ne": None}}
    await decisions._jobs.update_one(waiting, {"$min": {"durable.run_at": await decisions.now()}})
