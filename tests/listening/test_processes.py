"""Forks, threads, loops and the ends of processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from simplequeue import Job, Status, create_queue
from tests.watching import Recorder, ended, until

PROGRAM = """
import signal, sys, threading, time
from pymongo import MongoClient
from simplequeue import create_queue

uri, name, action = sys.argv[1:]
queue = create_queue(MongoClient(uri)[name])

begun = threading.Event()

def hang(job):
    print("running", flush=True)
    begun.set()
    threading.Event().wait()

listener = queue.listen(hang)
begun.wait(60)
"""


def start(mongo_url: str, db: Database[dict[str, Any]], ending: str) -> subprocess.Popen[str]:
    """Starts a program whose handler hangs, and returns once it does."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + ending, mongo_url, db.name, "a"], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "running\n"
    return program


@pytest.mark.parametrize(
    "ending",
    [
        "listener.stop(timeout=0.2)",
        "sys.exit(0)",
        "import asyncio\nasync def never(job): await asyncio.sleep(3600)\nqueue.listen(never)\nlistener.stop(0)",
    ],
    ids=["stop", "exit", "async handler"],
)
def test_the_process_exits_beside_a_hung_handler(mongo_url: str, db: Database[dict[str, Any]], ending: str) -> None:
    job = create_queue(db).add("a")
    with start(mongo_url, db, ending) as program:
        assert program.wait(30) == 0
    after = create_queue(db).get(job.id)
    assert after is not None
    assert after.status is Status.RUNNING


def test_a_job_whose_process_was_killed_stays_running_and_others_go_on(
    mongo_url: str, db: Database[dict[str, Any]]
) -> None:
    queue, seen = create_queue(db), Recorder()
    job = queue.add("a")
    with start(mongo_url, db, "listener.wait()") as program:
        program.send_signal(signal.SIGKILL)
        assert program.wait(30) == -signal.SIGKILL
    with queue.listen(seen):
        other = queue.add("a")
        until(ended(db.job, [other.id]))
    assert seen.ids == [other.id]
    after = queue.get(job.id)
    assert after is not None
    assert after.status is Status.RUNNING


def test_a_queue_made_and_used_in_the_parent_adds_and_listens_in_a_forked_child(
    mongo_url: str, db: Database[dict[str, Any]]
) -> None:
    with MongoClient[dict[str, Any]](mongo_url) as client:
        queue = create_queue(client[db.name])
        parents = [queue.add("parent").id for _ in range(10)]
        child = os.fork()
        if child == 0:
            # In the child nothing of pytest may run, whatever happens.
            try:
                seen = Recorder()
                queue.add("child")
                with queue.listen(seen):
                    seen.wait_for_ends(11, 30)
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert queue.add("parent").action == "parent"
    assert db.job.count_documents({"status": "completed"}) == len(parents) + 1


def test_listening_from_another_thread_that_ends_goes_on(db: Database[dict[str, Any]]) -> None:
    queue, seen = create_queue(db), Recorder()
    listeners = []
    thread = threading.Thread(target=lambda: listeners.append(queue.listen(seen)))
    thread.start()
    thread.join(30)
    job = queue.add("a")
    until(ended(db.job, [job.id]))
    assert listeners[0].stop(30)


@pytest.mark.parametrize("size", [1, 2])
def test_a_small_connection_pool_slows_eight_slots_down_but_hangs_nothing(
    mongo_url: str, db: Database[dict[str, Any]], size: int
) -> None:
    with MongoClient[dict[str, Any]](mongo_url, maxPoolSize=size) as client:
        queue, seen = create_queue(client[db.name]), Recorder()
        ids = [job.id for job in queue.add_many([("a", None)] * 10)]
        with queue.listen(seen, concurrency=8):
            until(ended(db.job, ids))
    assert sorted(seen.ids) == sorted(ids)


def test_an_async_listener_that_its_loop_leaves_behind_stores_the_ends_of_its_jobs(
    mongo_url: str, db: Database[dict[str, Any]]
) -> None:
    job = create_queue(db).add("a")
    running = threading.Event()

    async def hang(job: Job) -> None:
        running.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            await create_queue(client[db.name]).listen(hang)
            await asyncio.to_thread(running.wait, 30)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=30)

    asyncio.run(main())
    after = create_queue(db).get(job.id)
    assert after is not None
    assert after.status is Status.FAILED
    assert after.error is not None
    assert after.error["name"] == "CancelledError"


def test_an_async_handler_that_blocks_its_loop_does_not_keep_a_sync_queue_from_claiming(
    db: Database[dict[str, Any]],
) -> None:
    queue, release = create_queue(db), threading.Event()
    both = threading.Barrier(2)

    async def block(job: Job) -> None:
        if job.action == "block":
            both.wait(30)
            release.wait(30)  # blocks the loop on purpose

    def plain(job: Job) -> Any:
        return block(job) if job.action == "block" else None

    blocking = queue.add("block")
    with queue.listen(plain, concurrency=4):
        both.wait(30)
        others = [job.id for job in queue.add_many([("plain", None)] * 10)]
        until(ended(db.job, others))
        release.set()
        until(ended(db.job, [blocking.id]))


def test_two_loops_may_each_have_their_own_async_queue(mongo_url: str, db: Database[dict[str, Any]]) -> None:
    def work() -> None:
        async def main() -> None:
            async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
                queue = create_queue(client[db.name])
                async with await queue.listen(lambda job: None):
                    ids = [(await queue.add("a")).id for _ in range(20)]
                    await asyncio.to_thread(until, ended(db.job, ids))

        asyncio.run(main())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert db.job.count_documents({"status": "completed"}) == 40


def test_an_import_of_simplequeue_loads_neither_mongomock_nor_click() -> None:
    code = "import sys, simplequeue; print(sorted({'mongomock', 'click', 'fiftyone'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"


@pytest.mark.parametrize("db", ["job", None, 7, object()], ids=["str", "None", "int", "object"])
def test_create_queue_refuses_what_is_no_database(db: Any) -> None:
    with pytest.raises(TypeError, match="expected a pymongo Database, an AsyncDatabase or a mongomock Database"):
        create_queue(db)


def test_create_queue_refuses_a_client_and_a_collection_and_sends_nothing_for_a_database() -> None:
    began = time.monotonic()
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1/", connect=False) as nowhere:
        for wrong in (nowhere, nowhere.test.job):
            with pytest.raises(TypeError, match=r"client\['name'\]"):
                create_queue(wrong)  # type: ignore[call-overload]  # on purpose
        assert create_queue(nowhere.test, collection="other") is not None
    assert time.monotonic() - began < 20
