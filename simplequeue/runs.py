"""A run of a plain job: which may start, how one starts, how it ends.

Decisions only, over ``Jobs``; who runs what, in which thread and how often it is tried is the listener's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.errors import OperationFailure

from simplequeue import commands
from simplequeue.failure import StoredError, minimal
from simplequeue.job import Job, job_from
from simplequeue.jobs import BY_ID, Jobs

REFUSED_DOCUMENT = frozenset((121, 10334, 17419, 17420))
"""The server refuses this one document and no other: its validator, or one of the ways to say that it is too large."""


@dataclass(slots=True)
class Ending:
    """How a run ended. ``at`` is fixed at the first attempt to write it, so that a second one writes the same."""

    job: Job
    error: StoredError | None
    at: datetime | None = None


async def waiting(jobs: Jobs, actions: Collection[str] | None, limit: int, without: Collection[Any] = ()) -> list[Any]:
    """Gives the ids of the next plain jobs in order; what they are worth, the claim of each decides.

    The index is named outright: should it be gone, the server says so instead of reading the whole collection.
    """
    filter = commands.queued_plain(actions)
    if without:
        filter["_id"] = {"$nin": list(without)}
    found = await jobs.find(
        filter, fields=("_id",), sort=(("_id", 1),), limit=limit, hint=commands.next_index(actions).name
    )
    return [document["_id"] for document in found]


async def claim(jobs: Jobs, id: Any, now: datetime) -> Job | None:
    """Starts the run of a job, or gives None when somebody else has it or has cancelled it."""
    document = await jobs.find_one_and_update(*commands.claim(id, now))
    return None if document is None else job_from(document)


async def finish(jobs: Jobs, ending: Ending) -> bool:
    """Ends a run and says whether it was still there to be ended.

    An error that the document has no room for, which only writes past this package can bring about, is cut down.
    """
    if ending.at is None:
        ending.at = await jobs.now()
    if ending.error is None:
        return (await jobs.update_one(*commands.complete(ending.job, ending.at))).matched_count == 1
    for error in (ending.error, minimal(ending.error)):
        try:
            return (await jobs.update_one(*commands.fail(ending.job, error, ending.at))).matched_count == 1
        except OperationFailure as refusal:
            if refusal.code not in REFUSED_DOCUMENT:
                raise
    return (await jobs.update_one(*commands.fail(ending.job, None, ending.at))).matched_count == 1


async def unanswered(jobs: Jobs, claims: Sequence[tuple[Any, datetime]]) -> list[Any]:
    """Gives the ids among claims whose answer was lost that are running since the very millisecond of that claim.

    They look claimed by us, but another listener may have written the same millisecond. A job is never run twice on a
    guess, so they stay as they are.
    """
    ids = [id for id, _ in claims]
    found = await jobs.find({"_id": {"$in": ids}, "status": "running"}, fields=("_id", "started_at"), hint=BY_ID)
    return [document["_id"] for document in found if (document["_id"], document.get("started_at")) in claims]
