"""How an async queue works: its worker runs on the caller's loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient

from durabl_ext.backends import AsyncBackend
from durabl_ext.decisions import Decisions
from durabl_ext.errors import LeaseLostError
from durabl_ext.events import Sink
from durabl_ext.handle import AsyncJobHandle
from durabl_ext.memory import AsyncDummyBackend, AsyncImmediateBackend
from durabl_ext.mongo import AsyncMongoJobQueue, MongoJobQueue
from durabl_ext.options import Enqueue, Seconds
from durabl_ext.outcomes import Completed, Superseded
from durabl_ext.runtime import lag
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.inline import run_inline_async
from durabl_ext.runtime.invoke import InvokeHere
from durabl_ext.runtime.reaper import ReaperAlreadyRunning, ReaperStarted
from durabl_ext.runtime.registry import (
    REAPER_INTERVAL,
    SHUTDOWN_TIMEOUT,
    Registry,
    checked_reaper,
    checked_timeout,
    checked_wait,
)
from durabl_ext.runtime.signals import Uninstall, install
from durabl_ext.runtime.sync_work import STOP_SIGNALS
from durabl_ext.runtime.worker import Worker
from simplequeue.payload import checked_count
from simplequeue.threads import tell


class AsyncWork(Registry):
    """Starts, runs, drains: the half of ``AsyncJobQueue`` that is about running jobs."""

    def __init__(
        self,
        backend: AsyncBackend,
        lease: timedelta,
        sink: Sink | None,
        logger: logging.Logger | None,
        lease_client: MongoClient[Any] | None = None,
    ) -> None:
        super().__init__(lease, sink, logger)
        self.backend = backend
        self._lease_backend = None if lease_client is None else _on_client(backend, lease_client)
        self._lag: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self._started = False
        self._draining = False
        self._drained = asyncio.Event()
        self._finished = True
        self._asked: asyncio.Task[bool] | None = None

    async def startup(self) -> None:
        """Makes the indexes and checks the server, as ``JobQueue.startup`` does."""
        await self.backend.startup()

    async def start(
        self, *, reaper: bool = True, reaper_interval: Seconds = REAPER_INTERVAL, retention: Seconds | None = None
    ) -> None:
        """Starts to work on what is registered, as ``JobQueue.start`` does."""
        interval, kept = checked_reaper(reaper_interval, retention)
        self._refuse_shut_down()
        if self._started:
            return
        self._started = True
        try:
            await self.startup()
            await self._working().start()
            self._lag = asyncio.create_task(lag.watch(self._lease, self._logger))
        except BaseException:
            self._started = False
            raise
        if reaper:
            await self._working().start_reaper(interval, kept)

    async def run(
        self,
        *,
        timeout: Seconds = SHUTDOWN_TIMEOUT,
        reaper: bool = True,
        reaper_interval: Seconds = REAPER_INTERVAL,
        retention: Seconds | None = None,
    ) -> bool:
        """Works until SIGTERM, SIGINT or a ``shutdown`` elsewhere, as ``JobQueue.run`` does; in the main thread."""
        uninstall = self.install_signal_handlers(timeout=timeout)
        try:
            await self.start(reaper=reaper, reaper_interval=reaper_interval, retention=retention)
            await self.wait_drained()
        finally:
            uninstall()
        return self._finished

    async def shutdown(self, timeout: Seconds = SHUTDOWN_TIMEOUT) -> bool:
        """Claims no more, waits for runs and gives back those that do not end, as ``JobQueue.shutdown`` does."""
        seconds = checked_timeout(timeout)
        first = not self._shut_down
        self._shut_down = self._draining = True
        if not first:
            await self._drained.wait()
            return self._finished
        try:
            if self._worker is not None:
                self._finished = await self._worker.drain(seconds)
        finally:
            if self._lag is not None:
                self._lag.cancel()
            self._drained.set()
        return self._finished

    def install_signal_handlers(
        self, signals: Iterable[int] = STOP_SIGNALS, timeout: Seconds = SHUTDOWN_TIMEOUT
    ) -> Uninstall:
        """Has signals shut the queue down, as ``JobQueue.install_signal_handlers`` does; call it on the loop."""
        seconds = checked_timeout(timeout)
        loop = asyncio.get_running_loop()

        def begin() -> None:
            if self._asked is None:
                self._asked = asyncio.create_task(self.shutdown(seconds))

        def ask() -> None:
            self._draining = True
            tell(loop, begin)

        return install(signals, ask)

    @property
    def draining(self) -> bool:
        """Whether a shutdown has been asked for."""
        return self._draining

    async def wait_drained(self, timeout: Seconds | None = None) -> bool:
        """Waits so many seconds (None: without limit) until the queue is drained, and says whether it is."""
        try:
            await asyncio.wait_for(self._drained.wait(), checked_wait(timeout))
        except TimeoutError:
            return False
        return True

    async def start_reaper(
        self, interval: Seconds = REAPER_INTERVAL, *, retention: Seconds | None = None
    ) -> ReaperStarted | ReaperAlreadyRunning:
        """Sweeps at once and from then on every so often, as ``JobQueue.start_reaper`` does."""
        seconds, kept = checked_reaper(interval, retention)
        self._refuse_shut_down()
        return await self._working().start_reaper(seconds, kept)

    async def stop_reaper(self) -> None:
        """Sweeps no more."""
        if self._worker is not None:
            await self._worker.stop_reaper()

    async def run_claimed(self, handle: AsyncJobHandle, handler: Handler, *, max_drains: int = 10) -> None:
        """Runs a job that ``claim_or_enqueue`` gave, then those behind it, as ``JobQueue.run_claimed`` does.

        An ``async def`` handler runs on this loop, any other in a thread.
        """
        left = checked_count(max_drains, "max_drains") if max_drains else 0
        job, claim, asked_at = handle.job, handle.claim, handle.asked_at
        first_error: BaseException | None = None
        engine = self._working().engine
        while True:
            if self._shut_down:
                await self.backend.settle([claim.settled("release")])
                self._refuse_shut_down()
            outcome, error = await engine.manage(engine.begin(claim, asked_at), handler)
            first_error = first_error or error
            if left == 0 or job.dedupe_key is None or not isinstance(outcome, Completed | Superseded):
                break
            left -= 1
            asked_at = time.monotonic()
            following = await self.backend.claim_by_key(job.action, job.dedupe_key, lease=self._lease)
            if following is None:
                break
            claim = following
        if first_error is not None:
            raise first_error
        if not isinstance(outcome, Completed):
            raise LeaseLostError(claim.job.id)

    async def claimed_or_enqueued(self, job: Enqueue) -> AsyncJobHandle | None:
        """What ``claim_or_enqueue`` gives."""
        self._refuse_shut_down()
        asked_at = time.monotonic()
        claim = await self.backend.claim_or_enqueue(job, lease=self._lease)
        if claim is None:
            self._look([job.action])
            return None
        if self._shut_down:  # it began meanwhile
            await self.backend.settle([claim.settled("release")])
            self._refuse_shut_down()
        return AsyncJobHandle(self.backend, claim, self._lease, asked_at)

    async def enqueued(self, jobs: Sequence[Enqueue], ids: Sequence[str | None]) -> None:
        """Lets a worker in this process know of jobs; an ``AsyncImmediateBackend`` runs them here and now."""
        if isinstance(self.backend, AsyncImmediateBackend):
            for id in ids:
                if id is not None:
                    await run_inline_async(self.backend, id, self._processors, self._lease)
        self._look([job.action for job in jobs])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    def _working(self) -> Worker:
        if self._worker is None:
            watch = self.backend.watch if isinstance(self.backend, Decisions) else None
            engine = Engine(self.backend, self._lease, InvokeHere(), self._sink, self._logger, self._lease_backend)
            self._worker = Worker(engine, self._processors, watch)
        return self._worker

    def _look(self, actions: Iterable[str]) -> None:
        if self._worker is not None and self._started:
            for action in {*actions} & self._processors.keys():
                self._worker.look(action)


def _on_client(backend: AsyncBackend, client: object) -> MongoJobQueue:
    """The same jobs through a client of the sync driver."""
    if not isinstance(client, MongoClient):
        raise TypeError(f"lease_client: expected a MongoClient of PyMongo, found {type(client).__qualname__}")
    if not isinstance(backend, AsyncMongoJobQueue) or isinstance(backend, AsyncDummyBackend):
        raise TypeError("lease_client: only a queue on MongoDB has leases that another client can renew")
    database, collection = backend.place
    return MongoJobQueue(client[database], collection=collection, push=False)
