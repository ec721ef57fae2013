"""The reaper: when it sweeps, what it answers, and that it goes on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from durabl_ext.events import ReaperFailed, ReaperRecovered
from durabl_ext.runtime import reaper
from durabl_ext.runtime.reaper import ReaperAlreadyRunning, ReaperStarted
from simplequeue import PayloadError, Status
from tests.drain.queues import Events, Hooks, Maker
from tests.watching import until

Db = Database[dict[str, Any]]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def abandoned(db: Db, queue: Any, count: int = 1) -> list[str]:
    """Jobs whose runs died long ago."""
    ids = [queue.claim_or_enqueue("a").job.id for _ in range(count)]
    db.job.update_many({"_id": {"$in": ids}}, {"$set": {"durable.lease_expires_at": LONG_AGO}})
    return ids


def test_it_sweeps_at_once_says_how_many_and_goes_on(db: Db, make: Maker) -> None:
    events = Events()
    queue = make(db, on_job_event=events)
    first = abandoned(db, queue, 3)
    assert queue.start_reaper(0.1) == ReaperStarted(3)
    assert queue.start_reaper(0.1) == ReaperAlreadyRunning()
    assert not queue.start_reaper(0.1)
    second = abandoned(db, queue)
    until(lambda: all(queue.get(id).status is Status.QUEUED for id in first + second))
    events.wait_for("reaper-recovered", 2)  # told a moment after the jobs are stored
    assert [event.handled for event in events.all if isinstance(event, ReaperRecovered)] == [3, 1]
    queue.stop_reaper()
    third = abandoned(db, queue)
    threading.Event().wait(0.4)  # several intervals
    assert queue.get(third[0]).status is Status.RUNNING
    assert queue.start_reaper(60) == ReaperStarted(1)


def test_a_backlog_of_any_size_is_recovered_at_once(db: Db, make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "LIMIT", 10)
    events = Events()
    queue = make(db, on_job_event=events)
    abandoned(db, queue, 25)
    assert queue.start_reaper() == ReaperStarted(25)
    assert [(event.handled, event.saturated) for event in events.all if isinstance(event, ReaperRecovered)] == [
        (10, True),
        (10, True),
        (5, False),
    ]


def test_it_goes_on_after_sweeps_that_failed(db: Db, make: Maker) -> None:
    def fail_twice(name: str, number: int) -> None:
        if name == "recover" and number <= 2:
            raise AutoReconnect("connection closed")

    events = Events()
    queue = make(db, hooks=Hooks(before=fail_twice), on_job_event=events)
    id, *_ = abandoned(db, queue)
    assert queue.start_reaper(0.1) == ReaperStarted(None)
    assert queue.start_reaper(0.1) == ReaperAlreadyRunning()
    until(lambda: queue.get(id).status is Status.QUEUED)
    assert [event.phase for event in events.all if isinstance(event, ReaperFailed)] == ["recover", "recover"]


def test_a_sink_that_raises_does_not_stop_it(db: Db, make: Maker) -> None:
    def broken(event: Any) -> None:
        raise ValueError(event)

    queue = make(db, on_job_event=broken)
    abandoned(db, queue)
    assert queue.start_reaper(0.1) == ReaperStarted(1)
    id, *_ = abandoned(db, queue)
    until(lambda: queue.get(id).status is Status.QUEUED)


def test_sweeps_never_overlap_however_long_one_takes(db: Db, make: Maker) -> None:
    at_once, most, lock = [0], [0], threading.Lock()

    def enter(name: str, number: int) -> None:
        if name == "recover":
            with lock:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            threading.Event().wait(0.3)  # much longer than the interval

    def leave(name: str, number: int) -> None:
        if name == "recover":
            with lock:
                at_once[0] -= 1

    hooks = Hooks(enter, leave)
    queue = make(db, hooks=hooks)
    with ThreadPoolExecutor(4) as pool:
        answers = [one.result(30) for one in [pool.submit(queue.start_reaper, 0.01) for _ in range(4)]]
    assert sorted(map(bool, answers)) == [False, False, False, True]
    until(lambda: hooks.counts["recover"] >= 3)
    assert most == [1]


def test_start_starts_it_unless_told_not_to(db: Db, make: Maker) -> None:
    for with_reaper in (True, False):
        hooks = Hooks()
        queue = make(db, hooks=hooks)
        queue.start(reaper=with_reaper)
        assert queue.start_reaper() == (ReaperAlreadyRunning() if with_reaper else ReaperStarted(0))
        queue.shutdown()


@pytest.mark.parametrize("with_reaper", [True, False])
def test_run_starts_it_unless_told_not_to(db: Db, make: Maker, with_reaper: bool) -> None:
    hooks, seen = Hooks(), threading.Event()
    queue = make(db, hooks=hooks)
    queue.process("a", lambda job, ctx: seen.set())
    queue.enqueue("a")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(queue.run, reaper=with_reaper, reaper_interval=0.05)
        assert seen.wait(30)
        if with_reaper:
            until(lambda: hooks.counts["recover"] >= 3)
        assert queue.shutdown() is True
        assert running.result(30) is True
    assert bool(hooks.counts["recover"]) is with_reaper


def test_retention_deletes_ended_jobs_in_batches_and_no_others(
    db: Db, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "RETENTION_BATCH", 10)
    hooks = Hooks()
    queue = make(db, hooks=hooks)
    for _ in range(25):
        queue.claim_or_enqueue("a").complete() if make.colour == "sync" else queue.run_claimed(
            queue.claim_or_enqueue("a"), lambda job, ctx: None
        )
    db.job.update_many({}, {"$set": {"finished_at": LONG_AGO}})
    queue.run_claimed(queue.claim_or_enqueue("recent"), lambda job, ctx: None)
    queue.enqueue("waiting")
    queue.start_reaper(0.05, retention=timedelta(hours=1))
    assert db.job.count_documents({"action": "a"}) <= 15
    until(lambda: db.job.count_documents({"action": "a"}) == 0)
    assert hooks.counts["sweep"] >= 3
    assert sorted(job["action"] for job in db.job.find()) == ["recent", "waiting"]


def test_ended_jobs_are_kept_unless_it_is_told_for_how_long(db: Db, make: Maker) -> None:
    hooks = Hooks()
    queue = make(db, hooks=hooks)
    queue.run_claimed(queue.claim_or_enqueue("a"), lambda job, ctx: None)
    queue.start_reaper(0.05)
    until(lambda: hooks.counts["recover"] >= 3)
    assert (hooks.counts["sweep"], db.job.count_documents({})) == (0, 1)


def test_a_failed_deletion_is_told_and_tried_again(db: Db, make: Maker) -> None:
    def fail_once(name: str, number: int) -> None:
        if (name, number) == ("sweep", 1):
            raise AutoReconnect("connection closed")

    events = Events()
    queue = make(db, hooks=Hooks(before=fail_once), on_job_event=events)
    queue.run_claimed(queue.claim_or_enqueue("a"), lambda job, ctx: None)
    assert queue.start_reaper(0.05, retention=0) == ReaperStarted(0)
    until(lambda: db.job.count_documents({}) == 0)
    assert [event.phase for event in events.all if isinstance(event, ReaperFailed)] == ["retention"]


@pytest.mark.parametrize("interval", [0, -1, float("nan"), "1", None])
def test_an_interval_that_is_none_is_an_error(db: Db, make: Maker, interval: Any) -> None:
    queue = make(db)
    with pytest.raises(PayloadError, match="reaper_interval"):
        queue.start_reaper(interval)
    with pytest.raises(PayloadError, match="retention"):
        queue.start_reaper(retention=-1)
    assert queue.start_reaper() == ReaperStarted(0)


def test_a_shutdown_ends_a_sweep_that_hangs(db: Db, make: Maker) -> None:
    hung, release = threading.Event(), threading.Event()

    def hang(name: str, number: int) -> None:
        if name == "recover":
            hung.set()
            release.wait(60)

    hooks = Hooks(before=hang)
    queue = make(db, hooks=hooks)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(queue.start_reaper, 0.01)
        assert hung.wait(30)
        assert queue.shutdown(0.2) is True
        assert starting.result(30) == ReaperStarted(None)
        release.set()
    threading.Event().wait(0.2)  # many intervals
    assert hooks.counts["recover"] == 1
