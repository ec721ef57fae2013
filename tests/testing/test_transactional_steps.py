"""Transactional steps, on a real replica set: what is rolled back and what has committed, wherever the worker dies."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import JobQueue, RunAborted
from durabl_ext.testing import CrashUnsafe, OrchestrationHarness, assert_crash_safe
from simplequeue import Status

KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["def", "async def"])


def bodies(db: Database[Any]) -> tuple[Any, Any]:
    """Notes, pays in a transaction and tells; twice in each kind."""

    def pay(step: Any) -> str:
        db.ledger.insert_one({"amount": 5}, session=step.session)
        db.ledger.insert_one({"fee": 1}, session=step.session)
        return "paid"

    def waiting(job: Any, octx: Any) -> None:
        octx.step("note", lambda step: octx.log("noted"))
        octx.step("pay", pay, transactional=True)
        octx.step("tell", lambda step: "told")

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.step("note", lambda step: None)
        await octx.step("pay", pay, transactional=True)
        await octx.step("tell", lambda step: "told")

    return waiting, awaiting


def ledger(db: Database[Any]) -> list[Any]:
    return sorted(sorted(document.items()) for document in db.ledger.find({}, {"_id": 0}))


PAID = [[("amount", 5)], [("fee", 1)]]


@KINDS
def test_a_crash_before_its_commit_rolls_everything_back(db: Database[Any], kind: int) -> None:
    harness = OrchestrationHarness(bodies(db)[kind], db=db)
    harness.crash_before("pay")
    assert ledger(db) == []
    assert [step.name for step in harness.steps] == ["note"]
    assert harness.resume().status is Status.COMPLETED
    assert ledger(db) == PAID


@KINDS
def test_after_its_commit_a_crash_changes_nothing(db: Database[Any], kind: int) -> None:
    harness = OrchestrationHarness(bodies(db)[kind], db=db)
    harness.crash_after("pay")
    assert ledger(db) == PAID
    assert [step.name for step in harness.steps] == ["note", "pay"]
    assert harness.resume().status is Status.COMPLETED
    assert ledger(db) == PAID


@KINDS
def test_a_worker_that_lost_its_lease_in_a_transaction_commits_nothing(db: Database[Any], kind: int) -> None:
    harness = OrchestrationHarness(bodies(db)[kind], db=db)
    harness.lose_lease_before("pay")
    assert ledger(db) == PAID
    assert harness.job.status is Status.COMPLETED
    assert [step.name for step in harness.steps] == ["note", "pay", "tell"]


def test_a_run_that_changes_the_job_after_it_lost_it_is_an_error(db: Database[Any]) -> None:
    def body(job: Any, octx: Any) -> None:
        try:
            octx.step("a", lambda step: None)
        except RunAborted:
            db.orchestration_harness.update_one({"_id": job.id}, {"$set": {"status": "failed"}})
            raise

    with pytest.raises(AssertionError, match="has changed job"):
        OrchestrationHarness(body, db=db).lose_lease_before("a")


@KINDS
def test_a_transaction_that_ends_after_its_worker_died_is_rolled_back(db: Database[Any], kind: int) -> None:
    # The other step is not journaled, since the transaction has the job.
    begun = threading.Event()

    def pay(step: Any) -> None:
        db.ledger.insert_one({"amount": 5}, session=step.session)
        begun.set()
        assert step.signal.wait(20)

    def wait_for_pay(step: Any) -> None:
        assert begun.wait(20)

    def waiting(job: Any, octx: Any) -> None:
        octx.all(lambda octx: octx.step("pay", pay, transactional=True), lambda octx: octx.step("other", wait_for_pay))

    async def awaiting(job: Any, octx: Any) -> None:
        await asyncio.gather(octx.step("pay", pay, transactional=True), octx.step("other", wait_for_pay))

    harness = OrchestrationHarness((waiting, awaiting)[kind], db=db)
    harness.crash_before("other")
    assert ledger(db) == []
    assert harness.steps == []


@KINDS
def test_a_body_with_a_transactional_step_is_crash_safe(db: Database[Any], kind: int) -> None:
    def effects() -> list[Any]:
        done = ledger(db)
        db.ledger.delete_many({})
        return done

    assert_crash_safe(bodies(db)[kind], effects=effects, db=db)


def test_transactional_steps_in_branches_are_crash_safe(db: Database[Any]) -> None:
    db.create_collection("ledger")

    def pay(step: Any, amount: int) -> None:
        db.ledger.insert_one({"a": amount}, session=step.session)

    def branch(amount: int) -> Any:
        def steps(octx: Any) -> None:
            octx.step("pay", pay, amount, transactional=True)
            octx.step("tell", lambda step: None)

        return steps

    def effects() -> list[Any]:
        done = ledger(db)
        db.ledger.delete_many({})
        return done

    assert_crash_safe(lambda job, octx: octx.all(branch(1), branch(2)), effects=effects, db=db)


def test_a_write_that_forgot_its_session_is_found_with_the_right_advice(db: Database[Any]) -> None:
    def pay(step: Any) -> None:
        db.ledger.insert_one({"amount": 5})

    def body(job: Any, octx: Any) -> None:
        octx.step("pay", pay, transactional=True)

    def effects() -> list[Any]:
        done = ledger(db)
        db.ledger.delete_many({})
        return done

    with pytest.raises(CrashUnsafe, match=r"pass session=step\.session to each of its writes") as raised:
        assert_crash_safe(body, effects=effects, db=db)
    assert (raised.value.step, raised.value.seq) == ("pay", "0")
    assert "OrchestrationHarness(body, db=db)" in str(raised.value)


def test_the_job_is_none_of_the_application_s_queue(db: Database[Any]) -> None:
    queue = JobQueue(db)
    id = queue.enqueue("orchestration", {"mine": True})
    assert id is not None
    harness = OrchestrationHarness(bodies(db)[0], db=db)
    harness.crash_after("note")
    harness.resume()
    job = queue.get(id)
    assert job is not None
    assert job.status is Status.QUEUED
    assert db.job.count_documents({}) == 1


def test_a_new_harness_of_the_same_id_starts_with_an_empty_journal(db: Database[Any]) -> None:
    for _ in range(2):
        harness = OrchestrationHarness(bodies(db)[0], db=db)
        harness.crash_after("note")
        assert [step.name for step in harness.steps] == ["note"]
        assert harness.attempts == harness.job.attempt == 1


def test_an_async_database_is_refused_with_what_to_give() -> None:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(connect=False)
    with pytest.raises(TypeError, match="give a Database of the same server"):
        OrchestrationHarness(lambda job, octx: None, db=client.app)  # type: ignore[arg-type]
