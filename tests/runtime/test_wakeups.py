"""With push on and no poll to help: what is due starts on time, and an idle worker is quiet."""

from __future__ import annotations

import json
import subprocess
import threading
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from durabl_ext import JobQueue
from durabl_ext.runtime import claimer
from simplequeue import feed
from tests.runtime.conftest import POLL_NEVER, Calls, Opener, Runs
from tests.runtime.fronts import Front, worker_of
from tests.runtime.idle import WATCHED
from tests.runtime.programs import line, program
from tests.watching import ended, until

DB = Database[dict[str, Any]]
PROMPT = timedelta(seconds=10)
"""A busy machine needs some of it. Without the signal that is tested a job would wait for a poll, and none comes."""


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "POLL_WITH_PUSH", POLL_NEVER)
    monkeypatch.setattr(feed, "POLL_WITHOUT_PUSH", POLL_NEVER)


def start(queue: Front) -> Front:
    queue.start(reaper=False)
    return queue


def started_on_time(queue: Front, id: str, due: Any) -> None:
    """Checks that a job started when it was due: never before, and hardly after."""
    job = queue.get(id)
    assert due <= job.started_at <= due + PROMPT, (due, job.started_at)


def test_a_delayed_job_starts_when_it_is_due(db: DB, queue: Front) -> None:
    seen = Runs()
    queue.process("a", seen)
    start(queue)
    due = queue.get(id := queue.add(delay=1)).run_at
    until(ended(db.job, [id]))
    started_on_time(queue, id, due)


def test_a_delayed_job_that_another_process_enqueues_starts_when_it_is_due(
    db: DB, queue: Front, open_queue: Opener
) -> None:
    seen, producer = Runs(), open_queue()
    queue.process("a", seen)
    start(queue)
    due = queue.get(id := producer.add(delay=0.7)).run_at
    until(ended(db.job, [id]))
    started_on_time(queue, id, due)


@pytest.mark.parametrize("push", ["auto", False])
def test_a_failed_job_starts_again_when_its_backoff_is_over(db: DB, open_queue: Opener, push: Any) -> None:
    due: list[Any] = []

    def fails_once(job: Any, ctx: Any) -> None:
        due.append(job.run_at)
        if job.attempt == 1:
            raise ValueError("no")

    queue = open_queue(push=push)
    queue.process("a", fails_once, concurrency=2)  # with a free slot beside it, its end frees nothing
    start(queue)
    id = queue.add(backoff="fixed", backoff_delay=1)
    until(ended(db.job, [id]))
    started_on_time(queue, id, due[1])
    assert due[1] - due[0] >= timedelta(seconds=1)


@pytest.mark.parametrize("ahead", [0.02, -0.02])
def test_a_job_starts_when_it_is_due_by_a_backend_whose_clock_differs_from_the_workers(
    db: DB, queue: Front, ahead: float
) -> None:
    queue.process("a", Runs())
    start(queue)
    # Each is measured by itself, and is wrong by half of what its answer took.
    worker_of(queue).engine._clock._offset += timedelta(seconds=ahead)
    ids = [queue.add(delay=0.1 * n) for n in range(1, 6)]
    due = [queue.get(id).run_at for id in ids]
    until(ended(db.job, ids), 20)
    for id, at in zip(ids, due, strict=True):
        started_on_time(queue, id, at)


def test_of_two_delayed_jobs_the_later_added_and_sooner_due_is_not_kept_waiting(db: DB, queue: Front) -> None:
    seen = Runs()
    queue.process("a", seen)
    start(queue)
    late = queue.add(delay=20)
    due = queue.get(soon := queue.add(delay=1)).run_at
    until(ended(db.job, [soon]))
    started_on_time(queue, soon, due)
    assert queue.get(late).status == "queued"


def test_a_delayed_job_starts_on_time_beside_an_action_with_a_backlog(db: DB, queue: Front) -> None:
    hold = threading.Event()
    busy, seen = Runs(lambda job, ctx: hold.wait(60)), Runs()
    queue.process("busy", busy)
    queue.process("a", seen, concurrency=2)
    backlog = [queue.add("busy") for _ in range(5)]
    start(queue)
    busy.wait_for(1)
    due = queue.get(id := queue.add(delay=0.7)).run_at
    until(ended(db.job, [id]))
    started_on_time(queue, id, due)
    hold.set()
    until(ended(db.job, backlog))


def test_a_delayed_job_starts_on_time_beside_an_action_that_is_never_done(db: DB, open_queue: Opener) -> None:
    queue, seen, stop = open_queue(), Runs(), threading.Event()

    def goes_on(job: Any, ctx: Any) -> None:
        if not stop.is_set():
            producer.enqueue("busy")

    producer = JobQueue(db)
    queue.process("busy", goes_on, concurrency=4)
    queue.process("a", seen)
    start(queue)
    for _ in range(4):
        queue.add("busy")
    ids = [queue.add(delay=0.3 * n) for n in range(1, 6)]
    due = [queue.get(id).run_at for id in ids]
    until(ended(db.job, ids))
    stop.set()
    for id, at in zip(ids, due, strict=True):
        started_on_time(queue, id, at)


def test_a_processor_with_a_short_poll_is_not_put_off_by_the_news_of_others(db: DB, open_queue: Opener) -> None:
    queue, seen, done = open_queue(push=False), Runs(), threading.Event()
    queue.process("polled", seen, poll_interval=0.3)
    queue.process("busy", Runs())
    start(queue)

    def keep_busy() -> None:
        while not done.wait(0.05):
            queue.add("busy")

    news = threading.Thread(target=keep_busy)
    news.start()
    JobQueue(db).enqueue("polled")  # as another process: no signal comes of it
    try:
        until(lambda: seen.jobs, 30)
    finally:
        done.set()
        news.join(60)


FOLLOWED = """
queue = JobQueue(MongoClient(uri)[name])

def hold(job, ctx):
    print("running", flush=True)
    sys.stdin.readline()

queue.process("held", hold)
queue.start(reaper=False)
print("idle", flush=True)
queue.wait_drained()
"""


def found_blocked() -> None:
    """Waits until a worker has looked at what was just enqueued and is idle again."""
    threading.Event().wait(0.5)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_follower_starts_at_once_when_its_holder_ends(db: DB, open_queue: Opener, mongo_url: str, where: str) -> None:
    key = {"dedupe_key": "k", "dedupe_scope": "queued"}
    # Here its own worker knows without a stream; elsewhere only a stream can say so.
    hold, queue, seen = threading.Event(), open_queue(push=False if where == "here" else "auto"), Runs()
    holder = Runs(lambda job, ctx: hold.wait(60))
    queue.process("follower", seen)
    if where == "here":
        queue.process("held", holder)
        start(queue)
        first = queue.add("held", **key)
        holder.wait_for(1)
        queue.add("follower", **key)
        found_blocked()
        hold.set()
        until(ended(db.job, [first]))
    else:
        with program(FOLLOWED, mongo_url, db.name) as other:
            assert line(other) == "idle"
            start(queue)
            first = queue.add("held", **key)
            assert line(other) == "running"
            queue.add("follower", **key)
            found_blocked()
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()
            until(ended(db.job, [first]))
    (follower,) = seen.wait_for(1)
    assert follower.started_at - queue.get(first).finished_at < PROMPT


def test_an_enqueue_in_this_process_wakes_the_worker_without_a_stream(db: DB, open_queue: Opener) -> None:
    queue, seen = open_queue(push=False), Runs()
    queue.process("a", seen)
    start(queue)
    for n in range(3):
        id = queue.add()
        job = seen.wait_for(n + 1)[-1]
        assert job.id == id
        assert job.started_at - job.created_at < PROMPT


def test_claims_that_fail_are_reported_and_tried_again(
    db: DB, open_queue: Opener, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "BACKOFF", 0.01)
    calls = Calls()
    calls.fail("claim", AutoReconnect("gone"), first=0, times=6)
    queue, seen = open_queue(calls), Runs()
    queue.process("a", seen)
    id = queue.add()
    start(queue)
    until(ended(db.job, [id]))
    assert caplog.text.count("looking for jobs failed, trying again") == 5
    assert caplog.text.count("looking for jobs has failed five times in a row") == 1


def test_when_the_next_due_job_cannot_be_read_it_still_starts_on_time(db: DB, open_queue: Opener) -> None:
    calls = Calls()
    calls.fail("next_due", AutoReconnect("gone"), first=0, times=2)
    queue, seen = open_queue(calls), Runs()
    queue.process("a", seen)
    due = queue.get(id := queue.add(delay=1)).run_at
    start(queue)
    until(ended(db.job, [id]))
    started_on_time(queue, id, due)


def test_a_claim_whose_write_went_unanswered_is_tried_again_before_the_next_poll(
    db: DB, open_sync: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    queue, seen = open_sync(), Runs()
    backend: Any = queue.queue.backend
    jobs, failures = backend._decisions._jobs, [AutoReconnect("gone")]
    write = jobs.write

    async def fails_once(writes: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await write(writes, **options)

    jobs.write = fails_once
    queue.process("a", seen)
    id = queue.add()
    start(queue)
    until(ended(db.job, [id]), 20)
    assert caplog.text.count("looking for jobs failed, trying again") == 1


def test_blocked_keys_are_no_failure_and_hold_nobody_up(db: DB, queue: Front, caplog: pytest.LogCaptureFixture) -> None:
    key = {"dedupe_key": "k", "dedupe_scope": "queued"}
    hold = threading.Event()
    holder, seen = Runs(lambda job, ctx: hold.wait(60)), Runs()
    queue.process("held", holder)
    queue.process("a", seen, concurrency=2)
    start(queue)
    first = queue.add("held", **key)
    holder.wait_for(1)
    blocked = queue.add(priority=-1, **key)
    others = [queue.add() for _ in range(20)]
    until(ended(db.job, others))
    assert queue.get(blocked).status == "queued"
    hold.set()
    until(ended(db.job, [first, blocked]))
    assert caplog.text == ""


def test_an_idle_worker_with_fifty_processors_sends_fewer_than_five_commands_a_minute(
    idle_worker: subprocess.Popen[str],
) -> None:
    names, seconds = json.loads(line(idle_worker))
    assert seconds >= WATCHED
    assert len(names) * 60 / seconds < 5, names
