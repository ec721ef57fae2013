"""Starting and shutting down: in which order, how often and from where."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, JobQueue
from durabl_ext.errors import QueueShutdownError
from simplequeue import PayloadError, Status
from tests.drain.queues import Events, Hooks, Maker
from tests.watching import ended, until

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
    assert queue.shutdown() is True
    assert time.monotonic() - began < 2
    until(lambda: own_threads() <= before)


def test_a_shutdown_called_by_many_at_once_and_again_gives_all_the_same(db: Db, make: Maker) -> None:
    queue, running, release = make(db), threading.Event(), threading.Event()

    def hold(job: Any, ctx: Any) -> None:
        running.set()
        release.wait(60)

    queue.process("a", hold)
    queue.start()
    id = queue.enqueue("a")
    assert running.wait(30)
    with ThreadPoolExecutor(8) as pool:
        ending = [pool.submit(queue.shutdown, 60) for _ in range(8)]
        until(lambda: queue.draining)
        assert queue.wait_drained(0.1) is False
        release.set()
        assert [one.result(30) for one in ending] == [True] * 8
    assert queue.shutdown() is True
    assert queue.get(id).status is Status.COMPLETED


def test_a_handler_that_shuts_down_begins_it_and_is_not_given_back(db: Db, make: Maker) -> None:
    queue: Any = make(db)
    answers: list[bool] = []

    def last(job: Any, ctx: Any) -> None:
        answers.append(queue.shutdown(30))
        answers.append(queue.draining)

    async def async_last(job: Any, ctx: Any) -> None:
        answers.append(await queue.inner.shutdown(30))
        answers.append(queue.draining)

    queue.process("a", last if make.colour == "sync" else async_last)
    queue.start()
    id = queue.enqueue("a")
    assert queue.wait_drained(20) is True
    assert answers == [False, True]
    assert queue.get(id).status is Status.COMPLETED
    assert queue.shutdown() is True


def test_an_async_handler_of_a_sync_queue_and_a_sink_may_shut_down_too(db: Db) -> None:
    async def last(job: Any, ctx: Any) -> None:
        queue.shutdown(30)

    queue = JobQueue(db)
    queue.process("a", last)
    queue.start()
    id = queue.enqueue("a")
    assert queue.wait_drained(20)
    assert queue.get(str(id)).status is Status.COMPLETED  # type: ignore[union-attr]
    other = JobQueue(db, on_job_event=lambda event: other.shutdown(30))
    other.process("b", lambda job, ctx: None)
    other.start()
    id = other.enqueue("b")
    assert other.wait_drained(20)
    until(ended(db.job, [str(id)]))


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


def test_a_shutdown_goes_on_when_who_waits_for_it_is_cancelled(mongo_url: str, db: Db) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue, running, release = AsyncJobQueue(client[db.name]), asyncio.Event(), asyncio.Event()

            async def hold(job: Any, ctx: Any) -> None:
                running.set()
                await release.wait()

            queue.process("a", hold)
            await queue.start()
            id = await queue.enqueue("a")
            await running.wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.shutdown(60), 0.1)
            assert await queue.wait_drained(0) is False
            release.set()
            assert await queue.shutdown() is True
            job = await queue.get(str(id))
            assert job is not None
            assert job.status is Status.COMPLETED

    asyncio.run(main())


def test_a_shutdown_goes_on_when_who_waits_for_it_is_interrupted(db: Db) -> None:
    queue, running, release = JobQueue(db), threading.Event(), threading.Event()

    def hold(job: Any, ctx: Any) -> None:
        running.set()
        release.wait(60)

    queue.process("a", hold)
    queue.start()
    queue.enqueue("a")
    assert running.wait(30)
    earlier = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            queue.shutdown(60)
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert queue.wait_drained(0) is False
    release.set()
    assert queue.shutdown() is True


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


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", True, None])
def test_a_timeout_that_is_none_is_an_error_and_shuts_nothing_down(db: Db, make: Maker, timeout: Any) -> None:
    queue = make(db)
    with pytest.raises(PayloadError, match="timeout"):
        queue.shutdown(timeout)
    with pytest.raises(PayloadError, match="timeout"):
        queue.run(timeout=timeout)
    with pytest.raises(PayloadError, match="reaper_interval"):
        queue.run(reaper_interval=0)
    assert queue.draining is False


def test_a_producer_that_only_enqueues_starts_no_thread(db: Db) -> None:
    db.command("ping")
    before = threading.active_count()
    queue = JobQueue(db)
    queue.process("a", lambda job, ctx: None)
    queue.startup()
    for n in range(20):
        queue.enqueue("a", dedupe_key=f"k{n}")
    assert queue.shutdown() is True
    assert threading.active_count() == before
