"""Running jobs inline: what claim_or_enqueue gave, and then what came to wait behind it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from durabl_ext import FatalJobError, JobQueue
from durabl_ext.errors import LeaseLostError
from simplequeue import PayloadError, Status
from tests.drain.queues import Events, Hooks, Maker

Db = Database[dict[str, Any]]
KEY: dict[str, Any] = {"dedupe_key": "k", "dedupe_scope": "queued", "coalesce": "latest"}


class Chain:
    """A handler in each of whose runs another job comes to wait behind it."""

    def __init__(self, queue: Any, action: str = "a", length: int = 1_000) -> None:
        self.ran: list[Any] = []
        self._queue, self._action, self._length = queue, action, length

    def __call__(self, job: Any, ctx: Any) -> None:
        self.ran.append(job.data.get("n"))
        if len(self.ran) <= self._length:
            assert self._queue.enqueue(self._action, {"n": len(self.ran)}, **KEY)


@pytest.mark.parametrize(("max_drains", "runs"), [({"max_drains": 0}, 1), ({"max_drains": 1}, 2), ({}, 11)])
def test_followers_are_run_up_to_a_limit(db: Db, make: Maker, max_drains: Any, runs: int) -> None:
    queue = make(db)
    chain = Chain(queue)
    queue.run_claimed(queue.claim_or_enqueue("a", {"n": 0}, **KEY), chain, **max_drains)
    assert chain.ran == list(range(runs))
    assert db.job.count_documents({"status": "completed"}) == runs
    assert db.job.count_documents({"status": "queued"}) == 1


def test_it_ends_when_nothing_waits_and_a_waiting_job_has_the_latest_data(db: Db, make: Maker) -> None:
    queue, ran = make(db), []

    def work(job: Any, ctx: Any) -> None:
        ran.append(job.data["n"])
        if len(ran) == 1:
            for n in (1, 2, 3):
                assert queue.claim_or_enqueue("a", {"n": n}, **KEY) is None

    queue.run_claimed(queue.claim_or_enqueue("a", {"n": 0}, **KEY), work)
    assert ran == [0, 3]
    assert queue.claim_or_enqueue("a", {"n": 4}, **KEY) is not None


def test_followers_of_another_action_and_jobs_without_a_key_are_left_alone(db: Db, make: Maker) -> None:
    queue = make(db)
    chain = Chain(queue, "other", length=1)
    queue.run_claimed(queue.claim_or_enqueue("a", {"n": 0}, **KEY), chain)
    other = queue.enqueue("b")
    queue.run_claimed(queue.claim_or_enqueue("b"), lambda job, ctx: None)
    assert chain.ran == [0]
    assert queue.get(other).status is Status.QUEUED
    assert db.job.count_documents({"status": "queued", "action": "other"}) == 1


@pytest.mark.parametrize("max_drains", [-1, 1.5, "1", True, None])
def test_a_limit_that_is_none_is_an_error_and_nothing_is_run(db: Db, make: Maker, max_drains: Any) -> None:
    queue, ran = make(db), []
    handle = queue.claim_or_enqueue("a")
    with pytest.raises(PayloadError, match="max_drains"):
        queue.run_claimed(handle, lambda job, ctx: ran.append(job), max_drains=max_drains)
    assert ran == []


def test_an_ordinary_failure_is_raised_once_it_is_stored(db: Db, make: Maker) -> None:
    queue, events = make(db), Events()

    def fail(job: Any, ctx: Any) -> None:
        raise KeyError("no")

    for attempts, status in ((2, Status.QUEUED), (1, Status.FAILED)):
        handle = queue.claim_or_enqueue("a", max_attempts=attempts)
        with pytest.raises(KeyError, match="no"):
            queue.run_claimed(handle, fail)
        job = queue.get(handle.job.id)
        assert (job.status, job.attempt, job.error["name"]) == (status, 1, "KeyError")
    assert events.all == []


def test_a_fatal_failure_is_raised_once_the_job_has_failed_for_good(db: Db, make: Maker) -> None:
    def fail(job: Any, ctx: Any) -> None:
        raise FatalJobError("poison")

    queue = make(db)
    handle = queue.claim_or_enqueue("a")
    with pytest.raises(FatalJobError):
        queue.run_claimed(handle, fail)
    assert queue.get(handle.job.id).failure_kind == "fatal"


@pytest.mark.parametrize("second_fails", [False, True])
def test_a_failure_that_newer_work_covers_is_raised_after_that_has_run(db: Db, make: Maker, second_fails: bool) -> None:
    queue, ran = make(db), []

    def work(job: Any, ctx: Any) -> None:
        ran.append(job.data["n"])
        if len(ran) == 1:
            queue.enqueue("a", {"n": 1}, **KEY)
            raise ValueError("first")
        if second_fails:
            raise ValueError("second")

    handle = queue.claim_or_enqueue("a", {"n": 0}, **KEY)
    with pytest.raises(ValueError, match="first"):
        queue.run_claimed(handle, work)
    assert ran == [0, 1]
    assert queue.get(handle.job.id).status is Status.SUPERSEDED
    assert db.job.count_documents({"status": "queued" if second_fails else "completed"}) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_follower_that_cannot_be_claimed_hides_no_failure(db: Db, make: Maker, fails: bool) -> None:
    def unreachable(name: str, number: int) -> None:
        if name == "claim_by_key":
            raise AutoReconnect("connection closed")

    def work(job: Any, ctx: Any) -> None:
        queue.enqueue("a", {"n": 1}, **KEY)
        if fails:
            raise ValueError("first")

    queue = make(db, hooks=Hooks(before=unreachable))
    with pytest.raises(ValueError if fails else AutoReconnect):
        queue.run_claimed(queue.claim_or_enqueue("a", {"n": 0}, **KEY), work)


def test_a_sync_handler_runs_in_the_callers_thread_whichever_that_is(db: Db) -> None:
    queue, threads = JobQueue(db), []

    def call() -> int:
        handle = queue.claim_or_enqueue("a")
        assert handle is not None
        queue.run_claimed(handle, lambda job, ctx: threads.append(threading.get_ident()))
        return threading.get_ident()

    expected = [call()]
    with ThreadPoolExecutor(1) as pool:
        expected.append(pool.submit(call).result(30))
    assert threads == expected
    assert queue.shutdown() is True


def test_an_async_handler_runs_on_a_queue_of_either_colour(db: Db, make: Maker) -> None:
    ran = []

    async def work(job: Any, ctx: Any) -> None:
        await asyncio.sleep(0)
        ran.append(job.id)
        if len(ran) == 2:
            raise ValueError("no")

    def gives_an_awaitable(job: Any, ctx: Any) -> Any:
        return work(job, ctx)

    queue = make(db)
    first, second, third = (queue.claim_or_enqueue("a") for _ in range(3))
    queue.run_claimed(first, work)
    with pytest.raises(ValueError, match="no"):
        queue.run_claimed(second, work)
    queue.run_claimed(third, gives_an_awaitable)
    assert ran == [first.job.id, second.job.id, third.job.id]
    assert queue.get(third.job.id).status is Status.COMPLETED


def test_a_short_lease_survives_a_handler_of_several_leases_on_a_queue_that_was_never_started(
    db: Db, make: Maker
) -> None:
    queue, recovered = make(db, visibility_timeout=1), []
    handle = queue.claim_or_enqueue("a")

    def work(job: Any, ctx: Any) -> None:
        for _ in range(10):
            assert not ctx.signal.wait(0.3)
            recovered.append(reaper.backend.recover().handled)

    reaper = JobQueue(db)
    queue.run_claimed(handle, work)
    assert recovered == [0] * 10
    assert queue.get(handle.job.id).status is Status.COMPLETED


@pytest.mark.parametrize("raises", [False, True])
def test_a_run_that_lost_its_lease_says_so_and_changes_nothing(db: Db, make: Maker, raises: bool) -> None:
    def steal(job: Any, ctx: Any) -> None:
        db.job.update_one({"_id": job.id}, {"$set": {"durable.token": "another's"}})
        assert ctx.signal.wait(30)
        assert ctx.signal.reason == "lease-lost"
        if raises:
            ctx.signal.raise_if_set()

    queue = make(db, visibility_timeout=3)
    handle = queue.claim_or_enqueue("a")
    with pytest.raises(LeaseLostError) as raised:
        queue.run_claimed(handle, steal)
    assert raised.value.job_id == handle.job.id
    assert (raised.value.__cause__ is not None) is raises
    assert queue.get(handle.job.id).status is Status.RUNNING


def test_a_failure_that_could_not_be_stored_since_the_lease_was_lost_is_the_cause(db: Db, make: Maker) -> None:
    def steal(job: Any, ctx: Any) -> None:
        db.job.update_one({"_id": job.id}, {"$set": {"durable.token": "another's"}})
        raise ValueError("no")

    queue = make(db)
    with pytest.raises(LeaseLostError) as raised:
        queue.run_claimed(queue.claim_or_enqueue("a"), steal)
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_handle_runs_once_since_another_may_hold_its_key_afterwards(db: Db, make: Maker) -> None:
    queue, ran = make(db), []
    handle = queue.claim_or_enqueue("a", {"n": 0}, **KEY)
    queue.run_claimed(handle, lambda job, ctx: ran.append(job.data["n"]))
    assert queue.claim_or_enqueue("a", {"n": 1}, **KEY) is not None
    with pytest.raises(RuntimeError, match=f"{handle.job.id}.*has begun already.*claim_or_enqueue"):
        queue.run_claimed(handle, lambda job, ctx: ran.append(job.data["n"]))
    assert ran == [0]


def test_what_is_no_handle_or_no_handler_is_named(db: Db, make: Maker) -> None:
    queue = make(db)
    with pytest.raises(TypeError, match="handle: expected what claim_or_enqueue gave, found None"):
        queue.run_claimed(None, lambda job, ctx: None)
    handle = queue.claim_or_enqueue("a")
    with pytest.raises(TypeError, match="handler: is called with a job and its context"):
        queue.run_claimed(handle, lambda job: None)
    queue.run_claimed(handle, lambda job, ctx: None)
