"""Shutting down: how often, from where, and whoever waits for it."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, JobQueue
from simplequeue import PayloadError, Status
from tests.drain.queues import Maker
from tests.watching import ended, until

Db = Database[dict[str, Any]]


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
    assert queue.get(str(id)).status is Status.COMPLETED  # type: ignore[union-attr]  # it is there
    other = JobQueue(db, on_job_event=lambda event: other.shutdown(30))
    other.process("b", lambda job, ctx: None)
    other.start()
    id = other.enqueue("b")
    assert other.wait_drained(20)
    until(ended(db.job, [str(id)]))


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


def holding(queue: AsyncJobQueue) -> asyncio.Event:
    """Has a queue run jobs that do not end by themselves; set when one is at work."""
    at_work = asyncio.Event()

    async def hold(job: Any, ctx: Any) -> None:
        at_work.set()
        await asyncio.Event().wait()

    queue.process("a", hold)
    return at_work


@pytest.mark.usefixtures("handlers_have_time")
def test_a_run_that_is_cancelled_drains_first(mongo_url: str, db: Db) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = AsyncJobQueue(client[db.name])
            at_work = holding(queue)
            id = await queue.enqueue("a")
            running = asyncio.create_task(queue.run(timeout=0.1))
            await at_work.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            job = await queue.get(str(id))
            assert job is not None
            assert (job.status, job.attempt) == (Status.QUEUED, 0)

    asyncio.run(main())


def test_a_shutdown_goes_on_when_who_waits_for_it_is_interrupted(db: Db) -> None:
    queue, running, release = JobQueue(db), threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        host = queue._part.host
        until(lambda: host is not None and host.worker.draining)  # then who asked for it waits
        signal.pthread_kill(main, signal.SIGUSR1)

    def hold(job: Any, ctx: Any) -> None:
        running.set()
        release.wait(60)

    queue.process("a", hold)
    queue.start()
    queue.enqueue("a")
    assert running.wait(30)
    earlier = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.shutdown(60)
    finally:
        interrupting.join(60)
        signal.signal(signal.SIGUSR1, earlier)
    assert queue.wait_drained(0) is False
    release.set()
    assert queue.shutdown() is True


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


def test_a_run_whose_loop_is_closed_is_neither_ended_nor_told_of(
    mongo_url: str, db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = AsyncJobQueue(client[db.name])
            at_work = holding(queue)
            await queue.start()
            await queue.enqueue("a")
            await at_work.wait()

    with caplog.at_level("ERROR"):
        asyncio.run(main())  # a program that forgets its queue; what its job needs is a reaper
        gc.collect()
    job = db.job.find_one()
    assert job is not None
    assert (job["status"], job["durable"]["attempt"]) == ("running", 1)
    assert caplog.text == ""
