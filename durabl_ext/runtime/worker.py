"""A worker: claims jobs for its processors, runs them, reaps what dead workers left, and drains when it is told to end.

Written once, on an event loop: the caller's, or for a sync queue a private one in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from durabl_ext.claims import Claim
from durabl_ext.errors import QueueShutdownError
from durabl_ext.outcomes import RetryScheduled, Settled
from durabl_ext.runtime.claimer import Claimer
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.reaper import Reaper, ReaperAlreadyRunning, ReaperStarted
from durabl_ext.runtime.runs import Run, run_here
from durabl_ext.runtime.store import Watch
from simplequeue.feed import Feed
from simplequeue.job import Document

T = TypeVar("T")

YIELD = 1.0
"""Seconds that a handler has, once it was told to stop, to end by itself and have its own end stored."""

RELEASE = 1.0
"""Seconds for giving back the runs whose handlers go on, so that a server that is away does not hold up the end."""


class Worker:
    """Works on what is registered, from ``start`` until ``drain``.

    Args:
        engine: Where runs are managed.
        processors: What is registered, by action; may grow, see ``look``.
        watch: Opens the change stream; None means that there is none.
    """

    def __init__(self, engine: Engine, processors: Mapping[str, Processor], watch: Watch | None) -> None:
        self.engine = engine
        self.draining = False
        self._processors = processors
        self._claimer = Claimer(engine, processors, self._start)
        engine.fill_with(self._claimer)
        self._feed = Feed(watch, self._look, self._news, None, self._claimer.rest.over)
        self._one_start = asyncio.Lock()
        self._starting: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._reaping: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def started(self) -> bool:
        """Whether it works on what is registered, or did before it drained."""
        return self._claiming is not None

    def is_handler(self) -> bool:
        """Whether the caller is a handler at work here, or something that one has started."""
        return run_here.get() in self.engine.runs

    async def start(self, startup: Callable[[], Awaitable[None]]) -> None:
        """Opens the change feed, then sets to work on what there is; a second call changes nothing.

        Args:
            startup: What to wait for before anything else.

        Raises:
            QueueShutdownError: It was told to drain, before or meanwhile.
            PyMongoError: The server cannot be reached, or refuses.
        """
        async with self._one_start:
            self._refuse_draining()
            if self.started:
                return
            self._starting = asyncio.create_task(self._open(startup))
            try:
                await asyncio.wait((self._starting,))
            finally:
                self._starting.cancel()
            error = None if self._starting.cancelled() else self._starting.exception()
            self._refuse_draining()
            if error is not None:
                raise error

    def abandon_start(self) -> None:
        """Gives up a start that is under way."""
        if self._starting is not None:
            self._starting.cancel()

    def look(self, action: str) -> None:
        """Takes note of a job that was enqueued in this process, or of a processor that is new."""
        self._claimer.look(action)

    async def start_reaper(self, interval: float, retention: timedelta | None) -> ReaperStarted | ReaperAlreadyRunning:
        """Sweeps at once and from then on every so often, unless it does already.

        Raises:
            QueueShutdownError: It was told to drain.
        """
        self._refuse_draining()
        if self._reaping is not None:
            return ReaperAlreadyRunning()
        reaper = Reaper(self.engine, interval, retention)
        first = asyncio.create_task(reaper.sweep())
        self._reaping = asyncio.create_task(reaper.serve(first))
        await asyncio.wait((first,))
        return ReaperStarted(None if first.cancelled() else first.result())

    async def stop_reaper(self) -> None:
        """Sweeps no more."""
        reaping, self._reaping = self._reaping, None
        if reaping is not None:
            reaping.cancel()
            await asyncio.wait((reaping,), timeout=RELEASE)

    async def drain(self, timeout: float) -> bool:
        """Ends: claims no more, waits for runs, tells those that are left to stop, and gives back what will not.

        Args:
            timeout: Seconds that runs have before they are told.

        Returns:
            Whether every handler has ended.
        """
        self.draining = True
        self._claimer.stop()
        self.abandon_start()
        closing = self.spawn(_within(RELEASE, self._close_feed()))
        reaping = self.spawn(self.stop_reaper())
        await _within(timeout, self._ended())
        for run in self.engine.runs:
            if not run.settling:
                run.stop.set("shutdown")
        await _within(YIELD, self._ended())
        orphans = [run for run in self.engine.runs if not run.settling]
        for run in orphans:
            run.orphaned = True  # now: one that ends before it is released must not be settled in two ways
            if run.alone is None:
                self.engine.logger.warning(
                    "the handler of job %s does not end; its run is given back and what it still does changes nothing",
                    run.job.id,
                )
        await _within(RELEASE, _all(self.engine.give_back(run) for run in orphans))
        finished = not self.engine.runs
        await asyncio.wait((closing, reaping))
        await _within(RELEASE, self.engine.close())
        return finished

    async def over(self) -> None:
        """Waits until nothing is left, once drained: a claim that hung was given back, the last handler has ended."""
        await self._ended()

    async def claimed(self, claiming: Coroutine[Any, Any, Claim | None]) -> Claim | None:
        """Gives what is claimed; if the waiting is cancelled meanwhile, that is given back when it turns up."""
        task = self.spawn(claiming)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            self.spawn(self._give_back_from(task))
            raise
        return task.result()

    async def give_back(self, claim: Claim) -> None:
        """Releases a claim that came too late to be run."""
        try:
            await asyncio.wait_for(self.engine.store.settle([claim.settled("release")]), RELEASE)
        except Exception as trouble:
            self.engine.logger.warning(
                "job %s is not given back, it is recovered when its lease ends: %r", claim.job.id, trouble
            )

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs something beside the caller, whether or not that waits for it."""
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _refuse_draining(self) -> None:
        if self.draining:
            raise QueueShutdownError("this queue is shut down; it starts no more work")

    async def _open(self, startup: Callable[[], Awaitable[None]]) -> None:
        await startup()
        await self.engine.now()
        await self._feed.open()
        self._feeding = asyncio.create_task(self._feed.serve())
        self._claiming = asyncio.create_task(self._claimer.serve())
        self.engine.working = asyncio.create_task(_until(self._claiming))

    async def _close_feed(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.wait((self._feeding,))
        await self._feed.close()

    async def _ended(self) -> None:
        if self._claiming is not None:
            await asyncio.wait((self._claiming,))  # a claim that is under way may start runs
        await self.engine.idle()

    def _look(self, announced: bool) -> None:
        self._claimer.look()

    def _news(self, event: Document) -> None:
        # Of an insert the action is known; anything else may have set a job of any action free.
        self._claimer.look((event.get("fullDocument") or {}).get("action"))

    def _start(self, claim: Claim, processor: Processor, asked_at: float) -> None:
        run = self.engine.begin(claim, asked_at, processor.heartbeat_interval)
        if run.expired():  # nobody knows whether another is at it
            self.spawn(self._came_late(run))
        elif self.draining:  # the shutdown began while the claim was under way
            run.stop.set("shutdown")
            self.engine.has_ended(run, self._over, asyncio.CancelledError())
        else:
            self.engine.start(run, processor.handler, self._over)

    def _over(self, run: Run, outcome: Settled | None) -> None:
        self._claimer.freed(run.claim)
        if run.job.dedupe_scope == "queued":
            self._claimer.look()  # a follower may have waited, of any action
        elif isinstance(outcome, RetryScheduled):
            self._claimer.look(run.job.action)  # where there is no stream that says when it is due again

    async def _came_late(self, run: Run) -> None:
        try:
            await self.engine.came_late(run)
        finally:
            self._claimer.freed(run.claim)

    async def _give_back_from(self, claiming: asyncio.Task[Claim | None]) -> None:
        await asyncio.wait((claiming,))
        with suppress(Exception):  # then there is no claim that is known of
            if (claim := claiming.result()) is not None:
                await self.give_back(claim)


async def _within(seconds: float, waiting: Coroutine[Any, Any, Any]) -> None:
    """Waits so long at most; what has not ended by then goes on by itself."""
    task = asyncio.ensure_future(waiting)
    done, _ = await asyncio.wait((task,), timeout=max(seconds, 0))
    for ended in done:
        with suppress(Exception):  # reported where it happened; a drain goes on
            ended.result()
    if not done:
        task.cancel()


async def _all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*coroutines, return_exceptions=True)


async def _until(task: asyncio.Task[None]) -> None:
    await asyncio.wait((task,))
