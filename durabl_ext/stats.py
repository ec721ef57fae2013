"""What a queue holds at a moment, as plain numbers for dashboards and alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from durabl_ext.job import FailureKind


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Shows how many jobs are in each status and how far the queue is behind.

    The numbers are read one after the other, so that a job that moves meanwhile may be counted in two statuses or in
    none. Plain jobs of the base layer are counted like all others.

    Attributes:
        queued: Jobs that wait, those whose time has not come included.
        running: Jobs that run, or whose run has died and is not yet recovered.
        completed: Jobs that ended well and have not been swept; the same holds for the other endings.
        failed: Jobs that failed for good.
        cancelled: Jobs that were cancelled.
        superseded: Jobs that ended since a newer one covers their work.
        failed_by_kind: Of the failed jobs, how many failed for which reason; every kind is there. A plain job has no
            kind and counts in ``failed`` only, as ``list_failed`` with a kind leaves it out too.
        oldest_queued_run_at: Since when the oldest job that could run now is due; a plain job is due since it was
            added. None when nothing is due.
        oldest_queued_lag: Seconds since then; 0.0 when nothing is due.
    """

    queued: int
    running: int
    completed: int
    failed: int
    cancelled: int
    superseded: int
    failed_by_kind: Mapping[FailureKind, int]
    oldest_queued_run_at: datetime | None
    oldest_queued_lag: float
