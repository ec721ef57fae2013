"""What the documentation promises of orchestrations, a sentence a test."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import Renewed
from tests.orchestrator.conftest import Bench, Crash, Gate
from tests.orchestrator.programs import Point, Work, workers
from tests.watching import until

DB = Database[dict[str, Any]]
PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Once:
    """Raises the first time it is called."""

    def __init__(self) -> None:
        self.called = 0

    def __call__(self, *_: object) -> None:
        self.called += 1
        if self.called == 1:
            raise Crash


def test_steps_that_are_done_are_kept_on_the_job_and_skipped_when_it_resumes(bench: Bench) -> None:
    crash = Once()

    async def body(job: Any, octx: Any) -> None:
        assert await octx.step("load", bench.does("load", {"n": 1})) == {"n": 1}
        crash()
        await octx.step("pay", bench.does("pay"))

    job = bench.done(body)
    assert (job.status, job.attempt) == ("completed", 2)
    assert bench.ran == ["load", "pay"]
    assert [(step["seq"], step["name"], step["result"]) for step in bench.steps(job.id)] == [
        ("0", "load", {"n": 1}),
        ("1", "pay", None),
    ]


def test_a_step_is_not_exactly_once_a_crash_before_its_journal_runs_it_again_with_the_same_key(
    bench: Bench, mongo_url: str
) -> None:
    id = bench.add("mine")
    with workers(mongo_url, bench.db.name) as processes:
        code, _ = processes.run(Work(bench.flavour, {"mine": "sequence"}, Point("before", "append", 1)))
        assert code == -9
        bench.db.job.update_one({"_id": id}, {"$set": {"durable.lease_expires_at": PAST}})
        assert processes.run(Work(bench.flavour, {"mine": "sequence"}))[0] == 0
    keys = [effect["key"] for effect in bench.db.effects.find({"job": id, "seq": "0"})]
    assert keys == [f"{id}:0:a"] * 2


def test_a_key_that_is_given_is_what_the_function_gets_in_every_run(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        await octx.step("pay", bench.does("pay", act=crash), idempotency_key="customer 7")

    crash = Once()
    assert bench.done(body).status == "completed"
    assert bench.keys == [("0", "customer 7")] * 2


def test_a_name_that_differs_from_the_journals_is_fatal_and_runs_nothing(bench: Bench) -> None:
    names = iter(["charge", "refund"])
    crash = Once()

    async def body(job: Any, octx: Any) -> None:
        name = next(names)
        with suppress(Exception):
            await octx.step(name, bench.does(name))
        crash()

    job = bench.done(body)
    assert (job.status, job.failure_kind) == ("failed", "fatal")
    assert job.error is not None
    assert job.error["name"] == "NondeterminismError"
    assert bench.ran == ["charge"]


def test_a_body_that_ends_before_all_that_its_journal_has_is_fatal(bench: Bench) -> None:
    crash = Once()

    async def body(job: Any, octx: Any) -> None:
        for n in range(2 - crash.called):
            await octx.step(f"step {n}", bench.does(f"step {n}"))
        crash()

    job = bench.done(body)
    assert (job.status, job.failure_kind) == ("failed", "fatal")
    assert job.error is not None
    assert "step 'step 1'" in job.error["message"]


def test_the_lease_is_renewed_while_a_step_takes_longer_than_it(bench: Bench) -> None:
    bench.open(visibility_timeout=0.6)
    gate = Gate()

    async def body(job: Any, octx: Any) -> None:
        await octx.step("long", in_a_thread(bench, gate), timeout=60)

    bench.define(body)
    bench.start()
    id = bench.add()
    gate.wait()
    began = lease(bench, id)
    until(lambda: lease(bench, id) > began + timedelta(seconds=1.2))  # two leases later
    gate.opened.set()
    job = bench.ended(id)
    assert (job.status, job.attempt) == ("completed", 1)


def lease(bench: Bench, id: str) -> datetime:
    expires = bench.job(id).lease_expires_at
    assert expires is not None
    return expires


def in_a_thread(bench: Bench, gate: Gate) -> Any:
    """A function that waits at a gate, which blocks no loop."""

    async def waits(step: Any) -> None:
        bench.ran.append("waits")
        await asyncio.to_thread(gate.hold)

    def blocks(step: Any) -> None:
        bench.ran.append("waits")
        gate.hold()

    return blocks if bench.flavour == "def" else waits


def test_a_lease_that_is_lost_stops_the_heartbeats_fires_the_signal_and_no_later_step_runs(bench: Bench) -> None:
    bench.open(visibility_timeout=0.6)
    reasons: list[Any] = []
    swallowed: list[type[BaseException]] = []

    def blocks(step: Any) -> None:
        bench.ran.append("first")
        bench.db.job.update_one({"_id": step.job_id}, {"$set": {"durable.token": "another's"}})
        step.signal.wait(60)
        reasons.append(step.signal.reason)

    async def waits(step: Any) -> None:
        bench.ran.append("first")
        bench.db.job.update_one({"_id": step.job_id}, {"$set": {"durable.token": "another's"}})
        try:
            await step.signal.wait(60)
        finally:
            reasons.append(step.signal.reason)

    async def body(job: Any, octx: Any) -> None:
        for name, fn in (("first", blocks if bench.flavour == "def" else waits), ("second", bench.does("second"))):
            try:
                await octx.step(name, fn, timeout=60)
            except BaseException as error:
                swallowed.append(type(error))
        reasons.append(octx.signal.reason)

    bench.define(body)
    bench.start()
    id = bench.add()
    bench.told.wait_for("lease-lost")
    until(lambda: len(reasons) == 2)
    assert reasons == ["lease-lost", "lease-lost"]
    assert bench.ran == ["first"]
    assert len(swallowed) == 2
    assert bench.front.shutdown(5)
    document = bench.db.job.find_one({"_id": id})
    assert document is not None
    assert (document["status"], document["durable"].get("steps")) == ("running", None)


@pytest.mark.parametrize("options", [{"step_timeout": 0.2}, {"max_duration": 0.2}], ids=str)
def test_a_hung_step_does_not_heartbeat_for_ever(bench: Bench, options: dict[str, Any]) -> None:
    bench.open(visibility_timeout=5)
    gate = Gate()

    async def body(job: Any, octx: Any) -> None:
        await octx.step("hangs", in_a_thread(bench, gate))

    bench.define(body, **options)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert (job.status, job.failure_kind) == ("failed", "retries-exhausted")
    assert job.error is not None
    assert job.error["name"] == ("StepTimeout" if "step_timeout" in options else "MaxDurationExceeded")
    gate.opened.set()


def test_a_step_may_take_the_visibility_timeout_unless_it_says_otherwise(bench: Bench) -> None:
    bench.open(visibility_timeout=0.5)
    gate = Gate()

    async def body(job: Any, octx: Any) -> None:
        await octx.step("hangs", in_a_thread(bench, gate))

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert job.error is not None
    assert (job.error["name"], "0.5 s" in job.error["message"]) == ("StepTimeout", True)
    gate.opened.set()


def test_an_oversized_journal_fails_the_job_with_a_clear_error(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        for n in range(3):
            with suppress(Exception):
                await octx.step(f"step {n}", bench.does(f"step {n}", "x" * 3_900_000))

    job = bench.done(body)
    assert (job.status, job.failure_kind, job.attempt) == ("failed", "fatal", 1)
    assert job.error is not None
    assert job.error["name"] == "JournalTooLarge"
    assert "step 'step 2'" in job.error["message"]
    assert "return an id" in job.error["message"]
    assert [step["name"] for step in bench.steps(job.id)] == ["step 0", "step 1"]


def test_no_log_can_use_up_the_journals_budget_and_the_newest_lines_are_kept(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        for n in range(1_500):
            octx.log(f"{n} " + "語" * 2_000)
        await octx.step("large", bench.does("large", "x" * 7_000_000))

    job = bench.done(body)
    assert job.status == "completed"
    assert len(job.logs) == 1_000
    assert job.logs[-1].message.startswith("1499 ")
    assert all(len(line.message.encode()) <= 4_000 for line in job.logs)


def test_a_step_takes_its_place_when_it_is_called_so_that_gather_is_ordered(async_bench: Bench) -> None:
    bench, crash = async_bench, Once()

    def second(step: Any) -> str:
        return "second"

    def first(step: Any) -> str:
        until(lambda: bench.steps(step.job_id))  # the second is done before
        return "first"

    async def body(job: Any, octx: Any) -> None:
        started = [octx.step("work", first), octx.step("work", second)]
        assert all(isinstance(task, asyncio.Task) for task in started)
        assert await asyncio.gather(*started) == ["first", "second"]
        crash()

    job = bench.done(body)
    assert (job.status, job.attempt) == ("completed", 2)
    assert {step["seq"]: step["result"] for step in bench.steps(job.id)} == {"0": "first", "1": "second"}
    assert [step["result"] for step in bench.steps(job.id)] == ["second", "first"]  # the order they ended in


def test_a_body_that_ends_with_a_step_still_running_is_an_error_that_names_it(async_bench: Bench) -> None:
    bench = async_bench
    gate, left = Gate(), []

    async def body(job: Any, octx: Any) -> None:
        left.append(octx.step("left behind", gate.hold))
        gate.opened.set()

    job = bench.done(body)
    assert (job.status, job.failure_kind) == ("failed", "fatal")
    assert job.error is not None
    assert "'left behind'" in job.error["message"]


def test_a_step_gives_what_is_stored_in_the_first_run_too(bench: Bench) -> None:
    given = datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    crash, seen = Once(), []

    async def body(job: Any, octx: Any) -> None:
        seen.append(await octx.step("time", bench.does("time", given)))
        crash()

    assert bench.done(body).status == "completed"
    assert seen == [given.replace(microsecond=123_000)] * 2


def test_now_and_uuid_come_from_one_record_and_are_the_same_in_every_run(bench: Bench) -> None:
    crash, seen = Once(), []

    async def body(job: Any, octx: Any) -> None:
        seen.append((await octx.now(), await octx.uuid("a"), await octx.uuid("b"), await octx.now()))
        crash()

    job = bench.done(body)
    assert job.status == "completed"
    assert seen[0] == seen[1]
    at, a, b, again = seen[0]
    assert (at, a != b) == (again, True)
    assert at.tzinfo is UTC
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    assert [step["seq"] for step in bench.steps(job.id)] == ["start"]


def test_two_jobs_have_different_uuids_for_one_label(bench: Bench) -> None:
    seen = set()

    async def body(job: Any, octx: Any) -> None:
        seen.add(await octx.uuid("a"))

    bench.define(body)
    bench.start()
    for id in [bench.add(), bench.add()]:
        bench.ended(id)
    assert len(seen) == 2


def test_a_heartbeat_by_hand_renews_the_lease(bench: Bench) -> None:
    seen: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        seen.append(await octx.heartbeat())

    assert bench.done(body).status == "completed"
    assert isinstance(seen[0], Renewed)


def paying(bench: Bench, act: Any = None) -> Any:
    """A function that writes with its step's session, and may do something in the middle."""

    def pay(step: Any) -> str:
        bench.ran.append("pay")
        effects.insert_one({"step": step.seq}, session=step.session)
        if act is not None:
            act(step)
        return "paid"

    async def pay_async(step: Any) -> str:
        bench.ran.append("pay")
        await effects.insert_one({"step": step.seq}, session=step.session)
        if act is not None:
            await asyncio.to_thread(act, step)
        return "paid"

    effects = bench.opener._db.effects
    return pay_async if bench.flavour == "async" else pay


def test_a_transactional_step_and_its_writes_commit_together(bench: Bench) -> None:
    crash = Once()

    async def body(job: Any, octx: Any) -> None:
        assert await octx.step("pay", paying(bench, fail), transactional=True) == "paid"
        crash()

    fail = Once()
    job = bench.done(body)
    assert (job.status, job.attempt) == ("completed", 3)
    assert bench.ran == ["pay", "pay"]  # the first was undone, the third attempt did not run it
    assert bench.db.effects.count_documents({}) == 1


def test_a_transactional_step_runs_again_where_others_write_to_the_same_documents(bench: Bench) -> None:
    bench.db.accounts.insert_one({"_id": 1, "sum": 0})
    meddled: list[int] = []

    def meddle(step: Any) -> None:
        if not meddled:
            meddled.append(1)
            bench.db.accounts.update_one({"_id": 1}, {"$inc": {"sum": 1}})

    accounts = bench.opener._db.accounts

    def pay(step: Any) -> int:
        bench.ran.append("pay")
        accounts.find_one({"_id": 1}, session=step.session)
        meddle(step)
        accounts.update_one({"_id": 1}, {"$inc": {"sum": 10}}, session=step.session)
        return 1

    async def pay_async(step: Any) -> int:
        bench.ran.append("pay")
        await accounts.find_one({"_id": 1}, session=step.session)
        await asyncio.to_thread(meddle, step)
        await accounts.update_one({"_id": 1}, {"$inc": {"sum": 10}}, session=step.session)
        return 1

    async def body(job: Any, octx: Any) -> None:
        await octx.step("pay", pay_async if bench.flavour == "async" else pay, transactional=True)

    job = bench.done(body)
    assert (job.status, job.attempt) == ("completed", 1)
    assert bench.ran == ["pay", "pay"]
    assert bench.db.accounts.find_one() == {"_id": 1, "sum": 11}


def test_heartbeats_and_logs_neither_disturb_a_transactional_step_nor_wait_for_it(bench: Bench) -> None:
    bench.open(visibility_timeout=0.6)
    gate = Gate()
    other: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        if job.data.get("plain"):
            await octx.step("waits", in_a_thread(bench, gate), timeout=60)
        else:
            octx.log("before")
            await octx.step("pay", paying(bench, held), transactional=True, timeout=60)

    def held(step: Any) -> None:
        other.append(bench.add("b", {"plain": True}))
        gate.wait()
        began = lease(bench, other[0])
        until(lambda: lease(bench, other[0]) > began + timedelta(seconds=1.5))

    bench.define(body)
    bench.define(body, "b")
    bench.start()
    job = bench.ended(bench.add())
    assert (job.status, job.attempt) == ("completed", 1)
    assert bench.ran == ["pay", "waits"]
    assert [line.message for line in job.logs] == ["before"]
    gate.opened.set()
    assert bench.ended(other[0]).status == "completed"


def test_a_transactional_step_whose_claim_was_lost_commits_nothing(bench: Bench) -> None:
    def lose(step: Any) -> None:
        # Its transaction has the job: only what came before it can have taken the claim away.
        raise AssertionError("the function must not run")

    async def body(job: Any, octx: Any) -> None:
        bench.db.job.update_one({"_id": job.id}, {"$set": {"durable.token": "another's"}})
        with suppress(BaseException):
            await octx.step("pay", paying(bench, lose), transactional=True)

    bench.define(body)
    bench.start()
    id = bench.add()
    bench.told.wait_for("lease-lost")
    assert bench.front.shutdown(5)
    assert bench.db.effects.count_documents({}) == 0
    assert bench.ran == []
    document = bench.db.job.find_one({"_id": id})
    assert document is not None
    assert document["status"] == "running"


def test_a_session_is_only_for_transactional_steps(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        await octx.step("pay", bench.fn(lambda step: step.session))

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert job.error is not None
    assert "transactional=True" in job.error["message"]


def test_the_run_level_signal_reaches_work_between_steps(bench: Bench) -> None:
    told = threading.Event()

    async def body(job: Any, octx: Any) -> None:
        await octx.step("first", bench.does("first"))
        waiting = octx.signal.wait(60)
        if not isinstance(waiting, bool):
            await waiting
        told.set()
        octx.signal.raise_if_set()

    bench.define(body, max_duration=0.3)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert job.error is not None
    assert job.error["name"] == "MaxDurationExceeded"
    if bench.flavour == "def":
        assert told.wait(60)
