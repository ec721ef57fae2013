"""Orchestrators: they define bodies for actions of a queue, and look after their jobs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict, TypeVar, Unpack, overload
from uuid import UUID

from durabl_ext.errors import OrchestrationUnsupportedError, OrchestratorTypeConflict
from durabl_ext.job import DurableJob
from durabl_ext.options import Seconds
from durabl_ext.orchestrator.awaiting import AsyncOrchestrationContext
from durabl_ext.orchestrator.calls import checked_positive
from durabl_ext.orchestrator.orchestration import Orchestration
from durabl_ext.orchestrator.view import JournalView, view_of
from durabl_ext.orchestrator.waiting import OrchestrationContext
from durabl_ext.outcomes import KeyBusy, NotFailed, NotFound, Retried
from durabl_ext.queue import AsyncJobQueue, JobQueue
from durabl_ext.runtime.registry import Registry
from simplequeue.handlers import checked_handler, is_async
from simplequeue.payload import checked_action

AsyncBody = Callable[[DurableJob, AsyncOrchestrationContext], Awaitable[object]]
SyncBody = Callable[[DurableJob, OrchestrationContext], object]
A = TypeVar("A", bound=AsyncBody)
B = TypeVar("B", bound=AsyncBody | SyncBody)


class Bounds(TypedDict, total=False):
    """The options of ``define``. Durations are seconds, or a timedelta.

    Attributes:
        concurrency: How many run in this process at once; 1 by default.
        poll_interval: As for ``JobQueue.process``.
        heartbeat_interval: As for ``JobQueue.process``.
        step_timeout: What a step may take unless it says otherwise. None, the default, means the queue's visibility
            timeout.
        max_duration: What one run may take. Then it is told to end, fails, and the next attempt goes on behind its last
            step. None, the default, means without limit.
    """

    concurrency: int
    poll_interval: Seconds | None
    heartbeat_interval: Seconds | None
    step_timeout: Seconds | None
    max_duration: Seconds | None


class Orchestrator:
    """Defines orchestrations on a ``JobQueue``: jobs that resume, after a crash, behind their last finished step.

    Args:
        queue: Where the jobs are. They are enqueued there as any, and run by its ``start`` or ``run``.
        logger: For messages. None means the queue's.

    Raises:
        TypeError: ``queue`` is something else; for an ``AsyncJobQueue`` there is ``AsyncOrchestrator``.
        OrchestrationUnsupportedError: Its backend keeps no journal.
    """

    def __init__(self, queue: JobQueue, *, logger: logging.Logger | None = None) -> None:
        if not isinstance(queue, JobQueue):
            raise TypeError(f"queue: expected a JobQueue, found {queue!r:.100}; on an AsyncJobQueue: AsyncOrchestrator")
        self._queue = queue
        self._definitions = _Definitions(queue, queue.backend, logger)

    @overload
    def define(self, action: str, **options: Unpack[Bounds]) -> Callable[[B], B]: ...
    @overload
    def define(self, action: str, body: B, **options: Unpack[Bounds]) -> B: ...
    def define(self, action: str, body: Any = None, **options: Unpack[Bounds]) -> Any:
        """Registers the body of an orchestration; starts nothing unless the queue is started already.

        The body is called with the job and an octx. It must do the same in each run up to where the last one ended:
        whatever may change, the time, chance, what is read, belongs into a step. Returning completes the job; raising
        fails it as in any handler, to resume while attempts are left. ``NonRetryable`` and ``FatalJobError`` fail it
        for good, so does what a step cannot store and a body that does not do what its journal says.

        Args:
            action: The action; one body for each.
            body: A function of a job and an octx, ``async def`` or ``def``. None gives a decorator.
            options: ``concurrency``, ``poll_interval``, ``heartbeat_interval``, ``step_timeout`` and ``max_duration``,
                as ``Bounds`` describes them.

        Returns:
            The body.

        Raises:
            TypeError: The body is none, or there is no such option.
            OrchestratorTypeConflict: The action is defined already, or has a processor.
            HeartbeatConfigConflict: As for ``JobQueue.process``.
            PayloadError: An option is out of its range.
        """
        return self._definitions.define(action, body, **options)

    def inspect(self, job_id: str | UUID, *, results: bool = False) -> JournalView | None:
        """Shows how far a job is: the steps it has done, where it goes on, and its last failure.

        Args:
            job_id: The job.
            results: Whether to show what the steps returned, which may be sensitive.

        Returns:
            None when there is no such job.
        """
        job = self._queue.get(job_id)
        return None if job is None else view_of(job, results)

    def resume(self, job_id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound:
        """Puts a failed job back in the queue, to go on behind its last step, as ``JobQueue.retry`` does.

        Raises:
            OrchestratorTypeConflict: The job's action is not defined here: it would start from the top.
        """
        job = self._queue.get(job_id)
        if job is None:
            return NotFound()
        self._definitions.check_defined(job)
        return self._queue.retry(job_id)


class AsyncOrchestrator:
    """Defines orchestrations on an ``AsyncJobQueue``, as ``Orchestrator`` does on a ``JobQueue``.

    Bodies are ``async def``.

    Args:
        queue: Where the jobs are.
        logger: As for ``Orchestrator``.

    Raises:
        TypeError: ``queue`` is something else.
        OrchestrationUnsupportedError: Its backend keeps no journal.
    """

    def __init__(self, queue: AsyncJobQueue, *, logger: logging.Logger | None = None) -> None:
        if not isinstance(queue, AsyncJobQueue):
            raise TypeError(f"queue: expected an AsyncJobQueue, found {queue!r:.100}; on a JobQueue: Orchestrator")
        self._queue = queue
        self._definitions = _Definitions(queue, queue.backend, logger)

    @overload
    def define(self, action: str, **options: Unpack[Bounds]) -> Callable[[A], A]: ...
    @overload
    def define(self, action: str, body: A, **options: Unpack[Bounds]) -> A: ...
    def define(self, action: str, body: Any = None, **options: Unpack[Bounds]) -> Any:
        """Registers the body of an orchestration, as ``Orchestrator.define`` does. A ``def`` body is a TypeError."""
        return self._definitions.define(action, body, only_async=True, **options)

    async def inspect(self, job_id: str | UUID, *, results: bool = False) -> JournalView | None:
        """Shows how far a job is, as ``Orchestrator.inspect`` does."""
        job = await self._queue.get(job_id)
        return None if job is None else view_of(job, results)

    async def resume(self, job_id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound:
        """Puts a failed job back in the queue, as ``Orchestrator.resume`` does."""
        job = await self._queue.get(job_id)
        if job is None:
            return NotFound()
        self._definitions.check_defined(job)
        return await self._queue.retry(job_id)


class _Definitions:
    """What both kinds of orchestrator do without I/O."""

    def __init__(self, queue: Registry, backend: object, logger: logging.Logger | None) -> None:
        if not callable(getattr(backend, "append_step", None)):
            raise OrchestrationUnsupportedError(
                f"{type(backend).__qualname__} keeps no journal: orchestrations need a backend with append_step, such "
                "as MongoJobQueue"
            )
        self._queue = queue
        self._logger = logger or queue.logger
        self._defined: dict[str, Orchestration] = {}

    def define(
        self,
        action: str,
        body: Any,
        *,
        step_timeout: Seconds | None = None,
        max_duration: Seconds | None = None,
        only_async: bool = False,
        **options: Any,
    ) -> Any:
        if callable(action):
            raise TypeError(
                f"action: expected a name such as 'restart-trial', found {action!r}; write "
                "@orchestrator.define('restart-trial')"
            )
        if unknown := sorted(options.keys() - Bounds.__annotations__.keys()):
            raise TypeError(f"define has no option {unknown[0]!r}; it has {', '.join(Bounds.__annotations__)}")
        named = checked_action(action)
        lease = self._queue.visibility_timeout
        step = lease if step_timeout is None else checked_positive(step_timeout, "step_timeout")
        most = None if max_duration is None else checked_positive(max_duration, "max_duration")

        def register(given: Any) -> Any:
            checked_handler(given, "a job and its octx", 2)
            if only_async and not is_async(given):
                raise TypeError(f"body: on an AsyncJobQueue it is an async def function, found {given!r}")
            if named in self._defined:
                raise OrchestratorTypeConflict(named, f"is defined already, by {self._defined[named].body!r}")
            if named in self._queue.actions:
                raise OrchestratorTypeConflict(named, "has a processor, and cannot be an orchestration as well")
            orchestration = Orchestration(given, step, most, self._logger)
            self._queue.process(named, orchestration, **options)
            self._defined[named] = orchestration
            return given

        return register if body is None else register(body)

    def check_defined(self, job: DurableJob) -> None:
        """Raises for a job that is none of these."""
        if job.action not in self._defined:
            raise OrchestratorTypeConflict(
                job.action, f"is not defined here, and job {job.id} may be no orchestration: retry it with its queue"
            )
