"""Jobs that are added, changed and cancelled in the caller's transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from simplequeue import Status, create_queue
from tests.watching import Recorder, ended, until


@pytest.mark.parametrize("many", [False, True])
def test_a_job_of_a_transaction_is_invisible_until_the_commit_and_then_runs(
    client: MongoClient[dict[str, Any]], db: Database[dict[str, Any]], many: bool
) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen), client.start_session() as session:
        with session.start_transaction():
            db.orders.insert_one({"_id": 1}, session=session)
            jobs = queue.add_many([("a", None)] * 3, session=session) if many else [queue.add("a", session=session)]
            assert queue.get(jobs[0].id) is None
            other = queue.add("outside")
            until(ended(db.job, [other.id]))
            assert seen.ids == [other.id]
        until(ended(db.job, [job.id for job in jobs]))
    assert sorted(seen.ids) == sorted([other.id, *(job.id for job in jobs)])
    assert db.orders.count_documents({}) == 1


def test_a_job_of_an_aborted_transaction_never_runs(
    client: MongoClient[dict[str, Any]], db: Database[dict[str, Any]]
) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen), client.start_session() as session:
        with pytest.raises(LookupError), session.start_transaction():
            db.orders.insert_one({"_id": 1}, session=session)
            job = queue.add("a", session=session)
            raise LookupError
        other = queue.add("outside")
        until(ended(db.job, [other.id]))
    assert seen.ids == [other.id]
    assert queue.get(job.id) is None
    assert db.orders.count_documents({}) == 0


def test_an_update_and_a_cancel_vanish_with_their_transaction(
    client: MongoClient[dict[str, Any]], db: Database[dict[str, Any]]
) -> None:
    queue = create_queue(db)
    job = queue.add("a", {"n": 1})
    with client.start_session() as session:
        with pytest.raises(LookupError), session.start_transaction():
            added = queue.add("b", session=session)
            assert queue.update(added.id, {"n": 2}, session=session).matched_count == 1
            assert queue.update(job.id, {"n": 2}, session=session).matched_count == 1
            assert queue.cancel(job.id, session=session) is not None
            raise LookupError
        assert queue.get(job.id) == job
        with session.start_transaction():
            queue.cancel(job.id, session=session)
    after = queue.get(job.id)
    assert after is not None
    assert after.status is Status.CANCELLED


def test_of_a_claim_and_a_cancel_in_a_transaction_one_wins(
    client: MongoClient[dict[str, Any]], db: Database[dict[str, Any]]
) -> None:
    queue, seen = create_queue(db), Recorder()
    with client.start_session() as session:
        job = queue.add("a")
        with pytest.raises(OperationFailure) as conflict, session.start_transaction():
            db.orders.count_documents({}, session=session)  # the snapshot is from before the claim
            with queue.listen(seen):
                until(ended(db.job, [job.id]))
            queue.cancel(job.id, session=session)
    assert conflict.value.has_error_label("TransientTransactionError")
    assert seen.ids == [job.id]


def test_mongomock_refuses_a_session_instead_of_pretending(mock_db: Any) -> None:
    queue: Any = create_queue(mock_db)
    session = object()
    id = "0198e15c-8200-7000-8000-000000000001"
    for method, arguments in (("add", ("a",)), ("add_many", ([("a", None)],)), ("update", (id, {})), ("cancel", (id,))):
        with pytest.raises(TypeError, match="mongomock has no transactions"):
            getattr(queue, method)(*arguments, session=session)
    assert mock_db.job.count_documents({}) == 0


def test_the_async_queue_adds_in_a_transaction_too(mongo_url: str, db: Database[dict[str, Any]]) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue, seen = create_queue(client[db.name]), Recorder()
            async with await queue.listen(seen):
                async with client.start_session() as session:
                    with pytest.raises(LookupError):
                        async with await session.start_transaction():
                            lost = await queue.add("a", session=session)
                            raise LookupError
                    async with await session.start_transaction():
                        kept = await queue.add("a", session=session)
                        assert await queue.get(kept.id) is None
                await asyncio.to_thread(until, ended(db.job, [kept.id]))
            assert seen.ids == [kept.id]
            assert await queue.get(lost.id) is None

    asyncio.run(main())
