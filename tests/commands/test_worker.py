"""``simplequeue worker``, as the process it is in production."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from simplequeue import Queue, create_queue
from simplequeue.embedded import Mongod
from tests.commands.processes import Running, running
from tests.servers import QuickMongod
from tests.watching import until

SLACK = 15.0
"""Seconds that a process may take to end beyond its timeout. It takes less than one; a hung one would take for ever."""

APP = """
import asyncio, concurrent.futures, threading

def held(job):
    print("began", job.id, flush=True)
    with open("go") as pipe:
        pipe.read()

def quick(job):
    print("began", job.id, flush=True)

def hung(job):
    print("began", job.id, flush=True)
    threading.Event().wait()

def hung_in_an_executor(job):
    print("began", job.id, flush=True)
    concurrent.futures.ThreadPoolExecutor().submit(threading.Event().wait).result()

async def hung_in_a_thread_of_its_loop(job):
    print("began", job.id, flush=True)
    await asyncio.to_thread(threading.Event().wait)

async def told(job):
    print("told", job.data["name"], flush=True)
    if job.data["name"] == "nobody":
        raise ValueError("no such user")

def raising(job):
    raise ValueError("no such user:\\n\\x1b[31m" + job.data["name"])

async def raising_async(job):
    raising(job)

class Raising:
    async def __call__(self, job):
        raising(job)

raising_object = Raising()
raising_later = lambda job: raising_async(job)

def leaving(job):
    raise SystemExit("not today")

class Unprintable(Exception):
    def __str__(self):
        raise SystemExit

def raising_unprintable(job):
    raise Unprintable
"""

CONFIGURED = """
import logging.config
from app import raising

logging.config.dictConfig({
    "version": 1,
    "formatters": {"own": {"format": "own %(name)s %(message)s"}},
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"handlers": ["own"]},
})
"""

LEAVING = """
import atexit
from app import quick

@atexit.register
def leave():
    print("winding up", flush=True)
    with open("go") as pipe:
        pipe.read()
"""

Start = Callable[..., AbstractContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Start:
    """Starts a worker in a directory with the modules above and a pipe named ``go``."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "leaving.py").write_text(LEAVING)
    (tmp_path / "configured.py").write_text(CONFIGURED)
    os.mkfifo(tmp_path / "go")
    return lambda *words, **more: running("worker", *words, environment={**environment, **more}, cwd=tmp_path)


def let_go(folder: Path) -> None:
    """Lets one handler end that waits for the pipe."""
    (folder / "go").write_text("")


def status(queue: Queue, id: str) -> str:
    job = queue.get(id)
    assert job is not None
    return job.status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_cleanly(start: Start, number: signal.Signals, db: Any) -> None:
    with start("app:quick") as worker:
        worker.wait_for(f"listening on {db.name}.job with 16 slots, actions: all; stop with SIGTERM or Ctrl-C")
        worker.send(number)
        assert worker.end(SLACK) == 0
    assert worker.stdout == ""
    assert worker.stderr.splitlines()[1:] == [
        f"{number.name}: taking no more jobs, waiting up to 20 s for those that run",
        "stopped: every handler has finished",
    ]


def test_it_runs_jobs_of_the_backlog_and_new_ones(start: Start, queue: Queue) -> None:
    first = queue.add("tell", {"name": "Ada"})
    with start("app:told", "--concurrency", "2") as worker:
        worker.wait_for("told Ada", "stdout")
        second = queue.add("tell", {"name": "nobody"})
        worker.wait_for("told nobody", "stdout")
        until(lambda: status(queue, second.id) == "failed")
        worker.send(signal.SIGTERM)
        assert worker.end(SLACK) == 0
    assert status(queue, first.id) == "completed"


def test_it_takes_only_the_actions_that_it_was_given(start: Start, queue: Queue) -> None:
    names = ("mail", "other", "tell", "mail")
    jobs = [queue.add(name) for name in names]
    with start("app:quick", "--action", "mail", "--action", "tell", "--concurrency", "1") as worker:
        worker.wait_for("began", "stdout", times=3)
        worker.send(signal.SIGTERM)
        assert worker.end(SLACK) == 0
    assert [status(queue, job.id) for job in jobs] == ["completed", "queued", "completed", "completed"]


@pytest.mark.parametrize(
    "burst",
    [
        (signal.SIGTERM,),
        (signal.SIGINT,),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGINT, signal.SIGINT, signal.SIGTERM),
    ],
    ids=lambda burst: "-".join(number.name for number in burst),
)
def test_a_handler_that_runs_may_finish_whatever_signals_follow(
    start: Start, queue: Queue, tmp_path: Path, burst: tuple[signal.Signals, ...]
) -> None:
    runs, waits = queue.add("hold"), queue.add("hold")
    with start("app:held", "--concurrency", "1") as worker:
        worker.wait_for("began", "stdout")
        for number in burst:
            worker.send(number)
            worker.wait_for("taking no more jobs")
        let_go(tmp_path)
        assert worker.end(SLACK) == 0
    assert "stopped: every handler has finished" in worker.stderr
    assert "Traceback" not in worker.stderr
    assert (status(queue, runs.id), status(queue, waits.id)) == ("completed", "queued")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_python_winds_up_changes_nothing(start: Start, number: signal.Signals) -> None:
    with start("leaving:quick") as worker:
        worker.wait_for("listening")
        worker.send(signal.SIGTERM)
        worker.wait_for("winding up", "stdout")
        worker.send(number)
        assert worker.end(SLACK) == 0
    assert worker.stderr.endswith("stopped: every handler has finished\n")


@pytest.mark.parametrize("handler", ["hung", "hung_in_an_executor", "hung_in_a_thread_of_its_loop"])
@pytest.mark.parametrize("burst", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGINT)], ids=["once", "twice"])
def test_a_handler_that_hangs_is_left_behind(
    start: Start, queue: Queue, handler: str, burst: tuple[signal.Signals, ...]
) -> None:
    job = queue.add("hang")
    with start(f"app:{handler}", "--timeout", "0.5") as worker:
        worker.wait_for("began", "stdout")
        for number in burst:
            worker.send(number)
        assert worker.end(0.5 + SLACK) == 1
    assert "within 0.5 s some handlers have not finished" in worker.stderr
    assert "simplequeue ls --status running" in worker.stderr
    assert f"began {job.id}" in worker.stdout
    assert status(queue, job.id) == "running"


@pytest.mark.parametrize("seed", range(5))
def test_a_signal_in_the_midst_of_work_leaves_nothing_half_done(start: Start, queue: Queue, db: Any, seed: int) -> None:
    rng = random.Random(seed)
    queue.add_many([("greet", {})] * 3_000)
    with start("app:quick", "--concurrency", "4") as worker:
        worker.wait_for("began", "stdout")
        threading.Event().wait(rng.uniform(0, 0.3))  # the random moment
        worker.send(rng.choice((signal.SIGTERM, signal.SIGINT)))
        assert worker.end(20 + SLACK) == 0
    assert "Traceback" not in worker.stderr
    assert db.job.count_documents({"status": "running"}) == 0
    assert db.job.count_documents({"status": "completed"}) == worker.stdout.count("began")


def test_warnings_of_the_library_go_to_stderr(start: Start, queue: Queue, db: Any, tmp_path: Path) -> None:
    job = queue.add("hold")
    with start("app:held", "--timeout", "0.5") as worker:
        worker.wait_for("began", "stdout")
        db.job.update_one({"_id": job.id}, {"$set": {"status": "cancelled"}})
        let_go(tmp_path)
        worker.wait_for(f"WARNING simplequeue: job {job.id} was no longer running when its handler ended")
        worker.send(signal.SIGTERM)
        assert worker.end(SLACK) == 0


@pytest.mark.parametrize(
    ("handler", "logged"),
    [
        ("raising", "ValueError: no such user:\\n\\x1b[31mAda"),
        ("raising_async", "ValueError: no such user:\\n\\x1b[31mAda"),
        ("raising_object", "ValueError: no such user:\\n\\x1b[31mAda"),
        ("raising_later", "ValueError: no such user:\\n\\x1b[31mAda"),
        ("leaving", "SystemExit: not today"),
        ("raising_unprintable", "Unprintable: <the text of this Unprintable cannot be had>"),
    ],
)
def test_a_failed_job_is_a_line_of_the_log_and_failed_as_without_it(
    start: Start, queue: Queue, handler: str, logged: str
) -> None:
    jobs = queue.add_many([("tell\nall", {"name": "Ada"})] * 2)
    with start(f"app:{handler}") as worker:
        for job in jobs:
            worker.wait_for(f"WARNING simplequeue.worker: job {job.id} failed, tell\\nall: {logged}\n")
        until(lambda: [status(queue, job.id) for job in jobs] == ["failed", "failed"])
        worker.send(signal.SIGTERM)
        assert worker.end(SLACK) == 0
    assert len(worker.stderr.splitlines()) == 3 + len(jobs)
    ended = queue.get(jobs[0].id)
    assert ended is not None
    assert ended.error is not None
    assert ended.error["name"] == logged.partition(":")[0]
    assert "app.py" in ended.error["stack"]


def test_a_job_that_went_well_is_not_logged(start: Start, queue: Queue) -> None:
    job = queue.add("tell", {"name": "Ada"})
    with start("app:told") as worker:
        until(lambda: status(queue, job.id) == "completed")
        worker.send(signal.SIGTERM)
        assert worker.end(SLACK) == 0
    assert job.id not in worker.stderr


def test_an_application_that_set_up_its_logging_gets_failed_jobs_there(start: Start, queue: Queue) -> None:
    job = queue.add("tell", {"name": "Ada"})
    with start("configured:raising") as worker:
        worker.wait_for(f"own simplequeue.worker job {job.id} failed, tell: ValueError: no such user")
        worker.send(signal.SIGTERM)
        assert worker.end(SLACK) == 0


@pytest.fixture
def own_server() -> Iterator[tuple[Mongod, MongoClient[dict[str, Any]]]]:
    """A server that a test may freeze."""
    server = QuickMongod()
    with server as client:
        yield server, client
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("handler", ["quick", "held"])
@pytest.mark.parametrize("outage", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_without_its_server_it_ends_within_its_budget(
    start: Start,
    own_server: tuple[Mongod, MongoClient[dict[str, Any]]],
    tmp_path: Path,
    outage: signal.Signals,
    handler: str,
) -> None:
    server, client = own_server
    place = {"MONGO_URL": server.uri, "SIMPLEQUEUE_DB": "frozen"}
    with start(f"app:{handler}", "--timeout", "1", **place) as worker:
        worker.wait_for("listening")
        if handler == "held":
            create_queue(client["frozen"]).add("hold")
            worker.wait_for("began", "stdout")
        os.kill(server.pid, outage)
        if handler == "held":
            let_go(tmp_path)
        began = time.monotonic()
        worker.send(signal.SIGTERM)
        code = worker.end(1 + SLACK)
        assert time.monotonic() - began < 1 + SLACK
    assert code == (0 if handler == "quick" else 1)
    assert "Traceback" not in worker.stderr
