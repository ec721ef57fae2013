"""The public types, for type checkers only: nothing here runs, and pytest does not collect it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from pymongo import AsyncMongoClient, MongoClient
from pymongo.results import DeleteResult, UpdateResult

from simplequeue import AsyncListener, AsyncQueue, Job, Listener, Queue, Status, create_queue
from simplequeue.embedded import Mongod, mongod
from simplequeue.failure import StoredError


def handler(job: Job) -> None: ...


async def async_handler(job: Job) -> int:
    return 1


def sync_queue(client: MongoClient[dict[str, Any]]) -> None:
    queue = create_queue(client.app, collection="job")
    assert_type(queue, Queue)
    job = queue.add("greet", {"name": "Ada"})
    assert_type(job, Job)
    assert_type(job.id, str)
    assert_type(job.status, Status)
    assert_type(job.error, StoredError | None)
    assert_type(job.created_at, datetime)
    assert_type(job.finished_at, datetime | None)
    assert_type(job.data, dict[str, Any])
    assert_type(job.document, dict[str, Any])
    assert_type(queue.add_many([("a", {"n": 1}), ("b", None)]), list[Job])
    assert_type(queue.get(job.id), Job | None)
    assert_type(queue.update(job.id, {"n": 2}), UpdateResult)
    assert_type(queue.cancel(job.id), Job | None)
    id = UUID(job.id)
    assert_type(queue.get(id), Job | None)
    assert_type(queue.update(id, {"n": 2}), UpdateResult)
    assert_type(queue.cancel(id), Job | None)
    queue.get(7)  # type: ignore[arg-type]  # an id is a string or a UUID
    assert_type(queue.sweep(datetime.now().astimezone(), limit=10), DeleteResult)
    with client.start_session() as session:
        queue.add("greet", session=session)
    assert_type(
        queue.listen(async_handler, actions=("a",), concurrency=2, poll_interval=timedelta(seconds=1)), Listener
    )
    with queue.listen(handler) as listener:
        assert_type(listener, Listener)
        assert_type(listener.wait(1.5), bool)
        assert_type(listener.stop(), bool)
    queue.add("greet", ["a list"])  # type: ignore[arg-type]  # data is a mapping
    queue.listen(embedded)  # type: ignore[arg-type]  # a handler takes a job
    job.status = Status.FAILED  # type: ignore[misc]  # a job is frozen


async def async_queue(client: AsyncMongoClient[dict[str, Any]]) -> None:
    queue = create_queue(client.app)
    assert_type(queue, AsyncQueue)
    job = await queue.add("greet")
    assert_type(job, Job)
    assert_type(await queue.add_many([("a", None)]), list[Job])
    assert_type(await queue.get(job.id), Job | None)
    assert_type(await queue.update(job.id, {}), UpdateResult)
    assert_type(await queue.cancel(job.id), Job | None)
    id = UUID(job.id)
    assert_type(await queue.get(id), Job | None)
    assert_type(await queue.update(id, {}), UpdateResult)
    assert_type(await queue.cancel(id), Job | None)
    assert_type(await queue.sweep(), DeleteResult)
    async with client.start_session() as session:
        await queue.add("greet", session=session)
    async with await queue.listen(async_handler) as listener:
        assert_type(listener, AsyncListener)
        assert_type(await listener.wait(1), bool)
        assert_type(await listener.stop(), bool)


def embedded() -> None:
    server = mongod("data")
    assert_type(server, Mongod)
    with server as client:
        assert_type(client, MongoClient[dict[str, Any]])
        assert_type(server.uri, str)
