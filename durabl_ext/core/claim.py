"""Claim: how several jobs start in three calls.

Read candidates, take them in one conditional write under a fresh token, read what the token shows. Only the third read
is believed: it has the newest payload, it says which were taken when a duplicate key stopped the write half way, and it
answers what happened when an answer was lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo.errors import PyMongoError

from durabl_ext.core.candidates import HEAD, Reach, busy_keys, candidates, is_due
from durabl_ext.core.indexes import QUEUED_SLOT
from durabl_ext.core.settle import Ends
from durabl_ext.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DurableJob, backoff_document, durable_from
from durabl_ext.options import Backoff
from simplequeue.job import Document
from simplequeue.jobs import BY_ID, DUPLICATE_KEY, Jobs, Write
from simplequeue.states import CLAIM

PASSES = 2
"""At the head of the queue, and once more past all blocked keys, and past what was refused, when one was met there.
Where others were quicker at all of the candidates no pass counts, since each time one of them has got on."""

OUTRUNS = 3
"""How often a claim that got nothing looks beyond the head. Only there it sees that nobody can start what is left."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms runs start.

    Attributes:
        token: A fresh one; every later write of these runs is fenced by it.
        lease: How long they are taken to be alive without a heartbeat.
        adopt: How many attempts a plain job of an action gets when it is adopted; 3 for actions not named.
    """

    token: str
    lease: timedelta
    adopt: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim got.

    Attributes:
        jobs: The jobs, in the order they are to start.
        blocked: A candidate's key was held by a run.
        broken: Ids of candidates whose documents the server refuses to change.
        lost: Of the candidates none was in the way, and these had changed before they could be taken.
        trouble: An answer was lost, so the server may still apply the claim of others than these: whoever keeps the
            token releases what turns up under it.
    """

    jobs: list[DurableJob]
    blocked: bool = False
    broken: tuple[Any, ...] = ()
    lost: tuple[Any, ...] = ()
    trouble: PyMongoError | None = None

    @property
    def doubtful(self) -> bool:
        """Whether an answer was lost."""
        return self.trouble is not None


async def claim(
    jobs: Jobs,
    wants: Mapping[str, int],
    limit: int,
    terms: Terms,
    reach: Reach = HEAD,
    ends: Ends | None = None,
) -> Claimed:
    """Starts up to ``limit`` due jobs, the most urgent first; none only when there is none that may start.

    Args:
        jobs: Where.
        wants: Of each action, at most so many.
        limit: Of all together, at most so many.
        terms: On what terms they start.
        reach: How far it looks beyond the head of the queue.
        ends: What is to be written before, in the same call: the ends whose slots the jobs get. They stay untried where
            there is nothing to start.

    Raises:
        PyMongoError: Nothing was tried.
    """
    now = await jobs.now()
    got: list[DurableJob] = []
    left = dict(wants)
    busy: Sequence[str] = ()
    broken: tuple[Any, ...] = ()
    around = reach
    found = await candidates(jobs, left, limit, now, reach=around)
    passes, outruns = PASSES, 0
    while True:
        taken = await take(jobs, found, now, terms, None if ends is None or ends.tried else ends)
        got += taken.jobs
        for job in taken.jobs:
            left[job.action] -= 1
        outrun = bool(taken.lost) and not got
        outruns += outrun
        passes -= 0 if outrun else 1
        again = taken.blocked or taken.broken or outrun
        if taken.doubtful or not again or len(got) == limit or passes == 0:
            return Claimed(got, taken.blocked, lost=taken.lost, trouble=taken.trouble)
        before, was_head = found, around.times == 1
        broken += taken.broken
        try:
            if taken.blocked:
                busy = await busy_keys(jobs)
            around = reach if outruns < OUTRUNS else HEAD
            found = await candidates(jobs, left, limit - len(got), now, busy, broken, around)
        except PyMongoError:
            if not got:
                raise  # nothing is started, so nothing is lost
            return Claimed(got, taken.blocked)  # what has been started must reach its worker
        if outrun and found == before and was_head:
            return Claimed(got)  # what is still there was not taken by others: it cannot be started by anybody


async def claim_where(jobs: Jobs, filter: Document, terms: Terms) -> Claimed:
    """Starts the due job of an id or of a key, of which there is one at most, if nothing blocks it."""
    now = await jobs.now()
    index = BY_ID if "_id" in filter else QUEUED_SLOT.name
    found = await jobs.find({**is_due(now), **filter}, fields=("_id", "action", "durable.run_at"), limit=1, hint=index)
    return await take(jobs, found, now, terms)


async def take(jobs: Jobs, found: Sequence[Document], now: datetime, terms: Terms, ends: Ends | None = None) -> Claimed:
    """Starts those of the candidates that are still queued and due: in one write, singly where a key is in the way."""
    if not found:
        return Claimed([])
    blocked = lossy = False
    broken: tuple[Any, ...] = ()
    trouble: PyMongoError | None = None
    starts = _starts(found, now, terms)
    before = [] if ends is None else ends.writes
    try:
        # In order: no more are started than have ended, and none for an end that was refused.
        written = await jobs.write([*before, *starts], ordered=ends is not None)
        if ends is not None:
            ends.written(written, len(found))
        if any(place < len(before) for place in written.refused):
            return Claimed([])
        if written.refused:
            singly = await jobs.write([start for job in found for start in _starts([job], now, terms)])
            blocked = DUPLICATE_KEY in singly.refused.values()
            broken = tuple(found[place]["_id"] for place, code in singly.refused.items() if code != DUPLICATE_KEY)
        else:
            lossy = True
    except PyMongoError as error:
        trouble = error
    ids = [job["_id"] for job in found]
    ours = {"_id": {"$in": ids}, "status": CLAIM.target.value, "durable.token": terms.token}
    try:
        # What only one server has may be undone, and then another starts the same job.
        running = await jobs.find(ours, limit=len(ids), hint=BY_ID, majority=trouble is not None)
    except PyMongoError as error:
        return Claimed([], blocked, broken, trouble=error)
    by_id = {document["_id"]: document for document in running}
    started = [durable_from(by_id[id]) for id in ids if id in by_id]
    lost = tuple(id for id in ids if id not in by_id) if lossy else ()
    return Claimed(started, blocked, broken, lost, trouble)


async def were_claimed(jobs: Jobs, ids: Sequence[Any]) -> bool:
    """Whether another worker has claimed one of some jobs that were lost, which may have been cancelled as well."""
    return bool(
        await jobs.find({"_id": {"$in": ids}, "durable.token": {"$exists": True}}, fields=("_id",), limit=1, hint=BY_ID)
    )


def _starts(found: Sequence[Document], now: datetime, terms: Terms) -> list[Write]:
    """The writes that start candidates: one for those of the extension, one for each number of attempts it gives."""
    own = [job["_id"] for job in found if "durable" in job]
    plain: dict[int, list[Any]] = {}
    for job in found:
        if "durable" not in job:
            plain.setdefault(terms.adopt.get(job["action"], DEFAULT_MAX_ATTEMPTS), []).append(job["_id"])
    writes = [_adopted(ids, attempts, now, terms) for attempts, ids in plain.items()]
    return [*writes, _started(own, now, terms)] if own else writes


def _started(ids: list[Any], now: datetime, terms: Terms) -> Write:
    due = {"_id": {"$in": ids}, "status": CLAIM.source.value, "durable.run_at": {"$lte": now}}
    return Write(due, {"$set": _run(now, terms), "$inc": {"durable.attempt": 1}}, many=len(ids) > 1)


def _adopted(ids: list[Any], attempts: int, now: datetime, terms: Terms) -> Write:
    plain = {"_id": {"$in": ids}, "status": CLAIM.source.value, "durable": None}
    adopted = {
        "durable.priority": DEFAULT_PRIORITY,
        "durable.run_at": now,
        "durable.attempt": 1,
        "durable.max_attempts": attempts,
        "durable.backoff": backoff_document(Backoff()),
    }
    return Write(plain, {"$set": {**_run(now, terms), **adopted}}, many=True)


def _run(now: datetime, terms: Terms) -> Document:
    return {
        "status": CLAIM.target.value,
        "started_at": now,
        "updated_at": now,
        "durable.token": terms.token,
        "durable.lease_expires_at": now + terms.lease,
    }
