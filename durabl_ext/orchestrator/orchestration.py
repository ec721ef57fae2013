"""An orchestration as a handler: a queue runs it like any other."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from durabl_ext.errors import MaxDurationExceeded
from durabl_ext.job import DurableJob
from durabl_ext.orchestrator import awaiting, waiting
from durabl_ext.orchestrator.awaiting import AsyncOrchestrationContext, AwaitingCaller
from durabl_ext.orchestrator.execution import Execution
from durabl_ext.orchestrator.history import Scope
from durabl_ext.orchestrator.waiting import OrchestrationContext, WaitingCaller
from durabl_ext.orchestrator.watchdog import Limit, Watchdog
from durabl_ext.runtime.context import AsyncJobContext, held
from durabl_ext.runtime.hold import Hold
from durabl_ext.runtime.registry import PerProcess
from simplequeue.handlers import is_async
from simplequeue.threads import Threads, settled

Body = Callable[[DurableJob, Any], Any]


def new_seed() -> str:
    """What ``uuid`` goes by, for one job."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Orchestration:
    """A body, and the bounds of its runs in seconds.

    Attributes:
        body: What is run.
        step_timeout: What a step may take, unless it says otherwise.
        max_duration: What one run may take; None means without limit.
        logger: For messages.
        seed: Makes what ``uuid`` goes by.
    """

    body: Body
    step_timeout: float
    max_duration: float | None
    logger: logging.Logger
    seed: Callable[[], str] = new_seed
    _processes: PerProcess[Threads] = field(
        default_factory=lambda: PerProcess(lambda: Threads("durabl-step")), repr=False, compare=False
    )

    async def __call__(self, job: DurableJob, ctx: AsyncJobContext) -> None:
        """Runs the body from its first step that is not in the journal."""
        hold = held(ctx._hold, job.id)
        if is_async(self.body):
            await self._run_awaiting(job, hold)
        else:
            await self._run_waiting(job, hold)

    async def _run_awaiting(self, job: DurableJob, hold: Hold) -> None:
        execution = Execution(hold, AwaitingCaller(self._processes.here()), self.step_timeout, self.seed)
        scope = Scope("", None)
        octx = AsyncOrchestrationContext(execution, scope)
        body = awaiting.in_scope(execution, scope, lambda: self.body(job, octx))
        running = asyncio.create_task(settled(body), name=f"body of job {job.id}")
        await self._watched(execution, Watchdog(), running, running.cancel)

    async def _run_waiting(self, job: DurableJob, hold: Hold) -> None:
        in_thread = hold.in_thread()
        if in_thread is None:
            raise TypeError(f"{self.body!r} is a def body: on an async queue it must be async def")
        watchdog = Watchdog()
        execution = Execution(in_thread, WaitingCaller(watchdog), self.step_timeout, self.seed)
        scope = Scope("", None)
        octx = OrchestrationContext(execution, scope)
        body = partial(waiting.in_scope, execution, scope, lambda: self.body(job, octx))
        running = asyncio.create_task(settled(self._processes.here().run(body)), name=f"body of job {job.id}")
        # A thread cannot be cancelled: it is told by its signal, at its next step at the latest.
        await self._watched(execution, watchdog, running, lambda: None)

    async def _watched(
        self,
        execution: Execution,
        watchdog: Watchdog,
        running: asyncio.Task[tuple[Any, BaseException | None]],
        cancel: Callable[[], object],
    ) -> None:
        """Waits until a body has ended, or takes too long and does not heed that."""
        if self.max_duration is not None:
            late = MaxDurationExceeded(execution.job.id, self.max_duration)

            def told() -> None:
                execution.history.note(late)
                execution.stop.set("deadline")
                cancel()

            watchdog.add(Limit(self.max_duration, late, told))
        watching = asyncio.create_task(watchdog.watch(running))
        cancelled = False
        while not watching.done():
            try:
                await asyncio.wait((watching,))
            except asyncio.CancelledError:  # the run was told to stop; it ends when its body has
                execution.stopped()
                cancel()
                if cancelled:  # a loop that is being closed
                    raise
                cancelled = True
        if (overrun := watching.result()) is not None:
            execution.history.note(overrun)
            self.logger.warning(
                "job %s: what overran its time does not heed its signal and is left behind; what it still does to the "
                "journal changes nothing: %s",
                execution.job.id,
                overrun,
            )
        execution.history.check()
        _, error = running.result()
        if error is not None:
            raise error
