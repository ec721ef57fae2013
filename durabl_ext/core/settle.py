"""Settle: the one door through which a claim ends, for many claims at once.

Every write is fenced by status and token. An ending keeps the token, so that status and token are its own receipt; a
move back to the queue leaves a receipt, since the next claim replaces the token. Whatever the answer of a write was,
the documents then say what became of each claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pymongo.errors import PyMongoError

from durabl_ext.core import backoff
from durabl_ext.core.indexes import KEY, QUEUED_SLOT, WAKES
from durabl_ext.job import DurableJob, FailureKind
from durabl_ext.outcomes import (
    AlreadyTerminal,
    Completed,
    FailedTerminal,
    LeaseLost,
    NotFound,
    Released,
    RetryScheduled,
    Settled,
    Superseded,
)
from simplequeue.failure import StoredError, minimal
from simplequeue.job import Document
from simplequeue.jobs import DUPLICATE_KEY, Jobs, Write
from simplequeue.states import COMPLETE, ENDED, FAIL, RELEASE, RETRY, SUPERSEDE, Move, Status

RECEIPTS = 8
"""How many moves back to the queue a job remembers. A claim whose answer was lost is settled again within a lease, in
which a job can hardly have been claimed and given back eight times."""

ROUNDS = 4
"""How often a follower may come and go while a job looks for its place in the queue."""

How = Literal["complete", "fail", "fail_fatal", "release"]
Uniform = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Settlement:
    """How one claim is to end.

    Attributes:
        job: The job as it was claimed; its attempt and its rules decide what a failure means.
        token: The claim's token.
        how: What happened.
        error: Of a failure, what is stored.
        delay: Of a release, how long the job is not due.
    """

    job: DurableJob
    token: str
    how: How
    error: StoredError | None = None
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A settlement, the write it comes to, and what it means when that is applied."""

    settlement: Settlement
    move: Move
    update: Document
    outcome: Settled

    def write(self) -> Write:
        return Write(_claim(self.settlement), self.update)


async def settle(jobs: Jobs, settlements: Sequence[Settlement], uniform: Uniform) -> list[Settled]:
    """Ends claims, completions of one token in one write, and says what became of each.

    Args:
        jobs: Where.
        settlements: Which claims, each once.
        uniform: Draws a number between two, for the jitter of a retry.

    Raises:
        PyMongoError: It is not known what became of some. Settling the same again is safe.
    """
    if not settlements:
        return []
    now = await jobs.now()
    plans = [_planned(settlement, now, uniform) for settlement in settlements]
    trouble: PyMongoError | None = None
    try:
        written = await jobs.write(_grouped(plans))
        if not written.refused and written.matched == len(plans):
            return [plan.outcome for plan in plans]
    except PyMongoError as error:
        trouble = error
    ids = [plan.settlement.job.id for plan in plans]
    fields = ("_id", "status", "durable.token", "durable.receipts")
    # After an error only what a majority has is an answer: a failover may still undo the rest.
    found = await jobs.find({"_id": {"$in": ids}}, fields=fields, majority=trouble is not None)
    documents = {document["_id"]: document for document in found}
    outcomes = []
    for plan in plans:
        outcome = _became(plan, documents.get(plan.settlement.job.id))
        if outcome is None:  # it still runs under its token
            if trouble is not None:
                raise trouble
            outcome = await _another_way(jobs, plan, now)
        outcomes.append(outcome)
    return outcomes


def completion(settlement: Settlement, now: datetime) -> tuple[Document, Document]:
    """The condition and the change of one completion."""
    return _claim(settlement), _ended(COMPLETE, now, None)


async def find_follower(jobs: Jobs, key: str | None) -> Document | None:
    """Gives the id and the action of the job that waits under a key.

    The index is named, since any that has the queued jobs may do while few are queued.
    """
    waiting = {"status": Status.QUEUED.value, KEY: key}
    found = await jobs.find(waiting, fields=("_id", "action"), limit=1, hint=QUEUED_SLOT.name)
    return found[0] if found else None


def _planned(settlement: Settlement, now: datetime, uniform: Uniform) -> _Plan:
    job = settlement.job
    if settlement.how == "complete":
        return _Plan(settlement, COMPLETE, _ended(COMPLETE, now, None), Completed())
    if settlement.how == "release":
        update = _queued_again(RELEASE, settlement, now, now + settlement.delay)
        update["$inc"] = {"durable.attempt": -1}
        return _Plan(settlement, RELEASE, update, Released())
    if settlement.how == "fail" and job.attempt < job.max_attempts:
        run_at = backoff.due_again(job.backoff, job.attempt, now, uniform)
        update = _queued_again(RETRY, settlement, now, run_at)
        update["$set"]["error"] = settlement.error
        return _Plan(settlement, RETRY, update, RetryScheduled(run_at))
    kind: FailureKind = "fatal" if settlement.how == "fail_fatal" else "retries-exhausted"
    return _Plan(settlement, FAIL, _ended(FAIL, now, settlement.error, kind), FailedTerminal())


def _grouped(plans: Iterable[_Plan]) -> list[Write]:
    """One write for all completions of a token, one for each other claim.

    Never one for several tokens: with ids in a list and tokens in a list, a stale handler would end the newer claim
    of the same process.
    """
    writes = []
    completions: dict[str, list[_Plan]] = {}
    for plan in plans:
        if plan.move is COMPLETE:
            completions.setdefault(plan.settlement.token, []).append(plan)
        else:
            writes.append(plan.write())
    for same in completions.values():
        filter = {**_claim(same[0].settlement), "_id": {"$in": [plan.settlement.job.id for plan in same]}}
        writes.append(Write(filter, same[0].update, many=True))
    return writes


def _became(plan: _Plan, document: Mapping[str, Any] | None) -> Settled | None:
    """Reads what became of a claim off its document; None when it still runs under its token."""
    if document is None:
        return NotFound()
    status, durable = document["status"], document.get("durable") or {}
    ours = durable.get("token") == plan.settlement.token
    if status == plan.move.source and ours:
        return None
    if status in ENDED and ours:
        return plan.outcome if status == plan.move.target else _ended_otherwise(plan, status)
    receipts = durable.get("receipts")
    for receipt in receipts if isinstance(receipts, list) else ():  # what another program made of it is none
        if receipt["token"] == plan.settlement.token and receipt["move"] == plan.move.name:
            return RetryScheduled(receipt["run_at"]) if plan.move is RETRY else Released()
    return LeaseLost()


def _ended_otherwise(plan: _Plan, status: str) -> Settled:
    # A job that could not go back to the queue has ended in its stead, which is the answer to what was asked for then.
    if plan.move is not COMPLETE and status == Status.SUPERSEDED:
        return Superseded()
    if plan.move is not COMPLETE and status == Status.FAILED:
        return FailedTerminal()
    return AlreadyTerminal(Status(status))


async def _another_way(jobs: Jobs, plan: _Plan, now: datetime) -> Settled:
    """Ends a claim whose write was refused: by a follower that holds its place in the queue, or by its document."""
    for _ in range(ROUNDS):
        written = await jobs.write([plan.write()])
        if written.matched:
            return plan.outcome
        if written.refused.get(0) != DUPLICATE_KEY:
            break
        follower = await find_follower(jobs, plan.settlement.job.dedupe_key)
        if follower is not None:
            plan = _behind(plan, follower, now)
    if not written.refused:
        return LeaseLost()  # it has gone since it was read
    error = plan.settlement.error
    least = _ended(FAIL, now, None if error is None else minimal(error), "retries-exhausted")
    if (await jobs.write([Write(_claim(plan.settlement), least)])).matched:
        return FailedTerminal()
    raise RuntimeError(
        f"job {plan.settlement.job.id} cannot be ended: the server refuses its document (code {written.refused[0]}). "
        "It is recovered when its lease ends; look at it with the inspect command"
    )


def _behind(plan: _Plan, follower: Mapping[str, Any], now: datetime) -> _Plan:
    """What becomes of a job that cannot go back to the queue since a follower of its key waits there.

    A follower covers only work of its own action.
    """
    settlement = plan.settlement
    if follower["action"] == settlement.job.action:
        return _Plan(settlement, SUPERSEDE, _ended(SUPERSEDE, now, settlement.error), Superseded())
    error = settlement.error or {"name": "Released", "message": "the run was given back", "stack": ""}
    reason = (
        f"{error['message']} (not queued again: job {follower['_id']} of action {follower['action']!r} waits under the "
        f"dedupe key {settlement.job.dedupe_key!r}; this one can be replayed once that has ended)"
    )
    told: StoredError = {**error, "message": reason}
    return _Plan(settlement, FAIL, _ended(FAIL, now, told, "retries-exhausted"), FailedTerminal())


def _claim(settlement: Settlement) -> Document:
    return {"_id": settlement.job.id, "status": COMPLETE.source.value, "durable.token": settlement.token}


def _ended(move: Move, now: datetime, error: StoredError | None, kind: FailureKind | None = None) -> Document:
    fields: Document = {"status": move.target.value, "finished_at": now, "updated_at": now, "error": error}
    if kind is not None:
        fields["durable.failure_kind"] = kind
    return {"$set": fields, "$unset": {"durable.lease_expires_at": "", WAKES: ""}}


def _queued_again(move: Move, settlement: Settlement, now: datetime, run_at: datetime) -> Document:
    receipt = {"token": settlement.token, "move": move.name, "run_at": run_at}
    return {
        "$set": {"status": move.target.value, "started_at": None, "updated_at": now, "durable.run_at": run_at},
        "$unset": {"durable.token": "", "durable.lease_expires_at": ""},
        "$push": {"durable.receipts": {"$each": [receipt], "$slice": -RECEIPTS}},
    }
