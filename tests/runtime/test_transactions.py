"""``ctx.transaction()``: a handler's writes, the jobs it enqueues and its job's completion are stored together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, OperationFailure
from uuid6 import uuid7

from durabl_ext import JobQueue
from durabl_ext.errors import TransactionsUnsupportedError
from tests.listening.standalone import standalone
from tests.runtime.conftest import Told
from tests.runtime.fronts import Front
from tests.runtime.ways import Body, Way, block, held, made
from tests.watching import ended, until

DB = Database[dict[str, Any]]
NOW: Any = {"backoff": "fixed", "backoff_delay": 0}
"""Tried again at once."""


def working(way: Way, body: Body, **options: Any) -> Front:
    """A queue that runs jobs of action "a" and sweeps nothing."""
    queue = way.open(**options)
    queue.process("a", way.handler(body))
    queue.start(reaper=False)
    return queue


@contextmanager
def states_seen(client: MongoClient[dict[str, Any]], look: Callable[[Any], Any]) -> Iterator[set[Any]]:
    """Looks again and again, each time at one moment, and collects what there is to be seen."""
    seen: set[Any] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            # A collection that was just made has no snapshot yet.
            with suppress(OperationFailure), client.start_session(snapshot=True) as session:
                seen.add(look(session))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def test_writes_jobs_and_completion_are_seen_by_others_all_at_once(
    db: DB, client: MongoClient[dict[str, Any]], way: Way
) -> None:
    inside, go_on, answers = threading.Event(), threading.Event(), []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            answers.append(await made(queue.queue.enqueue("next", session=session)))
            answers.append(await made(queue.queue.enqueue("next", dedupe_key="new", session=session)))
            answers.append(await made(queue.queue.enqueue("next", dedupe_key="taken", session=session)))
            inside.set()
            await held(go_on)

    def look(session: Any) -> Any:
        job = db.job.find_one({"_id": id}, session=session)
        return (
            db.orders.count_documents({}, session=session),
            db.job.count_documents({"action": "next"}, session=session),
            job is not None and job["status"],
        )

    db.create_collection("orders")
    queue = way.open()
    queue.startup()
    assert queue.add("holder", dedupe_key="taken")
    id = queue.add("a")
    with states_seen(client, look) as seen:
        until(lambda: (0, 0, "queued") in seen)
        queue.process("a", way.handler(work))
        queue.start(reaper=False)
        assert inside.wait(60)
        until(lambda: (0, 0, "running") in seen)
        go_on.set()
        until(lambda: (1, 2, "completed") in seen)
    assert seen == {(0, 0, "queued"), (0, 0, "running"), (1, 2, "completed")}
    first, second, none = answers
    assert none is None
    assert {queue.get(answer).status for answer in (first, second)} == {"queued"}
    assert queue.get(second).dedupe_key == "new"
    job = queue.get(id)
    assert (job.attempt, job.error, job.lease_expires_at) == (1, None, None)
    assert job.finished_at is not None


def test_of_a_block_that_raises_nothing_is_stored_and_the_next_attempt_stores_it_once(db: DB, way: Way) -> None:
    told, keys = Told(), []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            keys.append(await made(queue.queue.enqueue("next", dedupe_key="k", session=session)))
            if job.attempt < 3:
                raise ValueError("halfway")

    queue = working(way, work, on_job_event=told)
    id = queue.add(**NOW)
    told.wait_for("completed")
    job = queue.get(id)
    assert (job.status, job.attempt) == ("completed", 3)
    assert [order["_id"] for order in db.orders.find()] == [id]
    assert [job["_id"] for job in db.job.find({"action": "next"})] == keys[-1:]
    assert [event.kind for event in told.events if event.job_id == id] == [
        *(["claimed", "failed"] * 2),
        "claimed",
        "completed",
    ]
    assert [event.error_name for event in told.of("failed")] == ["ValueError"] * 2


def test_of_a_block_in_the_last_attempt_that_raises_nothing_is_stored_and_the_job_fails(db: DB, way: Way) -> None:
    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            raise ValueError("halfway")

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]))
    job = queue.get(id)
    assert (job.status, job.failure_kind, job.error["message"]) == ("failed", "retries-exhausted", "halfway")
    assert db.orders.count_documents({}) == 0


def test_an_error_that_the_block_swallows_and_the_server_does_not_fails_the_attempt(db: DB, way: Way) -> None:
    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            with suppress(DuplicateKeyError):  # which has aborted the transaction
                await made(way.db.orders.insert_one({"_id": "there"}, session=session))

    db.orders.insert_one({"_id": "there"})
    queue = working(way, work)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]))
    assert queue.get(id).status == "failed"
    assert db.orders.count_documents({}) == 1


def test_a_handler_may_try_its_block_again_in_the_same_run(db: DB, way: Way) -> None:
    async def work(job: Any, ctx: Any) -> None:
        for attempt in range(20):
            with suppress(LookupError):
                async with block(ctx) as session:
                    await made(way.db.orders.insert_one({"_id": job.id, "try": attempt}, session=session))
                    if attempt < 19:
                        raise LookupError

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]))
    assert (queue.get(id).status, queue.get(id).error) == ("completed", None)
    assert list(db.orders.find()) == [{"_id": id, "try": 19}]


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "second"])
def test_a_second_transaction_of_a_run_is_an_error_that_says_why(
    db: DB, way: Way, nested: bool, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[RuntimeError] = []

    async def another(ctx: Any) -> None:
        try:
            async with block(ctx):
                pass
        except RuntimeError as error:
            errors.append(error)
            raise

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            if nested:
                await another(ctx)
        await another(ctx)

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]))
    until(lambda: errors)  # the second is asked for when the job has ended
    (error,) = errors
    assert id in str(error)
    assert ("is open" if nested else "has completed the job") in str(error)
    assert (queue.get(id).status, db.orders.count_documents({})) == (("failed", 0) if nested else ("completed", 1))


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_block_that_ends_the_transaction_itself_fails_and_does_not_complete_the_job(
    db: DB, way: Way, end: str
) -> None:
    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            await made(getattr(session, end)())

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]))
    job = queue.get(id)
    assert job.status == "failed"
    assert "ended the transaction" in job.error["message"]


def test_what_a_handler_raises_after_its_block_changes_nothing_and_is_logged(
    db: DB, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
        raise ValueError("too late")

    queue = working(way, work, on_job_event=told)
    id = queue.add()
    event = told.wait_for("completed")
    job = queue.get(id)
    assert (job.status, job.error, job.attempt) == ("completed", None, 1)
    assert [event.kind for event in told.events] == ["claimed", "completed"]
    assert (event.job_id, event.attempt) == (id, 1)
    assert event.duration > 0
    (record,) = [record for record in caplog.records if "was completed by its transaction" in record.message]
    assert record.levelno == logging.WARNING
    assert record.exc_info is not None
    assert "too late" in str(record.exc_info[1])


def test_lines_logged_in_the_block_are_stored_with_it_and_those_before_it_too(db: DB, way: Way) -> None:
    inside, go_on = threading.Event(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        ctx.log("before")
        async with block(ctx):
            ctx.log("inside")
            inside.set()
            await held(go_on)
        ctx.log("after, and dropped")

    queue = working(way, work)
    id = queue.add()
    assert inside.wait(60)
    threading.Event().wait(1.5)  # longer than a line waits for others: only the transaction keeps it from being written
    assert queue.get(id).logs == ()
    go_on.set()
    until(ended(db.job, [id]))
    assert [line.message for line in queue.get(id).logs] == ["before", "inside"]


def test_lines_logged_in_a_block_that_fails_are_not_lost(db: DB, way: Way) -> None:
    async def work(job: Any, ctx: Any) -> None:
        ctx.log(f"before {job.attempt}")
        async with block(ctx) as session:
            ctx.log(f"inside {job.attempt}")
            if job.attempt == 1:
                raise ValueError("halfway")
            if job.attempt == 2:
                await made(session.abort_transaction())  # so that its end fails
        ctx.log("dropped")

    queue = working(way, work)
    id = queue.add(**NOW)
    until(ended(db.job, [id]))
    lines = [line.message for line in queue.get(id).logs]
    assert lines == [f"{where} {attempt}" for attempt in (1, 2, 3) for where in ("before", "inside")]


# What others write at the same time.


def test_a_job_that_another_transaction_has_for_a_moment_is_waited_for_and_costs_no_attempt(
    db: DB, client: MongoClient[dict[str, Any]], way: Way
) -> None:
    begun, inside, go_on = threading.Event(), threading.Event(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        begun.set()
        await held(go_on)
        async with block(ctx) as session:
            inside.set()
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    assert begun.wait(60)
    with client.start_session() as session, session.start_transaction():
        db.job.update_one({"_id": id}, {"$set": {"data.progress": 1}}, session=session)
        go_on.set()
        assert not inside.wait(0.5)
    until(ended(db.job, [id]))
    assert (queue.get(id).status, queue.get(id).data) == ("completed", {"progress": 1})
    assert db.orders.count_documents({}) == 1


def test_a_job_that_another_transaction_keeps_fails_the_attempt(
    db: DB, client: MongoClient[dict[str, Any]], way: Way
) -> None:
    told = Told()

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))

    queue = way.open(on_job_event=told)
    queue.startup()
    id = queue.add(max_attempts=1)
    handle = threading.Event()

    async def waits(job: Any, ctx: Any) -> None:
        handle.set()
        await held(taken)
        try:
            await work(job, ctx)
        finally:
            left.set()

    taken, left = threading.Event(), threading.Event()
    queue.process("a", way.handler(waits))
    queue.start(reaper=False)
    assert handle.wait(60)
    with client.start_session() as session, session.start_transaction():
        db.job.update_one({"_id": id}, {"$set": {"data.progress": 1}}, session=session)
        taken.set()
        assert left.wait(60)
    until(ended(db.job, [id]))
    assert "WriteConflict" in queue.get(id).error["message"]
    assert db.orders.count_documents({}) == 0


def test_an_update_from_outside_waits_for_the_block_and_then_applies(db: DB, way: Way) -> None:
    inside, go_on, updated = threading.Event(), threading.Event(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx):
            inside.set()
            await held(go_on)

    def update() -> None:
        assert JobQueue(db).update(str(job["_id"]), {"progress": 1}).modified_count == 1
        updated.set()

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    assert inside.wait(60)
    job: Any = db.job.find_one()
    outside = threading.Thread(target=update)
    outside.start()
    assert not updated.wait(0.3)
    go_on.set()
    outside.join()
    until(ended(db.job, [id]))
    assert (queue.get(id).status, queue.get(id).data) == ("completed", {"progress": 1})


def test_a_conflict_on_the_handlers_own_documents_is_a_failed_attempt_and_the_next_sees_the_new_data(
    db: DB, way: Way
) -> None:
    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            order = await made(way.db.orders.find_one({"_id": 1}, session=session))
            if job.attempt == 1:
                db.orders.update_one({"_id": 1}, {"$inc": {"n": 1}})
            await made(way.db.orders.update_one({"_id": 1}, {"$set": {"n": order["n"] + 1}}, session=session))

    told = Told()
    db.orders.insert_one({"_id": 1, "n": 0})
    queue = working(way, work, on_job_event=told)
    id = queue.add(max_attempts=2, **NOW)
    until(ended(db.job, [id]))
    assert (queue.get(id).status, queue.get(id).attempt) == ("completed", 2)
    assert db.orders.find_one() == {"_id": 1, "n": 2}
    assert told.of("failed")[0].error_name == "OperationFailure"


# What the block does to its own job.


def test_an_update_of_the_own_job_commits_with_the_block_or_not_at_all(db: DB, way: Way) -> None:
    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(queue.queue.update(job.id, {"progress": job.attempt}, session=session))
            if job.attempt == 1:
                raise ValueError("halfway")

    told = Told()
    queue = working(way, work, on_job_event=told)
    id = queue.add(backoff="fixed", backoff_delay=0.3)
    told.wait_for("failed")
    assert queue.get(id).data == {}
    until(ended(db.job, [id]))
    assert queue.get(id).data == {"progress": 2}


@pytest.mark.parametrize("given", ["nothing", "a session outside of a transaction", "a UUID"])
def test_an_update_of_the_own_job_that_would_wait_for_the_block_is_refused_at_once(
    db: DB, way: Way, given: str
) -> None:
    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx):
            other = way.client.start_session()
            session = other if given == "a session outside of a transaction" else None
            try:
                await made(queue.queue.update(job.id, {"progress": 1}, session=session))
            finally:
                await made(other.end_session())

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]), 20)
    error = queue.get(id).error
    assert error["name"] == "RuntimeError"
    assert id in error["message"]
    assert "session=" in error["message"]


def test_an_update_of_another_job_and_one_of_the_own_after_the_block_are_not_refused(db: DB, way: Way) -> None:
    async def work(job: Any, ctx: Any) -> None:
        with suppress(LookupError):
            async with block(ctx):
                await made(queue.queue.update(other, {"n": 1}))
                raise LookupError
        await made(queue.queue.update(job.id, {"n": 2}))

    queue = working(way, work)
    other = queue.add("other")
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]))
    assert (queue.get(id).status, queue.get(id).data, queue.get(other).data) == ("completed", {"n": 2}, {"n": 1})


def test_a_cancel_of_the_own_job_in_the_block_finds_it_running_and_waits_for_nothing(db: DB, way: Way) -> None:
    answers: list[Any] = []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            answers.append(await made(queue.queue.cancel(job.id)))
            answers.append(await made(queue.queue.cancel(job.id, session=session)))

    queue = working(way, work)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]), 20)
    assert (queue.get(id).status, answers) == ("completed", [None, None])


# Where there is none.


def test_a_standalone_server_is_an_error_that_says_what_to_start_and_fails_the_job_for_good(
    request: pytest.FixtureRequest,
) -> None:
    errors: list[BaseException] = []

    async def work(job: Any, ctx: Any) -> None:
        try:
            async with block(ctx):
                pass
        except TransactionsUnsupportedError as error:
            errors.append(error)
            raise

    with standalone() as url, MongoClient[dict[str, Any]](url) as client:
        for name in ("def", "async def", "async def on a JobQueue"):
            errors.clear()
            db = client[f"test_{uuid7().hex}"]
            way = Way(name, url, db.name)
            try:
                queue = working(way, work)
                id = queue.add()
                until(ended(db.job, [id]))
                job = queue.get(id)
                assert (job.status, job.failure_kind, job.attempt) == ("failed", "fatal", 1)
                assert id in str(errors[0])
                assert "--replSet" in str(errors[0])
            finally:
                way.close()


def test_a_def_handler_on_an_async_queue_is_told_to_become_async_def(db: DB, mongo_url: str) -> None:
    def work(job: Any, ctx: Any) -> None:
        with ctx.transaction():
            pass

    way = Way("async def", mongo_url, db.name)
    try:
        queue = way.open()
        queue.process("a", work)
        queue.start(reaper=False)
        id = queue.add()
        until(ended(db.job, [id]))
        job = queue.get(id)
        assert (job.status, job.failure_kind) == ("failed", "fatal")
        assert job.error["name"] == "TransactionsUnsupportedError"
        assert id in job.error["message"]
        assert "async def" in job.error["message"]
        assert "replSet" not in job.error["message"]
    finally:
        way.close()
