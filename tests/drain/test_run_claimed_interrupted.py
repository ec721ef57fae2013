"""Running jobs inline when the caller is interrupted or cancelled: no run is left without an end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, JobQueue
from simplequeue import Status
from tests.drain.handlers import Held
from tests.drain.queues import Hooks
from tests.drain.test_start_and_stop import own_threads
from tests.watching import until

Db = Database[dict[str, Any]]
KEY: dict[str, Any] = {"dedupe_key": "k", "dedupe_scope": "queued", "coalesce": "latest"}


def interrupt_main(after: threading.Event) -> threading.Thread:
    def interrupt() -> None:
        assert after.wait(30)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_interrupt_fails_the_job_and_leaves_no_heartbeats(db: Db, kind: str) -> None:
    hooks, running, cancelled = Hooks(), threading.Event(), threading.Event()

    def work(job: Any, ctx: Any) -> None:
        running.set()
        for _ in range(300):  # a signal that comes just before a wait does not end it
            threading.Event().wait(0.1)

    async def async_work(job: Any, ctx: Any) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    queue = JobQueue(hooks.sync_backend(db), visibility_timeout=1.5)
    handle = queue.claim_or_enqueue("a", max_attempts=1)
    assert handle is not None
    earlier = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    interrupting = interrupt_main(running)
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.run_claimed(handle, work if kind == "def" else async_work)
    finally:
        signal.signal(signal.SIGUSR1, earlier)
        interrupting.join(30)
    job = queue.get(handle.job.id)
    assert job is not None
    assert job.error is not None
    assert (job.status, job.error["name"]) == (
        Status.FAILED,
        "KeyboardInterrupt" if kind == "def" else "CancelledError",
    )
    assert kind == "def" or cancelled.wait(30)
    beats = hooks.counts["heartbeat"]
    threading.Event().wait(1.5)  # three times as long as between two heartbeats
    assert hooks.counts["heartbeat"] <= beats + 1  # one may have been on its way
    assert queue.shutdown() is True


def test_an_interrupt_while_the_end_is_stored_lets_it_be_stored(db: Db) -> None:
    settling, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "settle":
            settling.set()
            release.wait(30)

    hooks = Hooks(before=hold)
    queue = JobQueue(hooks.sync_backend(db))
    handle = queue.claim_or_enqueue("a")
    assert handle is not None
    earlier = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    interrupting = interrupt_main(settling)
    threading.Timer(1, release.set).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.run_claimed(handle, lambda job, ctx: None)
    finally:
        signal.signal(signal.SIGUSR1, earlier)
        interrupting.join(30)
    assert queue.get(handle.job.id).status is Status.COMPLETED  # type: ignore[union-attr]  # it is there
    assert hooks.counts["settle"] == 1
    assert queue.shutdown() is True


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_caller_that_is_cancelled_leaves_no_run_without_an_end(mongo_url: str, db: Db, kind: str) -> None:
    held, begun = Held(), threading.Event()

    async def async_work(job: Any, ctx: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = AsyncJobQueue(client[db.name])
            handle = await queue.claim_or_enqueue("a", max_attempts=1)
            assert handle is not None
            running = asyncio.create_task(queue.run_claimed(handle, held if kind == "def" else async_work))
            await asyncio.to_thread((held.running if kind == "def" else begun).wait, 30)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            job = await queue.get(handle.job.id)
            assert job is not None
            # A thread cannot be cancelled: its run goes on, with its lease, until it ends.
            assert job.status is (Status.RUNNING if kind == "def" else Status.FAILED)
            held.release.set()
            assert await queue.shutdown() is True
            job = await queue.get(handle.job.id)
            assert job is not None
            assert job.status is (Status.COMPLETED if kind == "def" else Status.FAILED)

    asyncio.run(main())


def test_a_claim_whose_caller_was_cancelled_meanwhile_is_given_back(mongo_url: str, db: Db) -> None:
    stored, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "claim_or_enqueue":
            stored.set()
            release.wait(30)

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = AsyncJobQueue(Hooks(after=hold).async_backend(client[db.name]))
            asking = asyncio.create_task(queue.claim_or_enqueue("a"))
            await asyncio.to_thread(stored.wait, 30)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            release.set()
            await asyncio.to_thread(until, lambda: db.job.find_one({"status": "queued", "durable.attempt": 0}))

    asyncio.run(main())


def test_inline_runs_leave_no_thread_behind_once_the_queue_is_shut_down(db: Db) -> None:
    before = own_threads()
    queue = JobQueue(db)
    for _ in range(3):
        handle = queue.claim_or_enqueue("a")
        assert handle is not None
        queue.run_claimed(handle, lambda job, ctx: None)
    assert queue.shutdown() is True
    until(lambda: own_threads() <= before)
