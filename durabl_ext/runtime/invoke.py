"""How a handler is called, and what it raised.

A ``def`` handler runs in a daemon thread, so that a hung one keeps no process alive. An ``async def`` handler runs in a
task of its own on a loop: the caller's for an async queue, one that only handlers share for a sync queue, so that a
handler which blocks it holds up neither heartbeats nor claims.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from durabl_ext.job import DurableJob
from durabl_ext.runtime.access import Accesses
from durabl_ext.runtime.context import AsyncJobContext, Handler, JobContext
from durabl_ext.runtime.hold import Hold, Managed
from durabl_ext.runtime.runs import Run
from durabl_ext.runtime.signal import AsyncSignal, Signal
from simplequeue.handlers import is_async, refuse_unstarted
from simplequeue.threads import LoopThread, Threads, settled, tell

Ended = Callable[[BaseException | None], object]
"""Is told what a handler raised, None when it returned. Must not raise."""


class Invoke(Protocol):
    """Calls handlers."""

    def begin(self, handler: Handler, managed: Managed, ended: Ended) -> None:
        """Has a handler called, and ``ended`` on the running loop afterwards; its stop cancels one that awaits.

        Raises:
            RuntimeError: No thread can be had for it.
        """

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

    def begin(self, handler: Handler, managed: Managed, ended: Ended) -> None:
        if is_async(handler):
            begin_here(handler, managed, self.accesses, ended)
            return

        def done(result: Any, error: BaseException | None) -> None:
            if result is None:
                ended(error)
            else:
                follow(handler, result, managed.run, ended)

        self._threads.begin(lambda: call(handler, managed, self.accesses), done)

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

    def begin(self, handler: Handler, managed: Managed, ended: Ended) -> None:
        if is_async(handler):
            there = partial(tell, asyncio.get_running_loop(), ended)
            self._handlers_loop().tell(partial(begin_here, handler, managed, self.accesses, there))
            return
        done = partial(self.called, handler, managed.run, ended)
        self._threads.begin(lambda: call(handler, managed, self.accesses), done)

    def called(self, handler: Handler, run: Run, ended: Ended, result: Any, error: BaseException | None) -> None:
        """Goes on when a ``def`` handler has returned: with what it gave, if that is to be awaited."""
        if result is None:
            ended(error)
            return
        there = partial(tell, asyncio.get_running_loop(), ended)
        try:
            self._handlers_loop().tell(partial(follow, handler, result, run, there))
        except RuntimeError as trouble:  # no thread can be had for that loop
            if inspect.iscoroutine(result):
                result.close()
            ended(trouble)

    def close(self) -> None:
        self._threads.close()
        if self._loop is not None:
            self._loop.close()

    def _handlers_loop(self) -> LoopThread:
        if self._loop is None:
            self._loop = LoopThread("durabl-handlers")
        return self._loop


async def outcome(invoke: Invoke, handler: Handler, managed: Managed) -> BaseException | None:
    """Has a handler called and gives what it raised, None when it returned; cancelled, it cancels one that awaits."""
    answer: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    invoke.begin(handler, managed, lambda error: None if answer.done() else answer.set_result(error))
    try:
        await asyncio.wait((answer,))
    except asyncio.CancelledError:  # the loop is being closed, or who called run_claimed waits no longer
        if managed.run.cancel():
            await asyncio.wait((answer,))
        raise
    return answer.result()


def call(handler: Handler, managed: Managed, ways: Accesses) -> Awaitable[object] | None:
    """Calls a ``def`` handler in this thread; gives what it returned if that is still to be awaited."""
    context = JobContext(Signal(managed.run.stop), managed.log, Hold.waiting(managed, ways), managed.run.job.id)
    result = handler(managed.run.job, context)
    if inspect.isawaitable(result):
        return result
    refuse_unstarted(handler, result)
    return None


def begin_here(handler: Handler, managed: Managed, ways: Accesses, ended: Ended) -> None:
    """Calls an ``async def`` handler in a task on the running loop."""
    context = AsyncJobContext(AsyncSignal(managed.run.stop), managed.log, Hold(managed, ways, ways.awaited))
    follow(handler, _called(handler, managed.run.job, context), managed.run, ended)


def follow(handler: Handler, running: Awaitable[object], run: Run, ended: Ended) -> None:
    """Awaits a handler in a task of its own, which the run's stop cancels, and tells what it raised."""
    # Who cancels "the task of this job", even when it has just ended, must not hit the write of its end. What it raises
    # travels as a value: SystemExit would end the loop.
    task = asyncio.get_running_loop().create_task(settled(running))
    task.add_done_callback(partial(_has_ended, handler, running, ended))
    run.task = task
    run.stop.when_set(run.cancel_task)
    if run.cancelled:
        task.cancel()


async def _called(handler: Handler, job: DurableJob, context: AsyncJobContext) -> object:
    result = handler(job, context)
    return await result if inspect.isawaitable(result) else result


def _has_ended(
    handler: Handler,
    running: Awaitable[object],
    ended: Ended,
    task: asyncio.Task[tuple[object, BaseException | None]],
) -> None:
    if task.cancelled():  # before it began
        if inspect.iscoroutine(running):
            running.close()
        ended(asyncio.CancelledError())
        return
    result, error = task.result()
    if error is None:
        try:
            refuse_unstarted(handler, result)
        except TypeError as unstarted:
            error = unstarted
    ended(error)
