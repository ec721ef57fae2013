"""What every managed run has, whoever claimed it: its handler's call, its lease, its log and its end."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from durabl_ext import events
from durabl_ext.backends import Backend
from durabl_ext.claims import Claim
from durabl_ext.events import Facts, Sink, told
from durabl_ext.outcomes import Released, Settled, Superseded
from durabl_ext.runtime.committer import Committer, Turns
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.ends import After, End, Ends, Manager
from durabl_ext.runtime.heartbeats import Heartbeats
from durabl_ext.runtime.hold import Managed
from durabl_ext.runtime.invoke import Invoke, outcome
from durabl_ext.runtime.lease_thread import LeaseThread
from durabl_ext.runtime.logs import Logs
from durabl_ext.runtime.runs import Owner, Run, run_here
from durabl_ext.runtime.store import Store
from simplequeue.clock import ServerClock

ORPHAN_DELAY = timedelta(seconds=5)
"""For how long a run whose handler goes on is not due after it was given back."""


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
        self._logs = Logs(store, self.runs, logger)
        self._ends = Ends(
            Manager(self.forget, self._facts, sink, logger, lease, self._is_closing), self._committer, self._logs
        )
        self._heartbeats: Heartbeats | LeaseThread = (
            Heartbeats(store, lease, self.lost, logger)
            if lease_backend is None
            else LeaseThread(lease_backend, lease, self.lost, logger)
        )
        self.working: asyncio.Task[None] | None = None
        """What goes on as long as runs are started; cancelled only by a loop that is being closed."""
        self._clock = ServerClock(store.now)
        self._idle = asyncio.Event()
        self._idle.set()

    async def now(self) -> datetime:
        """The store's time, asked for once a minute."""
        return await self._clock.now()

    def at(self) -> datetime:
        """The store's time as far as is known, without asking."""
        return datetime.now(UTC) + self._clock.ahead

    def begin(self, claim: Claim, asked_at: float, interval: float | None = None) -> Run:
        """Takes a claim under management."""
        run = Run(claim, asked_at, self.lease, interval, self._clock.ahead)
        self.runs.add(run)
        self._idle.clear()
        self._heartbeats.add(run)
        if self.sink is not None:
            told(self.sink, events.JobClaimed(**self._facts(run)))
        return run

    def start(self, run: Run, handler: Handler, after: After) -> None:
        """Calls the handler of a run, and ends the run when that has ended, together with others that do then."""
        ended = partial(self.has_ended, run, after)
        before = run_here.set(run)
        try:
            self._invoke.begin(handler, self._managed(run), ended)
        except Exception as trouble:  # no thread can be had
            ended(trouble)
        finally:
            run_here.reset(before)

    def has_ended(self, run: Run, after: After, error: BaseException | None) -> None:
        """Ends a run by what its handler raised, or returned (None)."""
        self._ends.add(End(run, error, after))

    async def call(
        self, run: Run, handler: Handler, invoke: Invoke | None = None
    ) -> tuple[Settled | None, BaseException | None]:
        """Calls the handler and ends the run; gives what became of it and what the handler raised."""
        if run.expired():
            await self.came_late(run)
            return None, None
        run_here.set(run)
        try:
            error = await outcome(invoke or self._invoke, handler, self._managed(run))
        except Exception as trouble:  # no thread can be had
            error = trouble
        except BaseException:  # the loop is being closed; the run is recovered when its lease ends
            self.forget(run)
            raise
        return await self.end(run, error), error

    async def end(self, run: Run, error: BaseException | None) -> Settled | None:
        """Ends a run by what its handler raised, or returned (None); gives None when the run is no longer its own."""
        became: list[Settled | None] = []
        await self._ends.write([End(run, error, lambda _, outcome: became.append(outcome))])
        return became[0]

    async def came_late(self, run: Run) -> None:
        """Gives back a run whose claim was answered after its lease had ended: another may be at it."""
        self.lost(run, "deadline")
        try:
            (trouble,) = await self._committer.settle([run.claim.settled("release")])
            if isinstance(trouble, Exception):
                self.logger.warning("job %s is recovered when its lease ends: %r", run.job.id, trouble)
        finally:
            self.forget(run)

    def fill_with(self, turns: Turns) -> None:
        """Has others start where runs end, in one write."""
        self._committer.turns = turns

    async def next_ends(self, timeout: float, busy: float) -> None:
        """Waits so many seconds at most for ends to be written; ``busy`` seconds if some are already."""
        await self._committer.written(timeout, busy)

    def forget(self, run: Run) -> None:
        """Manages a run no longer."""
        self._heartbeats.remove(run)
        self._logs.forget(run)
        self.runs.discard(run)
        run.over()
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
        (became,) = await self._committer.settle([run.claim.settled("release", delay=ORPHAN_DELAY)])
        if isinstance(became, Released | Superseded):
            told(self.sink, events.JobReleased(**self._facts(run)))

    async def close(self) -> None:
        """Lets go of everything."""
        await self._heartbeats.close()
        self._invoke.close()

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

    def _is_closing(self) -> bool:
        return self.working is not None and (self.working.cancelled() or self.working.cancelling() > 0)

    def _managed(self, run: Run) -> Managed:
        return Managed(run, self, partial(self._logs.add, asyncio.get_running_loop(), run), asyncio.get_running_loop())
