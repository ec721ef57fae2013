"""A worker: claims jobs for its processors, runs them, reaps what dead workers left, and drains when it is told to end.

Written once, on an event loop: the caller's, or for a sync queue a private one in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from durabl_ext.claims import Claim
from durabl_ext.outcomes import RetryScheduled
from durabl_ext.runtime.claimer import Claimer
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.reaper import Reaper, ReaperAlreadyRunning, ReaperStarted
from durabl_ext.runtime.runs import Run
from durabl_ext.runtime.store import Watch
from simplequeue.feed import Feed
from simplequeue.job import Document

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
        self._processors = processors
        self._claimer = Claimer(engine, processors, self._start)
        self._feed = Feed(watch, self._look, self._news, None)
        self._claiming: asyncio.Task[None] | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._reaping: asyncio.Task[None] | None = None
        self._starting_reaper = False
        self._background: set[asyncio.Task[Any]] = set()
        self._draining = False

    async def start(self) -> None:
        """Opens the change feed, then sets to work on what there is.

        Raises:
            PyMongoError: The server cannot be reached, or refuses.
        """
        await self.engine.now()
        await self._feed.open()
        self._feeding = asyncio.create_task(self._feed.serve())
        self._claiming = asyncio.create_task(self._claimer.serve())

    def look(self, action: str) -> None:
        """Takes note of a job that was enqueued in this process, or of a processor that is new."""
        self._claimer.look(action)

    async def start_reaper(self, interval: float, retention: timedelta | None) -> ReaperStarted | ReaperAlreadyRunning:
        """Sweeps at once and from then on every so often, unless it does already."""
        if self._reaping is not None or self._starting_reaper:
            return ReaperAlreadyRunning()
        self._starting_reaper = True
        try:
            reaper = Reaper(self.engine, interval, retention)
            recovered = await reaper.sweep()
            self._reaping = asyncio.create_task(reaper.serve())
        finally:
            self._starting_reaper = False
        return ReaperStarted(recovered)

    async def stop_reaper(self) -> None:
        """Sweeps no more."""
        reaping, self._reaping = self._reaping, None
        if reaping is not None:
            reaping.cancel()
            await asyncio.wait((reaping,))

    async def drain(self, timeout: float) -> bool:
        """Ends: claims no more, waits for runs, tells those that are left to stop, and gives back what will not.

        Args:
            timeout: Seconds that runs have before they are told.

        Returns:
            Whether every handler has ended.
        """
        self._draining = True
        self._claimer.stop()
        await self.stop_reaper()
        await _within(timeout, self._ended())
        for run in list(self.engine.runs):
            run.stop.set("shutdown")
        await _within(YIELD, self.engine.idle())
        orphans = [run for run in self.engine.runs if not run.settling]
        for run in orphans:
            self.engine.logger.warning(
                "the handler of job %s does not end; its run is given back and what it still does changes nothing",
                run.job.id,
            )
        await _within(RELEASE, _all(self.engine.give_back(run) for run in orphans))
        finished = not self.engine.runs
        if self._feeding is not None:
            self._feeding.cancel()
        await _within(RELEASE, self._feed.close())
        await self.engine.close()
        return finished

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
        self._spawn(self._give_back(run, processor) if self._draining else self._work(run, processor))

    async def _work(self, run: Run, processor: Processor) -> None:
        try:
            outcome, _ = await self.engine.manage(run, processor.handler)
        finally:
            self._claimer.freed(processor.action)
        if run.job.dedupe_scope == "queued":
            self._claimer.look()  # a follower may have waited, of any action
        elif isinstance(outcome, RetryScheduled):
            self._claimer.look(processor.action)  # where there is no stream that says when it is due again

    async def _give_back(self, run: Run, processor: Processor) -> None:
        """Ends a run that a claim started while the shutdown began."""
        run.stop.set("shutdown")
        try:
            await self.engine.end(run, asyncio.CancelledError())
        finally:
            self._claimer.freed(processor.action)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.engine.logger.error("a run could not be managed; it is recovered when its lease ends", exc_info=error)


async def _within(seconds: float, waiting: Coroutine[Any, Any, Any]) -> None:
    """Waits so long at most; what has not ended by then goes on by itself."""
    task = asyncio.ensure_future(waiting)
    done, _ = await asyncio.wait((task,), timeout=max(seconds, 0))
    for ended in done:
        with suppress(Exception):  # reported where it happened; a drain goes on
            ended.result()
    if not done:
        task.cancel()


async def _all(coroutines: Any) -> None:
    await asyncio.gather(*coroutines, return_exceptions=True)
