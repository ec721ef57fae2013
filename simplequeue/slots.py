"""How a slot is run: what differs between a sync and an async queue.

A slot is a coroutine that claims, calls the handler and writes the end. For a sync queue all of it happens in one
daemon thread, without a switch to a loop between the three; for an async one on the caller's loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from simplequeue.handlers import awaited, in_a_task, is_async, refuse_unstarted
from simplequeue.job import Job
from simplequeue.jobs import Jobs, run
from simplequeue.threads import LoopThread, Threads

T = TypeVar("T")
Handler = Callable[[Job], object]
Invoke = Callable[[Handler, Job], Coroutine[Any, Any, None]]
Work = Callable[[Jobs, Invoke], Coroutine[Any, Any, T]]


class Slots(Protocol):
    """Runs slots."""

    async def occupy(self, work: Work[T]) -> T:
        """Gives the result of the work, which gets the jobs and the way to call a handler that fit where it runs."""

    def cancelled(self) -> bool:
        """Whether somebody else than the handler cancelled the work that is running here."""

    def close(self) -> None:
        """Lets threads end."""


class ThreadSlots:
    """Runs each slot in a thread.

    An ``async def`` handler runs on a loop of its own, which all slots share: one that blocks it holds up its like, but
    neither the claims nor the change stream.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._threads = Threads("simplequeue-slot")
        self._loop: LoopThread | None = None
        self._lock = threading.Lock()

    async def occupy(self, work: Work[T]) -> T:
        return await self._threads.run(lambda: run(work(self._jobs, self._invoke)))

    def cancelled(self) -> bool:
        return False

    def close(self) -> None:
        self._threads.close()
        if self._loop is not None:
            self._loop.close()

    async def _invoke(self, handler: Handler, job: Job) -> None:
        result = handler(job)
        if inspect.isawaitable(result):
            result = self._handlers_loop().call(awaited(result))
        refuse_unstarted(handler, result)

    def _handlers_loop(self) -> LoopThread:
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread("simplequeue-handlers")
            return self._loop


class TaskSlots:
    """Runs each slot on the running loop; a handler that is no ``async def`` runs in a thread."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._threads = Threads("simplequeue-handler")

    async def occupy(self, work: Work[T]) -> T:
        return await work(self._jobs, self._invoke)

    def cancelled(self) -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    def close(self) -> None:
        self._threads.close()

    async def _invoke(self, handler: Handler, job: Job) -> None:
        result = handler(job) if is_async(handler) else await self._threads.run(lambda: handler(job))
        if inspect.isawaitable(result):
            result = await in_a_task(result)
        refuse_unstarted(handler, result)
