"""How an async queue works: its worker runs on the caller's loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient

from durabl_ext.backends import AsyncBackend
from durabl_ext.decisions import Decisions
from durabl_ext.errors import QueueShutdownError
from durabl_ext.events import Sink
from durabl_ext.handle import AsyncJobHandle
from durabl_ext.memory import AsyncDummyBackend, AsyncImmediateBackend
from durabl_ext.mongo import AsyncMongoJobQueue, MongoJobQueue
from durabl_ext.options import Enqueue, Seconds
from durabl_ext.runtime import lag
from durabl_ext.runtime.access import async_accesses
from durabl_ext.runtime.claimed import ClaimedRuns
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.inline import run_inline_async
from durabl_ext.runtime.invoke import InvokeHere
from durabl_ext.runtime.reaper import ReaperAlreadyRunning, ReaperStarted
from durabl_ext.runtime.registry import (
    REAPER_INTERVAL,
    SHUTDOWN_TIMEOUT,
    PerProcess,
    Registry,
    checked_reaper,
    checked_timeout,
    checked_wait,
)
from durabl_ext.runtime.signals import Uninstall, install
from durabl_ext.runtime.sync_work import STOP_SIGNALS
from durabl_ext.runtime.worker import Worker
from simplequeue.threads import MISSED_SIGNAL, tell


class _Part:
    """What one process has of a queue."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.shut_down = False
        self.draining = False
        self.drained = asyncio.Event()
        self.finished = True
        self.drain: asyncio.Task[None] | None = None
        self.lag: asyncio.Task[None] | None = None


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
        self._parts = PerProcess(_Part)

    async def startup(self) -> None:
        """Makes the indexes and checks the server, as ``JobQueue.startup`` does."""
        await self.backend.startup()

    async def start(
        self, *, reaper: bool = True, reaper_interval: Seconds = REAPER_INTERVAL, retention: Seconds | None = None
    ) -> None:
        """Starts to work on what is registered, as ``JobQueue.start`` does."""
        interval, kept = checked_reaper(reaper_interval, retention)
        worker = self._working()
        if worker.started:
            return
        await worker.start(self.startup)
        self._part.lag = asyncio.create_task(lag.watch(self._lease, self._logger))
        if reaper:
            await worker.start_reaper(interval, kept)

    async def run(
        self,
        *,
        timeout: Seconds = SHUTDOWN_TIMEOUT,
        reaper: bool = True,
        reaper_interval: Seconds = REAPER_INTERVAL,
        retention: Seconds | None = None,
    ) -> bool:
        """Works until SIGTERM, SIGINT or a ``shutdown`` elsewhere, as ``JobQueue.run`` does.

        Cancelled, it drains first.
        """
        seconds = checked_timeout(timeout)
        checked_reaper(reaper_interval, retention)
        self._refuse_shut_down()
        uninstall: Uninstall = lambda: None  # noqa: E731  # nothing to uninstall in another thread than the main one
        if threading.current_thread() is threading.main_thread():
            uninstall = self.install_signal_handlers(timeout=seconds)
        try:
            with suppress(QueueShutdownError):  # told to end while it started
                await self.start(reaper=reaper, reaper_interval=reaper_interval, retention=retention)
            await self.wait_drained()
        except asyncio.CancelledError:  # else the runs would be cut off and their jobs wait for the end of a lease
            await self.shutdown(seconds)
            raise
        finally:
            uninstall()
        return self._part.finished

    async def shutdown(self, timeout: Seconds = SHUTDOWN_TIMEOUT) -> bool:
        """Claims no more, waits for runs and gives back those that do not end, as ``JobQueue.shutdown`` does."""
        seconds = checked_timeout(timeout)
        part = self._part
        if not part.shut_down:
            part.shut_down = part.draining = True
            part.drain = asyncio.create_task(self._drain(part, seconds))  # goes on when who waits is cancelled
        if part.worker is not None and part.worker.is_handler():
            return False
        await part.drained.wait()
        return part.finished

    def install_signal_handlers(
        self, signals: Iterable[int] = STOP_SIGNALS, timeout: Seconds = SHUTDOWN_TIMEOUT
    ) -> Uninstall:
        """Has signals shut the queue down, as ``JobQueue.install_signal_handlers`` does; call it on the loop."""
        seconds = checked_timeout(timeout)
        loop, part = asyncio.get_running_loop(), self._part
        asked: list[asyncio.Task[bool]] = []

        def begin() -> None:
            if not part.shut_down:
                asked.append(asyncio.create_task(self.shutdown(seconds)))

        def ask() -> None:
            part.draining = True
            tell(loop, begin)

        def tick() -> None:
            if installed:
                loop.call_later(MISSED_SIGNAL, tick)

        def uninstall() -> None:
            installed.clear()
            put_back()

        put_back = install(signals, ask)
        installed = [True]
        tick()
        return uninstall

    @property
    def draining(self) -> bool:
        """Whether a shutdown has been asked for."""
        return self._part.draining

    async def wait_drained(self, timeout: Seconds | None = None) -> bool:
        """Waits so many seconds (None: without limit) until the queue is drained, and says whether it is."""
        drained = self._part.drained
        with suppress(TimeoutError):
            await asyncio.wait_for(drained.wait(), checked_wait(timeout))
        return drained.is_set()

    async def start_reaper(
        self, interval: Seconds = REAPER_INTERVAL, *, retention: Seconds | None = None
    ) -> ReaperStarted | ReaperAlreadyRunning:
        """Sweeps at once and from then on every so often, as ``JobQueue.start_reaper`` does."""
        seconds, kept = checked_reaper(interval, retention)
        return await self._working().start_reaper(seconds, kept)

    async def stop_reaper(self) -> None:
        """Sweeps no more."""
        if (worker := self._part.worker) is not None:
            await worker.stop_reaper()

    async def run_claimed(self, handle: AsyncJobHandle, handler: Handler, *, max_drains: int = 10) -> None:
        """Runs a job that ``claim_or_enqueue`` gave, then those behind it, as ``JobQueue.run_claimed`` does.

        An ``async def`` handler runs on this loop, any other in a thread.
        """
        runs = ClaimedRuns.of(handle, AsyncJobHandle, handler, max_drains)
        error = await runs.run(self._worker())
        if error is not None:
            raise error

    async def _claimed_or_enqueued(self, job: Enqueue) -> AsyncJobHandle | None:
        """What ``claim_or_enqueue`` gives."""
        self._refuse_shut_down()
        asked_at = time.monotonic()
        claim = await self._worker().claimed(self.backend.claim_or_enqueue(job, lease=self._lease))
        if claim is None:
            self._look([job.action])
            return None
        if self._shut_down:  # it began meanwhile
            await self._worker().give_back(claim)
            self._refuse_shut_down()
        return AsyncJobHandle(self.backend, claim, self._lease, asked_at)

    async def _enqueued(self, jobs: Sequence[Enqueue], ids: Sequence[str | None]) -> None:
        """Lets a worker in this process know of jobs; an ``AsyncImmediateBackend`` runs them here and now."""
        if isinstance(self.backend, AsyncImmediateBackend):
            for id in ids:
                if id is not None:
                    await run_inline_async(self.backend, id, self._processors, self._lease, self._sink)
        self._look([job.action for job in jobs])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _drain(self, part: _Part, seconds: float) -> None:
        finished = part.worker is None
        try:
            if part.worker is not None:
                finished = await part.worker.drain(seconds)
        finally:
            if part.lag is not None:
                part.lag.cancel()
            part.finished = finished
            part.drained.set()

    @property
    def _part(self) -> _Part:
        return self._parts.here()

    @property
    def _shut_down(self) -> bool:
        return self._part.shut_down

    def _working(self) -> Worker:
        self._refuse_shut_down()
        return self._worker()

    def _worker(self) -> Worker:
        part = self._part
        if part.worker is None:
            watch = self.backend.watch if isinstance(self.backend, Decisions) else None
            invoke = InvokeHere(lambda _: async_accesses(self.backend))
            engine = Engine(self.backend, self._lease, invoke, self._sink, self._logger, self._lease_backend)
            part.worker = Worker(engine, self._processors, watch)
            part.worker.draining = part.shut_down
        return part.worker

    def _look(self, actions: Iterable[str]) -> None:
        worker = self._part.worker
        if worker is not None and worker.started:
            for action in {*actions} & self._processors.keys():
                worker.look(action)


def _on_client(backend: AsyncBackend, client: object) -> MongoJobQueue:
    """The same jobs through a client of the sync driver."""
    if not isinstance(client, MongoClient):
        raise TypeError(f"lease_client: expected a MongoClient of PyMongo, found {type(client).__qualname__}")
    if not isinstance(backend, AsyncMongoJobQueue) or isinstance(backend, AsyncDummyBackend):
        raise TypeError("lease_client: only a queue on MongoDB has leases that another client can renew")
    database, collection = backend.place
    return MongoJobQueue(client[database], collection=collection, push=False)
