"""Running what ``claim_or_enqueue`` gave, and then what came to wait behind it meanwhile.

Written once, on a worker's loop; for a sync queue the ``def`` handlers are called in the thread that waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Self

from durabl_ext.claims import Claim
from durabl_ext.errors import LeaseLostError, QueueShutdownError
from durabl_ext.job import DurableJob
from durabl_ext.options import checked_whole
from durabl_ext.outcomes import Completed, FailedTerminal, Released, RetryScheduled, Settled, Superseded
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.hold import Managed
from durabl_ext.runtime.invoke import Ended, Invoke, InvokeApart, call
from durabl_ext.runtime.runs import Run, run_here
from durabl_ext.runtime.worker import Worker
from simplequeue.handlers import checked_handler, is_async
from simplequeue.threads import tell


class ClaimedRuns:
    """A job and its followers, run one after the other.

    Args:
        claim: The claim of the first.
        asked_at: When it was asked for, in monotonic seconds.
        handler: What is called with each.
        max_drains: How many followers are claimed at most.
    """

    def __init__(self, claim: Claim, asked_at: float, handler: Handler, max_drains: int) -> None:
        self._claim = claim
        self._asked_at = asked_at
        self._handler = handler
        self._left = max_drains
        self.begun = False
        """Whether the claim was taken in: from then on it is run, or given back, here."""
        self._task: asyncio.Task[Any] | None = None
        self._interrupted = False

    @classmethod
    def of(cls, handle: Any, kind: type[Any], handler: object, max_drains: object) -> Self:
        """Takes a handle, which begins with it.

        Args:
            handle: What ``claim_or_enqueue`` gave.
            kind: What that is for this kind of queue.
            handler: What is called with each job.
            max_drains: How many followers are claimed at most.

        Raises:
            TypeError: It is no handle, first of all the None of a key that is held; or the handler is none.
            RuntimeError: The handle's run has begun before.
        """
        if not isinstance(handle, kind):
            raise TypeError(
                f"handle: expected what claim_or_enqueue gave, found {handle!r:.100}; None means that another job "
                "holds the key, and there is nothing to run here"
            )
        follow = checked_whole(max_drains, "max_drains", 0)
        runs = cls(handle.claim, handle.asked_at, checked_handler(handler, "a job and its context", 2), follow)
        handle.begin()
        return runs

    def interrupt(self) -> None:
        """Cancels ``run``; what its handler has not finished fails."""
        self._interrupted = True
        if self._task is not None:
            self._task.cancel()

    async def run(self, worker: Worker, invoke: Invoke | None = None) -> BaseException | None:
        """Runs them, and gives the error that its caller is to raise: the first there was.

        Raises:
            CancelledError: The waiting was cancelled. An ``async def`` handler was cancelled as well and its run has
                failed; a ``def`` handler on an async queue goes on in its thread, and so does its run.
        """
        self.begun = True
        self._task = asyncio.current_task()
        if self._interrupted:
            self.interrupt()
        if worker.draining:
            await worker.give_back(self._claim)
            return _shut_down()
        first: BaseException | None = None
        claim: Claim | None = self._claim
        asked_at = self._asked_at
        while claim is not None:
            run = worker.engine.begin(claim, asked_at)
            outcome, error = await self._managed(worker, run, invoke)
            problem = _problem(run, outcome, error)
            first = problem if first is None else first
            if not isinstance(outcome, Completed | Superseded):
                break
            asked_at = time.monotonic()
            try:
                claim = await self._following(worker, claim.job)
            except Exception as trouble:
                if first is None:
                    raise
                worker.engine.logger.warning("what waits behind job %s is not run here: %r", run.job.id, trouble)
                break
        return first

    async def _managed(
        self, worker: Worker, run: Run, invoke: Invoke | None
    ) -> tuple[Settled | None, BaseException | None]:
        managing = worker.spawn(worker.engine.call(run, self._handler, invoke))
        try:
            await asyncio.wait((managing,))
        except asyncio.CancelledError as cancelled:
            if run.settling:
                await asyncio.wait((managing,))
            elif invoke is not None or is_async(self._handler):
                managing.cancel()
                await asyncio.wait((managing,))
                await worker.engine.end(run, cancelled)
            raise
        return managing.result()

    async def _following(self, worker: Worker, job: DurableJob) -> Claim | None:
        if self._left == 0 or job.dedupe_key is None or worker.draining:
            return None
        self._left -= 1
        store, lease = worker.engine.store, worker.engine.lease
        claim = await worker.claimed(store.claim_by_key(job.action, job.dedupe_key, lease=lease))
        if claim is not None and self._came_too_late(worker):
            await worker.give_back(claim)
            return None
        return claim

    def _came_too_late(self, worker: Worker) -> bool:
        return worker.draining


class InvokeInCaller:
    """Calls ``def`` handlers in the thread that is in ``serve``, others as a sync queue's worker does."""

    def __init__(self, apart: InvokeApart) -> None:
        self._apart = apart
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def begin(self, handler: Handler, managed: Managed, ended: Ended) -> None:
        if is_async(handler):
            self._apart.begin(handler, managed, ended)
            return
        loop, run = asyncio.get_running_loop(), run_here.get()

        def task() -> None:
            result: object = None
            error: BaseException | None = None
            before = run_here.set(run)
            try:
                result = call(handler, managed, self._apart.accesses)
            except BaseException as raised:
                error = raised
            finally:
                run_here.reset(before)
            tell(loop, self._apart.called, handler, managed.run, ended, result, error)

        self._inbox.put(task)

    def serve(self) -> None:
        """Calls handlers in this thread until closed."""
        while (task := self._inbox.get()) is not None:
            task()

    def close(self) -> None:
        """Lets ``serve`` return."""
        self._inbox.put(None)


def _problem(run: Run, outcome: Settled | None, error: BaseException | None) -> BaseException | None:
    """What the caller of a run is to be told."""
    if isinstance(outcome, Completed):
        return error  # raised after its transaction had completed the job
    told = run.stop.reason == "shutdown"
    if run.orphaned or isinstance(outcome, Released) or (told and isinstance(outcome, Superseded)):
        problem: BaseException = _shut_down()
    elif isinstance(outcome, FailedTerminal | RetryScheduled | Superseded):
        return error
    else:
        problem = LeaseLostError(run.job.id)
    problem.__cause__ = error
    return problem


def _shut_down() -> QueueShutdownError:
    return QueueShutdownError("this queue is shut down; the job was given back")
