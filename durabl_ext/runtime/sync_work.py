"""How a sync queue works: its worker runs on a loop of its own, and the caller waits for it."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from durabl_ext.backends import Backend
from durabl_ext.claims import Claim
from durabl_ext.errors import QueueShutdownError
from durabl_ext.events import Sink
from durabl_ext.handle import JobHandle
from durabl_ext.memory import ImmediateBackend
from durabl_ext.options import Enqueue, Seconds
from durabl_ext.runtime.claimed import ClaimedRuns
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.host import Host
from durabl_ext.runtime.inline import run_inline
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
from simplequeue.threads import Latch

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Part:
    """What one process has of a queue."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.host: Host | None = None
        self.shut_down = False
        self.draining = False
        self.drained = Latch()
        self.finished = True

    def has_drained(self, finished: bool) -> None:
        self.finished = finished
        self.drained.set()


class SyncWork(Registry):
    """Starts, runs, drains: the half of ``JobQueue`` that is about running jobs."""

    def __init__(self, backend: Backend, lease: timedelta, sink: Sink | None, logger: logging.Logger | None) -> None:
        super().__init__(lease, sink, logger)
        self.backend = backend
        self._parts = PerProcess(_Part)

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
        host = self._hosted()
        if host.worker.started:
            return
        host.start()
        if reaper:
            host.call(host.worker.start_reaper(interval, kept))

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
        checked_reaper(reaper_interval, retention)
        self._refuse_shut_down()
        uninstall: Uninstall = lambda: None  # noqa: E731  # nothing to uninstall in another thread than the main one
        if threading.current_thread() is threading.main_thread():
            uninstall = self.install_signal_handlers(timeout=seconds)
        try:
            with suppress(QueueShutdownError):  # told to end while it started
                self.start(reaper=reaper, reaper_interval=reaper_interval, retention=retention)
            self.wait_drained()
        finally:
            uninstall()
        return self._part.finished

    def shutdown(self, timeout: Seconds = SHUTDOWN_TIMEOUT) -> bool:
        """Claims no more, waits for runs, tells those that are left to stop, and gives back those that do not.

        A run that is given back spends no attempt. If its handler has ended it is due at once. If it goes on, the job
        is due a few seconds later and nothing the handler still does changes it; but until this process is gone, that
        handler may overlap with the next run.

        Args:
            timeout: Seconds, or a timedelta, that runs have before they are told. Telling them and giving back takes up
                to two seconds more. A platform that kills must wait for longer than both.

        Returns:
            Whether every handler has ended. Called by a handler, which it would wait for, it begins and gives False.
        """
        seconds = checked_timeout(timeout)
        part = self._part
        with part.lock:
            first, part.shut_down, part.draining = not part.shut_down, True, True
            host = part.host
            if first and host is not None:
                host.drain(seconds, part.has_drained)
            elif first:
                part.has_drained(finished=True)
        if host is not None and host.is_here():
            return False
        part.drained.wait(None)
        return part.finished

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
        part = self._part
        asked: SimpleQueue[float | None] = SimpleQueue()

        def ask() -> None:
            part.draining = True
            asked.put(seconds)  # it may be interrupted by itself

        def wait() -> None:
            if (given := asked.get()) is not None:
                self.shutdown(given)

        put_back = install(signals, ask)
        # There from the start, since a signal handler must start no thread.
        threading.Thread(target=wait, name="durabl-drain", daemon=True).start()

        def uninstall() -> None:
            put_back()
            asked.put(None)

        return uninstall

    @property
    def draining(self) -> bool:
        """Whether a shutdown has been asked for."""
        return self._part.draining

    def wait_drained(self, timeout: Seconds | None = None) -> bool:
        """Waits so many seconds (None: without limit) until the queue is drained, and says whether it is."""
        return self._part.drained.wait(checked_wait(timeout))

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
        host = self._hosted()
        return host.call(host.worker.start_reaper(seconds, kept))

    def stop_reaper(self) -> None:
        """Sweeps no more."""
        if (host := self._part.host) is not None:
            with suppress(QueueShutdownError):  # then it has stopped
                host.call(host.worker.stop_reaper())

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
            LeaseLostError: The lease was lost before the end of the run was stored; the handler's error is its cause.
            QueueShutdownError: The queue was shut down and the job given back; the handler's error is its cause.
            BaseException: What the handler raised.
        """
        runs = ClaimedRuns.of(handle, JobHandle, handler, max_drains)
        try:
            error = self._hosted().run_claimed(runs)
        except QueueShutdownError:
            if not runs.begun:
                self._give_back(handle.claim)
            raise
        if error is not None:
            raise error

    def _claimed_or_enqueued(self, job: Enqueue) -> JobHandle | None:
        """What ``claim_or_enqueue`` gives."""
        self._refuse_shut_down()
        asked_at = time.monotonic()
        claim = self.backend.claim_or_enqueue(job, lease=self._lease)
        if claim is None:
            self._look([job.action])
            return None
        if self._shut_down:  # it began meanwhile
            self._give_back(claim)
            self._refuse_shut_down()
        return JobHandle(self.backend, claim, self._lease, asked_at)

    def _enqueued(self, jobs: Sequence[Enqueue], ids: Sequence[str | None]) -> None:
        """Lets a worker in this process know of jobs; an ``ImmediateBackend`` runs them here and now."""
        if isinstance(self.backend, ImmediateBackend):
            for id in ids:
                if id is not None:
                    run_inline(self.backend, id, self._processors, self._lease, self._sink)
        self._look([job.action for job in jobs])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    @property
    def _part(self) -> _Part:
        return self._parts.here()

    @property
    def _shut_down(self) -> bool:
        return self._part.shut_down

    def _hosted(self) -> Host:
        part = self._part
        with part.lock:
            self._refuse_shut_down()
            if part.host is None:
                part.host = Host(self.backend, self._processors, self._lease, self._sink, self._logger)
            return part.host

    def _look(self, actions: Iterable[str]) -> None:
        host = self._part.host
        if host is not None and host.worker.started:
            for action in {*actions} & self._processors.keys():
                host.tell(partial(host.worker.look, action))

    def _give_back(self, claim: Claim) -> None:
        try:
            self.backend.settle([claim.settled("release")])
        except Exception as trouble:
            self._logger.warning(
                "job %s is not given back, it is recovered when its lease ends: %r", claim.job.id, trouble
            )
