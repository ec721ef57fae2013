"""What the end of a claim comes to: the write it takes, what that means, and what a document says became of it.

Every write is fenced by status and token. An ending keeps the token, so that status and token are its own receipt; a
move back to the queue leaves a receipt, since the next claim replaces the token. No call is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from durabl_ext.core import backoff
from durabl_ext.core.indexes import WAKES
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
from simplequeue.jobs import Write
from simplequeue.states import COMPLETE, ENDED, FAIL, RELEASE, RETRY, SUPERSEDE, Move, Status

RECEIPTS = 8
"""How many moves back to the queue a job remembers. A claim whose answer was lost is settled again within a lease, in
which a job can hardly have been claimed and given back eight times."""

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
class Plan:
    """A settlement, the write it comes to, and what it means when that is applied."""

    settlement: Settlement
    move: Move
    update: Document
    outcome: Settled

    def write(self) -> Write:
        return Write(_claim(self.settlement), self.update)


def completion(settlement: Settlement, now: datetime) -> tuple[Document, Document]:
    """The condition and the change of one completion."""
    return _claim(settlement), _completed(now)


def planned(settlement: Settlement, now: datetime, uniform: Uniform) -> Plan:
    job = settlement.job
    if settlement.how == "complete":
        return Plan(settlement, COMPLETE, _completed(now), Completed())
    if settlement.how == "release":
        update = _queued_again(RELEASE, settlement, now, now + settlement.delay)
        update["$inc"] = {"durable.attempt": -1}
        return Plan(settlement, RELEASE, update, Released())
    if settlement.how == "fail" and job.attempt < job.max_attempts:
        run_at = backoff.due_again(job.backoff, job.attempt, now, uniform)
        update = _queued_again(RETRY, settlement, now, run_at)
        update["$set"]["error"] = settlement.error
        return Plan(settlement, RETRY, update, RetryScheduled(run_at))
    kind: FailureKind = "fatal" if settlement.how == "fail_fatal" else "retries-exhausted"
    return Plan(settlement, FAIL, _ended(FAIL, now, settlement.error, kind), FailedTerminal())


def grouped(plans: Iterable[Plan]) -> list[Write]:
    """One write for all completions of a token, one for each other claim.

    Never one for several tokens: with ids in a list and tokens in a list, a stale handler would end the newer claim
    of the same process.
    """
    writes = []
    completions: dict[str, list[Plan]] = {}
    for plan in plans:
        if plan.move is COMPLETE:
            completions.setdefault(plan.settlement.token, []).append(plan)
        else:
            writes.append(plan.write())
    for same in completions.values():
        filter = {**_claim(same[0].settlement), "_id": {"$in": [plan.settlement.job.id for plan in same]}}
        writes.append(Write(filter, same[0].update, many=len(same) > 1))
    return writes


def became_of(plan: Plan, document: Mapping[str, Any] | None) -> Settled | None:
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


def _ended_otherwise(plan: Plan, status: str) -> Settled:
    # A job that could not go back to the queue has ended in its stead, which is the answer to what was asked for then.
    if plan.move is not COMPLETE and status == Status.SUPERSEDED:
        return Superseded()
    if plan.move is not COMPLETE and status == Status.FAILED:
        return FailedTerminal()
    return AlreadyTerminal(Status(status))


def behind(plan: Plan, follower: Mapping[str, Any], now: datetime) -> Plan:
    """What becomes of a job that cannot go back to the queue since a follower of its key waits there.

    A follower covers only work of its own action.
    """
    settlement = plan.settlement
    if follower["action"] == settlement.job.action:
        return Plan(settlement, SUPERSEDE, _ended(SUPERSEDE, now, settlement.error), Superseded())
    error = settlement.error or {"name": "Released", "message": "the run was given back", "stack": ""}
    reason = (
        f"{error['message']} (not queued again: job {follower['_id']} of action {follower['action']!r} waits under the "
        f"dedupe key {settlement.job.dedupe_key!r}; this one can be replayed once that has ended)"
    )
    told: StoredError = {**error, "message": reason}
    return Plan(settlement, FAIL, _ended(FAIL, now, told, "retries-exhausted"), FailedTerminal())


def least(settlement: Settlement, now: datetime) -> Write:
    """The smallest write that ends a claim, for a document that takes no other."""
    error = settlement.error
    ended = _ended(FAIL, now, None if error is None else minimal(error), "retries-exhausted")
    return Write(_claim(settlement), ended)


def _claim(settlement: Settlement) -> Document:
    return {"_id": settlement.job.id, "status": COMPLETE.source.value, "durable.token": settlement.token}


@lru_cache(maxsize=1)
def _completed(now: datetime) -> Document:
    # One for all that end together, as it is the same for each.
    return _ended(COMPLETE, now, None)


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
