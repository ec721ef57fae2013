"""Where a sync queue's worker lives: a private loop in a daemon thread, and threads for its calls.

It is made when something is to run, so that a producer starts no thread. A forked child has no part in it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from durabl_ext.backends import Backend
from durabl_ext.errors import QueueShutdownError
from durabl_ext.events import Sink
from durabl_ext.mongo import MongoJobQueue
from durabl_ext.runtime.access import accesses
from durabl_ext.runtime.claimed import ClaimedRuns, InvokeInCaller
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.invoke import InvokeApart
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.store import StoreInThreads
from durabl_ext.runtime.worker import Worker
from simplequeue.threads import LoopThread, Threads

T = TypeVar("T")


class Host:
    """Runs a worker beside a program that has no loop.

    Args:
        backend: Where the jobs are.
        processors: What is registered.
        lease: The visibility timeout.
        sink: What is told of events.
        logger: For messages.
    """

    def __init__(
        self,
        backend: Backend,
        processors: Mapping[str, Processor],
        lease: timedelta,
        sink: Sink | None,
        logger: logging.Logger,
    ) -> None:
        self._backend = backend
        self._loop = LoopThread("durabl-worker")
        self._threads = Threads("durabl-call")
        self._invoke = InvokeApart(partial(accesses, backend))
        self._lock = threading.RLock()
        self._calls = 0
        self._over = False
        watch = backend.through(self._threads).watch if isinstance(backend, MongoJobQueue) else None

        async def made() -> Worker:
            engine = Engine(StoreInThreads(backend, self._threads), lease, self._invoke, sink, logger)
            return Worker(engine, processors, watch)

        self.worker = self._loop.call(made())

    def start(self) -> None:
        """Starts the worker and waits for that; when the wait is interrupted it does not start."""
        try:
            self.call(self.worker.start(lambda: self._threads.run(self._backend.startup)))
        except BaseException:
            self.tell(self.worker.abandon_start)
            raise

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine beside the worker and waits for what it returns or raises.

        Raises:
            QueueShutdownError: The worker has drained and is gone.
        """
        self._enter(coroutine)
        try:
            return self._loop.call(coroutine)
        finally:
            self._leave()

    def run_claimed(self, runs: ClaimedRuns) -> BaseException | None:
        """Has jobs run, the ``def`` handlers in this thread, and gives the error that is to be raised."""
        inbox = InvokeInCaller(self._invoke)
        coroutine = runs.run(self.worker, inbox)
        interrupt: BaseException | None = None
        self._enter(coroutine)
        try:
            running = self._loop.begin(coroutine)
            running.add_done_callback(lambda _: inbox.close())
            while not running.done():
                try:
                    inbox.serve()
                except BaseException as raised:  # Ctrl-C, at any moment: first what runs is ended, and stored as failed
                    if interrupt is not None:
                        raise
                    interrupt = raised
                    self.tell(runs.interrupt)
            error, trouble = running.result()
        finally:
            self._leave()
        if (interrupt := interrupt or trouble) is not None:
            raise interrupt
        return error

    def tell(self, callback: Callable[[], object]) -> None:
        """Has the loop call something, unless it has ended."""
        self._loop.tell(callback)

    def drain(self, seconds: float, drained: Callable[[bool], object]) -> None:
        """Drains the worker, calls back with whether every handler has ended, and ends when nothing is left to do."""
        self._loop.begin(self._drain(seconds, drained))

    def is_here(self) -> bool:
        """Whether the caller is the loop's thread, or a handler of the worker: who must not wait for the drain."""
        return self._loop.is_current() or self.worker.is_handler()

    async def _drain(self, seconds: float, drained: Callable[[bool], object]) -> None:
        finished = False
        try:
            finished = await self.worker.drain(seconds)
        finally:
            drained(finished)
        await self.worker.over()
        with self._lock:
            self._over = True
            self._end()

    def _enter(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        with self._lock:
            if self._over:
                coroutine.close()
                raise QueueShutdownError("this queue is shut down; it starts no more work")
            self._calls += 1

    def _leave(self) -> None:
        with self._lock:
            self._calls -= 1
            self._end()

    def _end(self) -> None:
        # Not under a call: what waits for an answer of a loop that has ended waits for ever.
        if self._over and self._calls == 0:
            self._threads.close()
            self._loop.close()
