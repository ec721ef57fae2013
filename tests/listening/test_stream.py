"""What a change stream can do to a listener. Each way it fails costs a look, never a job."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Semaphore
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from simplequeue import collection, create_queue
from simplequeue.collection import CollectionJobs
from simplequeue.feed import PATIENCE
from simplequeue.jobs import blocking
from simplequeue.queue import Queue
from tests.cells import blocking_on_mongod, native_on_mongod
from tests.hooks import Hooks
from tests.listening.conftest import FailCommand
from tests.listening.standalone import standalone
from tests.watching import Recorder, ended, until

LONG_POLL = 600.0
"""Seconds; no test lives to see such a poll, so what arrives was pushed."""


def open_streams(db: Database[dict[str, Any]]) -> list[int]:
    """The ids of the change stream cursors on a database."""
    operations = db.client.admin.aggregate(
        [
            {"$currentOp": {"allUsers": True, "idleCursors": True}},
            {
                "$match": {
                    "ns": f"{db.name}.job",
                    "cursor.originatingCommand.pipeline.0.$changeStream": {"$exists": True},
                }
            },
        ]
    )
    return [operation["cursor"]["cursorId"] for operation in operations]


def test_a_job_arrives_by_push_long_before_the_next_poll(db: Database[dict[str, Any]]) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen, poll_interval=LONG_POLL):
        for n in range(20):
            job = queue.add("a")
            assert seen.wait_for(n + 1)[-1].id == job.id


@pytest.mark.parametrize("times", [1, 3])
def test_a_resume_position_that_the_server_has_forgotten_is_dropped(
    own_db: Database[dict[str, Any]], fail_command: FailCommand, times: int
) -> None:
    hooks = Hooks()
    queue, seen = hooks.sync_queue(own_db), Recorder()
    with fail_command(["getMore"], times, errorCode=286) as failed, queue.listen(seen, poll_interval=LONG_POLL):
        ids = [queue.add("a").id for _ in range(20)]
        until(lambda: failed() >= times)
        until(lambda: hooks.counts["watch"] >= times + 1)
        ids += [queue.add("a").id for _ in range(20)]
        until(ended(own_db.job, ids))
    assert sorted(seen.ids) == sorted(ids)
    assert hooks.counts["watch"] < 10


def test_one_large_document_does_not_poison_the_stream(db: Database[dict[str, Any]]) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen, poll_interval=LONG_POLL):
        large = queue.add("large", {"x": "x" * 9_000_000})
        queue.update(large.id, {"y": "y" * 6_000_000})
        largest = queue.add("largest", {"x": "x" * 15_900_000})
        until(ended(db.job, [large.id, largest.id]))
        small = [queue.add("small").id for _ in range(5)]
        until(ended(db.job, small))
    assert len(seen.jobs) == 7
    assert len(db.job.distinct("status")) == 1


def test_after_the_collection_was_dropped_new_jobs_arrive_by_push_and_the_index_is_there(
    db: Database[dict[str, Any]],
) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen, poll_interval=LONG_POLL):
        first = queue.add("a")
        until(ended(db.job, [first.id]))
        db.job.drop()
        second = queue.add("a")
        until(ended(db.job, [second.id]))
        until(lambda: "which_plain_job_is_next" in db.job.index_information())
        third = queue.add("a")
        until(ended(db.job, [third.id]))


def test_after_the_collection_was_renamed_away_new_jobs_are_found(db: Database[dict[str, Any]]) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen, poll_interval=LONG_POLL):
        first = queue.add("a")
        until(ended(db.job, [first.id]))
        db.job.rename("elsewhere")
        second = queue.add("a")
        until(ended(db.job, [second.id]))
        until(lambda: "which_plain_job_is_next" in db.job.index_information())


def test_an_index_that_was_dropped_is_made_again_by_the_next_poll(db: Database[dict[str, Any]]) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen, poll_interval=0.5):
        db.job.drop_indexes()
        job = queue.add("a")
        until(ended(db.job, [job.id]))
        until(lambda: "which_plain_job_is_next" in db.job.index_information())


class Reads(CommandListener):
    """Counts the reads of a change stream."""

    def __init__(self) -> None:
        self.answered, self.failures = Semaphore(0), 0

    def started(self, event: CommandStartedEvent) -> None:
        pass

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if event.command_name == "getMore":
            self.answered.release()

    def failed(self, event: CommandFailedEvent) -> None:
        self.failures += 1
        self.answered.release()


@pytest.mark.parametrize("open_cell", [blocking_on_mongod, native_on_mongod])
@pytest.mark.parametrize("option", ["timeoutMS", "socketTimeoutMS"])
def test_a_client_whose_calls_may_take_half_a_second_keeps_its_stream(
    db: Database[dict[str, Any]], mongo_url: str, open_cell: Any, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "STREAM_WAIT_MS", 700)  # still longer than that
    reads, url = Reads(), f"{mongo_url}&{option}=500"
    with create_queue(db).listen(Recorder()):
        pass  # makes the index, which may take longer
    with MongoClient[dict[str, Any]](url, event_listeners=[reads]) as client:
        monitored = partial(AsyncMongoClient, event_listeners=[reads])
        with (
            patch("tests.cells.AsyncMongoClient", {dict[str, Any]: monitored}),
            open_cell(client[db.name], url) as cell,
            cell.queue.listen(Recorder(), poll_interval=LONG_POLL),
        ):
            for _ in range(3):
                assert reads.answered.acquire(timeout=60)
            assert reads.failures == 0


def test_a_killed_cursor_is_replaced(db: Database[dict[str, Any]]) -> None:
    queue, seen = create_queue(db), Recorder()
    with queue.listen(seen, poll_interval=LONG_POLL):
        for _ in range(3):
            for cursor in until(lambda: open_streams(db)):
                db.command({"killCursors": "job", "cursors": [cursor]})
            job = queue.add("a")
            until(ended(db.job, [job.id]))


class SilentStream:
    """A stream that never yields; reading it takes as long as it takes."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._closed = threading.Event()

    async def next(self) -> None:
        await self._call(lambda: self._closed.wait(60))

    async def close(self) -> None:
        self._closed.set()


class SilentAtFirst(CollectionJobs):
    """Gives a silent stream the first time."""

    opened: ClassVar[list[str]] = []

    async def watch(self, match: dict[str, Any]) -> Any:
        self.opened.append("silent" if not self.opened else "real")
        return SilentStream(self._call) if len(self.opened) == 1 else await super().watch(match)


def test_a_stream_that_stays_silent_is_found_out_by_the_poll_and_replaced(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SilentAtFirst, "opened", [])
    queue, seen = Queue(SilentAtFirst(db.job, blocking)), Recorder()
    with queue.listen(seen, poll_interval=0.5):
        job = queue.add("a")
        until(ended(db.job, [job.id]))
        until(lambda: open_streams(db))
    assert SilentAtFirst.opened == ["silent", "real"]
    assert seen.ids == [job.id]


def test_a_silent_stream_is_found_out_beside_a_job_that_runs_for_long(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SilentAtFirst, "opened", [])
    queue, release = Queue(SilentAtFirst(db.job, blocking)), threading.Event()
    seen = Recorder(lambda job: release.wait(60) if job.action == "long" else None)
    queue.add("long")
    with queue.listen(seen, poll_interval=0.5):
        seen.wait_for(1)
        job = queue.add("a")
        until(ended(db.job, [job.id]))
        until(lambda: open_streams(db))
        release.set()


def test_a_stream_that_a_short_poll_outruns_is_not_replaced(db: Database[dict[str, Any]]) -> None:
    hooks, seen = Hooks(), Recorder()
    queue = hooks.sync_queue(db)
    with queue.listen(seen, poll_interval=0.005):
        for _ in range(200):
            queue.add("a")
        seen.wait_for(200)
        position = hooks.counts["find"]
        until(lambda: hooks.counts["find"] > position + PATIENCE / 0.005)  # past the time of a doubt
    assert hooks.counts["watch"] == 1


def test_nothing_that_is_added_while_listening_starts_is_overlooked(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    stop = threading.Event()

    def add_until_told() -> list[str]:
        added = []
        while not stop.is_set():
            added.append(queue.add("a").id)
        return added

    with ThreadPoolExecutor(4) as pool:
        adding = [pool.submit(add_until_told) for _ in range(4)]
        for _ in range(200):
            with queue.listen(lambda job: None, concurrency=4, poll_interval=LONG_POLL):
                pass
        with queue.listen(lambda job: None, poll_interval=LONG_POLL):
            stop.set()
            ids = [id for part in adding for id in part.result()]
            until(ended(db.job, ids))


@pytest.mark.parametrize("moment", ["after the stream is open", "after the backlog was read"])
def test_a_job_added_exactly_between_the_stream_and_the_backlog_is_run(
    db: Database[dict[str, Any]], moment: str
) -> None:
    adder, seen = create_queue(db), Recorder()
    added = []

    def add_between(name: str, number: int) -> None:
        if name == ("watch" if "stream" in moment else "find") and number == 0:
            added.append(adder.add("a").id)

    queue = Hooks(after=add_between).sync_queue(db)
    with queue.listen(seen, poll_interval=LONG_POLL):
        seen.wait_for(1)
    assert seen.ids == added


def test_a_standalone_server_is_polled_and_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with standalone() as uri, MongoClient[dict[str, Any]](uri) as client:
        queue, seen = create_queue(client.test), Recorder()
        with queue.listen(seen, poll_interval=0.05):
            for n in range(3):
                queue.add("a")
                seen.wait_for(n + 1)
        assert len([record for record in caplog.records if "no change stream" in record.message]) == 1
        assert queue.cancel(queue.add("a").id) is not None
        assert queue.sweep().deleted_count == 4


def test_an_election_does_not_stop_the_listener(own_db: Database[dict[str, Any]]) -> None:
    queue, seen = create_queue(own_db), Recorder()
    with queue.listen(seen, poll_interval=LONG_POLL):
        for n in range(3):
            job = queue.add("a", {"n": n})
            until(ended(own_db.job, [job.id]))
            own_db.client.admin.command({"replSetStepDown": 1, "force": True})
            until(lambda: own_db.client.admin.command("hello")["isWritablePrimary"])
        job = queue.add("a")
        until(ended(own_db.job, [job.id]))
    assert len(seen.jobs) == 4
