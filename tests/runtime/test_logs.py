"""What handlers log reaches the job before its end, in order and at little cost, and harms nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from tests.runtime.conftest import Calls, Opener, Told
from tests.watching import ended, until

DB = Database[dict[str, Any]]


def messages(db: DB, id: str) -> list[str]:
    job = db.job.find_one({"_id": id})
    assert job is not None
    return [line["message"] for line in job["durable"].get("logs", ())]


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_hundred_lines_are_there_in_order_before_the_end_and_cost_at_most_two_writes(
    db: DB, open_queue: Opener, colour: str
) -> None:
    calls = Calls()
    at_the_end: list[list[str]] = []

    def before(name: str, number: int) -> None:
        if name == "settle":
            at_the_end.append(messages(db, added))

    def logs(job: Any, ctx: Any) -> None:
        for n in range(100):
            ctx.log(f"line {n}")

    async def logs_async(job: Any, ctx: Any) -> None:
        logs(job, ctx)

    calls.before = before
    queue = open_queue(calls)
    queue.process("a", logs if colour == "def" else logs_async)
    added: str = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [added]))
    assert at_the_end == [[f"line {n}" for n in range(100)]]
    assert calls.counts["log"] <= 2
    lines = queue.get(added).logs
    assert [line.at for line in lines] == sorted(line.at for line in lines)


def test_a_line_can_be_read_while_the_handler_goes_on(db: DB, open_queue: Opener) -> None:
    hold = threading.Event()

    def logs(job: Any, ctx: Any) -> None:
        ctx.log("begun")
        hold.wait(60)

    queue = open_queue()
    queue.process("a", logs)
    id = queue.add()
    queue.start(reaper=False)
    until(lambda: messages(db, id) == ["begun"], 30)
    hold.set()
    until(ended(db.job, [id]))
    assert messages(db, id) == ["begun"]


def test_the_end_does_not_overtake_lines_that_are_on_their_way(db: DB, open_queue: Opener) -> None:
    calls, writing, go_on = Calls(), threading.Event(), threading.Event()

    def before(name: str, number: int) -> None:
        if (name, number) == ("log", 0):
            writing.set()
            go_on.wait(60)

    def logs(job: Any, ctx: Any) -> None:
        ctx.log("first")
        writing.wait(60)
        ctx.log("second")
        threading.Timer(0.2, go_on.set).start()  # by then an end that does not wait is written

    calls.before = before
    queue = open_queue(calls)
    queue.process("a", logs)
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert messages(db, id) == ["first", "second"]


def test_a_lease_that_runs_out_while_the_last_lines_are_written_is_lost_only_if_the_end_is(
    db: DB, open_queue: Opener
) -> None:
    calls, told = Calls(), Told()

    def before(name: str, number: int) -> None:
        if name == "heartbeat":
            raise AutoReconnect("gone")
        if name == "log":
            threading.Event().wait(1.3)  # what the network takes

    calls.before = before
    queue = open_queue(calls, visibility_timeout=1, on_job_event=told)
    queue.process("a", lambda job, ctx: ctx.log("a line"))
    queue.add()
    queue.start(reaper=False)
    told.wait_for("completed")
    assert [event.kind for event in told.events] == ["claimed", "completed"]


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")


def test_whatever_is_logged_the_job_completes_and_the_other_lines_are_kept(db: DB, open_queue: Opener) -> None:
    def logs(job: Any, ctx: Any) -> None:
        ctx.log("first")
        for odd in (Unspeakable(), 3, None, b"bytes", "\ud800", "a\0b", "x" * 20_000_000):
            ctx.log(odd)
        thread = threading.Thread(target=ctx.log, args=("from a thread",))
        thread.start()
        thread.join(60)
        contexts.append(ctx)

    contexts: list[Any] = []
    queue = open_queue()
    queue.process("a", logs)
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert queue.get(id).status == "completed"
    stored = messages(db, id)
    assert stored[0] == "first"
    assert "Unspeakable" in stored[1]
    assert stored[2:5] == ["3", "None", "b'bytes'"]
    assert stored[-1] == "from a thread"
    contexts[0].log("after the end")
    queue.shutdown(1)
    contexts[0].log("after the shutdown")
    assert messages(db, id) == stored


def test_lines_that_could_not_be_written_are_tried_again_with_the_end(db: DB, open_queue: Opener) -> None:
    calls = Calls()
    calls.fail("log", AutoReconnect("gone"), first=0, times=1)

    def logs(job: Any, ctx: Any) -> None:
        ctx.log("first")
        until(lambda: calls.counts["log"])
        ctx.log("second")

    queue = open_queue(calls)
    queue.process("a", logs)
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert messages(db, id) == ["first", "second"]


def test_a_log_that_can_never_be_written_fails_no_job(
    db: DB, open_queue: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    calls.fail("log", AutoReconnect("gone"))
    queue = open_queue(calls)
    queue.process("a", lambda job, ctx: ctx.log("lost"))
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert queue.get(id).status == "completed"
    assert f"1 lines of the log of job {id} are lost" in caplog.text
