"""The two fronts of the queue, one line a method, and the way to make one.

``operations`` has what each call decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, overload
from uuid import UUID

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.results import DeleteResult, UpdateResult

from simplequeue import operations
from simplequeue.collection import CollectionJobs
from simplequeue.in_memory import InMemoryJobs, locked
from simplequeue.job import Job
from simplequeue.jobs import blocking, native, run
from simplequeue.listener import AsyncListener, Listener
from simplequeue.slots import Handler


class Queue:
    """Adds, runs and looks after jobs in one collection, from code that waits. Made by ``create_queue``.

    It holds no thread and no connection of its own, may be shared by threads and may be created before a fork.
    """

    def __init__(self, jobs: CollectionJobs) -> None:
        self._jobs = jobs

    def add(self, action: str, data: Mapping[str, Any] | None = None, *, session: ClientSession | None = None) -> Job:
        """Adds a job for any listener to take.

        If the connection breaks in mid-call and the driver's own retry fails as well, the error leaves open whether
        the job was stored.

        Args:
            action: What is to be done, in your words; 1 to 1,000 bytes.
            data: What the handler needs: up to 16,000,000 bytes of what the collection's codec gives back equal. It is
                copied; None means ``{}``.
            session: Adds it in this session's transaction: no listener sees it before the commit, and an abort takes
                it away. None means at once.

        Returns:
            The job as stored: times in UTC, cut to milliseconds, those in ``data`` too.

        Raises:
            PayloadError: ``action`` or ``data`` cannot be stored; ``.path`` says which place. Nothing was.
            TypeError: ``session`` on mongomock, which has no transactions.
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(operations.add(self._jobs, action, data, session))

    def add_many(
        self, jobs: Iterable[tuple[str, Mapping[str, Any] | None]], *, session: ClientSession | None = None
    ) -> list[Job]:
        """Adds jobs in one go; they are worked on in this order.

        All are checked before any is stored. A server that fails in between may leave the first ones stored; with a
        transaction it is all or none.

        Args:
            jobs: Pairs of action and data, as for ``add``. Empty is allowed.
            session: As for ``add``.

        Returns:
            The jobs as stored, in the order given.

        Raises:
            PayloadError: As for ``add``; ``.path`` begins with ``jobs[n]``.
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(operations.add_many(self._jobs, jobs, session))

    def listen(
        self,
        handler: Handler,
        *,
        actions: Iterable[str] | None = None,
        concurrency: int = 16,
        poll_interval: float | timedelta | None = None,
    ) -> Listener:
        """Runs jobs in the background until the listener is stopped; returns once the backlog is being worked on.

        Each job is claimed by exactly one listener. What the handler returns counts for nothing: returning completes
        the job, raising anything fails it, and neither is ever repeated. A job whose process dies stays ``running``.

        Args:
            handler: Called with each job, in a thread; an ``async def`` on an event loop of its own.
            actions: Take only jobs of these actions; None means of all.
            concurrency: How many jobs may run here at once.
            poll_interval: Seconds, or a timedelta, between looks without a signal. None means 60 with a change stream,
                5 on a server without.

        Returns:
            The listener, at work: ``stop`` it, or use it as a context manager.

        Raises:
            TypeError: ``handler`` cannot be called, or is a generator function.
            PayloadError: Another argument is not as above.
            IndexConflictError: The collection's index cannot be made; the message says what to drop.
            UnsupportedServerError: The server is older than MongoDB 6.0.
            pymongo.errors.PyMongoError: The server could not be reached, or refused. Later trouble is survived.
        """
        return Listener(self._jobs, handler, actions, concurrency, poll_interval)

    def get(self, id: str | UUID) -> Job | None:
        """Reads a job.

        Args:
            id: The job's id: a string in lower case with hyphens, as ``Job.id`` is, or a ``UUID``. Any other spelling,
                upper case too, is the id of no job. So it is in ``update`` and ``cancel``.

        Returns:
            The job as it is now; None when there is none of this id.

        Raises:
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(operations.get(self._jobs, id))

    def update(
        self, id: str | UUID, values: Mapping[str, Any], *, session: ClientSession | None = None
    ) -> UpdateResult:
        """Sets top-level fields of a job's ``data``, whatever its state, and leaves the others alone.

        Handlers are not woken by it and a handler that runs keeps the data it was given.

        Args:
            id: The job's id, as for ``get``.
            values: The fields, at most 1,000, and their new values. ``"_id"`` and ``"status"`` are fields like any
                other.
            session: Updates in this session's transaction. None means at once.

        Returns:
            PyMongo's result: ``matched_count`` is 1, or 0 when there is no such job.

        Raises:
            PayloadError: A key is empty, begins with ``$`` or holds a dot, a value cannot be stored, or the job's data
                would take more than 16,000,000 bytes afterwards. Nothing was changed.
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(operations.update(self._jobs, id, values, session))

    def cancel(self, id: str | UUID, *, session: ClientSession | None = None) -> Job | None:
        """Cancels a job that is still queued.

        A handler that runs is not stopped. Of a claim and a cancel exactly one gets the job.

        Args:
            id: The job's id, as for ``get``.
            session: Cancels in this session's transaction. None means at once.

        Returns:
            The job as it was cancelled; None when there is none, or it was claimed or has ended.

        Raises:
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(operations.cancel(self._jobs, id, session))

    def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        """Deletes jobs that ended at or before a time, oldest first. Queued and running ones stay.

        It deletes in batches of 1,000, so that claims in between are not held up; an error leaves the earlier batches
        deleted.

        Args:
            before: A time zone-aware time. None means now: everything that has ended.
            limit: Delete at most so many. None means all.

        Returns:
            PyMongo's result: ``deleted_count`` is the sum of all batches.

        Raises:
            PayloadError: ``before`` is naive or no datetime, or ``limit`` no whole number of at least 1.
            IndexConflictError: The collection's index cannot be made; the message says what to drop.
            UnsupportedServerError: The server is older than MongoDB 6.0.
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(operations.sweep(self._jobs, before, limit))


class AsyncQueue:
    """Adds, runs and looks after jobs in one collection, from code that awaits. Made by ``create_queue``."""

    def __init__(self, jobs: CollectionJobs) -> None:
        self._jobs = jobs

    async def add(
        self, action: str, data: Mapping[str, Any] | None = None, *, session: AsyncClientSession | None = None
    ) -> Job:
        """Adds a job for any listener to take, as ``Queue.add`` does."""
        return await operations.add(self._jobs, action, data, session)

    async def add_many(
        self, jobs: Iterable[tuple[str, Mapping[str, Any] | None]], *, session: AsyncClientSession | None = None
    ) -> list[Job]:
        """Adds jobs in one go, as ``Queue.add_many`` does."""
        return await operations.add_many(self._jobs, jobs, session)

    async def listen(
        self,
        handler: Handler,
        *,
        actions: Iterable[str] | None = None,
        concurrency: int = 16,
        poll_interval: float | timedelta | None = None,
    ) -> AsyncListener:
        """Runs jobs in the background until the listener is stopped, as ``Queue.listen`` does.

        An ``async def`` handler runs on the caller's loop, any other in a thread. The loop must not be blocked: while
        it is, nothing is claimed and no end is stored.
        """
        return await AsyncListener.begin(self._jobs, handler, actions, concurrency, poll_interval)

    async def get(self, id: str | UUID) -> Job | None:
        """Reads a job, as ``Queue.get`` does."""
        return await operations.get(self._jobs, id)

    async def update(
        self, id: str | UUID, values: Mapping[str, Any], *, session: AsyncClientSession | None = None
    ) -> UpdateResult:
        """Sets top-level fields of a job's ``data``, as ``Queue.update`` does."""
        return await operations.update(self._jobs, id, values, session)

    async def cancel(self, id: str | UUID, *, session: AsyncClientSession | None = None) -> Job | None:
        """Cancels a job that is still queued, as ``Queue.cancel`` does."""
        return await operations.cancel(self._jobs, id, session)

    async def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        """Deletes jobs that ended at or before a time, as ``Queue.sweep`` does."""
        return await operations.sweep(self._jobs, before, limit)


@overload
def create_queue(db: Database[Any], *, collection: str = ...) -> Queue: ...
@overload
def create_queue(db: AsyncDatabase[Any], *, collection: str = ...) -> AsyncQueue: ...
def create_queue(db: Any, *, collection: str = "job") -> Queue | AsyncQueue:
    """Makes the queue that lives in a collection, sync or async as the database is. It sends nothing to the server.

    Whatever the client's defaults, writes are acknowledged by a majority and reads come from the primary.

    Indexes are made where they are first needed: by the first ``listen`` ``which_plain_job_is_next``, or with
    ``actions`` ``which_plain_job_of_an_action_is_next``; by the first ``sweep`` ``which_jobs_ended_before``. The
    database user needs the role ``readWrite`` on the database, which covers them (``createIndex``) and the change
    stream (``find`` and ``changeStream``). A user who may not open a change stream polls.

    Args:
        db: A ``Database`` or ``AsyncDatabase`` of PyMongo, or a mongomock ``Database``, which needs no server and is
            for unit tests.
        collection: Where the jobs are.

    Returns:
        A ``Queue``, or an ``AsyncQueue`` for an ``AsyncDatabase``.

    Raises:
        TypeError: ``db`` is something else.
        pymongo.errors.InvalidName: ``collection`` cannot be the name of one.
    """
    if isinstance(db, AsyncDatabase):
        return AsyncQueue(CollectionJobs(db[collection], native))
    if isinstance(db, Database):
        return Queue(CollectionJobs(db[collection], blocking))
    if _is_mongomock(db):
        return Queue(InMemoryJobs(db[collection], locked(db.client)))
    raise TypeError(
        f"db: expected a pymongo Database, an AsyncDatabase or a mongomock Database, found {type(db).__module__}."
        f"{type(db).__qualname__}; from a client, take the database first: client['name']"
    )


def _is_mongomock(db: object) -> bool:
    # By name, so that mongomock is imported only by who uses it.
    kind = type(db)
    return kind.__module__.partition(".")[0] == "mongomock" and kind.__name__ == "Database"
