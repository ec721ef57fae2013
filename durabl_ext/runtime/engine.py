"""What every managed run has, whoever claimed it: its handler's call, its lease, its log and its end.

The end derives from what the handler did: returning completes the job, raising fails it, a ``FatalJobError`` for good.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

from pymongo.errors import InvalidOperation

from durabl_ext import events
from durabl_ext.backends import Backend
from durabl_ext.claims import Claim
from durabl_ext.core.settle import How
from durabl_ext.errors import is_fatal
from durabl_ext.events import Facts, Sink, told
from durabl_ext.outcomes import (
    Completed,
    FailedTerminal,
    Released,
    RetryScheduled,
    Settled,
    Superseded,
)
from durabl_ext.runtime.committer import Committer
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.heartbeats import Heartbeats
from durabl_ext.runtime.hold import Managed
from durabl_ext.runtime.invoke import Invoke
from durabl_ext.runtime.lease_thread import LeaseThread
from durabl_ext.runtime.runs import Owner, Run
from durabl_ext.runtime.store import Store
from simplequeue.failure import stored_error

RETRY_FIRST = 0.05
RETRY_MOST = 5.0
"""Seconds between attempts to store an end."""

ORPHAN_DELAY = timedelta(seconds=5)
"""For how long a run whose handler goes on is not due after it was given back."""

FLUSH_AFTER = 1.0
"""Seconds for which a line of log may wait, so that many go in one write."""


class Engine:
    """Manages runs on one event loop.

    Args:
        store: Where the jobs are.
        lease: The visibility timeout.
        invoke: How handlers are called.
        sink: What is told of events.
        logger: For messages.
        lease_backend: Where leases are renewed from a thread of its own; None means on this loop, with the rest.
    """

    def __init__(
        self,
        store: Store,
        lease: timedelta,
        invoke: Invoke,
        sink: Sink | None,
        logger: logging.Logger,
        lease_backend: Backend | None = None,
    ) -> None:
        self.store = store
        self.lease = lease
        self.logger = logger
        self.sink = sink
        self.runs: set[Run] = set()
        self._invoke = invoke
        self._committer = Committer(store)
        self._heartbeats: Heartbeats | LeaseThread = (
            Heartbeats(store, lease, self.lost, logger)
            if lease_backend is None
            else LeaseThread(lease_backend, lease, self.lost, logger)
        )
        self._offset = timedelta(0)
        self._idle = asyncio.Event()
        self._idle.set()
        self._flushes: dict[Run, asyncio.Task[None]] = {}

    async def now(self) -> datetime:
        """The store's time; keeps how far it is ahead."""
        theirs = await self.store.now()
        self._offset = theirs - datetime.now(UTC)
        return theirs

    def at(self) -> datetime:
        """The store's time as far as is known, without asking."""
        return datetime.now(UTC) + self._offset

    def begin(self, claim: Claim, asked_at: float, interval: float | None = None) -> Run:
        """Takes a claim under management."""
        run = Run(claim, asked_at, self.lease, interval, self._offset)
        self.runs.add(run)
        self._idle.clear()
        self._heartbeats.add(run)
        told(self.sink, events.JobClaimed(**self._facts(run)))
        return run

    async def manage(
        self, run: Run, handler: Handler, invoke: Invoke | None = None
    ) -> tuple[Settled | None, BaseException | None]:
        """Calls the handler and ends the run; gives what became of it and what the handler raised."""
        if run.expired():  # the answer of the claim took longer than its lease: another may be at it
            self.lost(run, "deadline")
            try:
                await self._committer.settle(run.claim.settled("release"))
            except Exception as trouble:
                self.logger.warning("job %s is recovered when its lease ends: %r", run.job.id, trouble)
            finally:
                self.forget(run)
            return None, None
        try:
            managed = Managed(run, self, self._log_of(run), asyncio.get_running_loop())
            error = await (invoke or self._invoke)(handler, managed)
        except Exception as trouble:  # no thread can be had
            error = trouble
        except BaseException:  # the loop is being closed; the run is recovered when its lease ends
            self.forget(run)
            raise
        return await self.end(run, error), error

    def _log_of(self, run: Run) -> Callable[[str], None]:
        """How a handler of this run adds to its log, from any thread."""
        loop = asyncio.get_running_loop()

        def log(message: str) -> None:
            run.log(message)
            with suppress(RuntimeError):  # the loop is closed: there is no run any more
                loop.call_soon_threadsafe(self._flush_soon, run)

        return log

    async def end(self, run: Run, error: BaseException | None) -> Settled | None:
        """Ends a run by what its handler raised, or returned (None); gives None when the run is no longer its own."""
        duration = time.monotonic() - run.began
        try:
            if run.completed:
                if error is not None:
                    self.logger.warning(
                        "job %s was completed by its transaction; what its handler raised afterwards changes nothing",
                        run.job.id,
                        exc_info=error,
                    )
                self._tell_end(run, "complete", Completed(), None, duration)
                return Completed()
            if run.orphaned or run.stop.reason in ("lease-lost", "deadline"):
                return None
            how = _how(run, error)
            run.settling = True  # from here on a drain neither tells it to stop nor gives it back
            await self._flush(run, last=True)
            outcome = await self._settled(run, how, error)
            self._tell_end(run, how, outcome, error, duration)
            return outcome
        finally:
            self.forget(run)

    def forget(self, run: Run) -> None:
        """Manages a run no longer."""
        self._heartbeats.remove(run)
        if (flush := self._flushes.pop(run, None)) is not None:
            flush.cancel()
        self.runs.discard(run)
        if not self.runs:
            self._idle.set()

    async def leave_alone(self, run: Run, owner: Owner) -> None:
        """Writes nothing to a job until ``take_back`` by the same owner; waits for what is on its way."""
        await run.flushing.acquire()
        if owner.gone:
            run.flushing.release()
            return
        run.alone = owner
        await self._heartbeats.quiet()

    def take_back(self, run: Run, owner: Owner) -> None:
        """Renews a lease and writes a log again, if that owner had the job left alone."""
        owner.gone = True
        if run.alone is owner:
            run.alone = None
            run.flushing.release()
            self._heartbeats.look()

    async def idle(self) -> None:
        """Waits until no run is left."""
        while self.runs:
            self._idle.clear()
            await self._idle.wait()

    async def give_back(self, run: Run) -> None:
        """Releases a run whose handler goes on; what that says later changes nothing, unless its transaction commits.

        While that has the job a release would wait for it, and with it those that are written together.
        """
        run.orphaned = True
        self._heartbeats.remove(run)
        if run.alone is not None:
            self.logger.warning(
                "the transaction of job %s is open; if it does not commit, the job is recovered when its lease ends",
                run.job.id,
            )
            return
        outcome = await self._committer.settle(run.claim.settled("release", delay=ORPHAN_DELAY))
        if isinstance(outcome, Released | Superseded):
            told(self.sink, events.JobReleased(**self._facts(run)))

    async def close(self) -> None:
        """Lets go of everything."""
        await self._heartbeats.close()
        self._invoke.close()

    async def _settled(self, run: Run, how: How, error: BaseException | None) -> Settled | None:
        """Writes the end until it is stored or the lease may have ended; then the reaper has the word.

        Heartbeats go on meanwhile. An end that is refused all the same is given up after a lease, so that the job is
        recovered and its slot is free.
        """
        settlement = run.claim.settled(how, None if error is None or how == "release" else stored_error(error))
        failures, until = 0, time.monotonic() + self.lease.total_seconds()
        while not run.orphaned:
            try:
                return await self._committer.settle(settlement)
            except Exception as trouble:
                failures += 1
                closed = isinstance(trouble, InvalidOperation)  # the client was closed
                if closed or run.expired() or time.monotonic() >= until:
                    self.logger.error(
                        "the end of job %s is not stored, it is recovered when its lease ends: %r", run.job.id, trouble
                    )
                    return None
                self.logger.warning("the end of job %s could not be stored, trying again: %r", run.job.id, trouble)
                await asyncio.sleep(_pause(failures))
        return None

    def _tell_end(
        self, run: Run, how: How, outcome: Settled | None, error: BaseException | None, duration: float
    ) -> None:
        name = type(error).__name__
        failed = "job %s of action %r failed in attempt %d of %d with %s"
        said = (run.job.id, run.job.action, run.job.attempt, run.job.max_attempts, name)
        match outcome:
            case RetryScheduled():
                self.logger.info(failed + "; it is tried again at %s", *said, outcome.run_at.isoformat())
            case FailedTerminal():
                self.logger.warning(failed + ", for good; to see the error: simplequeue inspect %s", *said, run.job.id)
            case _:
                pass
        if run.completed or not run.orphaned:
            told(self.sink, events.of_end(self._facts(run), how, outcome, name, duration))

    def lost(self, run: Run, op: Literal["heartbeat", "deadline", "journal"]) -> None:
        """Takes note that a run is no longer its own, and has its handler told."""
        if run.settling or run.stop.reason in ("lease-lost", "deadline"):
            return  # of a run whose handler has ended the write of its end says what became of it
        self.logger.warning(
            "job %s: its lease is lost (%s); its handler is told, its end changes nothing", run.job.id, op
        )
        run.stop.set("deadline" if op == "deadline" else "lease-lost")
        told(self.sink, events.JobLeaseLost(**self._facts(run), op=op))

    def _facts(self, run: Run) -> Facts:
        return events.facts_of(run.job, self.at())

    def _flush_soon(self, run: Run) -> None:
        if run in self.runs and run not in self._flushes:
            self._flushes[run] = asyncio.create_task(self._flush_later(run))

    async def _flush_later(self, run: Run) -> None:
        await asyncio.sleep(FLUSH_AFTER)
        del self._flushes[run]
        await self._flush(run)

    async def _flush(self, run: Run, *, last: bool = False) -> None:
        """Writes the lines of a log that wait; what cannot be written at last is dropped, as a log fails no job."""
        async with run.flushing:  # the end must not overtake lines that are on their way
            lines = run.taken_lines()
            if not lines:
                return
            try:
                await self.store.log(run.claim, lines)
            except Exception as error:
                if last:
                    self.logger.warning("%d lines of the log of job %s are lost: %r", len(lines), run.job.id, error)
                else:
                    run.lines.extendleft(reversed(lines))


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
