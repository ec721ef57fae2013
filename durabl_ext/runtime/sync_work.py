"""How a sync queue works: its worker runs on a loop of its own, and the caller waits for it."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from durabl_ext.backends import Backend
from durabl_ext.errors import LeaseLostError
from durabl_ext.events import Sink
from durabl_ext.handle import JobHandle
from durabl_ext.memory import ImmediateBackend
from durabl_ext.options import Enqueue, Seconds
from durabl_ext.outcomes import Completed, Settled, Superseded
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.host import Host
from durabl_ext.runtime.inline import run_inline
from durabl_ext.runtime.invoke import call
from durabl_ext.runtime.reaper import ReaperAlreadyRunning, ReaperStarted
from durabl_ext.runtime.registry import (
    REAPER_INTERVAL,
    SHUTDOWN_TIMEOUT,
    Registry,
    checked_reaper,
    checked_timeout,
    checked_wait,
)
from durabl_ext.runtime.runs import Run
from durabl_ext.runtime.signals import Uninstall, install
from simplequeue.handlers import is_async
from simplequeue.payload import checked_count
from simplequeue.threads import Latch

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SyncWork(Registry):
    """Starts, runs, drains: the half of ``JobQueue`` that is about running jobs."""

    def __init__(self, backend: Backend, lease: timedelta, sink: Sink | None, logger: logging.Logger | None) -> None:
        super().__init__(lease, sink, logger)
        self.backend = backend
        self._host: Host | None = None
        self._lock = threading.RLock()
        self._asked: SimpleQueue[float] = SimpleQueue()
        self._draining = False
        self._drained = Latch()
        self._finished = True

    def startup(self) -> None:
        """Makes the indexes and checks the server. Producers and workers may call it, as often as they like.

        Raises:
            UnsupportedServerError: The server is older than MongoDB 6.0.
            IndexConflictError: An index cannot be made; the message says what to do.
            NoChangeStreamError: ``push=True`` on a server without change streams.
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        self.backend.startup()

    def start(
        self, *, reaper: bool = True, reaper_interval: Seconds = REAPER_INTERVAL, retention: Seconds | None = None
    ) -> None:
        """Starts to work on what is registered, and returns; a second call changes nothing.

        Args:
            reaper: Whether this process also puts back what dead workers left. Several that do are no harm.
            reaper_interval: Seconds, or a timedelta, between sweeps.
            retention: Seconds, or a timedelta, for which ended jobs are kept. None means for ever.

        Raises:
            QueueShutdownError: The queue was shut down.
            PayloadError: An option is out of its range.
            IndexConflictError, UnsupportedServerError, NoChangeStreamError: As for ``startup``.
            pymongo.errors.PyMongoError: The server could not be reached, or refused. Later trouble is survived.
        """
        interval, kept = checked_reaper(reaper_interval, retention)
        self._refuse_shut_down()
        with self._lock:
            host = self._hosted()
            if host.started:
                return
            self.startup()
            host.loop.call(host.worker.start())
            host.started = True
        if reaper:
            host.loop.call(host.worker.start_reaper(interval, kept))

    def run(
        self,
        *,
        timeout: Seconds = SHUTDOWN_TIMEOUT,
        reaper: bool = True,
        reaper_interval: Seconds = REAPER_INTERVAL,
        retention: Seconds | None = None,
    ) -> bool:
        """Works until SIGTERM, SIGINT or a ``shutdown`` elsewhere, drains and returns: a worker's main line.

        Args:
            timeout: Seconds, or a timedelta, that runs have to end after the signal.
            reaper: As for ``start``.
            reaper_interval: As for ``start``.
            retention: As for ``start``.

        Returns:
            Whether every handler had ended.

        Raises:
            As ``start``.
        """
        seconds = checked_timeout(timeout)
        uninstall: Uninstall = lambda: None  # noqa: E731  # nothing to uninstall in another thread than the main one
        if threading.current_thread() is threading.main_thread():
            uninstall = self.install_signal_handlers(timeout=seconds)
        try:
            self.start(reaper=reaper, reaper_interval=reaper_interval, retention=retention)
            self.wait_drained()
        finally:
            uninstall()
        return self._finished

    def shutdown(self, timeout: Seconds = SHUTDOWN_TIMEOUT) -> bool:
        """Claims no more, waits for runs, tells those that are left to stop, and gives back those that do not.

        A run that is given back spends no attempt. If its handler has ended it is due at once. If it goes on, the job
        is due a few seconds later and nothing the handler still does changes it; but until this process is gone, that
        handler may overlap with the next run.

        Args:
            timeout: Seconds, or a timedelta, that runs have before they are told. Telling them and giving back takes up
                to two seconds more. A platform that kills must wait for longer than both.

        Returns:
            Whether every handler has ended.
        """
        seconds = checked_timeout(timeout)
        with self._lock:
            first = not self._shut_down
            self._shut_down = self._draining = True
        if first:
            self._drain(seconds)
        else:
            self._drained.wait(None)
        return self._finished

    def install_signal_handlers(
        self, signals: Iterable[int] = STOP_SIGNALS, timeout: Seconds = SHUTDOWN_TIMEOUT
    ) -> Uninstall:
        """Has signals shut the queue down. They never end the process: wait for ``wait_drained`` and return from main.

        Handlers that were installed before are called as well.

        Args:
            signals: Which.
            timeout: As for ``shutdown``.

        Returns:
            What takes the handlers away again.

        Raises:
            RuntimeError: Called in another thread than the main one.
        """
        seconds = checked_timeout(timeout)
        asked = self._asked  # put() takes no lock of Python's, so that a handler may call it
        uninstall = install(signals, lambda: self._ask(seconds))
        threading.Thread(target=self._await_signal, args=(asked,), name="durabl-drain", daemon=True).start()
        return uninstall

    @property
    def draining(self) -> bool:
        """Whether a shutdown has been asked for."""
        return self._draining

    def wait_drained(self, timeout: Seconds | None = None) -> bool:
        """Waits so many seconds (None: without limit) until the queue is drained, and says whether it is."""
        return self._drained.wait(checked_wait(timeout))

    def start_reaper(
        self, interval: Seconds = REAPER_INTERVAL, *, retention: Seconds | None = None
    ) -> ReaperStarted | ReaperAlreadyRunning:
        """Sweeps at once, and from then on every so often, without starting anything else.

        Args:
            interval: Seconds, or a timedelta, between sweeps.
            retention: Seconds, or a timedelta, for which ended jobs are kept. None means for ever.

        Returns:
            ``ReaperStarted`` with what the first sweep recovered; ``ReaperAlreadyRunning``, and nothing was changed.
        """
        seconds, kept = checked_reaper(interval, retention)
        self._refuse_shut_down()
        host = self._hosted()
        return host.loop.call(host.worker.start_reaper(seconds, kept))

    def stop_reaper(self) -> None:
        """Sweeps no more."""
        if self._host is not None:
            self._host.loop.call(self._host.worker.stop_reaper())

    def run_claimed(self, handle: JobHandle, handler: Handler, *, max_drains: int = 10) -> None:
        """Runs a job that ``claim_or_enqueue`` gave, then those that came to wait behind it meanwhile.

        A ``def`` handler runs in this thread. What it raises is stored and then raised here. If a job of the same
        action waited behind a run that failed, that one covers the work: it is run first and the error raised
        afterwards.

        Args:
            handle: What ``claim_or_enqueue`` gave.
            handler: A function of a job and its context.
            max_drains: How many followers are run at most.

        Raises:
            LeaseLostError: The run was done, and its lease lost before its end was stored.
            QueueShutdownError: The queue was shut down; the job was given back.
            BaseException: What the handler raised.
        """
        left = checked_count(max_drains, "max_drains") if max_drains else 0
        job, first_error = handle.job, None
        claim, asked_at = handle.claim, handle.asked_at
        while True:
            if self._shut_down:
                self.backend.settle([claim.settled("release")])
                self._refuse_shut_down()
            outcome, error = self._run_here(JobHandle(self.backend, claim, self._lease, asked_at), handler)
            first_error = first_error or error
            if left == 0 or job.dedupe_key is None or not isinstance(outcome, Completed | Superseded):
                break
            left -= 1
            asked_at = time.monotonic()
            following = self.backend.claim_by_key(job.action, job.dedupe_key, lease=self._lease)
            if following is None:
                break
            claim = following
        if first_error is not None:
            raise first_error
        if not isinstance(outcome, Completed):
            raise LeaseLostError(claim.job.id)

    def claimed_or_enqueued(self, job: Enqueue) -> JobHandle | None:
        """What ``claim_or_enqueue`` gives."""
        self._refuse_shut_down()
        asked_at = time.monotonic()
        claim = self.backend.claim_or_enqueue(job, lease=self._lease)
        if claim is None:
            self._look([job.action])
            return None
        if self._shut_down:  # it began meanwhile
            self.backend.settle([claim.settled("release")])
            self._refuse_shut_down()
        return JobHandle(self.backend, claim, self._lease, asked_at)

    def enqueued(self, jobs: Sequence[Enqueue], ids: Sequence[str | None]) -> None:
        """Lets a worker in this process know of jobs; an ``ImmediateBackend`` runs them here and now."""
        if isinstance(self.backend, ImmediateBackend):
            for id in ids:
                if id is not None:
                    run_inline(self.backend, id, self._processors, self._lease)
        self._look([job.action for job in jobs])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _run_here(self, handle: JobHandle, handler: Handler) -> tuple[Settled | None, BaseException | None]:
        host = self._hosted()
        engine = host.worker.engine

        async def begin() -> tuple[Run, Callable[[str], None]]:
            run = engine.begin(handle.claim, handle.asked_at)
            return run, engine.log_of(run)

        run, log = host.loop.call(begin())
        if is_async(handler):
            error = host.loop.call(host.invoke(handler, run.job, run.stop, log))
        else:
            result, error = call(handler, run.job, run.stop, log)
            if inspect.isawaitable(result):
                error = host.loop.call(host.invoke.finish(handler, result, run.stop))
        return host.loop.call(engine.end(run, error)), error

    def _hosted(self) -> Host:
        with self._lock:
            if self._host is None or self._host.process != os.getpid():
                self._host = Host(self.backend, self._processors, self._lease, self._sink, self._logger)
            return self._host

    def _look(self, actions: Iterable[str]) -> None:
        host = self._host
        if host is not None and host.started and host.process == os.getpid():
            for action in {*actions} & self._processors.keys():
                host.loop.tell(partial(host.worker.look, action))

    def _ask(self, seconds: float) -> None:
        self._draining = True
        self._asked.put(seconds)

    def _await_signal(self, asked: SimpleQueue[float]) -> None:
        self.shutdown(asked.get())

    def _drain(self, seconds: float) -> None:
        try:
            host = self._host
            if host is not None and host.process == os.getpid():
                self._finished = host.loop.call(host.worker.drain(seconds))
                host.close()
        finally:
            self._drained.set()
