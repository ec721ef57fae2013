"""Claims that meet a shutdown: given back unrun, with no attempt spent."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from durabl_ext.errors import QueueShutdownError
from durabl_ext.runtime import claimer
from durabl_ext.runtime.signal import RunAborted
from simplequeue import Status
from tests.drain.handlers import BOUND, Held, raise_if_set
from tests.drain.queues import Hooks, Maker
from tests.watching import until

Db = Database[dict[str, Any]]
KEY: dict[str, Any] = {"dedupe_key": "k", "dedupe_scope": "queued"}


def test_a_claim_that_meets_the_shutdown_is_given_back_unrun(db: Db, make: Maker) -> None:
    claimed, release, ran = threading.Event(), threading.Event(), []

    def hold(name: str, number: int) -> None:
        if name == "claim":
            claimed.set()
            release.wait(60)

    queue = make(db, hooks=Hooks(after=hold))
    queue.process("a", lambda job, ctx: ran.append(job.id), concurrency=4)
    ids = [queue.enqueue("a", max_attempts=1) for _ in range(3)]
    queue.start()
    assert claimed.wait(30)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(queue.shutdown, 30)
        until(lambda: queue.draining)
        release.set()
        assert ending.result(30) is True
    assert ran == []
    for id in ids:
        job = queue.get(id)
        assert (job.status, job.attempt) == (Status.QUEUED, 0)


def test_a_claim_that_hangs_keeps_no_drain_and_is_given_back_when_it_is_answered(db: Db, make: Maker) -> None:
    claimed, release, ran = threading.Event(), threading.Event(), []

    def hold(name: str, number: int) -> None:
        if name == "claim":
            claimed.set()
            release.wait(60)

    queue = make(db, hooks=Hooks(after=hold))
    queue.process("a", lambda job, ctx: ran.append(job.id))
    id = queue.enqueue("a")
    queue.start()
    assert claimed.wait(30)
    began = time.monotonic()
    queue.shutdown(0.2)
    assert time.monotonic() - began < 0.2 + BOUND
    release.set()
    until(lambda: queue.get(id).status is Status.QUEUED)
    assert (queue.get(id).attempt, ran) == (0, [])


def test_a_drain_does_not_wait_for_a_backoff(
    db: Db, make: Maker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claimer, "BACKOFF", 60.0)
    monkeypatch.setattr(claimer, "BACKOFF_MAX", 60.0)

    def fail(name: str, number: int) -> None:
        if name == "claim":
            raise AutoReconnect("connection closed")

    queue = make(db, hooks=Hooks(before=fail))
    queue.process("a", lambda job, ctx: None)
    queue.start()
    until(lambda: "looking for jobs failed, trying again" in caplog.text)  # a minute from now
    began = time.monotonic()
    assert queue.shutdown(90) is True
    assert time.monotonic() - began < 30


def test_work_that_is_asked_for_after_the_shutdown_is_refused_and_given_back(db: Db, make: Maker) -> None:
    queue, ran = make(db), []
    handle = queue.claim_or_enqueue("a")
    queue.shutdown()
    with pytest.raises(QueueShutdownError):
        queue.run_claimed(handle, lambda job, ctx: ran.append(job.id))
    with pytest.raises(QueueShutdownError):
        queue.claim_or_enqueue("a")
    job = queue.get(handle.job.id)
    assert (job.status, job.attempt, ran) == (Status.QUEUED, 0, [])
    assert db.job.count_documents({}) == 1


def test_a_claim_or_enqueue_that_meets_the_shutdown_is_given_back(db: Db, make: Maker) -> None:
    stored, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "claim_or_enqueue":
            stored.set()
            release.wait(60)

    queue = make(db, hooks=Hooks(after=hold))
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(queue.claim_or_enqueue, "a")
        assert stored.wait(30)
        assert queue.shutdown() is True
        release.set()
        with pytest.raises(QueueShutdownError):
            asking.result(30)
    (document,) = db.job.find()
    assert (document["status"], document["durable"]["attempt"]) == ("queued", 0)


@pytest.mark.parametrize("heeds", [True, False])
def test_a_job_that_is_run_inline_is_drained_like_any_other(
    db: Db, make: Maker, request: pytest.FixtureRequest, heeds: bool
) -> None:
    if heeds:
        request.getfixturevalue("handlers_have_time")
    held = Held(raise_if_set if heeds else None)
    queue = make(db)
    handle = queue.claim_or_enqueue("a")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(queue.run_claimed, handle, held)
        assert held.running.wait(30)
        assert queue.shutdown(0.2) is heeds
        job = queue.get(handle.job.id)
        assert (job.status, job.attempt) == (Status.QUEUED, 0)
        held.release.set()
        with pytest.raises(QueueShutdownError) as raised:
            running.result(30)
    assert isinstance(raised.value.__cause__, RunAborted) is heeds
    assert queue.get(handle.job.id).status is Status.QUEUED


def test_followers_are_left_to_others_once_a_shutdown_has_begun(db: Db, make: Maker) -> None:
    hooks, held = Hooks(), Held()
    queue = make(db, hooks=hooks)
    handle = queue.claim_or_enqueue("a", **KEY)
    follower = queue.enqueue("a", **KEY)
    with ThreadPoolExecutor(2) as pool:
        inline = pool.submit(queue.run_claimed, handle, held)
        assert held.running.wait(30)
        ending = pool.submit(queue.shutdown, 30)
        until(lambda: queue.draining)
        held.release.set()
        assert inline.result(30) is None
        assert ending.result(30) is True
    assert hooks.counts["claim_by_key"] == 0
    assert queue.get(handle.job.id).status is Status.COMPLETED
    assert queue.get(follower).status is Status.QUEUED


def test_a_follower_whose_claim_meets_the_shutdown_is_given_back(db: Db, make: Maker) -> None:
    claimed, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "claim_by_key":
            claimed.set()
            release.wait(60)

    queue, ran = make(db, hooks=Hooks(after=hold)), []
    handle = queue.claim_or_enqueue("a", **KEY)
    follower = queue.enqueue("a", **KEY)
    with ThreadPoolExecutor(1) as pool:
        inline = pool.submit(queue.run_claimed, handle, lambda job, ctx: ran.append(job.id))
        assert claimed.wait(30)
        assert queue.shutdown(1) is True
        release.set()
        assert inline.result(30) is None
    assert ran == [handle.job.id]
    assert (queue.get(follower).status, queue.get(follower).attempt) == (Status.QUEUED, 0)
