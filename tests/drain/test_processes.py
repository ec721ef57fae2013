"""Forks, and the ends of processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, JobQueue
from simplequeue import Status
from simplequeue.threads import LoopThread
from tests.drain.handlers import Held
from tests.drain.programs import running
from tests.watching import ended, until

Db = Database[dict[str, Any]]


def in_a_child(act: Callable[[], object]) -> int:
    """Forks, has the child act, and gives its exit code: 0 when nothing was raised."""
    child = os.fork()
    if child == 0:
        # In the child nothing of pytest may run, whatever happens.
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("mode", ["shutdown", "start", "run"])
@pytest.mark.parametrize(
    ("colour", "action"),
    # On an async queue asyncio.run itself waits for a task that swallows its cancellation.
    [("sync", "hang"), ("sync", "never"), ("async", "hang")],
)
def test_the_process_ends_beside_a_handler_that_does_not(
    mongo_url: str, db: Db, colour: str, mode: str, action: str
) -> None:
    id = JobQueue(db).enqueue(action)
    with running(mode, colour, mongo_url, db.name) as program:
        program.wait_for("running", "stdout")
        if mode == "run":
            program.send(signal.SIGTERM)
        assert program.end(20) == 0
        assert ("answer started" if mode == "start" else "answer False") in program.stdout.splitlines()
    job = JobQueue(db).get(str(id))
    assert job is not None
    assert mode == "start" or (job.status, job.attempt) == (Status.QUEUED, 0)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_reaper_keeps_no_process_alive(mongo_url: str, db: Db, colour: str) -> None:
    with running("reaper", colour, mongo_url, db.name) as program:
        assert program.end(20) == 0
        assert "ReaperStarted(recovered=0)" in program.stdout


def test_a_forked_child_enqueues_and_has_a_worker_of_its_own_beside_its_parents(mongo_url: str, db: Db) -> None:
    with MongoClient[dict[str, Any]](mongo_url) as client:
        queue, here = JobQueue(client[db.name]), os.getpid()
        ran: list[Any] = []
        queue.process("parent", lambda job, ctx: ran.append(os.getpid()))
        queue.enqueue("parent")
        queue.start()
        until(lambda: len(ran) == 1)

        def child() -> None:
            seen = threading.Event()
            queue.process("child", lambda job, ctx: seen.set())
            queue.enqueue("child")
            assert not seen.wait(0.2)
            queue.start()
            assert seen.wait(30)
            handle = queue.claim_or_enqueue("inline")
            assert handle is not None
            queue.run_claimed(handle, lambda job, ctx: None)
            assert queue.shutdown() is True

        assert in_a_child(child) == 0
        assert queue.draining is False
        queue.enqueue("parent")
        until(lambda: ran == [here, here])
        assert queue.shutdown() is True
    until(lambda: db.job.count_documents({"status": "completed"}) == 4)


def test_a_forked_child_shuts_down_without_waiting_for_its_parents_jobs(db: Db) -> None:
    queue, held = JobQueue(db), Held()
    queue.process("a", held)
    queue.start()
    id = queue.enqueue("a")
    assert held.running.wait(30)

    def child() -> None:
        assert queue.shutdown(60) is True
        assert queue.wait_drained(0) is True

    assert in_a_child(child) == 0
    assert queue.get(str(id)).status is Status.RUNNING  # type: ignore[union-attr]  # it is there
    held.release.set()
    assert queue.shutdown() is True
    until(ended(db.job, [str(id)]))


def test_a_child_that_is_forked_while_its_parent_drains_is_not_drained(db: Db) -> None:
    queue, held = JobQueue(db), Held()
    queue.process("a", held)
    queue.start()
    queue.enqueue("a")
    assert held.running.wait(30)
    ending = threading.Thread(target=queue.shutdown, args=(60,))
    ending.start()
    until(lambda: queue.draining)

    def child() -> None:
        assert queue.draining is False
        assert queue.shutdown() is True

    with queue._part.lock:  # as if another thread of the parent were about to start something
        assert in_a_child(child) == 0
    held.release.set()
    ending.join(30)


def test_an_async_queue_shuts_down_in_a_forked_child(mongo_url: str, db: Db) -> None:
    loop = LoopThread("test-parent")
    client = AsyncMongoClient[dict[str, Any]](mongo_url)
    queue, held = AsyncJobQueue(client[db.name]), Held()
    queue.process("a", held)
    loop.call(queue.start())
    loop.call(queue.enqueue("a"))
    assert held.running.wait(30)

    def child() -> None:
        assert asyncio.run(queue.shutdown(60)) is True

    assert in_a_child(child) == 0
    held.release.set()
    assert loop.call(queue.shutdown()) is True
    loop.call(client.close())
    loop.close()


def killed_by_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(30)


def test_a_signal_of_the_parents_handlers_ends_a_child_as_if_they_were_not_there(db: Db) -> None:
    queue = JobQueue(db)
    uninstall = queue.install_signal_handlers()
    try:
        code = in_a_child(killed_by_itself)
    finally:
        uninstall()
    assert code == -signal.SIGTERM
    assert queue.draining is False
