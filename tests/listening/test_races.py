"""Every order in which the calls of two decisions can meet, on the real code and a real server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from datetime import UTC, datetime
from types import coroutine
from typing import Any

import pytest
from pymongo.database import Database

from simplequeue import Job, Queue, Status, create_queue
from simplequeue.collection import CollectionJobs
from simplequeue.operations import cancel, sweep, update
from simplequeue.runs import Ending, claim, finish

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Decision = Coroutine[Any, Any, Any]


@coroutine
def _turn() -> Generator[None, None, None]:
    yield


async def one_call_a_turn(call: Callable[[], Any]) -> Any:
    """Suspends before each call, so that a scheduler decides whose is next."""
    await _turn()
    return call()


def interleavings(calls: list[int]) -> Iterator[list[int]]:
    """Yields every order of taking turns, for decisions that make so many calls each."""
    if not any(calls):
        yield []
    for who, left in enumerate(calls):
        if left:
            for rest in interleavings([*calls[:who], left - 1, *calls[who + 1 :]]):
                yield [who, *rest]


def play(decisions: list[Decision], order: list[int]) -> list[Any]:
    """Runs decisions, one call at a time in this order, then each to its end; gives what they returned."""
    results: list[Any] = [None] * len(decisions)
    running = set(range(len(decisions)))

    def step(who: int) -> None:
        try:
            decisions[who].send(None)
        except StopIteration as done:
            results[who] = done.value
            running.discard(who)

    for who in range(len(decisions)):
        step(who)  # up to its first call
    for who in order:
        if who in running:
            step(who)
    for who in sorted(running):
        while who in running:
            step(who)
    return results


class Scene:
    """A queue for preparing and looking, and jobs whose calls take turns."""

    def __init__(self, db: Database[dict[str, Any]]) -> None:
        self.queue: Queue = create_queue(db)
        self.collection = db.job
        self.jobs = CollectionJobs(db.job, one_call_a_turn)

    def run(self) -> Job:
        job = self.queue.add("a")
        self.collection.update_one({"_id": job.id}, {"$set": {"status": "running", "started_at": NOW}})
        running = self.queue.get(job.id)
        assert running is not None
        return running

    def status(self, id: str) -> Status | None:
        job = self.queue.get(id)
        return None if job is None else job.status


@pytest.fixture
def scene(db: Database[dict[str, Any]]) -> Scene:
    return Scene(db)


def test_of_two_claims_one_gets_the_job(scene: Scene) -> None:
    for order in interleavings([3, 3]):
        job = scene.queue.add("a")
        first, second = play([claim(scene.jobs, job.id, NOW), claim(scene.jobs, job.id, NOW)], order)
        assert [first, second].count(None) == 1
        assert scene.status(job.id) is Status.RUNNING


def test_of_a_claim_and_a_cancel_exactly_one_gets_the_job(scene: Scene) -> None:
    winners = set()
    for order in interleavings([3, 3]):
        job = scene.queue.add("a")
        claimed, cancelled = play([claim(scene.jobs, job.id, NOW), cancel(scene.jobs, job.id, None)], order)
        assert [claimed, cancelled].count(None) == 1
        assert scene.status(job.id) is (Status.RUNNING if claimed else Status.CANCELLED)
        winners.add("claim" if claimed else "cancel")
    assert winners == {"claim", "cancel"}


@pytest.mark.parametrize("error", [None, {"name": "E", "message": "", "stack": ""}])
def test_a_job_that_ends_beside_a_sweep_is_kept_or_swept_whole(scene: Scene, error: Any) -> None:
    outcomes = set()
    for order in interleavings([3, 5]):
        job = scene.run()
        before = datetime(2100, 1, 1, tzinfo=UTC)
        finished, swept = play([finish(scene.jobs, Ending(job, error)), sweep(scene.jobs, before, None)], order)
        assert finished is True
        status = scene.status(job.id)
        assert (status is None) == (swept.deleted_count == 1)
        assert status in (None, Status.FAILED if error else Status.COMPLETED)
        outcomes.add(status)
        scene.queue.sweep(before)
    assert len(outcomes) == 2


def test_of_two_endings_of_one_run_one_counts(scene: Scene) -> None:
    for order in interleavings([3, 3]):
        job = scene.run()
        error: Any = {"name": "E", "message": "", "stack": ""}
        well, badly = play([finish(scene.jobs, Ending(job, None)), finish(scene.jobs, Ending(job, error))], order)
        assert [well, badly].count(True) == 1
        assert scene.status(job.id) is (Status.COMPLETED if well else Status.FAILED)


def test_an_ending_of_an_earlier_run_never_ends_a_later_one(scene: Scene) -> None:
    later = datetime(2026, 1, 2, tzinfo=UTC)
    for order in interleavings([3, 3]):
        job = scene.run()
        scene.collection.update_one({"_id": job.id}, {"$set": {"status": "queued", "started_at": None}})
        finished, claimed = play([finish(scene.jobs, Ending(job, None)), claim(scene.jobs, job.id, later)], order)
        assert finished is False
        assert claimed is not None
        assert scene.status(job.id) is Status.RUNNING


def test_an_update_beside_a_claim_is_never_lost(scene: Scene) -> None:
    for order in interleavings([3, 3]):
        job = scene.queue.add("a", {"old": 1})
        updated, claimed = play([update(scene.jobs, job.id, {"new": 2}, None), claim(scene.jobs, job.id, NOW)], order)
        assert updated.matched_count == 1
        assert claimed is not None
        after = scene.queue.get(job.id)
        assert after is not None
        assert after.data == {"old": 1, "new": 2}


def test_the_scheduler_finds_a_write_that_is_decided_on_a_read_alone(scene: Scene) -> None:
    """The checker is shown to fail: a claim by ``_id`` after a read lets two have one job."""

    async def careless_claim(jobs: CollectionJobs, id: str) -> Any:
        document = await jobs.find_one({"_id": id, "status": "queued"})
        if document is None:
            return None
        return await jobs.find_one_and_update({"_id": id}, {"$set": {"status": "running", "started_at": NOW}})

    claims = []
    for order in interleavings([3, 3]):
        job = scene.queue.add("a")
        results = play([careless_claim(scene.jobs, job.id), careless_claim(scene.jobs, job.id)], order)
        claims.append(2 - results.count(None))
    assert max(claims) == 2
