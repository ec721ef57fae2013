"""Workers that are restarted in turn while they work: nothing twice at once, nothing lost, no attempt spent."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pymongo.database import Database

from durabl_ext import Enqueue, JobQueue
from tests.drain.rolling import HEEDS, IGNORES
from tests.watching import until

Db = Database[dict[str, Any]]
JOBS, KEYS = 1_000, 100
RESTARTS = 8


def started(kind: str, url: str, db: Db) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.drain.rolling", kind, url, db.name]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)


def stopped(worker: subprocess.Popen[str]) -> str:
    """Ends a worker that is up as a platform does, and gives what its run() returned."""
    assert worker.stdout is not None
    assert worker.stdout.readline() == "up\n"
    worker.send_signal(signal.SIGTERM)
    printed, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    return printed.strip()


def test_a_rolling_restart_runs_no_key_twice_at_once_and_loses_nothing(mongo_url: str, db: Db) -> None:
    queue = JobQueue(db)
    stored: list[str] = []
    queue.startup()
    keys = [("queued" if n % 2 else "queued+running", f"k{n}") for n in range(KEYS)]
    db.seats.insert_many([{"_id": key, "taken": False} for _, key in keys])
    workers = [started(HEEDS, mongo_url, db) for _ in range(2)]
    over = threading.Event()

    def produce() -> None:
        turn = 0
        while (len(stored) < JOBS or restarts < RESTARTS) and not over.is_set():  # a fast machine stores more
            turn += 1
            takes = 0.3 if turn % 10 == 0 else 0.005
            jobs = [Enqueue("a", {"takes": takes}, dedupe_key=key, dedupe_scope=scope) for scope, key in keys]  # type: ignore[arg-type]  # a text
            stored.extend(id for id in queue.enqueue_many(jobs) if id is not None)

    restarts = 0
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        while producer.is_alive() or db.job.count_documents({"status": {"$in": ["queued", "running"]}}):
            if producer.is_alive():
                place = restarts % 2
                assert stopped(workers[place]) == "True"
                workers[place] = started(HEEDS, mongo_url, db)
                restarts += 1
            producer.join(0.5)
        assert [stopped(worker) for worker in workers] == ["True", "True"]
    finally:
        over.set()
        producer.join(30)
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert restarts >= RESTARTS
    assert db.doubles.count_documents({}) == 0
    assert len(stored) == db.job.count_documents({}) >= JOBS
    done = Counter(one["job"] for one in db.done.find())
    ends = Counter(job["status"] for job in db.job.find({}, {"status": 1}))
    # Superseded: it was given back while another waited under its key, which then did the work.
    assert set(ends) <= {"completed", "superseded"}
    assert set(done.values()) == {1}
    assert len(done) == ends["completed"]
    assert db.job.count_documents({"status": "completed", "durable.attempt": {"$ne": 1}}) == 0


def test_workers_whose_handlers_ignore_their_signal_end_all_the_same_and_no_claim_lives_twice(
    mongo_url: str, db: Db
) -> None:
    queue = JobQueue(db)
    queue.startup()
    db.seats.insert_many([{"_id": f"k{n}", "taken": False} for n in range(8)])
    ids = [queue.enqueue("a", {"takes": 60}, dedupe_key=f"k{n}", max_attempts=1) for n in range(8)]
    workers = [started(IGNORES, mongo_url, db)]
    try:
        until(lambda: db.seats.count_documents({"taken": True}) == 8)  # a job that runs may have no handler yet
        claims = {job["durable"]["token"] for job in db.job.find()}
        workers.append(started(IGNORES, mongo_url, db))
        began = time.monotonic()
        assert stopped(workers[0]) == "False"
        assert time.monotonic() - began < 0.2 + 20  # and not as long as its handlers take
        # Every claim was given back before the process was gone, and is not due before that.
        assert db.job.count_documents({"status": "queued", "durable.attempt": 0}) == 8
        due = {job["_id"]: job["durable"]["run_at"] for job in db.job.find()}
        assert min(due.values()) > db.command("hello")["localTime"]
        db.job.update_many({}, {"$set": {"data.takes": 0.5}})  # the next runs are no longer for waiting
        until(lambda: db.job.count_documents({"status": {"$in": ["running", "completed"]}}) == 8)
        assert all(job["started_at"] >= due[job["_id"]] for job in db.job.find())
        assert not claims & {job["durable"]["token"] for job in db.job.find()}
        until(lambda: db.job.count_documents({"status": "completed", "durable.attempt": 1}) == len(ids))
        assert stopped(workers[1]) == "True"
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
