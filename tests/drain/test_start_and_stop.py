"""Starting and shutting down: in which order, how often and from where."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import AsyncDummyBackend, AsyncJobQueue, JobQueue
from durabl_ext.errors import QueueShutdownError
from simplequeue import Status
from tests.drain.queues import Events, Hooks, Maker
from tests.watching import until

Db = Database[dict[str, Any]]


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("durabl")}


def test_a_second_start_changes_nothing(db: Db, make: Maker) -> None:
    hooks, seen = Hooks(), threading.Semaphore(0)
    queue = make(db, hooks=hooks)
    queue.process("a", lambda job, ctx: seen.release())
    for _ in range(3):
        queue.start()
    queue.enqueue("a")
    assert seen.acquire(timeout=30)
    assert hooks.counts["startup"] == 1
    assert hooks.counts["recover"] == 1
    assert queue.shutdown() is True


def test_starts_from_many_threads_at_once_are_one(db: Db, make: Maker) -> None:
    hooks = Hooks()
    queue = make(db, hooks=hooks)
    with ThreadPoolExecutor(8) as pool:
        for started in [pool.submit(queue.start) for _ in range(8)]:
            started.result(30)
    assert hooks.counts["startup"] == 1


def test_a_start_that_failed_may_be_tried_again(db: Db, make: Maker) -> None:
    def fail_once(name: str, number: int) -> None:
        if (name, number) == ("startup", 1):
            raise MemoryError

    queue, seen = make(db, hooks=Hooks(before=fail_once)), threading.Event()
    queue.process("a", lambda job, ctx: seen.set())
    with pytest.raises(MemoryError):
        queue.start()
    queue.enqueue("a")
    assert not seen.is_set()
    queue.start()
    assert seen.wait(30)


def test_nothing_starts_after_a_shutdown_and_jobs_are_still_stored(db: Db, make: Maker) -> None:
    queue = make(db)
    assert queue.shutdown() is True
    assert queue.draining is True
    assert queue.wait_drained(0) is True
    for start in (queue.start, queue.run, queue.start_reaper, lambda: queue.claim_or_enqueue("a")):
        with pytest.raises(QueueShutdownError):
            start()
    queue.stop_reaper()
    assert db.job.count_documents({}) == 0
    assert queue.get(queue.enqueue("a")).status is Status.QUEUED


def test_an_idle_worker_shuts_down_at_once_and_leaves_no_thread(db: Db, make: Maker) -> None:
    before = own_threads()
    queue = make(db)
    queue.process("a", lambda job, ctx: None)
    queue.start()
    assert queue.draining is False
    assert queue.wait_drained(0) is False
    began = time.monotonic()
    assert queue.shutdown(60) is True
    assert time.monotonic() - began < 20
    until(lambda: own_threads() <= before)


def test_a_context_manager_starts_and_drains(db: Db, make: Maker) -> None:
    queue, running = make(db), threading.Event()

    def work(job: Any, ctx: Any) -> None:
        running.set()
        ctx.signal.wait(0.3)

    queue.process("a", work)
    with queue:
        id = queue.enqueue("a")
        assert running.wait(30)
    assert queue.get(id).status is Status.COMPLETED
    with pytest.raises(QueueShutdownError), queue:
        pass


def test_a_shutdown_reaches_a_start_that_is_under_way(db: Db, make: Maker) -> None:
    held, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "startup":
            held.set()
            release.wait(60)

    hooks = Hooks(before=hold)
    queue = make(db, hooks=hooks)
    queue.process("a", lambda job, ctx: None)
    try:
        with ThreadPoolExecutor(2) as pool:
            starting, running = pool.submit(queue.start), pool.submit(_outcome, queue.run)
            assert held.wait(30)
            assert queue.shutdown(30) is True
            with pytest.raises(QueueShutdownError):
                starting.result(30)
            assert running.result(30) in (True, QueueShutdownError)
    finally:
        release.set()
    assert hooks.counts["claim"] == 0


def _outcome(call: Any) -> Any:
    try:
        return call()
    except QueueShutdownError:
        return QueueShutdownError


def test_a_worker_that_is_not_main_runs_until_it_is_shut_down(db: Db, make: Maker) -> None:
    queue, seen, events = make(db), threading.Event(), Events()
    queue.process("a", lambda job, ctx: seen.set())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(queue.run, timeout=5)
        queue.enqueue("a")
        assert seen.wait(30)
        assert queue.shutdown() is True
        assert running.result(30) is True
    assert events.all == []


def test_a_producer_that_only_enqueues_starts_no_thread(db: Db) -> None:
    db.command("ping")
    before = set(threading.enumerate())
    queue = JobQueue(db)
    queue.process("a", lambda job, ctx: None)
    queue.startup()
    for n in range(20):
        queue.enqueue("a", dedupe_key=f"k{n}")
    assert queue.shutdown() is True
    assert set(threading.enumerate()) <= before  # those of earlier tests may end meanwhile


def test_a_claimer_whose_alarm_goes_off_is_not_taken_for_a_loop_that_is_being_closed() -> None:
    async def main() -> list[bool]:
        queue = AsyncJobQueue(AsyncDummyBackend())
        await queue.start()
        worker = queue._working()
        claiming, working = worker._claiming, worker.engine.working
        assert claiming is not None
        assert working is not None
        claiming.cancel()  # what a timeout in it does, for one turn of the loop
        at_the_alarm = worker.engine._is_closing()
        working.cancel()  # what the end of asyncio.run does with every task
        at_the_end = worker.engine._is_closing()
        await queue.shutdown()
        return [at_the_alarm, at_the_end]

    assert asyncio.run(main()) == [False, True]
