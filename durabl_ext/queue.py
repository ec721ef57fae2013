"""The two fronts of a queue with the extension, one line a method, and the way to make one of a plain queue.

A backend has what each call decides; ``backends`` says what it promises.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from inspect import signature
from typing import Any, Unpack, overload
from uuid import UUID

from pymongo import MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.results import DeleteResult, UpdateResult

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.decisions import Decisions, Push
from durabl_ext.events import Sink
from durabl_ext.handle import AsyncJobHandle, JobHandle
from durabl_ext.inside import refuse_outside
from durabl_ext.job import DurableJob, FailureKind
from durabl_ext.mongo import AsyncMongoJobQueue, MongoJobQueue
from durabl_ext.options import Enqueue, Options, Seconds, checked_lease
from durabl_ext.outcomes import KeyBusy, NotFailed, NotFound, Retried
from durabl_ext.runtime.async_work import AsyncWork
from durabl_ext.runtime.sync_work import SyncWork
from durabl_ext.stats import QueueStats
from simplequeue.queue import AsyncQueue, Queue

VISIBILITY_TIMEOUT = 300.0


class JobQueue(SyncWork):
    """Enqueues durable jobs, runs them and looks after them, from code that waits.

    It starts no thread before it is to run something, may be shared by threads and may be made before a fork. Jobs of
    the base layer in the same collection are its jobs too. As a context manager it starts, and shuts down at the end.

    Args:
        db_or_backend: A ``Database`` of PyMongo, which makes a ``MongoJobQueue`` with the options that are its own
            (``collection``, ``push``, …), or a backend.
        visibility_timeout: Seconds, or a timedelta, after which a run that shows no sign of life counts as dead. Its
            heartbeats come three times as often.
        on_job_event: What is called with each event, in the thread where it happens; see ``events``. None means nobody.
        logger: Where messages go. None means the logger ``durabl_ext``. Their texts are no interface.

    Raises:
        TypeError: An option belongs to no backend that is made here.
        PayloadError: An option is out of its range.
    """

    def __init__(
        self,
        db_or_backend: Database[Any] | Backend,
        *,
        visibility_timeout: Seconds = VISIBILITY_TIMEOUT,
        on_job_event: Sink | None = None,
        logger: logging.Logger | None = None,
        **options: Any,
    ) -> None:
        lease = checked_lease(visibility_timeout, "visibility_timeout")
        super().__init__(_made(MongoJobQueue, Database, db_or_backend, options), lease, on_job_event, logger)

    def enqueue(
        self,
        action: str,
        data: Mapping[str, Any] | None = None,
        *,
        session: ClientSession | None = None,
        **options: Unpack[Options],
    ) -> str | None:
        """Stores a job for a worker to run: at least once, until it has completed or failed for good.

        Threads that enqueue at the same time share one write, and each is told what became of its own job.

        Args:
            action: What is to be done; 1 to 1,000 bytes.
            data: What the handler needs, as for ``simplequeue.Queue.add``. None means ``{}``.
            session: Stores it in this session's transaction, with the caller's writes or not at all. There a dedupe key
                needs ``startup`` to have been called before. None means at once.
            options: ``priority``, ``delay``, ``run_at``, ``max_attempts``, ``dedupe_key``, ``dedupe_scope``,
                ``coalesce``, ``backoff``, ``backoff_delay`` and ``backoff_max_delay``, as ``Enqueue`` describes them.

        Returns:
            The job's id; with ``coalesce="latest"`` the id of the waiting job that got this data; None when the key is
            taken and nothing was stored.

        Raises:
            PayloadError: An option is not as ``Enqueue`` describes; ``.path`` names it. Nothing was stored.
            DedupeScopeConflictError: The key is held by a job of the other scope. Nothing was stored.
            TypeError: There is no such option.
            RuntimeError: In a transaction, a key without ``startup``; or the backend was shut down.
            pymongo.errors.PyMongoError: The server could not be reached, or refused. With a dedupe key it is safe to
                try again.
        """
        return self.enqueue_many([Enqueue(action, data, **options)], session=session)[0]

    def enqueue_many(self, jobs: Iterable[Enqueue], *, session: ClientSession | None = None) -> list[str | None]:
        """Stores jobs in one go, after all have been checked; what ``enqueue`` gives for each, in order.

        Raises:
            PayloadError: As for ``enqueue``; ``.path`` begins with ``jobs[n]``. Nothing was stored.
            DedupeScopeConflictError: As for ``enqueue``; others of the jobs may be stored.
        """
        asked = list(jobs)
        ids = self.backend.enqueue(asked, session=session)
        self._enqueued(asked, ids)
        return ids

    def claim_or_enqueue(
        self, action: str, data: Mapping[str, Any] | None = None, **options: Unpack[Options]
    ) -> JobHandle | None:
        """Starts a new job here, or leaves the work to others and gives None.

        Args:
            action: As for ``enqueue``.
            data: As for ``enqueue``.
            options: As for ``enqueue``. A job that runs here runs now, whatever ``delay`` and ``run_at`` say; one that
                waits heeds them.

        Returns:
            A handle on the run, which somebody has to end before its lease does; None when another job holds the key.
            Then, in scope ``"queued"``, one waits behind it that has this data, if nothing waited before or
            ``coalesce="latest"`` says so.

        Raises:
            PayloadError: As for ``enqueue``.
            DedupeScopeConflictError: As for ``enqueue``.
        """
        return self._claimed_or_enqueued(Enqueue(action, data, **options))

    def has_outstanding(self, action: str, dedupe_key: str) -> bool:
        """Whether a job of an action is queued or runs under a key: for displays and checks of health.

        A moment later the answer may be another. What must not happen twice is for ``dedupe_key`` to prevent.
        """
        return self.backend.has_outstanding(action, dedupe_key)

    def list_failed(
        self, *, action: str | None = None, failure_kind: FailureKind | None = None, limit: int = 50
    ) -> list[DurableJob]:
        """Gives failed jobs, the latest first.

        Args:
            action: Only of this one; None means of all.
            failure_kind: ``"retries-exhausted"``: it might have gone well; ``"fatal"``: it never will as it is;
                ``"stalled"``: its runs died. None means all, those of the base layer included.
            limit: At most so many.
        """
        return self.backend.list_failed(action=action, failure_kind=failure_kind, limit=limit)

    def retry(self, id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound:
        """Puts a failed job back in the queue, due now, with all its attempts; steps it has finished stay finished.

        Returns:
            ``Retried``, the only outcome that is true; or why not: ``KeyBusy`` with the job that holds its key,
            ``NotFailed`` with its status, ``NotFound``.
        """
        return self.backend.retry(id)

    def get_stats(self, action: str | None = None) -> QueueStats:
        """Counts the jobs of an action, or of all (None), and says how far the queue is behind. Alert on the lag."""
        return self.backend.get_stats(action)

    def get(self, id: str | UUID) -> DurableJob | None:
        """Reads a job; None when there is none of this id, or it is no UUID."""
        return self.backend.get(id)

    def update(
        self, id: str | UUID, values: Mapping[str, Any], *, session: ClientSession | None = None
    ) -> UpdateResult:
        """Sets top-level fields of a job's ``data``, as ``simplequeue.Queue.update`` does.

        Raises:
            RuntimeError: In a handler's ``ctx.transaction()``, of its own job and without its session.
        """
        refuse_outside(id, session)
        result: UpdateResult = self.backend.update(id, values, session=session)
        return result

    def cancel(self, id: str | UUID, *, session: ClientSession | None = None) -> DurableJob | None:
        """Cancels a job that is still queued, as ``simplequeue.Queue.cancel`` does; its key is free at once."""
        return self.backend.cancel(id, session=session)

    def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        """Deletes jobs that have ended, as ``simplequeue.Queue.sweep`` does."""
        result: DeleteResult = self.backend.sweep(before, limit=limit)
        return result


class AsyncJobQueue(AsyncWork):
    """Enqueues durable jobs, runs them and looks after them, as ``JobQueue`` does, from code that awaits.

    Handlers share the loop with the renewal of leases. One that blocks it is warned of before leases are at risk.

    Args:
        db_or_backend: An ``AsyncDatabase`` of PyMongo, or an ``AsyncBackend``.
        visibility_timeout: As for ``JobQueue``.
        on_job_event: As for ``JobQueue``.
        logger: As for ``JobQueue``.
        lease_client: A ``MongoClient`` of the sync driver: leases are renewed through it, in a thread that no handler
            can block. None means on the loop.
        options: As for ``JobQueue``.

    Raises:
        TypeError: As for ``JobQueue``, or ``lease_client`` is no ``MongoClient``.
        PayloadError: As for ``JobQueue``.
    """

    def __init__(
        self,
        db_or_backend: AsyncDatabase[Any] | AsyncBackend,
        *,
        visibility_timeout: Seconds = VISIBILITY_TIMEOUT,
        on_job_event: Sink | None = None,
        logger: logging.Logger | None = None,
        lease_client: MongoClient[Any] | None = None,
        **options: Any,
    ) -> None:
        lease = checked_lease(visibility_timeout, "visibility_timeout")
        backend = _made(AsyncMongoJobQueue, AsyncDatabase, db_or_backend, options)
        super().__init__(backend, lease, on_job_event, logger, lease_client)

    async def enqueue(
        self,
        action: str,
        data: Mapping[str, Any] | None = None,
        *,
        session: AsyncClientSession | None = None,
        **options: Unpack[Options],
    ) -> str | None:
        """Stores a job for a worker to run, as ``JobQueue.enqueue`` does; tasks of one loop share one write."""
        return (await self.enqueue_many([Enqueue(action, data, **options)], session=session))[0]

    async def enqueue_many(
        self, jobs: Iterable[Enqueue], *, session: AsyncClientSession | None = None
    ) -> list[str | None]:
        """Stores jobs in one go, as ``JobQueue.enqueue_many`` does."""
        asked = list(jobs)
        ids = await self.backend.enqueue(asked, session=session)
        await self._enqueued(asked, ids)
        return ids

    async def claim_or_enqueue(
        self, action: str, data: Mapping[str, Any] | None = None, **options: Unpack[Options]
    ) -> AsyncJobHandle | None:
        """Starts a new job here or leaves the work to others, as ``JobQueue.claim_or_enqueue`` does."""
        return await self._claimed_or_enqueued(Enqueue(action, data, **options))

    async def has_outstanding(self, action: str, dedupe_key: str) -> bool:
        """Whether a job of an action is queued or runs under a key, as ``JobQueue.has_outstanding`` says."""
        return await self.backend.has_outstanding(action, dedupe_key)

    async def list_failed(
        self, *, action: str | None = None, failure_kind: FailureKind | None = None, limit: int = 50
    ) -> list[DurableJob]:
        """Gives failed jobs, the latest first, as ``JobQueue.list_failed`` does."""
        return await self.backend.list_failed(action=action, failure_kind=failure_kind, limit=limit)

    async def retry(self, id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound:
        """Puts a failed job back in the queue, as ``JobQueue.retry`` does."""
        return await self.backend.retry(id)

    async def get_stats(self, action: str | None = None) -> QueueStats:
        """Counts jobs and says how far the queue is behind, as ``JobQueue.get_stats`` does."""
        return await self.backend.get_stats(action)

    async def get(self, id: str | UUID) -> DurableJob | None:
        """Reads a job, as ``JobQueue.get`` does."""
        return await self.backend.get(id)

    async def update(
        self, id: str | UUID, values: Mapping[str, Any], *, session: AsyncClientSession | None = None
    ) -> UpdateResult:
        """Sets top-level fields of a job's ``data``, as ``JobQueue.update`` does."""
        refuse_outside(id, session)
        result: UpdateResult = await self.backend.update(id, values, session=session)
        return result

    async def cancel(self, id: str | UUID, *, session: AsyncClientSession | None = None) -> DurableJob | None:
        """Cancels a job that is still queued, as ``JobQueue.cancel`` does."""
        return await self.backend.cancel(id, session=session)

    async def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        """Deletes jobs that have ended, as ``JobQueue.sweep`` does."""
        result: DeleteResult = await self.backend.sweep(before, limit=limit)
        return result


@overload
def upgrade(queue: Queue, *, visibility_timeout: Seconds = ..., push: Push = ...) -> JobQueue: ...
@overload
def upgrade(queue: AsyncQueue, *, visibility_timeout: Seconds = ..., push: Push = ...) -> AsyncJobQueue: ...
def upgrade(
    queue: Queue | AsyncQueue, *, visibility_timeout: Seconds = VISIBILITY_TIMEOUT, push: Push = "auto"
) -> JobQueue | AsyncJobQueue:
    """Makes the extension's queue on the collection of a plain one, sync for sync and async for async.

    Nothing is migrated and no producer need stop: plain jobs stay as they are until a worker of the extension claims
    them, and jobs of the extension are left alone by listeners of the base layer.

    Args:
        queue: What ``create_queue`` made. It may be used on.
        visibility_timeout: As for ``JobQueue``.
        push: As for ``MongoJobQueue``.

    Raises:
        TypeError: ``queue`` is something else.
    """
    if isinstance(queue, Queue):
        return JobQueue(MongoJobQueue.on(queue._jobs, push), visibility_timeout=visibility_timeout)
    if isinstance(queue, AsyncQueue):
        return AsyncJobQueue(AsyncMongoJobQueue.on(queue._jobs, push), visibility_timeout=visibility_timeout)
    raise TypeError(f"queue: expected what simplequeue.create_queue makes, found {type(queue).__qualname__}")


def _made(kind: type[Any], database: type[Any], db_or_backend: Any, options: Mapping[str, Any]) -> Any:
    known = [name for name, option in signature(kind).parameters.items() if option.kind is option.KEYWORD_ONLY]
    if unknown := sorted(options.keys() - set(known)):
        raise TypeError(
            f"no such option: {', '.join(unknown)}; there are visibility_timeout, on_job_event, logger, "
            f"{', '.join(known)}"
        )
    if isinstance(db_or_backend, database):
        return kind(db_or_backend, **options)
    if options:
        raise TypeError(
            f"{', '.join(options)}: an option of the backend that a database makes, and a backend was given"
        )
    if not hasattr(type(db_or_backend), "claim_or_enqueue"):  # of the class: a client has an attribute of any name
        raise TypeError(
            f"db_or_backend: expected PyMongo's {database.__qualname__} or a backend, found "
            f"{type(db_or_backend).__qualname__}"
        )
    if isinstance(db_or_backend, MongoJobQueue if kind is AsyncMongoJobQueue else Decisions):
        raise TypeError(
            f"db_or_backend: {type(db_or_backend).__qualname__} is a backend for "
            f"{'a JobQueue' if kind is AsyncMongoJobQueue else 'an AsyncJobQueue'}"
        )
    return db_or_backend
