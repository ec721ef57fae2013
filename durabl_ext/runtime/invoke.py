"""How a handler is called, and what it raised.

A ``def`` handler runs in a daemon thread, so that a hung one keeps no process alive. An ``async def`` handler runs in a
task of its own on a loop: the caller's for an async queue, one that only handlers share for a sync queue, so that a
handler which blocks it holds up neither heartbeats nor claims.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol

from durabl_ext.job import DurableJob
from durabl_ext.runtime.access import Accesses
from durabl_ext.runtime.context import AsyncJobContext, Handler, JobContext
from durabl_ext.runtime.hold import Hold, Managed
from durabl_ext.runtime.signal import AsyncSignal, Signal, Stop
from simplequeue.handlers import is_async, refuse_unstarted
from simplequeue.threads import LoopThread, Threads, settled, tell


class Invoke(Protocol):
    """Calls handlers."""

    async def __call__(self, handler: Handler, managed: Managed) -> BaseException | None:
        """Gives what the handler raised, None when it returned. An ``async def`` handler is cancelled by the stop."""

    def close(self) -> None:
        """Lets threads end."""


class InvokeHere:
    """Calls ``async def`` handlers on the running loop, others in threads.

    Args:
        ways: How a handler reaches the store; given the threads that are there for it.
    """

    def __init__(self, ways: Callable[[Threads], Accesses]) -> None:
        self._threads = Threads("durabl-handler")
        self.accesses = ways(self._threads)

    async def __call__(self, handler: Handler, managed: Managed) -> BaseException | None:
        if is_async(handler):
            return await _on_this_loop(handler, managed, self.accesses)
        result, error = await self._threads.run(lambda: call(handler, managed, self.accesses))
        return error if not inspect.isawaitable(result) else await finished(handler, result, managed.run.stop)

    def close(self) -> None:
        self._threads.close()


class InvokeApart:
    """Calls ``async def`` handlers on a loop of their own, others in threads.

    Args:
        ways: As for ``InvokeHere``.
    """

    def __init__(self, ways: Callable[[Threads], Accesses]) -> None:
        self._threads = Threads("durabl-handler")
        self._loop: LoopThread | None = None
        self.accesses = ways(self._threads)

    async def __call__(self, handler: Handler, managed: Managed) -> BaseException | None:
        if is_async(handler):
            return await self._handlers_loop().result(_on_this_loop(handler, managed, self.accesses))
        result, error = await self._threads.run(lambda: call(handler, managed, self.accesses))
        return error if not inspect.isawaitable(result) else await self.finish(handler, result, managed.run.stop)

    async def finish(self, handler: Handler, running: Awaitable[object], stop: Stop) -> BaseException | None:
        """Gives what comes of an awaitable that a ``def`` handler returned."""
        return await self._handlers_loop().result(finished(handler, running, stop))

    def close(self) -> None:
        self._threads.close()
        if self._loop is not None:
            self._loop.close()

    def _handlers_loop(self) -> LoopThread:
        if self._loop is None:
            self._loop = LoopThread("durabl-handlers")
        return self._loop


def call(handler: Handler, managed: Managed, ways: Accesses) -> tuple[object, BaseException | None]:
    """Calls a ``def`` handler in this thread; gives what it returned, if that is still to be awaited, or raised."""
    context = JobContext(Signal(managed.run.stop), managed.log, Hold.waiting(managed, ways), managed.run.job.id)
    try:
        result = handler(managed.run.job, context)
        if inspect.isawaitable(result):
            return result, None
        refuse_unstarted(handler, result)
    except BaseException as error:
        return None, error
    return None, None


async def _on_this_loop(handler: Handler, managed: Managed, ways: Accesses) -> BaseException | None:
    hold = Hold(managed, ways, ways.awaited)
    context = AsyncJobContext(AsyncSignal(managed.run.stop), managed.log, hold)
    return await finished(handler, _called(handler, managed.run.job, context), managed.run.stop)


async def _called(handler: Handler, job: DurableJob, context: AsyncJobContext) -> object:
    result = handler(job, context)
    return await result if inspect.isawaitable(result) else result


async def finished(handler: Handler, running: Awaitable[object], stop: Stop) -> BaseException | None:
    """Awaits a handler in a task of its own, which ``stop`` cancels, and gives what it raised."""
    # Who cancels "the task of this job", even when it has just ended, must not hit the write of its end. What it raises
    # travels as a value: SystemExit would end the loop.
    task = asyncio.ensure_future(settled(running))
    loop = asyncio.get_running_loop()
    stop.when_set(lambda: tell(loop, task.cancel))
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:  # the loop is being closed, or who called run_claimed waits no longer
        task.cancel()
        await asyncio.wait((task,))
        raise
    result, error = task.result()
    if error is None:
        try:
            refuse_unstarted(handler, result)
        except TypeError as unstarted:
            return unstarted
    return error
