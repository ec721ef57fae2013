"""``simplequeue worker MODULE:QUEUE``, as the process it is in production: a queue of the extension with processors."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Status
from tests.commands.processes import Running, running
from tests.watching import until

SLACK = 15.0
"""Seconds that a process may take to end beyond its timeout. It takes less than two; a hung one would take for ever."""

APP = """
import asyncio, os, threading
from pymongo import AsyncMongoClient, MongoClient
from durabl_ext import AsyncJobQueue, JobQueue
from durabl_ext.runtime import worker

worker.RELEASE = 30.0  # the tests look at what was given back, and a busy machine may take long for that
URL, DB = os.environ["APP_URL"], os.environ["APP_DB"]
sync = JobQueue(MongoClient(URL)[DB])
empty = JobQueue(MongoClient(URL)[DB])
asynchronous = AsyncJobQueue(AsyncMongoClient(URL)[DB])

@sync.process("tell")
def tell(job, ctx):
    print("told", job.data["name"], flush=True)

@sync.process("fail")
def fail(job, ctx):
    print("failing", job.attempt, flush=True)
    raise ValueError("no luck")

@sync.process("hang")
def hang(job, ctx):
    print("hanging", flush=True)
    threading.Event().wait()

def plain(job):
    pass

@asynchronous.process("tell", concurrency=2)
async def tell_async(job, ctx):
    await asyncio.sleep(0)
    print("told", job.data["name"], flush=True)

@asynchronous.process("long")
async def long(job, ctx):
    worker.YIELD = 30.0  # it ends when it is cancelled, on a busy machine too
    print("waiting", flush=True)
    await asyncio.Event().wait()
"""

Start = Callable[..., AbstractContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path, mongo_url: str, db: Database[dict[str, Any]]) -> Start:
    (tmp_path / "app.py").write_text(APP)
    environment = {"APP_URL": mongo_url, "APP_DB": db.name}
    return lambda *words: running("worker", *words, environment=environment, cwd=tmp_path)


@pytest.fixture
def queue(db: Database[dict[str, Any]]) -> JobQueue:
    made = JobQueue(db)
    made.startup()
    return made


def status(queue: JobQueue, id: str | None) -> Status:
    assert id is not None
    job = queue.get(id)
    assert job is not None
    return job.status


@pytest.mark.parametrize("name", ["sync", "asynchronous"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_works_with_the_queues_processors_until_a_signal(
    start: Start, queue: JobQueue, name: str, number: signal.Signals
) -> None:
    first = queue.enqueue("tell", {"name": "Ada"})
    with start(f"app:{name}") as worker:
        worker.wait_for("working on actions: ")
        worker.wait_for("told Ada", "stdout")
        second = queue.enqueue("tell", {"name": "Grace"})
        worker.wait_for("told Grace", "stdout")
        until(lambda: status(queue, second) is Status.COMPLETED)
        worker.send(number)
        assert worker.end(SLACK) == 0
    assert status(queue, first) is Status.COMPLETED
    assert "stopped: every handler has finished" in worker.stderr
    assert "Traceback" not in worker.stderr


def test_a_job_that_fails_is_tried_again_and_its_operator_told_when_it_has_failed_for_good(
    start: Start, queue: JobQueue
) -> None:
    id = queue.enqueue("fail", max_attempts=2, backoff="fixed", backoff_delay=0.05)
    with start("app:sync") as worker:
        until(lambda: status(queue, id) is Status.FAILED)
        worker.send(signal.SIGTERM)
        assert worker.end(SLACK) == 0
    assert worker.stdout.splitlines() == ["failing 1", "failing 2"]
    assert f"job {id} of action 'fail' failed in attempt 2 of 2 with ValueError, for good" in worker.stderr


@pytest.mark.parametrize(("name", "action", "sign"), [("sync", "hang", "hanging"), ("asynchronous", "long", "waiting")])
def test_a_job_whose_handler_does_not_end_is_given_back_with_no_attempt_spent(
    start: Start, queue: JobQueue, name: str, action: str, sign: str
) -> None:
    id = queue.enqueue(action)
    assert id is not None
    with start(f"app:{name}", "--timeout", "0.5") as worker:
        worker.wait_for(sign, "stdout")
        worker.send(signal.SIGTERM)
        code = worker.end(SLACK)
    assert code == (1 if name == "sync" else 0)  # a coroutine that is cancelled ends
    assert ("Their jobs were given back" in worker.stderr) is (name == "sync")
    job = queue.get(id)
    assert job is not None
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


def test_jobs_of_a_dead_worker_are_put_back_unless_it_was_told_not_to(
    start: Start, queue: JobQueue, db: Database[dict[str, Any]]
) -> None:
    def die() -> str:
        id = queue.enqueue("tell", {"name": "Ada"}, backoff_delay=0)
        assert id is not None
        (claim,) = queue.backend.claim(["tell"], 1, lease=0.1)
        until(lambda: queue.backend.now() >= claim.job.lease_expires_at)  # type: ignore[operator]  # it runs
        return id

    dead = die()
    with start("app:sync", "--no-reaper") as worker:
        worker.wait_for("working on")
        alive = queue.enqueue("tell", {"name": "Grace"})
        until(lambda: status(queue, alive) is Status.COMPLETED)
        assert status(queue, dead) is Status.RUNNING
        worker.send(signal.SIGTERM)
        worker.end(SLACK)
    with start("app:sync") as worker:
        until(lambda: status(queue, dead) is Status.COMPLETED)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("app:empty",), "has no processors"),
        (("app:sync", "--concurrency", "2"), "--concurrency is not for what was named"),
        (("app:sync", "--action", "tell"), "--action is not for what was named"),
        (("app:plain", "--no-reaper"), "--no-reaper is not for what was named"),
        (("app:tell",), "a processor of durabl_ext is run by naming its queue, such as app.jobs:queue"),
    ],
)
def test_what_does_not_fit_a_queue_is_a_usage_error(start: Start, words: tuple[str, ...], remedy: str) -> None:
    with start(*words) as worker:
        assert worker.end() == 2
    assert remedy in worker.stderr.replace("\n", " ")
