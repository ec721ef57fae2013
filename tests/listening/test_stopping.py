"""Stopping a listener, from wherever and however often, and what interrupts it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from simplequeue import Job, Listener, PayloadError, Status, create_queue
from simplequeue import listener as module
from simplequeue.collection import CollectionJobs
from simplequeue.jobs import blocking
from simplequeue.queue import Queue
from simplequeue.threads import LoopThread
from tests.hooks import Hooks
from tests.listening.conftest import FailCommand
from tests.listening.test_stream import open_streams
from tests.watching import Recorder, ended, until


def test_stop_may_be_called_in_a_signal_handler_however_often(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    box: list[Listener] = []

    def kill_three_times() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)

    earlier = signal.signal(signal.SIGUSR1, lambda *_: box[-1].stop(20))
    try:
        for _ in range(20):
            box.append(queue.listen(lambda job: None, concurrency=2))
            killing = threading.Thread(target=kill_three_times)
            killing.start()
            assert box[-1].wait(30)
            assert box[-1].stop(30)
            killing.join(30)
    finally:
        signal.signal(signal.SIGUSR1, earlier)


def test_many_threads_may_stop_one_listener_at_once(db: Database[dict[str, Any]]) -> None:
    listener = create_queue(db).listen(lambda job: None)
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(listener.stop(30))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [True] * 16


def test_an_idle_listener_stops_at_once_and_says_so(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOMENT", 30.0)  # that in which it says so, on a busy machine
    assert create_queue(db).listen(lambda job: None).stop(0) is True
    assert create_queue(db).listen(lambda job: None).stop(timedelta(seconds=5)) is True


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", True, float("inf")])
def test_a_timeout_that_is_none_is_an_error(db: Database[dict[str, Any]], timeout: Any) -> None:
    with create_queue(db).listen(lambda job: None) as listener:
        with pytest.raises(PayloadError, match="timeout"):
            listener.stop(timeout)
        with pytest.raises(PayloadError, match="timeout"):
            listener.wait(timeout)


def test_a_forked_child_leaves_the_block_without_waiting_for_its_parents_jobs(db: Database[dict[str, Any]]) -> None:
    queue, release = create_queue(db), threading.Event()
    seen = Recorder(lambda job: release.wait(60))
    queue.add("a")
    with queue.listen(seen) as listener:
        seen.wait_for(1)
        child = os.fork()
        if child == 0:
            try:
                listener.__exit__(None, None, None)
                os._exit(0 if listener.wait() else 2)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        release.set()
        job = queue.add("a")
        until(ended(db.job, [job.id]))


def test_who_waits_goes_on_when_the_stop_was_interrupted(db: Database[dict[str, Any]]) -> None:
    queue, release = create_queue(db), threading.Event()
    seen = Recorder(lambda job: release.wait(60))
    queue.add("a")
    listening = queue.listen(seen)
    seen.wait_for(1)

    def interrupt() -> None:
        until(lambda: not listening._listening._accepting)  # then who stops it waits
        os.kill(os.getpid(), signal.SIGUSR1)

    interrupting = threading.Thread(target=interrupt)
    earlier = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            listening.stop()
    finally:
        interrupting.join(60)
        signal.signal(signal.SIGUSR1, earlier)
    assert listening.wait(30)
    release.set()
    assert listening.stop(30)


def test_an_interrupt_in_listen_leaves_nothing_at_work(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = create_queue(db)
    queue.add_many([("a", None)] * 200)
    original: Callable[..., Any] = LoopThread.call

    def interrupted(thread: LoopThread, coroutine: Any) -> Any:
        original(thread, coroutine)
        raise KeyboardInterrupt

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(LoopThread, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.listen(lambda job: None, concurrency=2)
    until(lambda: threading.active_count() <= before)
    left = db.job.count_documents({"status": "queued"})
    assert left > 0
    assert db.job.count_documents({"status": "running"}) == 0


def test_a_cancelled_handler_fails_its_job_and_no_other(mongo_url: str, db: Database[dict[str, Any]]) -> None:
    tasks: dict[str, asyncio.Future[asyncio.Task[Any] | None]] = defaultdict(
        lambda: asyncio.get_running_loop().create_future()
    )

    async def handler(job: Job) -> None:
        tasks[job.id].set_result(asyncio.current_task())
        if job.action == "cancelled":
            await asyncio.Event().wait()

    async def main() -> list[Job]:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = create_queue(client[db.name])
            jobs = await queue.add_many([("cancelled" if n % 5 == 0 else "a", {"n": n}) for n in range(200)])
            async with await queue.listen(handler, concurrency=4):
                for job in jobs:
                    task = await tasks[job.id]
                    assert task is not None
                    task.cancel()  # for most of them too late
                await asyncio.to_thread(until, ended(db.job, [job.id for job in jobs]))
            return jobs

    jobs = asyncio.run(main())
    for job in jobs:
        after = create_queue(db).get(job.id)
        assert after is not None
        if job.action == "cancelled":
            assert after.status is Status.FAILED
        elif after.status is Status.FAILED:
            assert after.error is not None
            assert after.error["name"] == "CancelledError"  # in time after all, for its own handler


def test_what_a_handler_has_started_may_stop_the_listener_later(mongo_url: str, db: Database[dict[str, Any]]) -> None:
    async def main() -> bool:
        stopping: list[asyncio.Task[bool]] = []
        over = asyncio.Event()

        async def stop_later() -> bool:
            await over.wait()
            return await listener.stop()

        async def handler(job: Job) -> None:
            stopping.append(asyncio.create_task(stop_later()))

        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = create_queue(client[db.name])
            job = await queue.add("a")
            listener = await queue.listen(handler)
            await asyncio.to_thread(until, ended(db.job, [job.id]))
            over.set()
            return await asyncio.wait_for(stopping[0], 30)

    assert asyncio.run(main())


class NoThreadAtFirst(CollectionJobs):
    """Cannot open its second stream, for a reason that is not the driver's."""

    opened = 0

    async def watch(self, match: dict[str, Any]) -> Any:
        type(self).opened += 1
        if self.opened == 2:
            raise RuntimeError("can't start new thread")
        return await super().watch(match)


def test_a_stream_is_opened_again_whatever_went_wrong(db: Database[dict[str, Any]]) -> None:
    queue, seen = Queue(NoThreadAtFirst(db.job, blocking)), Recorder()
    with queue.listen(seen, poll_interval=600):
        for cursor in until(lambda: open_streams(db)):
            db.command({"killCursors": "job", "cursors": [cursor]})
            db.job.drop()
        job = queue.add("a")
        until(ended(db.job, [job.id]))
        until(lambda: NoThreadAtFirst.opened >= 3)  # once more where the dropped collection ended the third


def test_while_no_stream_can_be_had_jobs_are_looked_for_all_the_same(
    own_db: Database[dict[str, Any]], fail_command: FailCommand
) -> None:
    queue, seen = create_queue(own_db), Recorder()
    with queue.listen(seen, poll_interval=600):
        first = queue.add("a")
        until(ended(own_db.job, [first.id]))
        # 13, Unauthorized: the right to watch was taken away.
        with fail_command(["getMore", "aggregate"], 1_000, errorCode=13, namespace=f"{own_db.name}.job") as failed:
            until(lambda: failed() >= 2)
            second = queue.add("a")
            seen.wait_for_ends(2)
    assert [job.id for job in seen.jobs] == [first.id, second.id]


def test_a_claim_whose_answer_was_lost_is_reported_even_if_the_look_for_it_fails_at_first(
    own_db: Database[dict[str, Any]], fail_command: FailCommand, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_twice(name: str, number: int) -> None:
        if name == "find" and number in (1, 2):
            raise AutoReconnect("connection closed")

    queue = Hooks(before=fail_twice).sync_queue(own_db)
    lost = queue.add("a")
    failure = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}
    with fail_command(["findAndModify"], 1, **failure), queue.listen(lambda job: None, poll_interval=0.2):
        until(lambda: f"the claim of job {lost.id} was lost" in caplog.text)


def test_an_end_is_tried_for_as_long_as_a_later_stop_waits(
    own_db: Database[dict[str, Any]], fail_command: FailCommand
) -> None:
    queue, release = create_queue(own_db), threading.Event()
    job, seen = queue.add("a"), Recorder(lambda job: release.wait(60))
    listener = queue.listen(seen)
    seen.wait_for(1)
    assert listener.stop(0) is False
    with fail_command(["update"], 2, errorCode=262) as failed:  # twice: the driver itself tries once more
        release.set()
        assert listener.stop(30) is True
        assert failed() == 2
    assert queue.get(job.id).status is Status.COMPLETED  # type: ignore[union-attr]  # it is there


def test_stop_returns_although_the_client_was_closed_before_the_handler_ended(
    db: Database[dict[str, Any]], mongo_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    with MongoClient[dict[str, Any]](mongo_url) as client:
        queue = create_queue(client[db.name])
        job, seen = queue.add("a"), Recorder(lambda job: release.wait(60))
        listener = queue.listen(seen)
        seen.wait_for(1)
    release.set()
    assert listener.stop() is True
    assert f"the end of job {job.id} is not stored, it stays running" in caplog.text


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_end_survives_an_error_that_is_not_the_drivers(
    db: Database[dict[str, Any]], mongo_url: str, colour: str
) -> None:
    def fail_once(name: str, number: int) -> None:
        if (name, number) == ("update_one", 0):
            raise MemoryError

    hooks, seen = Hooks(before=fail_once), Recorder()
    job = create_queue(db).add("a")
    if colour == "sync":
        with hooks.sync_queue(db).listen(seen):
            until(ended(db.job, [job.id]))
        return

    async def main() -> None:
        async with (
            AsyncMongoClient[dict[str, Any]](mongo_url) as client,
            await hooks.async_queue(client[db.name]).listen(seen),
        ):
            await asyncio.to_thread(until, ended(db.job, [job.id]))

    asyncio.run(main())


def test_a_job_whose_claim_met_an_error_before_it_was_made_is_found_again(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen, poll_interval=600):
        broken = iter([True])
        now = CollectionJobs.now

        async def breaks_once(jobs: CollectionJobs) -> Any:
            if threading.current_thread().name.startswith("simplequeue-slot") and next(broken, False):
                raise RuntimeError("can't start new thread")
            return await now(jobs)

        monkeypatch.setattr(CollectionJobs, "now", breaks_once)
        job = queue.add("a")
        until(ended(db.job, [job.id]))
    assert next(broken, False) is False
    assert seen.ids == [job.id]
