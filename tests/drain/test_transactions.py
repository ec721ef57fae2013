"""A transaction and the end of its process: a drain, a kill at any moment, and runs in the caller's own thread."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, JobQueue, MongoJobQueue
from simplequeue.embedded import Mongod
from tests.commands.processes import Running
from tests.drain.queues import Events
from tests.drain.test_run_claimed_interrupted import interrupt_main
from tests.runtime.ways import Way, block, held, made
from tests.watching import ended, until

Db = Database[dict[str, Any]]
NOW: Any = {"backoff": "fixed", "backoff_delay": 0}


async def held_in_spite_of_all(event: threading.Event) -> None:
    """Waits for an event, whoever cancels."""
    while not event.is_set():
        with suppress(asyncio.CancelledError):
            await held(event)


# Drains.


def test_a_block_that_ends_in_the_grace_of_a_shutdown_commits(db: Db, way: Way) -> None:
    events, inside, go_on = Events(), threading.Event(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            inside.set()
            await held(go_on)

    queue = way.open(on_job_event=events)
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    id = queue.add()
    assert inside.wait(30)
    threading.Timer(0.3, go_on.set).start()
    assert queue.shutdown(30) is True
    assert (queue.get(id).status, db.orders.count_documents({})) == ("completed", 1)
    assert events.kinds == ["claimed", "completed"]


def test_a_block_that_heeds_a_shutdown_is_undone_and_given_back_with_no_attempt_spent(db: Db, way: Way) -> None:
    events, inside = Events(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            inside.set()
            if way.waits:
                ctx.signal.wait(60)
                ctx.signal.raise_if_set()
            else:
                await asyncio.Event().wait()

    queue = way.open(on_job_event=events)
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    id = queue.add(max_attempts=1)
    assert inside.wait(30)
    assert queue.shutdown(0.2) is True
    job = queue.get(id)
    assert (job.status, job.attempt, job.error, db.orders.count_documents({})) == ("queued", 0, None, 0)
    assert events.kinds == ["claimed", "shutdown-released"]


@pytest.mark.parametrize("then", ["commits", "fails"])
def test_a_block_that_ignores_a_shutdown_holds_up_nobody_and_may_still_commit_once(db: Db, way: Way, then: str) -> None:
    """A release of its job would wait for the block, and those of other runs that are written with it."""
    events, inside, go_on, over = Events(), threading.Event(), threading.Event(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        if job.data:
            await held_in_spite_of_all(go_on)
            return
        try:
            async with block(ctx) as session:
                await made(way.db.orders.insert_one({"_id": job.id}, session=session))
                inside.set()
                await held_in_spite_of_all(go_on)
                if then == "fails":
                    raise ValueError("halfway")
        finally:
            over.set()

    queue = way.open(on_job_event=events)
    queue.process("a", way.handler(work), concurrency=2)
    id, other = queue.add(), queue.add("a", {"other": True})
    queue.start(reaper=False)
    assert inside.wait(30)
    until(lambda: db.job.count_documents({"status": "running"}) == 2)
    assert queue.shutdown(0.2) is False
    assert [job["status"] for job in db.job.find({"_id": {"$in": [id, other]}}, sort=[("_id", 1)])] == [
        "running",
        "queued",
    ]
    go_on.set()
    assert over.wait(30)
    if then == "commits":
        until(ended(db.job, [id]))
        if way.is_async or way.waits:  # the loop of a JobQueue's handlers is closed, and nobody hears of the end
            events.wait_for("completed")
    else:  # its lease ends, and it is tried again like any
        db.job.update_one({"_id": id}, {"$set": {"durable.lease_expires_at": datetime(2020, 1, 1, tzinfo=UTC)}})
        assert MongoJobQueue(db).recover().handled == 1
    job = JobQueue(db).get(id)
    assert job is not None
    assert (job.status, db.orders.count_documents({})) == (("completed", 1) if then == "commits" else ("queued", 0))
    kinds = [event.kind for event in events.all if getattr(event, "job_id", None) == id]
    assert kinds in ([["claimed"]] if then == "fails" else [["claimed", "completed"], ["claimed"]])


# In the caller's own thread, or on its loop.


def test_run_claimed_runs_blocks_and_then_the_follower_that_one_enqueued(db: Db, way: Way) -> None:
    ran: list[int] = []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            ran.append(job.data["n"])
            if len(ran) < 3:
                key: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}
                assert await made(queue.queue.enqueue("a", {"n": job.data["n"] + 1}, session=session, **key))

    queue = way.open(visibility_timeout=1)
    queue.startup()
    handle = queue.claim_or_enqueue("a", {"n": 0}, dedupe_key="k", dedupe_scope="queued")
    queue.run_claimed(handle, way.handler(work))
    assert ran == [0, 1, 2]
    assert db.job.count_documents({"status": "completed"}) == db.orders.count_documents({}) == 3


@pytest.mark.parametrize("where", ["in the block", "after it"])
def test_run_claimed_raises_what_the_handler_raised_and_the_job_tells_whether_it_was_committed(
    db: Db, way: Way, where: str
) -> None:
    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            if where == "in the block":
                raise ValueError("halfway")
        raise ValueError("afterwards")

    queue = way.open()
    handle = queue.claim_or_enqueue("a", max_attempts=1)
    with pytest.raises(ValueError, match="halfway" if where == "in the block" else "afterwards"):
        queue.run_claimed(handle, way.handler(work))
    expected = ("failed", 0) if where == "in the block" else ("completed", 1)
    assert (queue.get(handle.job.id).status, db.orders.count_documents({})) == expected


def test_a_write_to_the_own_job_through_its_handle_is_refused_in_the_block(db: Db, way: Way) -> None:
    errors: list[str] = []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx):
            for call in (handle.complete, handle.release, handle.heartbeat, lambda: handle.fail("no")):
                try:
                    await made(call())
                except RuntimeError as error:
                    errors.append(str(error))
            try:
                await made(handle.log("a line"))
            except RuntimeError as error:
                errors.append(str(error))

    queue = way.open()
    handle = queue.claim_or_enqueue("a", max_attempts=1)
    queue.run_claimed(handle, way.handler(work))
    assert len(errors) == 5
    assert all(handle.job.id in error for error in errors)
    assert queue.get(handle.job.id).status == "completed"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_interrupt_in_a_block_undoes_it_and_fails_the_job_at_once(db: Db, kind: str) -> None:
    inside = threading.Event()

    def work(job: Any, ctx: Any) -> None:
        with ctx.transaction() as session:
            db.orders.insert_one({"_id": job.id}, session=session)
            inside.set()
            for _ in range(300):  # a signal that comes just before a wait does not end it
                threading.Event().wait(0.1)

    async def async_work(job: Any, ctx: Any) -> None:
        async with ctx.transaction() as session:
            db.orders.insert_one({"_id": job.id}, session=session)
            inside.set()
            await asyncio.Event().wait()

    queue = JobQueue(db)
    handle = queue.claim_or_enqueue("a", max_attempts=1)
    assert handle is not None
    earlier = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    interrupting = interrupt_main(inside)
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.run_claimed(handle, work if kind == "def" else async_work)
    finally:
        signal.signal(signal.SIGUSR1, earlier)
        interrupting.join(30)
    job: Any = queue.get(handle.job.id)
    assert (job.status, db.orders.count_documents({})) == ("failed", 0)
    assert queue.shutdown(5) is True


def test_a_cancelled_caller_undoes_the_block_and_fails_the_job_at_once(mongo_url: str, db: Db) -> None:
    async def main() -> None:
        inside = asyncio.Event()

        async def work(job: Any, ctx: Any) -> None:
            async with ctx.transaction() as session:
                await client[db.name].orders.insert_one({"_id": job.id}, session=session)
                inside.set()
                await asyncio.Event().wait()

        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = AsyncJobQueue(client[db.name])
            handle = await queue.claim_or_enqueue("a", max_attempts=1)
            assert handle is not None
            running = asyncio.create_task(queue.run_claimed(handle, work))
            await asyncio.wait_for(inside.wait(), 30)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(running, 20)
            job: Any = await queue.get(handle.job.id)
            assert (job.status, db.orders.count_documents({})) == ("failed", 0)
            assert await queue.shutdown(5) is True

    asyncio.run(main())


# Kills.


@contextmanager
def short_transactions(db: Db) -> Iterator[None]:
    """Has the server end a transaction after a second or two instead of a minute or more."""
    limit = "transactionLifetimeLimitSeconds"
    db.client.admin.command({"setParameter": 1, limit: 1})
    try:
        yield
    finally:
        db.client.admin.command({"setParameter": 1, limit: 60})


@contextmanager
def worker(mode: str, colour: str, server: Mongod, name: str) -> Iterator[Running]:
    """A worker of its own process, ``tests/drain/committing.py``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.drain.committing", mode, colour, server.uri, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    running = Running(process)
    try:
        yield running
    finally:
        process.kill()
        running.end()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_worker_killed_in_a_block_leaves_nothing_and_the_job_completes_elsewhere(
    server: Mongod,  # a fixture
    own_db: Db,
    colour: str,
) -> None:
    queue = JobQueue(own_db)
    queue.startup()
    with short_transactions(own_db):
        id: Any = queue.enqueue("a", **NOW)
        with worker("inside", colour, server, own_db.name) as first:
            first.wait_for("inside", "stdout")
            first.send(signal.SIGKILL)
            first.end()
        assert own_db.orders.count_documents({}) == 0
        # This waits until the server has ended the transaction.
        own_db.job.update_one({"_id": id}, {"$set": {"durable.lease_expires_at": datetime(2020, 1, 1, tzinfo=UTC)}})
        assert own_db.orders.count_documents({}) == own_db.job.count_documents({"action": "next"}) == 0
        with worker("works", colour, server, own_db.name):
            until(ended(own_db.job, [id]))
    job: Any = queue.get(id)
    assert (job.status, job.attempt) == ("completed", 2)
    assert own_db.orders.count_documents({}) == own_db.job.count_documents({"action": "next"}) == 1


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_worker_killed_after_the_commit_and_before_its_handler_ends_has_done_the_job_once(
    server: Mongod,  # a fixture
    own_db: Db,
    colour: str,
) -> None:
    queue = JobQueue(own_db)
    queue.startup()
    id: Any = queue.enqueue("a", **NOW)
    with worker("after", colour, server, own_db.name) as first:
        first.wait_for("after", "stdout")
        first.send(signal.SIGKILL)
        first.end()
    job: Any = queue.get(id)
    assert (job.status, job.attempt, job.lease_expires_at) == ("completed", 1, None)
    assert own_db.orders.count_documents({}) == own_db.job.count_documents({"action": "next"}) == 1
    assert MongoJobQueue(own_db).recover().handled == 0
    assert MongoJobQueue(own_db).claim(["a"], 1, lease=60) == []


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_workers_killed_at_random_moments_have_each_effect_once(
    server: Mongod,  # a fixture
    own_db: Db,
    colour: str,
) -> None:
    chance = random.Random(7)
    queue = JobQueue(own_db)
    queue.startup()
    ids = [str(queue.enqueue("a", max_attempts=1_000, **NOW)) for _ in range(150)]
    kills = 0
    with short_transactions(own_db):
        while not ended(own_db.job, ids)():
            with worker("short", colour, server, own_db.name) as one:
                one.wait_for("works", "stdout")
                if kills < 8:
                    threading.Event().wait(chance.uniform(0.02, 0.6))
                    one.send(signal.SIGKILL)
                    kills += 1
                else:
                    until(ended(own_db.job, ids))
    assert kills >= 4
    assert own_db.job.count_documents({"_id": {"$in": ids}, "status": "completed"}) == len(ids)
    assert sorted(order["job"] for order in own_db.orders.find()) == sorted(ids)
    assert sorted(job["data"]["of"] for job in own_db.job.find({"action": "next"})) == sorted(ids)
