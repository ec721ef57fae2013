"""What becomes of runs and claims when a shutdown comes: nothing is lost, run twice at once or stranded."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import FatalJobError
from durabl_ext.runtime import engine
from simplequeue import Status
from tests.drain.handlers import BOUND, Held, fail, raise_if_set
from tests.drain.queues import Events, Hooks, Maker
from tests.watching import until

Db = Database[dict[str, Any]]


def test_a_handler_that_ends_in_time_completes_once(db: Db, make: Maker) -> None:
    events, held = Events(), Held()
    queue = make(db, on_job_event=events)
    queue.process("a", held)
    queue.start()
    id = queue.enqueue("a")
    assert held.running.wait(30)
    threading.Timer(0.3, held.release.set).start()
    assert queue.shutdown(30) is True
    job = queue.get(id)
    assert (job.status, job.attempt) == (Status.COMPLETED, 1)
    assert events.kinds == ["claimed", "completed"]


@pytest.mark.usefixtures("handlers_have_time")
@pytest.mark.parametrize("heed", [raise_if_set, fail])
def test_a_handler_that_heeds_its_signal_is_given_back_due_at_once_with_no_attempt_spent(
    db: Db, make: Maker, heed: Any
) -> None:
    events, held = Events(), Held(heed)
    queue = make(db, on_job_event=events)
    queue.process("a", held)
    queue.start()
    id = queue.enqueue("a", max_attempts=1)
    assert held.running.wait(30)
    began = time.monotonic()
    assert queue.shutdown(0.2) is True
    assert 0.2 <= time.monotonic() - began < 0.2 + BOUND
    job = queue.get(id)
    assert (job.status, job.attempt, job.error) == (Status.QUEUED, 0, None)
    assert job.run_at == job.updated_at
    assert events.kinds == ["claimed", "shutdown-released"]
    seen = threading.Event()
    other = make(db)
    other.process("a", lambda job, ctx: seen.set())
    other.start()
    assert seen.wait(30)


@pytest.mark.usefixtures("handlers_have_time")
def test_an_async_handler_is_cancelled_and_given_back(db: Db, make: Maker) -> None:
    running, reasons = threading.Event(), []

    async def wait(job: Any, ctx: Any) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.signal.reason)

    queue = make(db)
    queue.process("a", wait)
    queue.start()
    id = queue.enqueue("a")
    assert running.wait(30)
    assert queue.shutdown(0.2) is True
    job = queue.get(id)
    assert (job.status, job.attempt, reasons) == (Status.QUEUED, 0, ["shutdown"])


@pytest.mark.usefixtures("handlers_have_time")
def test_a_handler_that_returns_after_it_was_told_has_completed_and_one_that_fails_for_good_has_failed(
    db: Db, make: Maker
) -> None:
    both = threading.Barrier(3)

    def returns(job: Any, ctx: Any) -> None:
        both.wait(30)
        ctx.signal.wait(60)

    def fails(job: Any, ctx: Any) -> None:
        returns(job, ctx)
        raise FatalJobError("poison")

    queue = make(db)
    queue.process("returns", returns)
    queue.process("fails", fails)
    queue.start()
    ids = [queue.enqueue("returns"), queue.enqueue("fails")]
    both.wait(30)
    assert queue.shutdown(0.1) is True
    assert [queue.get(id).status for id in ids] == [Status.COMPLETED, Status.FAILED]


def test_a_handler_that_ignores_its_signal_is_released_last_and_later_and_changes_nothing_any_more(
    db: Db, make: Maker
) -> None:
    events, ignorant, heeding = Events(), Held(), Held(raise_if_set)
    queue = make(db, on_job_event=events, visibility_timeout=30)
    queue.process("ignorant", ignorant)
    queue.process("heeding", heeding)
    queue.start()
    first, second = queue.enqueue("ignorant", dedupe_key="k"), queue.enqueue("heeding")
    assert ignorant.running.wait(30)
    assert heeding.running.wait(30)
    began = time.monotonic()
    assert queue.shutdown(0.5) is False
    assert time.monotonic() - began < 0.5 + BOUND
    job = queue.get(first)
    assert (job.status, job.attempt, job.dedupe_key) == (Status.QUEUED, 0, "k")
    assert timedelta(seconds=3) < job.run_at - job.updated_at <= timedelta(seconds=5)
    assert queue.get(second).updated_at <= job.updated_at
    assert events.kinds.count("shutdown-released") == 2
    before = db.job.find_one({"_id": first})
    ignorant.release.set()
    assert ignorant.over.wait(30)
    until(lambda: events.kinds.count("shutdown-released") == 2)
    assert db.job.find_one({"_id": first}) == before
    assert events.kinds.count("completed") == 0
    assert queue.shutdown() is False


def test_an_orphan_that_ends_while_the_next_run_is_on_harms_it_not(
    db: Db, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ORPHAN_DELAY", timedelta(seconds=0.2))  # not to be waited for here
    orphan, held = Held(), Held()
    queue = make(db)
    queue.process("a", orphan)
    queue.start()
    id = queue.enqueue("a")
    assert orphan.running.wait(30)
    assert queue.shutdown(0) is False
    other = make(db)
    other.process("a", held)
    other.start()
    assert held.running.wait(30)
    orphan.release.set()
    assert orphan.over.wait(30)
    assert other.get(id).status is Status.RUNNING
    held.release.set()
    assert other.shutdown() is True
    job = other.get(id)
    assert (job.status, job.attempt) == (Status.COMPLETED, 1)


def test_a_run_whose_end_is_being_written_is_not_given_back(db: Db, make: Maker) -> None:
    settling, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "settle":
            settling.set()
            release.wait(60)

    hooks, events = Hooks(before=hold), Events()
    queue = make(db, hooks=hooks, on_job_event=events)
    queue.process("a", lambda job, ctx: None)
    queue.start()
    id = queue.enqueue("a")
    assert settling.wait(30)
    assert queue.shutdown(0) is False
    release.set()
    until(lambda: queue.get(id).status is Status.COMPLETED)
    assert hooks.counts["settle"] == 1
    events.wait_for("completed")
    assert "shutdown-released" not in events.kinds


@pytest.mark.parametrize("heeds", [True, False])
def test_a_run_with_a_follower_behind_it_ends_superseded_when_it_is_given_back(
    db: Db, make: Maker, request: pytest.FixtureRequest, heeds: bool
) -> None:
    if heeds:
        request.getfixturevalue("handlers_have_time")
    held = Held(raise_if_set if heeds else None)
    queue = make(db)
    queue.process("a", held)
    queue.start()
    key = {"dedupe_key": "k", "dedupe_scope": "queued"}
    first = queue.enqueue("a", **key)
    assert held.running.wait(30)
    second = queue.enqueue("a", **key)
    assert queue.shutdown(0.1) is heeds
    assert queue.get(first).status is Status.SUPERSEDED
    assert (queue.get(second).status, queue.get(second).attempt) == (Status.QUEUED, 0)
    held.release.set()


@pytest.mark.usefixtures("handlers_have_time")
def test_a_handler_may_enqueue_while_the_queue_drains(db: Db, make: Maker) -> None:
    ids = []

    def next_step(job: Any, ctx: Any) -> None:
        ctx.signal.wait(60)
        ids.append(held.queue.enqueue("next", dedupe_key="k"))

    class WithQueue(Held):
        queue: Any

    held = WithQueue(next_step)
    queue = held.queue = make(db)
    queue.process("a", held)
    queue.process("next", lambda job, ctx: None)
    queue.start()
    id = queue.enqueue("a")
    assert held.running.wait(30)
    assert queue.shutdown(0.1) is True
    assert queue.get(id).status is Status.COMPLETED
    assert queue.get(ids[0]).status is Status.QUEUED


@pytest.mark.usefixtures("handlers_have_time")
def test_a_shutdown_costs_no_attempt_however_often_it_comes(db: Db, make: Maker) -> None:
    id: Any = None
    for _ in range(4):
        held = Held(raise_if_set)
        queue = make(db)
        queue.process("a", held)
        id = id or queue.enqueue("a", max_attempts=2)
        queue.start()
        assert held.running.wait(30)
        assert queue.shutdown(0) is True
    job = queue.get(id)
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


KEY: dict[str, Any] = {"dedupe_key": "k", "dedupe_scope": "queued"}
