"""How a run keeps its lease, and what happens when it loses it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from durabl_ext import DummyBackend, Enqueue, MongoJobQueue
from durabl_ext.runtime.heartbeats import Heartbeats
from durabl_ext.runtime.runs import Run
from durabl_ext.runtime.signal import RunAborted
from durabl_ext.runtime.store import StoreInThreads
from simplequeue.threads import Threads
from tests.runtime.conftest import Calls, Opener, Runs, Told
from tests.watching import ended, until

DB = Database[dict[str, Any]]
GONE = AutoReconnect("connection closed")

REAPER = """
import sys
from pymongo import MongoClient
from durabl_ext import JobQueue

uri, name = sys.argv[1:]
queue = JobQueue(MongoClient(uri)[name])
queue.start_reaper(0.2)
print("reaping", flush=True)
sys.stdin.read()
"""


@contextmanager
def reaper_elsewhere(url: str, name: str) -> Iterator[None]:
    """A process that reaps every 0.2 s."""
    command = [sys.executable, "-c", REAPER, url, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reaping\n"
        yield
        process.communicate()
        assert process.returncode == 0


def sleeps(job: Any, ctx: Any) -> None:
    time.sleep(4)


def computes(job: Any, ctx: Any) -> None:
    until = time.monotonic() + 4
    while time.monotonic() < until:
        sum(range(10_000))


async def blocks_its_loop(job: Any, ctx: Any) -> None:
    time.sleep(4)  # noqa: ASYNC251  # that is what is tested


def test_a_handler_that_is_busy_for_twice_its_lease_runs_once(db: DB, open_queue: Opener, mongo_url: str) -> None:
    told = Told()
    queue = open_queue(visibility_timeout=2, on_job_event=told)
    handlers = {"sleeps": sleeps, "computes": computes}
    if not queue.is_async:  # there the loop is the caller's own
        handlers["blocks"] = blocks_its_loop  # type: ignore[assignment]  # both kinds are handlers
    for action, handler in handlers.items():
        queue.process(action, handler)
    ids = [queue.add(action) for action in handlers]
    with reaper_elsewhere(mongo_url, db.name):
        queue.start(reaper=False)
        until(ended(db.job, ids))
    assert {(job["status"], job["durable"]["attempt"]) for job in db.job.find()} == {("completed", 1)}
    assert [event.kind for event in told.events].count("claimed") == len(handlers)


def test_heartbeats_that_fail_twice_cost_two_warnings_and_no_lease(
    db: DB, open_queue: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    calls, told = Calls(), Told()
    calls.fail("heartbeat", GONE, first=0, times=2)
    queue = open_queue(calls, visibility_timeout=2, on_job_event=told)
    # Two that fail, and with those that do not it outlives its lease.
    queue.process("a", lambda job, ctx: until(lambda: ctx.signal.is_set() or calls.counts["heartbeat"] >= 5))
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert queue.get(id).status == "completed"
    assert caplog.text.count("leases could not be renewed") == 2
    assert told.of("lease-lost") == []


def test_a_heartbeat_that_hangs_is_given_up_in_time_for_another(db: DB, open_queue: Opener) -> None:
    calls, told, done = Calls(), Told(), threading.Event()

    def before(name: str, number: int) -> None:
        if (name, number) == ("heartbeat", 0):
            done.wait(60)

    calls.before = before
    queue = open_queue(calls, visibility_timeout=3, on_job_event=told)
    # The one that hangs is given up after another 0.4 s, so that there is time for more even on a busy machine.
    queue.process("a", lambda job, ctx: ctx.signal.wait(4), heartbeat_interval=0.4)  # longer than a lease
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    done.set()
    assert queue.get(id).status == "completed"
    assert told.of("lease-lost") == []


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_a_handler_whose_heartbeats_fail_for_a_lease_is_told_and_its_end_is_not_written(
    db: DB, open_queue: Opener, how: str
) -> None:
    calls, told, release = Calls(), Told(), threading.Event()

    def before(name: str, number: int) -> None:
        if name == "heartbeat" and not release.is_set():
            if how == "hangs":
                release.wait(60)
            raise GONE

    calls.before = before
    queue = open_queue(calls, visibility_timeout=1, on_job_event=told)
    seen = Runs(lambda job, ctx: ctx.signal.wait(60))
    other = Runs()
    queue.process("held", seen)
    queue.process("other", other)
    held = queue.add("held")
    queue.start(reaper=False)
    lost = told.wait_for("lease-lost")
    seen.wait_for_ends(1)
    assert seen.contexts[0].signal.reason == "deadline"
    assert (lost.op, lost.job_id, lost.attempt, lost.action) == ("deadline", held, 1, "held")
    late = queue.add("other")
    until(ended(db.job, [late]))
    again = queue.add("held")
    seen.wait_for(2)
    release.set()
    assert calls.batches == [1]
    assert db.job.find_one({"_id": held})["status"] == "running"  # type: ignore[index]  # it is there
    assert again == seen.ids[1]


def test_heartbeats_stop_also_when_a_run_begins_at_that_moment() -> None:
    backend = DummyBackend()
    backend.enqueue([Enqueue("a"), Enqueue("a")])
    first, second = (
        Run(claim, time.monotonic(), timedelta(minutes=1), None, timedelta(0))
        for claim in backend.claim(["a"], 2, lease=60)
    )

    async def main() -> None:
        store = StoreInThreads(backend, Threads("test"))
        beats = Heartbeats(store, timedelta(minutes=1), lambda run, op: None, logging.getLogger("test"))
        beats.add(first)
        for _ in range(5):
            await asyncio.sleep(0)  # now it waits for the next run or the next beat
        beats.add(second)
        await asyncio.wait_for(beats.close(), 10)

    asyncio.run(main())


def test_a_deadline_that_has_passed_is_told_of_whatever_is_looked_at_first() -> None:
    backend = DummyBackend()
    backend.enqueue([Enqueue("a"), Enqueue("a")])
    first, second = (
        Run(claim, time.monotonic(), timedelta(minutes=1), None, timedelta(0))
        for claim in backend.claim(["a"], 2, lease=60)
    )
    lost: list[Run] = []

    async def main() -> None:
        store = StoreInThreads(backend, Threads("test"))
        lease = timedelta(minutes=1)
        beats = Heartbeats(store, lease, lambda run, op: lost.append(run), logging.getLogger("test"))
        beats.add(first)
        beats.add(second)
        await asyncio.sleep(0)
        first.deadline = time.monotonic()  # the loop was held up until then, and answers of heartbeats go first
        await beats._renew([second])
        await beats.close()

    asyncio.run(main())
    assert lost == [first]


def take_away(db: DB, id: str) -> Any:
    """Has another worker's reaper take a job from its run, as if its lease had ended; gives the document."""
    db.job.update_one({"_id": id}, {"$set": {"durable.lease_expires_at": datetime(2020, 1, 1, tzinfo=UTC)}})
    assert MongoJobQueue(db).recover().handled == 1
    return db.job.find_one({"_id": id})


def test_a_run_whose_job_was_taken_away_is_told_and_writes_nothing(db: DB, open_queue: Opener) -> None:
    told = Told()
    queue, seen = open_queue(visibility_timeout=60, on_job_event=told), Runs(lambda job, ctx: ctx.signal.wait(60))
    queue.process("a", seen, heartbeat_interval=0.2)
    id = queue.add(backoff="fixed", backoff_delay=60)
    queue.start(reaper=False)
    seen.wait_for(1)
    after = take_away(db, id)
    seen.wait_for_ends(1)
    assert seen.contexts[0].signal.reason == "lease-lost"
    assert told.wait_for("lease-lost").op == "heartbeat"
    other = queue.add()
    seen.wait_for(2)
    assert db.job.find_one({"_id": id}) == after
    assert seen.ids == [id, other]


def test_a_run_that_ends_after_its_job_was_taken_away_changes_nothing_and_says_so(db: DB, open_queue: Opener) -> None:
    told, hold = Told(), threading.Event()
    queue, seen = open_queue(visibility_timeout=60, on_job_event=told), Runs(lambda job, ctx: hold.wait(60))
    queue.process("a", seen)
    id = queue.add(backoff="fixed", backoff_delay=60)
    queue.start(reaper=False)
    seen.wait_for(1)
    after = take_away(db, id)
    hold.set()
    assert told.wait_for("lease-lost").op == "settle"
    assert db.job.find_one({"_id": id}) == after
    assert told.of("completed") == []


def test_an_async_handler_is_cancelled_when_its_lease_is_lost_and_may_say_why(db: DB, open_queue: Opener) -> None:
    reasons: list[Any] = []
    waiting = threading.Event()

    async def waits(job: Any, ctx: Any) -> None:
        assert not ctx.signal.is_set()
        assert ctx.signal.reason is None
        assert not await ctx.signal.wait(0.01)
        ctx.signal.raise_if_set()
        waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            assert await ctx.signal.wait()
            reasons.append(ctx.signal.reason)
            try:
                ctx.signal.raise_if_set()
            except RunAborted as aborted:
                reasons.append(aborted)
            raise

    queue = open_queue(visibility_timeout=60)
    queue.process("a", waits, heartbeat_interval=0.2)
    id = queue.add(backoff="fixed", backoff_delay=60)
    queue.start(reaper=False)
    assert waiting.wait(60)
    after = take_away(db, id)
    until(lambda: len(reasons) == 2)
    assert reasons[0] == "lease-lost"
    assert reasons[1].reason == "lease-lost"
    assert str(reasons[1]) == "the run was told to stop: lease-lost"
    assert db.job.find_one({"_id": id}) == after


def test_a_sync_handler_asks_its_signal_and_a_catch_all_does_not_swallow_what_it_raises(
    db: DB, open_queue: Opener
) -> None:
    raised: list[BaseException] = []
    waiting = threading.Event()

    def waits(job: Any, ctx: Any) -> None:
        assert not ctx.signal.is_set()
        assert not ctx.signal.wait(0.01)
        ctx.signal.raise_if_set()
        waiting.set()
        try:
            assert ctx.signal.wait()
            try:
                ctx.signal.raise_if_set()
            except Exception as caught:
                raised.append(caught)
        except RunAborted as aborted:
            raised.append(aborted)
            raise

    queue = open_queue(visibility_timeout=60)
    queue.process("a", waits, heartbeat_interval=0.2)
    id = queue.add(backoff="fixed", backoff_delay=60)
    queue.start(reaper=False)
    assert waiting.wait(60)
    after = take_away(db, id)
    until(lambda: raised)
    assert isinstance(raised[0], RunAborted)
    assert not isinstance(raised[0], Exception)
    assert db.job.find_one({"_id": id}) == after


def test_a_claim_whose_answer_took_longer_than_its_lease_is_given_back_and_not_begun(
    db: DB, open_queue: Opener
) -> None:
    calls, told = Calls(), Told()

    def before(name: str, number: int) -> None:
        if (name, number) == ("claim", 0):
            threading.Event().wait(1.2)  # what the network takes

    calls.before = before
    queue, seen = open_queue(calls, visibility_timeout=1, on_job_event=told), Runs()
    queue.process("a", seen)
    id = queue.add(max_attempts=1)
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert seen.ids == [id]
    assert (queue.get(id).status, queue.get(id).attempt) == ("completed", 1)
    assert told.wait_for("lease-lost").op == "deadline"


def test_the_runs_of_a_claim_are_renewed_together_each_time(open_queue: Opener) -> None:
    calls, go_on = Calls(), threading.Event()
    queue = open_queue(calls, visibility_timeout=60)
    runs = Runs(lambda job, ctx: go_on.wait(60))
    queue.process("a", runs, concurrency=32, heartbeat_interval=0.2)
    queue.enqueue_many([Enqueue("a") for _ in range(32)])
    queue.start(reaper=False)
    runs.wait_for(32)
    until(lambda: len(calls.beats) >= 4)
    assert set(calls.beats) == {32}
    go_on.set()
    runs.wait_for_ends(32)
