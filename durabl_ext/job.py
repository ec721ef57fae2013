"""A durable job: the base layer's job and what the extension keeps with it.

Here lives the shape of ``durable`` and nothing that moves a job. Absent is absent: None is never stored in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, cast

from durabl_ext.options import MAX_DELAY, Backoff, BackoffKind, Request, Scope
from simplequeue.job import Document, Job, made, new_document, values_from
from simplequeue.states import Status

FailureKind = Literal["retries-exhausted", "fatal", "stalled"]

DEFAULT_PRIORITY = 0
DEFAULT_MAX_ATTEMPTS = 3
USUAL = Backoff()
FIRST_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a run logged."""

    at: datetime
    message: str


@dataclass(frozen=True, kw_only=True)
class DurableJob(Job):
    """Shows a job with what the extension knows of it, as it was when it was read.

    A plain job of the base layer reads as one of priority 0 that was never claimed by the extension.

    Attributes:
        priority: A lower number runs first.
        run_at: When it is, or was, due.
        attempt: Claims that were not released: 1 in the first run, 0 before.
        max_attempts: After how many attempts it fails for good.
        backoff: How long it waits between attempts.
        dedupe_key: The resource it works on, or None.
        dedupe_scope: How exclusively, or None without a key.
        failure_kind: Why it failed for good, or None.
        logs: What its runs logged, oldest first.
        lease_expires_at: Until when its run is taken to be alive; None when it does not run.
    """

    priority: int
    run_at: datetime
    attempt: int
    max_attempts: int
    backoff: Backoff
    dedupe_key: str | None
    dedupe_scope: Scope | None
    failure_kind: FailureKind | None
    logs: tuple[LogLine, ...]
    lease_expires_at: datetime | None


def new_durable(request: Request, now: datetime) -> Document:
    """Makes the document of a new queued job."""
    durable: Document = {
        "priority": request.priority,
        "run_at": request.due(now),
        "attempt": 0,
        "max_attempts": request.max_attempts,
        "backoff": backoff_document(request.backoff),
    }
    if request.dedupe is not None:
        durable["dedupe"] = {"key": request.dedupe.key, "scope": request.dedupe.scope}
        if request.dedupe.scope == "queued":
            durable["wakes"] = True  # see core.indexes.WAKES
    document = new_document(request.action, request.data, now)
    document["durable"] = durable
    return document


def backoff_document(backoff: Backoff) -> Document:
    """A backoff as it is stored."""
    return {"kind": backoff.kind, "delay": backoff.delay, "max_delay": backoff.max_delay}


def order_of(document: Mapping[str, Any]) -> tuple[int, datetime]:
    """What decides when a stored job runs: its priority, and when it is due; a plain job is since it was added."""
    durable = _mapping(document.get("durable"))
    time = durable.get("run_at")
    if not isinstance(time, datetime):
        added = document.get("created_at")
        time = added if isinstance(added, datetime) else FIRST_TIME
    return _whole(durable.get("priority"), DEFAULT_PRIORITY), time


def durable_from(document: Mapping[str, Any]) -> DurableJob:
    """Reads a stored document.

    A field of a type that this package never writes reads as absent, so that one document spoiled by another program
    does not stop what reads many.
    """
    values = values_from(document)
    durable = _mapping(document.get("durable"))
    dedupe = _mapping(durable.get("dedupe"))
    priority, run_at = order_of(document)
    values.update(
        priority=priority,
        run_at=run_at,
        attempt=_whole(durable.get("attempt"), 0),
        max_attempts=_whole(durable.get("max_attempts"), DEFAULT_MAX_ATTEMPTS),
        backoff=_backoff_from(durable.get("backoff")),
        dedupe_key=dedupe.get("key"),
        dedupe_scope=dedupe.get("scope"),
        failure_kind=durable.get("failure_kind"),
        logs=tuple(
            LogLine(line["at"], line["message"])
            for line in _list(durable.get("logs"))
            if isinstance(line, dict) and {"at", "message"} <= line.keys()
        ),
        lease_expires_at=durable.get("lease_expires_at") if values["status"] is Status.RUNNING else None,
    )
    return made(DurableJob, values)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _kind(value: object) -> BackoffKind:
    return value if value in ("fixed", "exponential") else USUAL.kind


def _backoff_from(stored: object) -> Backoff:
    rule = _mapping(stored)
    values = rule.get("kind"), rule.get("delay"), rule.get("max_delay")
    try:
        return _backoff(*values)
    except TypeError:  # a list, say, which only another program writes
        return _backoff.__wrapped__(*values)


@lru_cache(maxsize=64)  # nearly all jobs of a queue have one or two rules
def _backoff(kind: object, delay: object, max_delay: object) -> Backoff:
    return Backoff(_kind(kind), _seconds(delay, USUAL.delay), _seconds(max_delay, USUAL.max_delay))


def _seconds(value: object, otherwise: float) -> float:
    fits = isinstance(value, int | float) and 0 <= value <= MAX_DELAY.total_seconds()
    return float(cast(float, value)) if fits else otherwise
