"""What becomes of runs and claims when a shutdown comes: nothing is lost, run twice at once or stranded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from durabl_ext import FatalJobError
from durabl_ext.errors import QueueShutdownError
from durabl_ext.runtime.signal import RunAborted
from simplequeue import Status
from tests.drain.queues import Events, Hooks, Maker
from tests.watching import until

Db = Database[dict[str, Any]]
BOUND = 2.5
"""Seconds that a drain may take beyond its timeout: one for telling, one for giving back, and a busy machine."""


class Held:
    """A handler that says when it runs and ends when it is let."""

    def __init__(self, after: Callable[[Any, Any], object] | None = None) -> None:
        self.running = threading.Event()
        self.release = threading.Event()
        self.over = threading.Event()
        self._after = after

    def __call__(self, job: Any, ctx: Any) -> None:
        self.running.set()
        try:
            if self._after is not None:
                self._after(job, ctx)
            else:
                self.release.wait(60)
        finally:
            self.over.set()


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


def raise_if_set(job: Any, ctx: Any) -> None:
    assert ctx.signal.wait(60)
    assert ctx.signal.reason == "shutdown"
    ctx.signal.raise_if_set()


def fail(job: Any, ctx: Any) -> None:
    ctx.signal.wait(60)
    raise ValueError("interrupted")


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
    assert seen.wait(2)


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


def test_an_orphan_that_ends_while_the_next_run_is_on_harms_it_not(db: Db, make: Maker) -> None:
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


def test_a_claim_that_meets_the_shutdown_is_given_back_unrun(db: Db, make: Maker) -> None:
    claimed, release, ran = threading.Event(), threading.Event(), []

    def hold(name: str, number: int) -> None:
        if name == "claim":
            claimed.set()
            release.wait(60)

    queue = make(db, hooks=Hooks(after=hold))
    queue.process("a", lambda job, ctx: ran.append(job.id), concurrency=4)
    ids = [queue.enqueue("a", max_attempts=1) for _ in range(3)]
    queue.start()
    assert claimed.wait(30)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(queue.shutdown, 30)
        until(lambda: queue.draining)
        release.set()
        assert ending.result(30) is True
    assert ran == []
    for id in ids:
        job = queue.get(id)
        assert (job.status, job.attempt) == (Status.QUEUED, 0)


def test_a_claim_that_hangs_keeps_no_drain_and_is_given_back_when_it_is_answered(db: Db, make: Maker) -> None:
    claimed, release, ran = threading.Event(), threading.Event(), []

    def hold(name: str, number: int) -> None:
        if name == "claim":
            claimed.set()
            release.wait(60)

    queue = make(db, hooks=Hooks(after=hold))
    queue.process("a", lambda job, ctx: ran.append(job.id))
    id = queue.enqueue("a")
    queue.start()
    assert claimed.wait(30)
    began = time.monotonic()
    queue.shutdown(0.2)
    assert time.monotonic() - began < 0.2 + BOUND
    release.set()
    until(lambda: queue.get(id).status is Status.QUEUED)
    assert (queue.get(id).attempt, ran) == (0, [])


def test_a_drain_does_not_wait_for_a_backoff(db: Db, make: Maker) -> None:
    def fail(name: str, number: int) -> None:
        if name == "claim":
            raise AutoReconnect("connection closed")

    hooks = Hooks(before=fail)
    queue = make(db, hooks=hooks)
    queue.process("a", lambda job, ctx: None)
    queue.start()
    until(lambda: hooks.counts["claim"] >= 6)  # pauses of seconds by now
    began = time.monotonic()
    assert queue.shutdown(30) is True
    assert time.monotonic() - began < 1


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
    db: Db, make: Maker, heeds: bool
) -> None:
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


def test_work_that_is_asked_for_after_the_shutdown_is_refused_and_given_back(db: Db, make: Maker) -> None:
    queue, ran = make(db), []
    handle = queue.claim_or_enqueue("a")
    queue.shutdown()
    with pytest.raises(QueueShutdownError):
        queue.run_claimed(handle, lambda job, ctx: ran.append(job.id))
    with pytest.raises(QueueShutdownError):
        queue.claim_or_enqueue("a")
    job = queue.get(handle.job.id)
    assert (job.status, job.attempt, ran) == (Status.QUEUED, 0, [])
    assert db.job.count_documents({}) == 1


def test_a_claim_or_enqueue_that_meets_the_shutdown_is_given_back(db: Db, make: Maker) -> None:
    stored, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "claim_or_enqueue":
            stored.set()
            release.wait(60)

    queue = make(db, hooks=Hooks(after=hold))
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(queue.claim_or_enqueue, "a")
        assert stored.wait(30)
        assert queue.shutdown() is True
        release.set()
        with pytest.raises(QueueShutdownError):
            asking.result(30)
    (document,) = db.job.find()
    assert (document["status"], document["durable"]["attempt"]) == ("queued", 0)


@pytest.mark.parametrize("heeds", [True, False])
def test_a_job_that_is_run_inline_is_drained_like_any_other(db: Db, make: Maker, heeds: bool) -> None:
    held = Held(raise_if_set if heeds else None)
    queue = make(db)
    handle = queue.claim_or_enqueue("a")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(queue.run_claimed, handle, held)
        assert held.running.wait(30)
        assert queue.shutdown(0.2) is heeds
        job = queue.get(handle.job.id)
        assert (job.status, job.attempt) == (Status.QUEUED, 0)
        held.release.set()
        with pytest.raises(QueueShutdownError) as raised:
            running.result(30)
    assert isinstance(raised.value.__cause__, RunAborted) is heeds
    assert queue.get(handle.job.id).status is Status.QUEUED


def test_followers_are_left_to_others_once_a_shutdown_has_begun(db: Db, make: Maker) -> None:
    queue, ran = make(db), []
    key = {"dedupe_key": "k", "dedupe_scope": "queued"}
    handle = queue.claim_or_enqueue("a", **key)
    follower = queue.enqueue("a", **key)
    running, release = threading.Event(), threading.Event()

    def work(job: Any, ctx: Any) -> None:
        ran.append(job.id)
        running.set()
        release.wait(60)

    with ThreadPoolExecutor(2) as pool:
        inline = pool.submit(queue.run_claimed, handle, work)
        assert running.wait(30)
        ending = pool.submit(queue.shutdown, 30)
        until(lambda: queue.draining)
        release.set()
        assert inline.result(30) is None
        assert ending.result(30) is True
    assert ran == [handle.job.id]
    assert queue.get(follower).status is Status.QUEUED
