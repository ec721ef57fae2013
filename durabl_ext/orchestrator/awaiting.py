"""``async def`` bodies: each step and each branch is a task, ``def`` functions run in threads."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar, TypeVarTuple, cast, overload

from durabl_ext.errors import StepTimeout
from durabl_ext.options import Seconds
from durabl_ext.orchestrator.calls import Asked
from durabl_ext.orchestrator.context import AsyncStepContext, StepContext
from durabl_ext.orchestrator.execution import Execution
from durabl_ext.orchestrator.history import Failed, Group, Scope
from durabl_ext.orchestrator.waiting import gather_failures
from durabl_ext.orchestrator.watchdog import GRACE
from durabl_ext.outcomes import LeaseLost, Renewed
from durabl_ext.runtime.signal import AsyncSignal, Signal, Stop
from simplequeue.handlers import checked_handler, is_async, refuse_unstarted
from simplequeue.jobs import Session
from simplequeue.threads import Threads, settled

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

AsyncBranch = Callable[["AsyncOrchestrationContext"], Awaitable[R]]

FINISH_IT = "Await every step before the body, or the branch, returns"


class AwaitingCaller:
    """Calls steps on the loop, or in threads.

    Args:
        threads: For ``def`` functions.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def me(self) -> object:
        """This task."""
        try:
            return asyncio.current_task()
        except RuntimeError:  # another thread
            return None

    async def call(self, asked: Asked, session: Session | None, stop: Stop) -> Any:
        """Calls it, in a task of its own.

        What has not ended when the run is told to stop is waited for; where it returned all the same, its result is to
        be kept, and the cancellation comes at the next chance. Who cancels a second time, as a loop does that is being
        closed, waits for nothing.
        """
        on_loop = is_async(asked.fn)
        signal: Any = AsyncSignal(stop) if on_loop else Signal(stop)
        kind: Any = AsyncStepContext if on_loop else StepContext
        step = kind(asked.job_id, asked.seq, asked.key, signal, session)

        async def called() -> Any:
            if on_loop:
                return await asked.fn(step, *asked.args)
            result = await self._threads.run(lambda: asked.fn(step, *asked.args))
            return await result if inspect.isawaitable(result) else result

        running = asyncio.create_task(settled(called()))
        ends, late, cancelled = time.monotonic() + asked.timeout, False, False
        while not running.done():
            try:
                await asyncio.wait((running,), timeout=max(ends - time.monotonic(), 0))
            except asyncio.CancelledError:
                if cancelled:
                    raise
                cancelled = True
                stop.set("shutdown")  # unless the run has said why
                if on_loop:
                    running.cancel()
                continue
            if running.done() or time.monotonic() < ends:
                continue
            if late:
                break  # left behind
            late, ends = True, time.monotonic() + GRACE
            stop.set("deadline")
            if on_loop:
                running.cancel()
        if cancelled:
            cast("asyncio.Task[Any]", asyncio.current_task()).cancel()
        result, error = running.result() if running.done() else (None, None)
        if late:
            raise StepTimeout(asked.job_id, asked.name, asked.timeout) from error
        if error is not None:
            raise error
        refuse_unstarted(asked.fn, result)
        return result

    async def finish(self, keeping: Coroutine[Any, Any, T]) -> T:
        """Waits for it, and only then lets a cancellation through, unless there is a second one."""
        running = asyncio.create_task(settled(keeping))
        cancelled = False
        while not running.done():
            try:
                await asyncio.wait((running,))
            except asyncio.CancelledError:
                if cancelled:
                    raise
                cancelled = True
        result, error = running.result()
        if error is not None:
            raise error
        if cancelled:
            raise asyncio.CancelledError
        return cast(T, result)


class AsyncOrchestrationContext:
    """What an ``async def`` body is given beside its job, as ``OrchestrationContext`` for a ``def`` body.

    Attributes:
        signal: Tells the body when it should end early. It is cancelled as well.
    """

    def __init__(self, execution: Execution, scope: Scope) -> None:
        self._execution = execution
        self._scope = scope
        self.signal = AsyncSignal(execution.stop)

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[AsyncStepContext, *Ts], Awaitable[R]],
        *args: *Ts,
        idempotency_key: str | None = ...,
        timeout: Seconds | None = ...,
        transactional: bool = ...,
    ) -> asyncio.Task[R]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[StepContext, *Ts], R],
        *args: *Ts,
        idempotency_key: str | None = ...,
        timeout: Seconds | None = ...,
        transactional: bool = ...,
    ) -> asyncio.Task[R]: ...
    def step(
        self,
        name: str,
        fn: Callable[[Any, *Ts], Any],
        *args: *Ts,
        idempotency_key: str | None = None,
        timeout: Seconds | None = None,
        transactional: bool = False,
    ) -> asyncio.Task[Any]:
        """Starts a part of the work, and gives the task to await: what it returned, in this run or in an earlier one.

        As ``OrchestrationContext.step``, with these differences. It takes its place when it is called, so that
        ``asyncio.gather`` over steps is ordered; but only the body's own task may call it: two coroutines that both
        call steps are two branches, for ``all``. The function may be ``async def``, which is cancelled when it takes
        too long; a ``def`` one runs in a thread.
        """
        asked, record, failures = self._execution.asked(
            self._scope, name, fn, args, idempotency_key, timeout, transactional
        )
        return self._started(asked.seq, name, self._execution.perform(self._scope, asked, record, failures))

    def all(self, *branches: AsyncBranch[R]) -> asyncio.Task[list[R]]:
        """Starts branches at once, and gives the task to await: what they return, in order.

        As ``OrchestrationContext.all``; each branch is an ``async def`` function of its own context, in a task.
        """
        for branch in branches:
            checked_handler(branch, "its own octx", 1)
        seq, failures = self._execution.grouped(self._scope, len(branches))
        group, scopes = self._scope.branches(seq, len(branches), self._execution.history.has_ended(seq))
        return self._started(seq, "all", self._branched(group, list(zip(scopes, branches, strict=True)), failures))

    async def now(self) -> datetime:
        """The time at which the job's first run asked for it, in UTC: the same in every run."""
        return await self._execution.time()

    async def uuid(self, label: str) -> str:
        """An id of this job for a label: the same in every run, and no secret, since it follows from the journal."""
        return await self._execution.uuid(label)

    def log(self, message: str) -> None:
        """Adds a line to the job's own log, as ``OrchestrationContext.log`` does."""
        self._execution.hold.log(message)

    async def heartbeat(self) -> Renewed | LeaseLost:
        """Renews the lease now, as ``OrchestrationContext.heartbeat`` does."""
        return await self._execution.hold.heartbeat()

    def _started(self, seq: str, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=f"step {seq} {name}")
        self._scope.running[task] = seq, name
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        seq, _ = self._scope.running.pop(task)
        self._scope.groups.discard(seq)
        if not task.cancelled():
            task.exception()  # a step that nobody awaits any more, since another one failed, is no news for a log

    async def _branched(
        self, group: Group, branches: Sequence[tuple[Scope, AsyncBranch[R]]], failures: Sequence[Failed]
    ) -> list[R]:
        await self._execution.keep_failures(failures)
        errors: list[BaseException] = []

        async def work(scope: Scope, branch: AsyncBranch[R]) -> R | None:
            try:
                octx = AsyncOrchestrationContext(self._execution, scope)
                return await in_scope(self._execution, scope, lambda: branch(octx))
            except BaseException as error:
                group.stop()
                errors.append(error)
                return None

        tasks = [asyncio.create_task(work(*pair)) for pair in branches]
        await ended(tasks)
        gather_failures(self._execution, self._scope, group, [scope for scope, _ in branches], errors)
        return [cast(R, task.result()) for task in tasks]


async def in_scope(execution: Execution, scope: Scope, start: Callable[[], Awaitable[T] | T]) -> T:
    """Runs a body, or a branch, in this task, and waits for the steps that it leaves behind."""
    scope.owner = asyncio.current_task()
    try:
        result: Any = start()
        if inspect.isawaitable(result):
            result = await result
    except asyncio.CancelledError:
        for task in scope.running:
            task.cancel()
        await ended(scope.running)
        raise
    except BaseException:  # those beside a step that failed finish theirs
        await ended(scope.running)
        raise
    unfinished = next(iter(scope.running.values()), None)
    await ended(scope.running)
    execution.history.check()
    if unfinished is not None:
        seq, name = unfinished
        execution.history.refuse(seq, None, f"returns while step {name!r} runs", FINISH_IT)
    execution.history.end(scope.prefix)
    return cast(T, result)


async def ended(tasks: Any) -> None:
    """Waits for tasks; a cancellation reaches them, and comes through once they have ended, a second one at once."""
    cancelled = False
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError:
            if cancelled:
                raise
            cancelled = True
            for task in left:
                task.cancel()
    if cancelled:
        raise asyncio.CancelledError
