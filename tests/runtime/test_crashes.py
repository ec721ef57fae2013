"""Workers that die: their jobs run again, not for ever, and others go on."""

from __future__ import annotations

import signal
import time
from typing import Any

from pymongo.database import Database

from durabl_ext import JobQueue, Superseded
from tests.runtime.conftest import Opener, Runs
from tests.runtime.programs import line, program
from tests.watching import ended, until

DB = Database[dict[str, Any]]

FATAL_WORKER = """
queue = JobQueue(MongoClient(uri)[name], visibility_timeout=0.5)
queue.process("poison", lambda job, ctx: os._exit(137))
queue.process("good", lambda job, ctx: time.sleep(0.05))
queue.start(reaper_interval=0.2)
sys.stdin.read()
"""

HOLDER = """
queue = JobQueue(MongoClient(uri)[name], visibility_timeout=1)

def hold(job, ctx):
    print("running", flush=True)
    threading.Event().wait()

queue.process("a", hold)
queue.start(reaper=False)
sys.stdin.read()
"""


def test_a_job_that_kills_its_process_fails_as_stalled_after_its_attempts_and_others_go_on(
    db: DB, mongo_url: str
) -> None:
    queue = JobQueue(db)
    poison = queue.enqueue("poison", max_attempts=3, backoff="fixed", backoff_delay=0.3)
    good = [queue.enqueue("good") for _ in range(10)]
    deaths, attempts = 0, []
    while True:
        with program(FATAL_WORKER, mongo_url, db.name) as worker:
            until(lambda worker=worker: worker.poll() is not None or ended(db.job, [str(poison)])())  # type: ignore[misc]  # mypy cannot infer it
            if worker.poll() is None:
                until(ended(db.job, [str(id) for id in good]))
                break
            assert worker.returncode == 137
        deaths += 1
        job = db.job.find_one({"_id": poison})
        assert job is not None
        attempts.append(job["durable"]["attempt"])
    after = queue.get(str(poison))
    assert after is not None
    assert deaths == 3
    assert attempts == [1, 2, 3]
    assert (after.status, after.failure_kind, after.attempt) == ("failed", "stalled", 3)
    assert db.job.count_documents({"status": "completed"}) == 10


def test_the_key_of_a_killed_holder_is_runnable_again_within_lease_interval_and_backoff(
    db: DB, open_queue: Opener, mongo_url: str
) -> None:
    queue, seen = open_queue(visibility_timeout=1), Runs()
    id = queue.add(dedupe_key="k", backoff="fixed", backoff_delay=0.3)
    with program(HOLDER, mongo_url, db.name) as holder:
        assert line(holder) == "running"
        queue.process("a", seen)
        queue.start(reaper_interval=0.2)
        assert queue.enqueue("a", dedupe_key="k") is None
        killed_at = time.monotonic()
        holder.send_signal(signal.SIGKILL)
        (again,) = seen.wait_for(1)
    # The last is for a busy machine: reapers come once a minute and leases last five, unless told otherwise.
    assert time.monotonic() - killed_at < 1 + 0.2 + 0.3 + 15
    assert (again.id, again.attempt) == (id, 2)
    assert again.error["name"] == "Stalled"
    until(ended(db.job, [id]))
    assert isinstance(queue.add(dedupe_key="k"), str)


def test_a_killed_holder_with_a_follower_is_superseded_by_it(db: DB, open_queue: Opener, mongo_url: str) -> None:
    queue, seen = open_queue(visibility_timeout=1), Runs()
    first = queue.add("a", {"n": 1}, dedupe_key="k", dedupe_scope="queued")
    with program(HOLDER, mongo_url, db.name) as holder:
        assert line(holder) == "running"
        second = queue.add("a", {"n": 2}, dedupe_key="k", dedupe_scope="queued")
        queue.process("a", seen)
        queue.start(reaper_interval=0.2)
        holder.send_signal(signal.SIGKILL)
        until(ended(db.job, [first, second]))
    assert seen.ids == [second]
    assert queue.get(first).status == Superseded.__name__.lower()
