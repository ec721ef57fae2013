"""The server goes away, the collection goes away, the stream goes away: jobs go on, and ends are stored once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext.core.indexes import ALL
from simplequeue.embedded import Mongod
from tests.listening.conftest import FailCommand
from tests.listening.standalone import standalone
from tests.listening.test_outage import frozen, pass_time
from tests.listening.test_stream import open_streams
from tests.runtime.conftest import Opener, Runs, Told
from tests.runtime.fronts import Front
from tests.watching import ended, until

DB = Database[dict[str, Any]]
FROZEN = 3.0
"""Seconds; longer than the clients here wait for a server, and than a lease."""


@pytest.fixture(params=["sync", "async"])
def open_own(request: pytest.FixtureRequest, server: Mongod, own_db: DB) -> Iterator[Opener]:  # a fixture
    """Makes queues on a server that a test may freeze and make fail."""
    url = server.uri + "&serverSelectionTimeoutMS=2000"
    opener = Opener(request.param, own_db.name, own_db, url)
    yield opener
    opener.close()


def working(queue: Front, *actions: str, runs: Runs | None = None) -> Runs:
    seen = runs or Runs()
    for action in actions or ("a",):
        queue.process(action, seen, concurrency=2)
    queue.start(reaper=False)
    return seen


def test_a_frozen_server_costs_no_run_and_no_end(
    server: Mongod,  # a fixture
    own_db: DB,
    open_own: Opener,
) -> None:
    told, end = Told(), threading.Event()
    queue = open_own(visibility_timeout=60, on_job_event=told)
    seen = working(queue, "a", "held", runs=Runs(lambda job, ctx: job.action == "a" or end.wait(60)))
    held = queue.add("held")
    seen.wait_for(1)
    with frozen(server):
        pass_time(0.5)
        end.set()  # its end is to be stored while nobody answers
        seen.wait_for_ends(1)
        pass_time(FROZEN)
    until(ended(own_db.job, [held]))
    late = [queue.add() for _ in range(5)]
    until(ended(own_db.job, late))
    told.wait_for("completed", 6)
    assert sorted(seen.ids) == sorted([held, *late])
    assert sorted(event.job_id for event in told.of("completed")) == sorted([held, *late])


def test_a_server_frozen_for_longer_than_a_lease_loses_the_run_and_not_the_job(
    server: Mongod,  # a fixture
    own_db: DB,
    open_own: Opener,
) -> None:
    told = Told()
    queue = open_own(visibility_timeout=1.5, on_job_event=told)
    seen = Runs(lambda job, ctx: ctx.signal.wait(60) if len(seen.jobs) == 1 else None)
    queue.process("a", seen)
    id = queue.add(backoff="fixed", backoff_delay=0)
    queue.start(reaper_interval=0.3)
    seen.wait_for(1)
    with frozen(server):
        seen.wait_for_ends(1)  # it was told although nobody answers
        pass_time(1)
    assert seen.contexts[0].signal.reason == "deadline"
    until(ended(own_db.job, [id]))
    assert (queue.get(id).status, queue.get(id).attempt) == ("completed", 2)


def test_a_command_that_the_server_fails_at_first_is_made_again_and_done_once(
    own_db: DB,
    open_own: Opener,
    fail_command: FailCommand,  # a fixture
) -> None:
    queue = open_own(visibility_timeout=60)
    ids = [queue.add() for _ in range(30)]
    # 262, ExceededTimeLimit: claims and ends are both updates.
    with fail_command(["update"], 4, errorCode=262) as failed:
        seen = working(queue)
        until(ended(own_db.job, ids))
        assert failed() >= 4  # the server counts one more when two commands meet there
    assert sorted(seen.ids) == sorted(ids)
    assert own_db.job.count_documents({"status": "completed", "durable.attempt": 1}) == 30


def test_answers_that_are_lost_start_and_end_nothing_twice(
    own_db: DB,
    open_own: Opener,
    fail_command: FailCommand,  # a fixture
) -> None:
    queue = open_own(visibility_timeout=60)
    ids = [queue.add(max_attempts=1) for _ in range(30)]
    # Applied, and its answer says that nobody knows for how long.
    lost = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}
    with fail_command(["update"], 6, **lost) as failed:
        seen = working(queue)
        until(ended(own_db.job, ids))
        assert failed() >= 6
    assert sorted(seen.ids) == sorted(ids)
    assert own_db.job.count_documents({"status": "completed"}) == 30


def test_a_resume_position_that_the_server_has_forgotten_costs_no_job(
    own_db: DB,
    open_own: Opener,
    fail_command: FailCommand,
) -> None:
    queue, producer = open_own(), open_own()
    with fail_command(["getMore"], 3, errorCode=286) as failed:
        seen = working(queue)
        ids = [producer.add() for _ in range(20)]
        until(lambda: failed() >= 3)
        until(lambda: open_streams(own_db))
        ids += [producer.add() for _ in range(20)]
        until(ended(own_db.job, ids))
    assert sorted(seen.ids) == sorted(ids)


def test_a_large_document_does_not_keep_the_small_ones_from_being_pushed(db: DB, open_queue: Opener) -> None:
    queue, producer = open_queue(), open_queue()
    seen = working(queue)
    large = producer.add("a", {"x": "x" * 9_000_000})
    producer.update(large, {"y": "y" * 6_000_000})
    until(ended(db.job, [large]))
    small = [producer.add() for _ in range(5)]
    until(ended(db.job, small), 20)
    assert sorted(seen.ids) == sorted([large, *small])
    assert db.job.count_documents({"status": "completed"}) == 6


def test_after_the_collection_was_dropped_jobs_are_pushed_and_the_indexes_are_there(db: DB, open_queue: Opener) -> None:
    queue, producer = open_queue(), open_queue()
    working(queue)
    until(ended(db.job, [producer.add()]))
    db.job.drop()
    for _ in range(2):
        until(ended(db.job, [producer.add(dedupe_key="k")]), 20)
    assert {index.name for index in ALL} <= set(db.job.index_information())


def test_a_killed_cursor_is_replaced(db: DB, open_queue: Opener) -> None:
    queue, producer = open_queue(), open_queue()
    working(queue)
    for _ in range(2):
        for cursor in until(lambda: open_streams(db)):
            db.command({"killCursors": "job", "cursors": [cursor]})
        until(ended(db.job, [producer.add()]), 20)


def test_nothing_falls_between_the_backlog_and_the_stream(db: DB, open_queue: Opener) -> None:
    producer = open_queue()
    for _ in range(15):
        queue = open_queue()
        ids: list[str] = []
        queue.process("a", lambda job, ctx: None, concurrency=4)
        adding = threading.Thread(target=lambda ids=ids: ids.extend(producer.add() for _ in range(10)))
        adding.start()
        queue.start(reaper=False)
        adding.join(60)
        until(ended(db.job, ids), 20)
        assert queue.shutdown(5)


def test_where_there_are_no_change_streams_a_worker_polls_and_says_so_once(
    db: DB, caplog: pytest.LogCaptureFixture
) -> None:
    with standalone() as url:
        opener = Opener("async", db.name, None, url)
        try:
            queue, producer = opener(), opener()
            seen = Runs()
            queue.process("a", seen, poll_interval=0.2)
            queue.start(reaper=False)
            ids = [producer.add() for _ in range(3)]
            seen.wait_for_ends(3)
            assert sorted(seen.ids) == sorted(ids)
            assert caplog.text.count("as there is no change stream") == 1
        finally:
            opener.close()
