"""One managed run: a claim, the handler at work on it, and how it may be told to stop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

from durabl_ext.claims import Claim
from durabl_ext.job import LogLine
from durabl_ext.runtime.signal import Stop
from simplequeue.threads import tell

BEATS = 3
"""Heartbeats in a lease: two may be lost before it ends."""


class Owner:
    """Somebody who has a run left alone for a time.

    Attributes:
        gone: Has it no longer. Who is cancelled while it asks for the run may take it back before it gets it.
    """

    def __init__(self) -> None:
        self.gone = False


class Run:
    """A claim that is being worked on here.

    Times are monotonic seconds, since a wall clock may be set.

    Args:
        claim: The claim.
        asked_at: When the claim was asked for: before that the lease cannot have begun.
        lease: How long it lasts without a heartbeat.
        interval: Seconds between heartbeats; None means a third of the lease.
        offset: How far the store's clock is ahead of this machine's, for the times in the log.
    """

    def __init__(
        self, claim: Claim, asked_at: float, lease: timedelta, interval: float | None, offset: timedelta
    ) -> None:
        self.claim = claim
        self.stop = Stop()
        self.began = time.monotonic()
        self.deadline = asked_at + lease.total_seconds()
        self.interval = interval or lease.total_seconds() / BEATS
        # From what the runs of a claim have in common, so that one write renews them all.
        self.next_beat = asked_at + self.interval
        self.settling = False
        """Its handler has ended and its end is being written: what comes of that says whether the lease was lost."""
        self.orphaned = False
        """It was given back while its handler went on: whatever that says changes nothing any more."""
        self.alone: Owner | None = None
        """Whose transaction has the job: meanwhile nothing else here writes to it."""
        self.completed = False
        """Its end was stored in its transaction."""
        self.task: asyncio.Task[object] | None = None
        """Where its handler is at work, if that awaits."""
        self.cancelled = False
        self.lines: deque[LogLine] = deque()
        self.flushing = asyncio.Lock()
        self._offset = offset

    @property
    def job(self) -> Any:
        """The job as it was when it was claimed."""
        return self.claim.job

    def cancel(self) -> bool:
        """Cancels a handler that awaits, and says whether it does so on the running loop, which can wait for it."""
        self.cancelled = True
        task = self.task
        self.cancel_task()
        return task is not None and task.get_loop() is asyncio.get_running_loop()

    def cancel_task(self) -> None:
        """Cancels a handler that awaits, from any thread."""
        if (task := self.task) is not None:
            tell(task.get_loop(), task.cancel)

    def over(self) -> None:
        """Lets go of its handler, which has ended."""
        # The task of a handler knows its run: in a circle, each run would wait for the garbage collector.
        self.task = None
        self.stop.calls_nobody()

    def log(self, message: str) -> None:
        """Takes in a line for the job's log; from any thread."""
        self.lines.append(log_line(datetime.now(UTC) + self._offset, message))

    def taken_lines(self) -> list[LogLine]:
        """The lines that wait to be stored, taken out."""
        return [self.lines.popleft() for _ in range(len(self.lines))]

    def renewed(self, asked_at: float, lease: timedelta) -> None:
        """Takes note of a heartbeat that was answered."""
        self.deadline = max(self.deadline, asked_at + lease.total_seconds())

    def expired(self) -> bool:
        """Whether the lease may have ended."""
        return time.monotonic() >= self.deadline


def log_line(at: datetime, message: object) -> LogLine:
    """Makes a line of whatever a handler logs: it is for the reader of a log, and never fails the job."""
    try:
        return LogLine(at, str(message))
    except Exception as error:
        return LogLine(at, f"<a {type(message).__name__} whose text cannot be had: {type(error).__name__}>")


run_here: ContextVar[Run | None] = ContextVar("run_here", default=None)
"""The run whose handler is at work, for it and for what it starts."""
