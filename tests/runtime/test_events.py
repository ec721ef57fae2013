"""What a sink is told, and the numbers of a queue."""

from __future__ import annotations

import threading
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import Enqueue, FatalJobError
from tests.runtime.conftest import Calls, Opener, Told
from tests.watching import ended, until

DB = Database[dict[str, Any]]


def test_each_end_of_a_run_is_told_with_its_fields(db: DB, open_queue: Opener) -> None:
    told, follow = Told(), threading.Event()

    def acts(job: Any, ctx: Any) -> None:
        match job.data["do"]:
            case "fail":
                raise LookupError("no")
            case "fatal":
                raise FatalJobError("never")
            case "be covered":
                follow.wait(60)
                raise ValueError("covered")
            case _:
                threading.Event().wait(0.1)  # the duration

    queue = open_queue(on_job_event=told)
    for action in ("completes", "fails", "breaks", "covered"):
        queue.process(action, acts)
    queue.start(reaper=False)
    completes = queue.add("completes", {"do": "complete"})
    fails = queue.add("fails", {"do": "fail"}, max_attempts=2, backoff="fixed", backoff_delay=0.05)
    breaks = queue.add("breaks", {"do": "fatal"})
    key: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}
    covered = queue.add("covered", {"do": "be covered"}, **key)
    until(lambda: db.job.find_one({"_id": covered, "status": "running"}))
    covers = queue.add("covered", {"do": "complete"}, **key)
    follow.set()
    until(ended(db.job, [completes, fails, breaks, covered, covers]))
    told.wait_for("completed", 2)

    def of(id: str) -> list[dict[str, Any]]:
        facts = []
        for event in told.events:
            if event.job_id == id:
                fields = {"kind": event.kind, **asdict(event)}
                at, duration = fields.pop("at"), fields.pop("duration", 0.0)
                assert abs(at - datetime.now(UTC)) < timedelta(seconds=60)
                assert (0.1 if event.kind == "completed" else 0) <= duration < 10
                del fields["job_id"]
                facts.append(fields)
        return facts

    def claimed(action: str, attempt: int = 1) -> dict[str, Any]:
        return {"kind": "claimed", "action": action, "attempt": attempt}

    failed = {"kind": "failed", "action": "fails", "error_name": "LookupError"}
    assert of(completes) == [claimed("completes"), {"kind": "completed", "action": "completes", "attempt": 1}]
    assert of(fails) == [
        claimed("fails"),
        {**failed, "attempt": 1, "terminal": False},
        claimed("fails", 2),
        {**failed, "attempt": 2, "terminal": True},
    ]
    assert of(breaks) == [claimed("breaks"), {"kind": "fail-fatal", "action": "breaks", "attempt": 1}]
    assert of(covered) == [claimed("covered"), {"kind": "superseded", "action": "covered", "attempt": 1}]
    assert of(covers) == [claimed("covered"), {"kind": "completed", "action": "covered", "attempt": 1}]


def test_a_release_and_what_the_reaper_did_are_told(db: DB, open_queue: Opener) -> None:
    told, calls, began = Told(), Calls(), threading.Event()
    queue = open_queue(calls, on_job_event=told, visibility_timeout=60)

    def holds(job: Any, ctx: Any) -> None:
        began.set()
        ctx.signal.wait(60)
        ctx.signal.raise_if_set()

    (dead,) = queue.enqueue_many([Enqueue("dead")])
    dies = open_queue(visibility_timeout=0.1)
    assert len(dies.backend.claim(["dead"], 1, lease=0.1)) == 1 if not dies.is_async else _claimed(dies)
    until(lambda: db.job.count_documents({"durable.lease_expires_at": {"$lt": datetime.now(UTC)}}))
    queue.process("a", holds)
    id = queue.add()
    queue.start(reaper_interval=0.2)
    recovered = told.wait_for("reaper-recovered")
    assert (recovered.handled, recovered.saturated) == (1, False)
    assert queue.get(dead).error["name"] == "Stalled"
    calls.fail("recover", RuntimeError("no"))
    assert told.wait_for("reaper-error").phase == "recover"
    assert began.wait(60)
    queue.shutdown(0)
    released = told.wait_for("shutdown-released")
    assert (released.job_id, released.action, released.attempt) == (id, "a", 1)


def _claimed(front: Any) -> bool:
    async def claim() -> int:
        return len(await front.queue.backend.claim(["dead"], 1, lease=0.1))

    return bool(front._loop.call(claim()) == 1)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_sink_that_raises_harms_nothing_and_is_reported(
    db: DB, open_queue: Opener, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def raises(event: Any) -> None:
        raise error("from the sink")

    queue = open_queue(on_job_event=raises)
    queue.process("a", lambda job, ctx: None)
    queue.start(reaper_interval=0.1)
    ids = [queue.add() for _ in range(5)]
    until(ended(db.job, ids))
    assert db.job.count_documents({"status": "completed"}) == 5
    assert "the event sink raised at claimed" in caplog.text
    until(lambda: "the event sink raised at completed" in caplog.text)


def test_a_sink_that_cannot_be_called_is_refused(open_queue: Opener) -> None:
    with pytest.raises(TypeError, match="on_job_event"):
        open_queue(on_job_event="print")


def test_stats_count_what_runs_and_what_has_ended(db: DB, open_queue: Opener) -> None:
    hold = threading.Event()

    def acts(job: Any, ctx: Any) -> None:
        if job.action == "fatal":
            raise FatalJobError("never")
        if job.action == "held":
            hold.wait(60)

    queue = open_queue()
    for action in ("held", "fatal", "good"):
        queue.process(action, acts)
    ids = [queue.add("fatal"), queue.add("good"), queue.add("good")]
    queue.add("held")
    queue.add("held")
    queue.start(reaper=False)
    until(ended(db.job, ids))
    until(lambda: db.job.count_documents({"status": "running", "action": "held"}))
    stats = queue.get_stats()
    assert (stats.queued, stats.running, stats.completed, stats.failed) == (1, 1, 2, 1)
    assert stats.failed_by_kind["fatal"] == 1
    assert stats.oldest_queued_lag > 0
    assert queue.get_stats("good").completed == 2
    hold.set()
