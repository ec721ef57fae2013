"""The server goes away: frozen, killed, failing. The listener stays, and each end is stored once."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from simplequeue import IndexConflictError, Status, UnsupportedServerError, create_queue
from simplequeue.embedded import Mongod
from tests.cells import blocking_on_mongod, native_on_mongod
from tests.hooks import Hooks
from tests.listening.conftest import FailCommand
from tests.watching import Recorder, ended, until

IMPATIENT = "&serverSelectionTimeoutMS=500&connectTimeoutMS=1500&heartbeatFrequencyMS=500"
"""How to connect so that a server that does not answer is known to be away after two seconds instead of thirty."""

FROZEN = 6.0
"""Seconds that it is: at first calls hang, then they fail, each after half a second."""


@contextmanager
def frozen(server: Mongod) -> Iterator[None]:
    """Stops the server's process: its connections stay open and nothing answers."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def pass_time(seconds: float) -> None:
    """Lets an outage last; what happens meanwhile is what is tested."""
    threading.Event().wait(seconds)


@pytest.mark.parametrize("open_cell", [blocking_on_mongod, native_on_mongod])
def test_a_frozen_server_costs_no_job_neither_idle_nor_when_a_handler_ends_meanwhile(
    server: Mongod, own_db: Database[dict[str, Any]], open_cell: Any
) -> None:
    end = threading.Event()
    seen = Recorder(lambda job: end.wait(60) if job.action == "held" else None)
    url = server.uri + IMPATIENT
    with MongoClient[dict[str, Any]](url) as client, open_cell(client[own_db.name], url) as cell:
        held = cell.queue.add("held")
        with cell.queue.listen(seen, concurrency=2) as listener:
            seen.wait_for(1)
            with frozen(server):
                pass_time(1)
                end.set()  # the end of this job is to be stored while nobody answers
                seen.wait_for_ends(1)
                pass_time(FROZEN)
            until(ended(own_db.job, [held.id]))
            late = [cell.queue.add("late").id for _ in range(5)]
            until(ended(own_db.job, late))
            assert listener.stop(30)
    assert sorted(seen.ids) == sorted([held.id, *late])
    assert own_db.job.count_documents({"status": "completed"}) == 6


def test_stop_keeps_its_bound_while_the_server_is_away(server: Mongod, own_db: Database[dict[str, Any]]) -> None:
    queue, end = create_queue(own_db), threading.Event()
    seen = Recorder(lambda job: end.wait(60))
    queue.add("held")
    listener = queue.listen(seen)
    seen.wait_for(1)
    with frozen(server):
        end.set()
        seen.wait_for_ends(1)
        began = time.monotonic()
        assert listener.stop(2) is False
        assert time.monotonic() - began < 20  # for ever, if it waited for the server
    # The write that was under way when the server froze reaches it after all.
    until(ended(own_db.job, seen.ids))


def test_an_end_is_tried_until_it_is_stored_and_stored_once(
    own_db: Database[dict[str, Any]], fail_command: FailCommand, caplog: pytest.LogCaptureFixture
) -> None:
    queue, seen = create_queue(own_db), Recorder()
    job = queue.add("a")
    # 262, ExceededTimeLimit: the driver tries once more by itself, so each attempt fails twice.
    with fail_command(["update"], 6, errorCode=262) as failed, queue.listen(seen):
        until(ended(own_db.job, [job.id]))
        assert failed() == 6
    after = queue.get(job.id)
    assert after is not None
    assert after.status is Status.COMPLETED
    assert caplog.text.count(f"the end of job {job.id} could not be stored") == 3
    assert len(seen.jobs) == 1


def test_an_end_whose_answer_was_lost_is_not_written_twice(
    own_db: Database[dict[str, Any]], fail_command: FailCommand
) -> None:
    queue, seen = create_queue(own_db), Recorder()
    job = queue.add("a")
    # Applied, but the answer is a write concern error: the same end is written again and finds itself done.
    failure = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}
    with fail_command(["update"], 1, **failure), queue.listen(seen):
        until(ended(own_db.job, [job.id]))
    after = queue.get(job.id)
    assert after is not None
    assert after.status is Status.COMPLETED
    assert after.finished_at == after.updated_at


def test_claims_that_fail_are_tried_again_and_nothing_is_run_twice(
    own_db: Database[dict[str, Any]], fail_command: FailCommand
) -> None:
    queue, seen = create_queue(own_db), Recorder()
    ids = [job.id for job in queue.add_many([("a", None)] * 50)]
    with fail_command(["findAndModify"], 12, errorCode=262) as failed, queue.listen(seen, concurrency=4):
        until(ended(own_db.job, ids))
        assert failed() >= 12  # the server counts one more when two commands meet there
    assert sorted(seen.ids) == sorted(ids)


def test_a_claim_whose_answer_was_lost_is_reported_and_not_run_on_a_guess(
    own_db: Database[dict[str, Any]], fail_command: FailCommand, caplog: pytest.LogCaptureFixture
) -> None:
    queue, seen = create_queue(own_db), Recorder()
    lost, other = queue.add("a"), queue.add("a")
    failure = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}
    with fail_command(["findAndModify"], 1, **failure), queue.listen(seen, concurrency=1):
        until(ended(own_db.job, [other.id]))
        until(lambda: f"the claim of job {lost.id} was lost" in caplog.text)
    assert seen.ids == [other.id]
    after = queue.get(lost.id)
    assert after is not None
    assert after.status is Status.RUNNING


def test_looking_that_fails_is_tried_again(db: Database[dict[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    def fail_six_times(name: str, number: int) -> None:
        if name == "find" and 1 <= number <= 6:
            raise AutoReconnect("connection closed")

    queue, seen = Hooks(before=fail_six_times).sync_queue(db), Recorder()
    with queue.listen(seen, poll_interval=0.05):
        until(lambda: "failed five times in a row" in caplog.text)
        job = queue.add("a")
        until(ended(db.job, [job.id]))
    assert caplog.text.count("looking for jobs failed, trying again") >= 4
    assert caplog.text.count("looking for jobs has failed five times in a row") == 1


def test_listen_says_at_once_that_there_is_no_server() -> None:
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1/", serverSelectionTimeoutMS=100) as client:
        before = threading.active_count()
        with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
            create_queue(client.test).listen(print)
        until(lambda: threading.active_count() <= before + 1)  # the client's own monitor


def test_a_server_that_was_killed_and_started_again_is_taken_up_again(tmp_path: Path) -> None:
    seen, release = Recorder(lambda job: release.wait(60)), threading.Event()
    first = Mongod(tmp_path / "data")
    with first:
        uri = first.uri + "&serverSelectionTimeoutMS=2000"
        with MongoClient[dict[str, Any]](uri) as client:
            queue = create_queue(client.test)
            held = queue.add("a")
            with queue.listen(seen) as listener:
                seen.wait_for(1)
                os.kill(first.pid, signal.SIGKILL)
                release.set()
                first.__exit__(None, None, None)
                with Mongod(tmp_path / "data"):
                    until(ended(client.test.job, [held.id]))
                    late = queue.add("a")
                    until(ended(client.test.job, [late.id]))
                    assert listener.stop(30)
    assert [job.id for job in seen.jobs] == [held.id, late.id]


def test_a_server_that_is_too_old_says_so_at_listen(
    own_db: Database[dict[str, Any]], fail_command: FailCommand
) -> None:
    queue = create_queue(own_db)
    # 67, CannotCreateIndex: what servers before 6.0 answer to the partial filters of our indexes.
    with fail_command(["createIndexes"], 1, errorCode=67), pytest.raises(UnsupportedServerError, match=r"MongoDB 6\.0"):
        queue.listen(print)
    with fail_command(["createIndexes"], 1, errorCode=67), pytest.raises(UnsupportedServerError, match="ended_before"):
        queue.sweep()


def test_an_index_of_another_shape_in_the_place_of_ours_is_named_with_the_remedy(db: Database[dict[str, Any]]) -> None:
    db.job.create_index([("action", 1)], name="which_plain_job_is_next")
    with pytest.raises(
        IndexConflictError, match=r"'which_plain_job_is_next' of collection 'job'.*dropIndex"
    ) as conflict:
        create_queue(db).listen(print)
    assert conflict.value.index == "which_plain_job_is_next"
    assert str(pickle.loads(pickle.dumps(conflict.value))) == str(conflict.value)
