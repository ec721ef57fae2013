"""The queue: what can be done with a job from outside its run, once; and its two fronts.

The functions are decisions over ``Jobs``. ``Queue`` and ``AsyncQueue`` pass each call on, one line a method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, overload
from uuid import UUID

import bson
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.results import DeleteResult, UpdateResult

from simplequeue import commands, payload
from simplequeue.in_memory import InMemoryJobs, locked
from simplequeue.job import Job, job_from, new_document
from simplequeue.jobs import CollectionJobs, Jobs, Room, Session, blocking, native, run
from simplequeue.listener import AsyncListener, Listener
from simplequeue.payload import PayloadError
from simplequeue.slots import Handler

SWEEP_BATCH = 1_000


async def add(jobs: Jobs, action: str, data: Mapping[str, Any] | None, session: Session | None) -> Job:
    """Stores one new job."""
    checked = payload.checked_action(action), payload.checked_data(data, jobs.codec)
    document = new_document(*checked, await jobs.now())
    await jobs.insert_one(document, session=session)
    return job_from(document)


async def add_many(
    jobs: Jobs, items: Iterable[tuple[str, Mapping[str, Any] | None]], session: Session | None
) -> list[Job]:
    """Stores new jobs, in order, after all have been checked."""
    checked = [_checked_item(item, f"jobs[{index}]", jobs) for index, item in enumerate(items)]
    if not checked:
        return []
    now = await jobs.now()
    documents = [new_document(action, data, now) for action, data in checked]
    await jobs.insert_many(documents, session=session)
    return [job_from(document) for document in documents]


async def get(jobs: Jobs, id: object) -> Job | None:
    """Reads one job."""
    if (known := known_id(id)) is None:
        return None
    document = await jobs.find_one({"_id": known})
    return None if document is None else job_from(document)


async def update(jobs: Jobs, id: object, values: Mapping[str, Any], session: Session | None) -> UpdateResult:
    """Sets fields of one job's data, unless the job would outgrow what can still be ended."""
    checked = payload.checked_values(values, jobs.codec)
    if (known := known_id(id)) is None:
        return UpdateResult({"n": 0, "nModified": 0}, acknowledged=True)
    size = len(bson.encode(checked, codec_options=jobs.codec))
    room = Room("data", checked, size, payload.MAX_DATA_BYTES)
    result = await jobs.update_one(*commands.set_data(known, checked, await jobs.now()), room=room, session=session)
    if result.matched_count == 0 and await jobs.find_one({"_id": known}, fields=("_id",), session=session):
        raise PayloadError(
            "data", f"of job {known} would take more than {payload.MAX_DATA_BYTES:,} bytes with these values"
        )
    return result


async def cancel(jobs: Jobs, id: object, session: Session | None) -> Job | None:
    """Ends one job that nobody has claimed."""
    if (known := known_id(id)) is None:
        return None
    document = await jobs.find_one_and_update(*commands.cancel(known, await jobs.now()), session=session)
    return None if document is None else job_from(document)


async def sweep(jobs: Jobs, before: datetime | None, limit: int | None) -> DeleteResult:
    """Deletes ended jobs, oldest first, in batches that repeat the condition they were read with."""
    left = None if limit is None else payload.checked_count(limit, "limit")
    now = await jobs.now()
    ended = commands.ended_before(now if before is None else payload.checked_time(before, "before"))
    await jobs.ensure_index(commands.ENDED_BEFORE)
    deleted = 0
    while True:
        size = SWEEP_BATCH if left is None else min(SWEEP_BATCH, left - deleted)
        batch = await jobs.find(ended, fields=("_id",), sort=(("finished_at", 1),), limit=size) if size else []
        if batch:
            # Left to itself the server walks over all ended jobs for the first batch: 300,000 instead of 1,000.
            result = await jobs.delete_many({"_id": {"$in": [job["_id"] for job in batch]}, **ended}, hint="_id_")
            deleted += result.deleted_count
        if len(batch) < SWEEP_BATCH:
            return DeleteResult({"n": deleted}, acknowledged=True)


def known_id(id: object) -> str | None:
    """Gives an id in the form it is stored in, or None for what cannot be one, which is then simply not found.

    A filter document that came in from outside in the place of an id must never reach the server.
    """
    if isinstance(id, UUID):
        return str(id)
    if not isinstance(id, str):
        return None
    try:
        return id if str(UUID(id)) == id else None
    except ValueError:
        return None


def _checked_item(item: object, path: str, jobs: Jobs) -> tuple[str, dict[str, Any]]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise PayloadError(path, f"expected a pair of action and data, found {item!r:.100}")
    action, data = item
    return payload.checked_action(action, f"{path}.action"), payload.checked_data(data, jobs.codec, f"{path}.data")


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
        return run(add(self._jobs, action, data, session))

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
        return run(add_many(self._jobs, jobs, session))

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

        Raises:
            TypeError: ``handler`` cannot be called, or is a generator function.
            PayloadError: Another argument is not as above.
            IndexConflictError: The collection's index cannot be made; the message says what to drop.
            pymongo.errors.PyMongoError: The server could not be reached, or refused. Later trouble is survived.
        """
        return Listener(self._jobs, handler, actions, concurrency, poll_interval)

    def get(self, id: str) -> Job | None:
        """Reads a job; None when there is none of this id, or it is no UUID."""
        return run(get(self._jobs, id))

    def update(self, id: str, values: Mapping[str, Any], *, session: ClientSession | None = None) -> UpdateResult:
        """Sets top-level fields of a job's ``data``, whatever its state, and leaves the others alone.

        Handlers are not woken by it and a handler that runs keeps the data it was given.

        Args:
            id: The job. ``matched_count`` of the result is 0 when there is none.
            values: The fields, at most 1,000, and their new values. ``"_id"`` and ``"status"`` are fields like any
                other.
            session: Updates in this session's transaction.

        Raises:
            PayloadError: A key is empty, begins with ``$`` or holds a dot, a value cannot be stored, or the job's data
                would take more than 16,000,000 bytes afterwards. Nothing was changed.
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(update(self._jobs, id, values, session))

    def cancel(self, id: str, *, session: ClientSession | None = None) -> Job | None:
        """Cancels a job that is still queued; None when there is none, or it was claimed or has ended.

        A handler that runs is not stopped. Exactly one of a cancel and a claim wins.

        Args:
            id: The job.
            session: Cancels in this session's transaction.

        Raises:
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(cancel(self._jobs, id, session))

    def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        """Deletes jobs that ended at or before a time, oldest first. Queued and running ones stay.

        It deletes in batches of 1,000, so that claims in between are not held up; an error leaves the earlier batches
        deleted.

        Args:
            before: A time zone-aware time. None means now: everything that has ended.
            limit: Delete at most so many. None means all.

        Raises:
            PayloadError: ``before`` is naive or no datetime, or ``limit`` no whole number of at least 1.
            pymongo.errors.PyMongoError: The server could not be reached, or refused.
        """
        return run(sweep(self._jobs, before, limit))


class AsyncQueue:
    """Adds, runs and looks after jobs in one collection, from code that awaits. Made by ``create_queue``."""

    def __init__(self, jobs: CollectionJobs) -> None:
        self._jobs = jobs

    async def add(
        self, action: str, data: Mapping[str, Any] | None = None, *, session: AsyncClientSession | None = None
    ) -> Job:
        """Adds a job for any listener to take, as ``Queue.add`` does."""
        return await add(self._jobs, action, data, session)

    async def add_many(
        self, jobs: Iterable[tuple[str, Mapping[str, Any] | None]], *, session: AsyncClientSession | None = None
    ) -> list[Job]:
        """Adds jobs in one go, as ``Queue.add_many`` does."""
        return await add_many(self._jobs, jobs, session)

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

    async def get(self, id: str) -> Job | None:
        """Reads a job, as ``Queue.get`` does."""
        return await get(self._jobs, id)

    async def update(
        self, id: str, values: Mapping[str, Any], *, session: AsyncClientSession | None = None
    ) -> UpdateResult:
        """Sets top-level fields of a job's ``data``, as ``Queue.update`` does."""
        return await update(self._jobs, id, values, session)

    async def cancel(self, id: str, *, session: AsyncClientSession | None = None) -> Job | None:
        """Cancels a job that is still queued, as ``Queue.cancel`` does."""
        return await cancel(self._jobs, id, session)

    async def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        """Deletes jobs that ended at or before a time, as ``Queue.sweep`` does."""
        return await sweep(self._jobs, before, limit)


@overload
def create_queue(db: Database[Any], *, collection: str = ...) -> Queue: ...
@overload
def create_queue(db: AsyncDatabase[Any], *, collection: str = ...) -> AsyncQueue: ...
def create_queue(db: Any, *, collection: str = "job") -> Queue | AsyncQueue:
    """Makes the queue that lives in a collection, in the colour of the database. It sends nothing to the server.

    Whatever the client's defaults, writes are acknowledged by a majority and reads come from the primary.

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
