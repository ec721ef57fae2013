"""The two fronts of a queue, and that every backend has what a backend has."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import (
    AsyncBackend,
    AsyncDummyBackend,
    AsyncJobQueue,
    AsyncMongoJobQueue,
    Backend,
    Completed,
    DummyBackend,
    Enqueue,
    JobQueue,
    KeyBusy,
    LeaseLost,
    MongoJobQueue,
    PayloadError,
    Released,
    Renewed,
    Retried,
)
from durabl_ext.decisions import Decisions
from simplequeue import Status


def methods(kind: type[Any]) -> dict[str, list[str]]:
    """The public methods of a class with the names of their parameters."""
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


@pytest.mark.parametrize("kind", [AsyncBackend, MongoJobQueue, Decisions])
def test_every_backend_has_the_methods_of_a_backend_with_the_same_parameters(kind: type[Any]) -> None:
    has = methods(kind)
    assert {name: has.get(name) for name in methods(Backend)} == methods(Backend)


def test_an_async_backend_awaits_what_a_backend_waits_for() -> None:
    for name in methods(Backend):
        assert inspect.iscoroutinefunction(getattr(AsyncMongoJobQueue, name))
        assert not inspect.iscoroutinefunction(getattr(MongoJobQueue, name))


def test_both_queues_have_the_same_methods() -> None:
    assert methods(JobQueue) == methods(AsyncJobQueue)


def test_a_sync_queue_from_enqueue_to_sweep(db: Database[dict[str, Any]]) -> None:
    queue = JobQueue(db, collection="tasks", visibility_timeout=60)
    queue.startup()
    id = queue.enqueue("a", {"n": 1}, dedupe_key="k")
    assert id is not None
    assert queue.enqueue("a", dedupe_key="k") is None
    assert queue.has_outstanding("a", "k")
    assert queue.update(id, {"m": 2}).matched_count == 1
    job = queue.get(id)
    assert job is not None
    assert job.data == {"n": 1, "m": 2}
    cancelled = queue.cancel(id)
    assert cancelled is not None
    assert cancelled.status is Status.CANCELLED

    handle = queue.claim_or_enqueue("a", {"n": 2}, dedupe_key="k", max_attempts=1)
    assert handle is not None
    assert isinstance(handle.heartbeat(), Renewed)
    handle.fail_fatal("no")
    assert [failed.id for failed in queue.list_failed(failure_kind="fatal")] == [handle.job.id]
    assert queue.retry(handle.job.id) == Retried()
    assert queue.claim_or_enqueue("a", dedupe_key="k") is None
    assert queue.get_stats("a").queued == 1
    assert queue.cancel(handle.job.id) is not None
    assert queue.sweep().deleted_count == 2
    assert db.tasks.count_documents({}) == 0


def test_an_async_queue_from_enqueue_to_sweep(db: Database[dict[str, Any]], mongo_url: str) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = AsyncJobQueue(client[db.name], collection="tasks", visibility_timeout=60)
            await queue.startup()
            id = await queue.enqueue("a", {"n": 1}, dedupe_key="k")
            assert id is not None
            assert await queue.enqueue_many([Enqueue("a", dedupe_key="k")]) == [None]
            assert await queue.has_outstanding("a", "k")
            assert (await queue.update(id, {"m": 2})).matched_count == 1
            job = await queue.get(id)
            assert job is not None
            assert job.data == {"n": 1, "m": 2}
            assert await queue.cancel(id) is not None

            handle = await queue.claim_or_enqueue("a", dedupe_key="k")
            assert handle is not None
            await handle.log("begun")
            assert isinstance(await handle.heartbeat(), Renewed)
            assert await handle.release() == Released()
            assert await handle.complete() == LeaseLost()
            again = await queue.claim_or_enqueue("b", {"n": 2})
            assert again is not None
            assert again.job.data == {"n": 2}
            assert await again.complete() == Completed()

            failed = await queue.claim_or_enqueue("c", dedupe_key="c", max_attempts=1)
            assert failed is not None
            await failed.fail(ValueError("no"))
            assert [job.id for job in await queue.list_failed()] == [failed.job.id]
            holder = await queue.enqueue("c", dedupe_key="c")
            assert await queue.retry(failed.job.id) == KeyBusy(str(holder))
            poison = await queue.claim_or_enqueue("d")
            assert poison is not None
            await poison.fail_fatal("never")
            assert (await queue.get_stats()).failed_by_kind["fatal"] == 1
            assert (await queue.sweep()).deleted_count == 4

    asyncio.run(main())


def test_what_is_neither_a_database_nor_a_backend_is_refused(db: Database[dict[str, Any]]) -> None:
    for wrong in (None, "app", db.client, db.job):
        with pytest.raises(TypeError, match="db_or_backend"):
            JobQueue(wrong)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(TypeError, match="collection"):
        JobQueue(DummyBackend(), collection="tasks")
    with pytest.raises(
        TypeError, match=r"no such option: colection; there are visibility_timeout, .*, collection, push"
    ):
        JobQueue(db, colection="tasks")


def test_a_backend_of_the_other_colour_is_refused_before_it_is_used() -> None:
    with pytest.raises(TypeError, match="AsyncDummyBackend is a backend for an AsyncJobQueue"):
        JobQueue(AsyncDummyBackend())  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(TypeError, match="DummyBackend is a backend for a JobQueue"):
        AsyncJobQueue(DummyBackend())  # type: ignore[arg-type]  # that is what is tested


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "5", None, True])
def test_a_visibility_timeout_that_is_none_is_an_error(timeout: Any) -> None:
    with pytest.raises(PayloadError, match="visibility_timeout"):
        JobQueue(DummyBackend(), visibility_timeout=timeout)


def test_an_option_that_enqueue_does_not_have_is_an_error() -> None:
    queue = JobQueue(DummyBackend())
    with pytest.raises(TypeError, match="dedup_key"):
        queue.enqueue("a", dedup_key="k")  # type: ignore[call-arg]  # that is what is tested
    with pytest.raises(TypeError, match="session"):
        queue.claim_or_enqueue("a", session=None)  # type: ignore[call-arg]  # that is what is tested
