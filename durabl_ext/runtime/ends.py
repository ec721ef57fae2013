"""How runs end: what their handlers did is written, those that end together in one go.

The end derives from what the handler did: returning completes the job, raising fails it, a ``FatalJobError`` for good.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta

from pymongo.errors import InvalidOperation

from durabl_ext import events
from durabl_ext.core.plans import How, Settlement
from durabl_ext.errors import is_fatal
from durabl_ext.events import Facts, Sink, told
from durabl_ext.outcomes import Completed, FailedTerminal, RetryScheduled, Settled
from durabl_ext.runtime.committer import Committer
from durabl_ext.runtime.logs import Logs
from durabl_ext.runtime.runs import Run
from simplequeue.failure import stored_error

RETRY_FIRST = 0.05
RETRY_MOST = 5.0
"""Seconds between attempts to store an end."""

After = Callable[[Run, Settled | None], object]
"""Is told when a run is over, and what became of it: None when it was no longer its own. Must not raise."""


class End:
    """The end of a handler.

    Args:
        run: Whose.
        error: What it raised; None when it returned.
        after: What is told when it is stored, or need not be any more.
    """

    __slots__ = ("after", "duration", "error", "how", "lost", "run")

    def __init__(self, run: Run, error: BaseException | None, after: After) -> None:
        self.run = run
        self.error = error
        self.after = after
        self.duration = time.monotonic() - run.began
        self.how = _how(run, error)
        self.lost = run.orphaned or run.stop.reason in ("lease-lost", "deadline")
        if not self.lost:
            run.settling = True  # from here on a drain neither tells it to stop nor gives it back

    def settlement(self) -> Settlement:
        """How the claim is to end."""
        stored = None if self.error is None or self.how == "release" else stored_error(self.error)
        return self.run.claim.settled(self.how, stored)


@dataclass(frozen=True, slots=True)
class Manager:
    """What ends need of who manages the runs.

    Attributes:
        forget: Takes a run out of the management.
        facts: What an event tells of a run.
        sink: What is told of events.
        logger: For messages.
        lease: How long an end that is refused is tried again, so that the job is recovered and its slot is free.
        closing: Whether the loop is being closed.
    """

    forget: Callable[[Run], object]
    facts: Callable[[Run], Facts]
    sink: Sink | None
    logger: logging.Logger
    lease: timedelta
    closing: Callable[[], bool]


class Ends:
    """Writes ends until they are stored or the lease may have ended; then the reaper has the word.

    Heartbeats go on meanwhile.
    """

    def __init__(self, manager: Manager, committer: Committer, logs: Logs) -> None:
        self._manager = manager
        self._committer = committer
        self._logs = logs
        self._ended: list[End] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, end: End) -> None:
        """Writes an end soon, together with those that come before the loop gets to it."""
        if self._manager.closing():  # its handler was cancelled for that; the run is recovered when its lease ends
            self._manager.forget(end.run)
            return
        self._ended.append(end)
        if len(self._ended) == 1:
            # What the handler has in its context is none of the others' business.
            asyncio.get_running_loop().call_soon(self._begin, context=Context())

    async def write(self, ends: Iterable[End]) -> None:
        """Writes ends, and tells of each as soon as it is stored."""
        left = {end.run: end for end in ends}

        def over(end: End, outcome: Settled | None) -> None:
            del left[end.run]
            self._manager.forget(end.run)
            end.after(end.run, outcome)

        try:
            for end in [*left.values()]:
                if end.run.completed:
                    self._completed(end)
                    over(end, Completed())
                elif end.lost:
                    over(end, None)
            for end in left.values():
                if self._logs.has(end.run):
                    await self._logs.flush(end.run, last=True)
            await self._settle(left, over)
        finally:  # an end that is given up in the middle, since the loop is being closed
            for end in [*left.values()]:
                over(end, None)

    async def _settle(self, left: dict[Run, End], over: Callable[[End, Settled | None], object]) -> None:
        settlements = {run: end.settlement() for run, end in left.items()}
        failures, until = 0, time.monotonic() + self._manager.lease.total_seconds()
        while left:
            ends = [*left.values()]
            for end, outcome in zip(
                ends, await self._committer.settle([settlements[end.run] for end in ends]), strict=True
            ):
                if not isinstance(outcome, Exception):
                    self._tell(end, outcome)
                    over(end, outcome)
                elif end.run.orphaned or self._is_given_up(end, outcome, until):
                    self._tell(end, None)
                    over(end, None)
            if left:
                failures += 1
                await asyncio.sleep(_pause(failures))

    def _begin(self) -> None:
        ended, self._ended = self._ended, []
        # One that waits for its log to be written holds up no other.
        logged = {end for end in ended if self._logs.has(end.run)}
        for ends in ([end for end in ended if end not in logged] if logged else ended, *([end] for end in logged)):
            task = asyncio.create_task(self.write(ends))
            self._tasks.add(task)
            task.add_done_callback(self._report)

    def _is_given_up(self, end: End, trouble: Exception, until: float) -> bool:
        id, logger = end.run.job.id, self._manager.logger
        closed = isinstance(trouble, InvalidOperation)  # the client was closed
        if closed or end.run.expired() or time.monotonic() >= until:
            logger.error("the end of job %s is not stored, it is recovered when its lease ends: %r", id, trouble)
            return True
        logger.warning("the end of job %s could not be stored, trying again: %r", id, trouble)
        return False

    def _completed(self, end: End) -> None:
        if end.error is not None:
            self._manager.logger.warning(
                "job %s was completed by its transaction; what its handler raised afterwards changes nothing",
                end.run.job.id,
                exc_info=end.error,
            )
        end.how = "complete"
        self._tell(end, Completed())

    def _tell(self, end: End, outcome: Settled | None) -> None:
        if isinstance(outcome, RetryScheduled | FailedTerminal):
            self._log(end, outcome)
        sink, run = self._manager.sink, end.run
        if sink is not None and (run.completed or not run.orphaned):
            name = type(end.error).__name__
            told(sink, events.of_end(self._manager.facts(run), end.how, outcome, name, end.duration))

    def _log(self, end: End, outcome: RetryScheduled | FailedTerminal) -> None:
        job, logger = end.run.job, self._manager.logger
        failed = "job %s of action %r failed in attempt %d of %d with %s"
        said = (job.id, job.action, job.attempt, job.max_attempts, type(end.error).__name__)
        if isinstance(outcome, RetryScheduled):
            logger.info(failed + "; it is tried again at %s", *said, outcome.run_at.isoformat())
        else:
            logger.warning(failed + ", for good; to see the error: simplequeue inspect %s", *said, job.id)

    def _report(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._manager.logger.error(
                "a run could not be managed; it is recovered when its lease ends", exc_info=error
            )


def _how(run: Run, error: BaseException | None) -> How:
    if error is None:
        return "complete"
    if is_fatal(error):
        return "fail_fatal"
    # What a handler raised after a shutdown told it to stop came of that: it is given back, no attempt is spent.
    return "release" if run.stop.reason == "shutdown" else "fail"


# Not the module's own generator: an application's seed must not make workers everywhere come back at once.
_jitter = random.Random()


def _pause(failures: int) -> float:
    return _jitter.uniform(RETRY_FIRST, min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(failures, 20)))
