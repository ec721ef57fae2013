"""The end of a run is stored once, however often it takes; many ends go together, and none holds up another."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from tests.runtime.conftest import Calls, Opener, Runs, Told
from tests.runtime.fronts import waiting_ends
from tests.watching import ended, until

DB = Database[dict[str, Any]]
GONE = AutoReconnect("connection closed")


def test_an_end_that_fails_twice_is_stored_once(db: DB, open_queue: Opener, caplog: pytest.LogCaptureFixture) -> None:
    calls, told = Calls(), Told()
    calls.fail("settle", GONE, first=0, times=2)
    queue, seen = open_queue(calls, on_job_event=told), Runs()
    queue.process("a", seen)
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    told.wait_for("completed")
    job = queue.get(id)
    assert (job.status, job.attempt, len(seen.jobs)) == ("completed", 1, 1)
    assert [event.kind for event in told.events] == ["claimed", "completed"]
    assert caplog.text.count(f"the end of job {id} could not be stored, trying again") == 2


@pytest.mark.parametrize("heartbeats", ["fail too", "go through"])
def test_an_end_that_cannot_be_stored_for_a_lease_is_given_up_and_the_job_is_recovered(
    db: DB, open_queue: Opener, caplog: pytest.LogCaptureFixture, heartbeats: str
) -> None:
    calls, told, failing = Calls(), Told(), threading.Event()
    failing.set()

    def before(name: str, number: int) -> None:
        if failing.is_set() and (name == "settle" or (name == "heartbeat" and heartbeats == "fail too")):
            raise GONE

    calls.before = before
    queue = open_queue(calls, visibility_timeout=0.8, on_job_event=told)
    seen = Runs()
    queue.process("a", seen)
    id = queue.add(backoff="fixed", backoff_delay=0)
    queue.start(reaper_interval=0.2)
    lost = told.wait_for("lease-lost")
    failing.clear()
    until(ended(db.job, [id]))
    assert (lost.job_id, lost.attempt, lost.op) == (id, 1, "settle")
    assert f"the end of job {id} is not stored" in caplog.text
    assert seen.ids == [id, id]
    assert (queue.get(id).status, queue.get(id).attempt) == ("completed", 2)


def test_ends_that_come_while_one_is_written_go_together(db: DB, open_queue: Opener) -> None:
    calls, together, go_on = Calls(), threading.Barrier(21), threading.Event()

    def before(name: str, number: int) -> None:
        if (name, number) == ("settle", 0):
            go_on.wait(60)

    def ends_with_others(job: Any, ctx: Any) -> None:
        if job.action == "many":
            together.wait(60)

    calls.before = before
    queue = open_queue(calls)
    queue.process("first", ends_with_others, concurrency=3)  # of which two stay free, so that its end starts nothing
    queue.process("many", ends_with_others, concurrency=20)
    queue.start(reaper=False)
    first = queue.add("first")
    until(lambda: calls.counts["settle"])
    ids = [queue.add("many") for _ in range(20)]
    together.wait(60)
    until(lambda: waiting_ends(queue) == 20)
    go_on.set()
    until(ended(db.job, [first, *ids]))
    assert calls.batches == [1, 20]


def test_an_end_that_is_refused_does_not_hold_up_those_beside_it(
    db: DB, open_queue: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    calls, together, go_on = Calls(), threading.Barrier(6), threading.Event()
    queue = open_queue(calls, visibility_timeout=60)
    bad: list[str] = []

    def before(name: str, number: int) -> None:
        if (name, number) == ("settle", 0):
            go_on.wait(60)

    def spoils(job: Any, ctx: Any) -> None:
        if job.action == "many":
            until(lambda: bad)
            if job.id == bad[0]:  # a document that refuses every write of its end
                db.command({"collMod": "job", "validator": {"$or": [{"_id": {"$ne": job.id}}, {"status": "running"}]}})
            together.wait(60)

    calls.before = before
    queue.process("first", spoils, concurrency=3)  # of which two stay free, so that its end starts nothing
    queue.process("many", spoils, concurrency=5)
    queue.start(reaper=False)
    first = queue.add("first")
    until(lambda: calls.counts["settle"])
    bad.append(queue.add("many"))
    ids = [queue.add("many") for _ in range(4)]
    together.wait(60)
    until(lambda: waiting_ends(queue) == 5)
    go_on.set()
    until(ended(db.job, [first, *ids]))
    until(lambda: f"the end of job {bad[0]} could not be stored" in caplog.text)
    assert not any(f"the end of job {id} could not be stored" in caplog.text for id in ids)
    assert db.job.count_documents({"status": "completed"}) == 5
    assert db.job.find_one({"_id": bad[0]})["status"] == "running"  # type: ignore[index]  # it is there
    db.command({"collMod": "job", "validator": {}})
    until(ended(db.job, bad))


def test_a_log_that_is_being_written_holds_up_no_other_end(db: DB, open_queue: Opener) -> None:
    calls, together, go_on = Calls(), threading.Barrier(2), threading.Event()

    def before(name: str, number: int) -> None:
        if name == "log":
            go_on.wait(60)

    def logs(job: Any, ctx: Any) -> None:
        if job.data:
            ctx.log("a line")
        together.wait(60)

    calls.before = before
    queue = open_queue(calls)
    queue.process("a", logs, concurrency=2)
    talks, ends = queue.add(data={"talks": True}), queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [ends]))
    assert queue.get(talks).status == "running"
    go_on.set()
    until(ended(db.job, [talks]))
    assert [line.message for line in queue.get(talks).logs] == ["a line"]


def test_a_run_that_is_over_leaves_nothing_to_the_garbage_collector(db: DB, open_queue: Opener) -> None:
    queue, gone = open_queue(), []

    def handler(job: Any, ctx: Any) -> None:
        gone.append(weakref.ref(job))

    async def async_handler(job: Any, ctx: Any) -> None:
        handler(job, ctx)

    queue.process("a", handler, concurrency=4)
    queue.process("b", async_handler, concurrency=4)
    gc.disable()
    try:
        ids = [queue.add(action) for action in "ab" for _ in range(20)]
        queue.start(reaper=False)
        until(ended(db.job, ids))
        until(lambda: not any(job() for job in gone))
    finally:
        gc.enable()
    assert len(gone) == 40
