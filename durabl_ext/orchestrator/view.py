"""How far an orchestration is, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from durabl_ext.job import DurableJob, FailureKind
from durabl_ext.orchestrator.history import START
from simplequeue.failure import StoredError
from simplequeue.states import Status


@dataclass(frozen=True, slots=True)
class StepView:
    """A step in the journal.

    Attributes:
        seq: Its place: ``"0"`` for the first, ``"3.1.0"`` for the first of the second branch of what is at 3.
        name: What the body calls it.
        at: When it ended.
        failed: Whether it failed and the body went on.
        result: What it returned, or the error; None unless asked for.
    """

    seq: str
    name: str
    at: datetime | None
    failed: bool
    result: Any


@dataclass(frozen=True, slots=True)
class JournalView:
    """What is known of a job's run through its body.

    Attributes:
        job_id: The job.
        action: Its action.
        status: Its status.
        attempt: Claims that were not released.
        steps: What has been done, in the order it was done.
        next_step: The place at which the body goes on, or has ended.
        failure: The last error, None if there is none.
        failure_kind: Why it failed for good, or None.
    """

    job_id: str
    action: str
    status: Status
    attempt: int
    steps: tuple[StepView, ...]
    next_step: str
    failure: StoredError | None
    failure_kind: FailureKind | None


def view_of(job: DurableJob, results: bool) -> JournalView:
    """What a job's document says."""
    stored = (job.document.get("durable") or {}).get("steps") or ()
    records = [record for record in stored if record["seq"] != START]
    steps = tuple(
        StepView(
            record["seq"],
            record["name"],
            record.get("at"),
            "error" in record,
            record.get("error", record.get("result")) if results else None,
        )
        for record in records
    )
    reached = {step.seq.split(".")[0] for step in steps}
    following = next(n for n in range(len(reached) + 1) if str(n) not in reached)
    return JournalView(job.id, job.action, job.status, job.attempt, steps, str(following), job.error, job.failure_kind)
