"""What happens to jobs here, as values for counters and histograms.

A sink is called with each, in the thread where it happens, and must be quick; an error in it harms no job. These are
the interface for metrics; the texts of log messages are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal, TypedDict

from durabl_ext.core.plans import How
from durabl_ext.job import DurableJob
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

logger = logging.getLogger("durabl_ext")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that happened to a run of a job.

    Attributes:
        kind: What it is called in metrics.
        action: The job's action.
        job_id: The job.
        attempt: Which attempt it was, from 1.
        at: When, by the store's clock.
    """

    kind: ClassVar[str]
    action: str
    job_id: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaimed(JobEvent):
    """A run begins."""

    kind: ClassVar[str] = "claimed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCompleted(JobEvent):
    """A run ended well. ``duration`` is in seconds, from the claim to the end of the handler."""

    kind: ClassVar[str] = "completed"
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobEvent):
    """A run failed: for good (``terminal``), or to be tried again. ``error_name`` is the class of what was raised."""

    kind: ClassVar[str] = "failed"
    duration: float
    terminal: bool
    error_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSuperseded(JobEvent):
    """A run failed and a newer job of its key covers the work."""

    kind: ClassVar[str] = "superseded"
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailedFatally(JobEvent):
    """A run failed with a FatalJobError, so that no attempt can succeed."""

    kind: ClassVar[str] = "fail-fatal"
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeaseLost(JobEvent):
    """A run is no longer this worker's. ``op`` says what noticed it."""

    kind: ClassVar[str] = "lease-lost"
    op: Literal["heartbeat", "deadline", "journal", "settle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(JobEvent):
    """A shutdown gave a run back; no attempt is spent."""

    kind: ClassVar[str] = "shutdown-released"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaperRecovered:
    """A sweep of the reaper took ``handled`` jobs from dead runs; ``saturated``: more may be left."""

    kind: ClassVar[str] = "reaper-recovered"
    handled: int
    saturated: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaperFailed:
    """A sweep of the reaper failed, at its ``phase``; the next one comes as planned."""

    kind: ClassVar[str] = "reaper-error"
    phase: Literal["recover", "retention"]
    at: datetime


Event = (
    JobClaimed
    | JobCompleted
    | JobFailed
    | JobSuperseded
    | JobFailedFatally
    | JobLeaseLost
    | JobReleased
    | ReaperRecovered
    | ReaperFailed
)
Sink = Callable[[Event], object]


class Facts(TypedDict):
    """What every event of a run has."""

    action: str
    job_id: str
    attempt: int
    at: datetime


def facts_of(job: DurableJob, at: datetime) -> Facts:
    """What every event of a job's run has."""
    return {"action": job.action, "job_id": job.id, "attempt": job.attempt, "at": at}


def of_end(facts: Facts, how: How, outcome: Settled | None, error_name: str, duration: float) -> Event:
    """The event of a run's end, by what became of it."""
    match outcome:
        case Completed():
            return JobCompleted(**facts, duration=duration)
        case FailedTerminal() if how == "fail_fatal":
            return JobFailedFatally(**facts, duration=duration)
        case FailedTerminal() | RetryScheduled():
            terminal = isinstance(outcome, FailedTerminal)
            return JobFailed(**facts, duration=duration, terminal=terminal, error_name=error_name)
        case Superseded():
            return JobSuperseded(**facts, duration=duration)
        case Released():
            return JobReleased(**facts)
        case LeaseLost() | AlreadyTerminal() | NotFound() | None:
            return JobLeaseLost(**facts, op="settle")


def told(sink: Sink | None, event: Event) -> None:
    """Tells a sink, whatever it raises."""
    if sink is None:
        return
    try:
        sink(event)
    except BaseException:  # a SystemExit too would end the task that claims, or the one that keeps leases
        logger.exception("the event sink raised at %s", event.kind)
