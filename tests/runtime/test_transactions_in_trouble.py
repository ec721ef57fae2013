"""A transaction whose server fails it: answers that are lost, commits that never arrive, a server that freezes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pymongo.database import Database

from simplequeue.embedded import Mongod
from tests.listening.conftest import FailCommand
from tests.listening.test_outage import frozen, pass_time
from tests.runtime.conftest import Told
from tests.runtime.ways import Way, block, held, made
from tests.watching import ended, until

DB = Database[dict[str, Any]]
ALWAYS = 1_000
LOST: list[tuple[int, dict[str, Any]]] = [
    (1, {"closeConnection": True}),
    (2, {"closeConnection": True}),
    (1, {"errorCode": 6, "errorLabels": ["RetryableWriteError"]}),
    (3, {"errorCode": 50}),  # MaxTimeMSExpired: applied or not
    (1, {"writeConcernError": {"code": 91, "errmsg": "going down"}}),  # applied
    (ALWAYS, {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}),  # applied each time
]


@pytest.mark.parametrize(("times", "how"), LOST, ids=[f"{times} {next(iter(how))}" for times, how in LOST])
def test_a_commit_whose_answer_is_lost_is_found_out_and_the_effect_is_there_once(
    own_db: DB, own_way: Way, fail_command: FailCommand, times: int, how: dict[str, Any]
) -> None:
    told = Told()

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(own_way.db.orders.insert_one({"_id": job.id}, session=session))

    queue = own_way.open(on_job_event=told)
    queue.startup()
    queue.process("a", own_way.handler(work))
    with fail_command(["commitTransaction"], times, **how) as failed:
        queue.start(reaper=False)
        id = queue.add(max_attempts=1)
        told.wait_for("completed")
        assert failed() >= min(times, 2)
    assert (queue.get(id).status, queue.get(id).attempt, queue.get(id).error) == ("completed", 1, None)
    assert [event.kind for event in told.events] == ["claimed", "completed"]
    assert [order["_id"] for order in own_db.orders.find()] == [id]


def test_a_commit_that_never_arrives_is_undone_and_holds_up_no_end_of_another_run(
    own_db: DB, own_way: Way, fail_command: FailCommand
) -> None:
    """The driver takes such a transaction for committed and leaves it open: for up to 90 seconds it had the job."""
    told, end = Told(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        if job.data:
            await held(end)
            return
        async with block(ctx) as session:
            await made(own_way.db.orders.insert_one({"_id": job.id}, session=session))

    queue = own_way.open(on_job_event=told, visibility_timeout=2)
    queue.startup()
    queue.process("a", own_way.handler(work), concurrency=2)
    with fail_command(["commitTransaction"], ALWAYS, closeConnection=True) as failed:
        queue.start(reaper=False)
        other, id = queue.add("a", {"other": True}), queue.add(backoff="fixed", backoff_delay=1)
        until(lambda: failed() >= 8)
        told.wait_for("failed")
    end.set()
    until(ended(own_db.job, [id, other]), 20)
    told.wait_for("completed", 2)
    assert [event.kind for event in told.events if event.job_id == id] == ["claimed", "failed", "claimed", "completed"]
    assert [event.kind for event in told.events if event.job_id == other] == ["claimed", "completed"]
    assert own_db.orders.count_documents({}) == 1


@pytest.mark.parametrize("when", ["in the block", "before its commit"])
def test_a_server_that_freezes_for_longer_than_the_lease_costs_no_run(
    server: Mongod,  # a fixture
    own_db: DB,
    own_way: Way,
    when: str,
) -> None:
    told, inside, go_on = Told(), threading.Event(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            if when == "before its commit":
                await made(own_way.db.orders.insert_one({"_id": job.id}, session=session))
            inside.set()
            await held(go_on)
            if when == "in the block":
                await made(own_way.db.orders.insert_one({"_id": job.id}, session=session))

    own_db.create_collection("orders")
    queue = own_way.open(on_job_event=told, visibility_timeout=1)
    queue.process("a", own_way.handler(work))
    queue.start(reaper_interval=0.2)
    id = queue.add(max_attempts=1)
    assert inside.wait(60)
    with frozen(server):
        go_on.set()
        pass_time(2.5)
    told.wait_for("completed")
    assert (queue.get(id).status, queue.get(id).attempt) == ("completed", 1)
    assert [event.kind for event in told.events if hasattr(event, "job_id")] == ["claimed", "completed"]
    assert own_db.orders.count_documents({}) == 1


def test_a_server_that_cannot_begin_one_fails_the_attempt_and_the_next_completes(
    own_db: DB, own_way: Way, fail_command: FailCommand
) -> None:
    told = Told()

    async def work(job: Any, ctx: Any) -> None:
        if job.attempt == 1:
            with fail_command(["update"], ALWAYS, errorCode=112, errorLabels=["TransientTransactionError"]) as failed:
                try:
                    async with block(ctx):
                        pass
                finally:
                    tried.append(failed())
        async with block(ctx) as session:
            await made(own_way.db.orders.insert_one({"_id": job.id}, session=session))

    tried: list[int] = []
    queue = own_way.open(on_job_event=told)
    queue.process("a", own_way.handler(work))
    queue.start(reaper=False)
    id = queue.add(backoff="fixed", backoff_delay=0)
    told.wait_for("completed")
    assert (queue.get(id).status, queue.get(id).attempt, tried) == ("completed", 2, [10])
    assert own_db.orders.count_documents({}) == 1
