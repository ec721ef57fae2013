"""Works mixed jobs off with workers that are killed and restarted at random, and adds up what became of them.

``python -m tests.drain.soak [--seconds 600] [--seed N] [--url URL]``. It exits with 1 and says why when something does
not add up. The workers are this same program.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from uuid6 import uuid7

from durabl_ext import Enqueue, FatalJobError, JobQueue
from simplequeue.embedded import Mongod

LEASE = 4.0
REAPER = 0.5
WORKERS = 3
ATTEMPTS = 1_000_000
"""A kill spends an attempt, as it must; so many that no job is given up for kills alone."""

KINDS = {"works": "completed", "fails": "failed", "fatal": "failed", "flaky": "completed", "keyed": "completed"}
"""How each kind of job has to end. A keyed one may be superseded by the one behind it."""


def work(job: Any, ctx: Any) -> None:
    ctx.log(f"attempt {job.attempt}")
    if ctx.signal.wait(job.data["takes"]):
        ctx.signal.raise_if_set()
    match job.action:
        case "fails":
            raise ValueError("fails each time")
        case "fatal":
            raise FatalJobError("cannot succeed")
        case "flaky" if random.random() < 0.5:  # no secret
            raise ValueError("fails now and then")


def worker(url: str, name: str) -> None:
    """Works until SIGTERM; each run marks its begin and its end in a collection beside the jobs."""
    db = MongoClient[dict[str, Any]](url)[name]
    queue = JobQueue(db, visibility_timeout=LEASE)

    def marked(job: Any, ctx: Any) -> None:
        run = {"job": job.id, "key": job.dedupe_key, "began": time.monotonic(), "process": os.getpid()}
        id = db.runs.insert_one(run).inserted_id
        try:
            work(job, ctx)
        finally:
            db.runs.update_one({"_id": id}, {"$set": {"ended": time.monotonic()}})

    for action in KINDS:
        queue.process(action, marked, concurrency=4)
    queue.run(timeout=0.3, reaper_interval=REAPER)


class Soak:
    """One soak.

    Args:
        db: Where; it is empty.
        url: Its server, for the workers.
        seed: Decides what is enqueued and whom is done what to.
    """

    def __init__(self, db: Database[dict[str, Any]], url: str, seed: int) -> None:
        self._url = url
        self._chance = random.Random(seed)
        self.db = db
        self.queue = JobQueue(self.db)
        self.asked: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._killed_at: dict[int, float] = {}

    def run(self, seconds: float) -> list[str]:
        """Adds jobs and does harm for so long, lets the workers finish, and gives what does not add up."""
        self.queue.startup()
        ends = time.monotonic() + seconds
        workers = [self._started() for _ in range(WORKERS)]
        try:
            while time.monotonic() < ends:
                self._enqueue_some()
                threading.Event().wait(self._chance.uniform(0.05, 0.3))
                if self._chance.random() < 0.15:
                    self._harm(workers)
            patience = time.monotonic() + 60 + seconds
            while self._open() and time.monotonic() < patience:
                threading.Event().wait(0.2)
            for process in workers:
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(30) for process in workers]
        finally:
            for process in workers:
                process.kill()
                process.wait()
        # One that was told to end while it still imported had no handlers yet.
        return self.faults() + [f"a worker ended with {code}" for code in codes if code not in (0, -signal.SIGTERM)]

    def faults(self) -> list[str]:
        """What does not add up."""
        faults = []
        jobs = list(self.db.job.find({}, {"action": 1, "status": 1}))
        if len(jobs) != sum(self.asked.values()):
            faults.append(f"{sum(self.asked.values())} jobs were stored, {len(jobs)} are there")
        for job in jobs:
            right = {KINDS[job["action"]]} | ({"superseded"} if job["action"] == "keyed" else set())
            if job["status"] not in right:
                faults.append(f"job {job['_id']} of action {job['action']} is {job['status']}")
        stats = self.queue.get_stats()
        if stats.queued or stats.running or stats.completed + stats.failed + stats.superseded != len(jobs):
            faults.append(f"the counts do not add up: {stats}")
        return faults + self._overlaps()

    def _overlaps(self) -> list[str]:
        """Runs of one job or key that were on at the same time; one that was killed ended with its process."""
        faults = []
        last: dict[str, Any] = {}
        for run in self.db.runs.find(sort=[("began", 1)]):
            ended = run.get("ended", self._killed_at.get(run["process"]))
            for name in {run["job"], run["key"]} - {None}:
                before = last.get(name)
                if before is not None and (before[0] is None or before[0] > run["began"]):
                    faults.append(f"two runs of {name} at once: {before[1]} and {run}")
                last[name] = (ended, run)
        return faults

    def _open(self) -> int:
        return self.db.job.count_documents({"status": {"$in": ["queued", "running"]}})

    def _enqueue_some(self) -> None:
        jobs = [self._job() for _ in range(self._chance.randint(1, 8))]
        ids = self.queue.enqueue_many(jobs)
        self.asked.update(job.action for job, id in zip(jobs, ids, strict=True) if id is not None)

    def _job(self) -> Enqueue:
        action = self._chance.choice(list(KINDS))
        scope = self._chance.choice(["queued", "queued+running"])
        keyed: Any = {"dedupe_key": f"{scope} {self._chance.randint(1, 4)}", "dedupe_scope": scope}
        return Enqueue(
            action,
            {"takes": self._chance.choice([0, 0, 0.02, 0.2, 1])},
            delay=self._chance.choice([None, None, 0.5, 2]),
            priority=self._chance.randint(0, 2),
            max_attempts=2 if action == "fails" else ATTEMPTS,
            backoff_delay=0.1,
            backoff_max_delay=0.5,
            **(keyed if action == "keyed" else {}),
        )

    def _harm(self, workers: list[subprocess.Popen[bytes]]) -> None:
        place = self._chance.randrange(len(workers))
        how = self._chance.choice([signal.SIGKILL, signal.SIGTERM])
        process = workers[place]
        process.send_signal(how)
        if how == signal.SIGKILL or self._chance.random() < 0.5:  # else the next one starts beside it
            process.wait(30)
        else:
            threading.Thread(target=process.wait).start()
        if how == signal.SIGKILL:
            self._killed_at[process.pid] = time.monotonic()
        self.done[how.name] += 1
        workers[place] = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.drain.soak", "--worker", self.db.name, "--url", self._url]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2])


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options.add_argument("--url")
    options.add_argument("--worker")
    given = options.parse_args()
    if given.worker:
        worker(given.url, given.worker)
        return 0
    with ExitStack() as stack:
        url = given.url
        if url is None:
            server = Mongod()
            stack.enter_context(server)
            url = server.uri
        sys.stdout.write(f"soaking for {given.seconds:g} s, seed {given.seed}\n")
        client = stack.enter_context(MongoClient[dict[str, Any]](url))
        soak = Soak(client[f"soak_{uuid7().hex}"], url, given.seed)
        faults = soak.run(given.seconds)
        client.drop_database(soak.db)
    sys.stdout.write(f"stored {dict(soak.asked)}, did {dict(soak.done)}\n")
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
