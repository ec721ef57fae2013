"""Recover: puts the jobs of runs that have died back in the queue. It never runs one.

Every write repeats the very lease that was read, so that a heartbeat, an ending or a new claim that lands in between
wins. A job whose document breaks its write is dealt with alone; the others of the sweep are not held up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from durabl_ext.core import backoff
from durabl_ext.core.indexes import EXPIRED, NO_ARRAY, WAKES
from durabl_ext.core.plans import Uniform
from durabl_ext.core.settle import find_follower
from durabl_ext.job import durable_from
from simplequeue.failure import StoredError
from simplequeue.job import Document
from simplequeue.jobs import DUPLICATE_KEY, Jobs, Write
from simplequeue.states import FAIL, RECOVER, SUPERSEDE, Move

FIELDS = (
    "_id",
    "action",
    "status",
    "durable.token",
    "durable.lease_expires_at",
    "durable.attempt",
    "durable.max_attempts",
    "durable.backoff",
    "durable.dedupe",
)
"""All that a sweep needs: with their payloads and journals a thousand jobs may be 16 GB."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a sweep did.

    Attributes:
        handled: How many jobs it took from dead runs.
        saturated: It reached its limit, so more may be left: sweep again.
        stuck: Ids of jobs that the server refuses to change in any way; look at them.
    """

    handled: int
    saturated: bool
    stuck: tuple[Any, ...] = ()


async def recover(jobs: Jobs, limit: int, uniform: Uniform) -> Recovered:
    """Takes up to ``limit`` jobs from runs whose lease has ended: to wait like after a failure, or to their end.

    Args:
        jobs: Where.
        limit: At most so many; the result says whether more may be left.
        uniform: Draws a number between two, for the jitter of the wait.

    Raises:
        PyMongoError: Some may have been recovered. Sweeping again is safe.
    """
    now = await jobs.now()
    expired = await jobs.find(
        {"status": RECOVER.source.value, "durable.lease_expires_at": {"$lte": now}, "durable": NO_ARRAY},
        fields=FIELDS,
        sort=(("durable.lease_expires_at", 1),),
        limit=limit,
        hint=EXPIRED.name,
    )
    if not expired:
        return Recovered(0, saturated=False)
    written = await jobs.write([Write(_read(document), _stalled(document, now, uniform)) for document in expired])
    handled, stuck = written.matched, []
    for place in sorted(written.refused):
        document = expired[place]
        another = await _another_way(jobs, document, now, written.refused[place])
        if another is None:
            stuck.append(document["_id"])
        else:
            handled += another
    return Recovered(handled, saturated=len(expired) == limit, stuck=tuple(stuck))


async def _another_way(jobs: Jobs, document: Document, now: datetime, code: int) -> int | None:
    """Ends a job that cannot go back to the queue; says how many that changed, None where that is refused as well."""
    key = durable_from(document).dedupe_key
    move, error = FAIL, _error(document)
    if code == DUPLICATE_KEY and key is not None:
        follower = await find_follower(jobs, key)
        if follower is not None and follower.get("action") == document.get("action"):
            move = SUPERSEDE
        elif follower is not None:
            error["message"] += f"; not queued again, as job {follower['_id']} of another action waits under its key"
        else:
            return 0  # the follower has gone: the next sweep finds its place free
    for last_word in (error, None):
        written = await jobs.write([Write(_read(document), _ended(move, now, last_word))])
        if not written.refused:
            return written.matched
    return None


def _read(document: Mapping[str, Any]) -> Document:
    """The evidence: the run, its token and the lease, as they were read."""
    durable = document["durable"]
    return {
        "_id": document["_id"],
        "status": RECOVER.source.value,
        "durable.token": durable.get("token"),
        "durable.lease_expires_at": durable["lease_expires_at"],
    }


def _stalled(document: Mapping[str, Any], now: datetime, uniform: Uniform) -> Document:
    job = durable_from(document)
    if job.attempt >= job.max_attempts:
        return _ended(FAIL, now, _error(document))
    return {
        "$set": {
            "status": RECOVER.target.value,
            "started_at": None,
            "updated_at": now,
            "error": _error(document),
            "durable.run_at": backoff.due_again(job.backoff, job.attempt, now, uniform),
        },
        "$unset": {"durable.token": "", "durable.lease_expires_at": ""},
    }


def _ended(move: Move, now: datetime, error: StoredError | None) -> Document:
    # Without the token a run that was only late learns that it has lost, whatever it says.
    fields: Document = {"status": move.target.value, "finished_at": now, "updated_at": now, "error": error}
    if move is FAIL:
        fields["durable.failure_kind"] = "stalled"
    return {"$set": fields, "$unset": {"durable.token": "", "durable.lease_expires_at": "", WAKES: ""}}


def _error(document: Mapping[str, Any]) -> StoredError:
    lease = document["durable"]["lease_expires_at"]
    until = lease.isoformat() if isinstance(lease, datetime) else f"{lease!s:.100}"
    return {
        "name": "Stalled",
        "message": f"its run gave no sign of life until {until}, when its lease ended",
        "stack": "",
    }
