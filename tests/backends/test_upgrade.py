"""The extension on a collection that is already in use: nothing stops, nothing is lost, nothing urgent waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, Claim, Enqueue, JobQueue, upgrade
from simplequeue import Status, create_queue
from tests.backends.conftest import LEASE
from tests.watching import Recorder

BACKLOG = 3_000
PRODUCED = 2_000
SLOTS = 16


def test_upgrade_gives_a_queue_of_the_same_kind_on_the_same_collection(
    db: Database[dict[str, Any]], mock_db: Any
) -> None:
    for database in (db, mock_db):
        plain = create_queue(database, collection="tasks")
        queue = upgrade(plain)
        assert isinstance(queue, JobQueue)
        id = queue.enqueue("a", {"n": 1})
        assert id is not None
        job = plain.get(id)
        assert job is not None
        assert job.data == {"n": 1}
        assert database.tasks.count_documents({}) == 1
    never_connected = AsyncMongoClient[dict[str, Any]]("mongodb://nowhere.invalid", connect=False)
    assert isinstance(upgrade(create_queue(never_connected.app)), AsyncJobQueue)


@pytest.mark.parametrize("wrong", [None, "queue", object()])
def test_what_is_no_queue_cannot_be_upgraded(wrong: Any) -> None:
    with pytest.raises(TypeError, match="create_queue"):
        upgrade(wrong)


def test_plain_jobs_that_run_are_not_touched_and_base_listeners_leave_durable_jobs_alone(
    db: Database[dict[str, Any]],
) -> None:
    plain = create_queue(db)
    end, seen = threading.Event(), Recorder(lambda job: end.wait(60))
    mine = plain.add("a")
    with plain.listen(seen):
        seen.wait_for(1)
        queue = upgrade(plain)
        durable = queue.enqueue("a")
        assert queue.backend.recover().handled == 0
        (claim,) = queue.backend.claim(["a"], 5, lease=LEASE)
        assert claim.job.id == durable
        end.set()
        seen.wait_for_ends(1)
    assert seen.ids == [mine.id]
    statuses = {job["_id"]: job["status"] for job in db.job.find()}
    assert statuses == {mine.id: Status.COMPLETED, durable: Status.RUNNING}


def test_beside_busy_producers_of_plain_jobs_urgent_durable_ones_are_not_starved_and_plain_ones_are_not_lost(
    db: Database[dict[str, Any]], mongo_url: str
) -> None:
    plain = create_queue(db)
    plain.add_many([("a", {"n": n}) for n in range(BACKLOG)])
    queue = upgrade(plain)
    queue.startup()
    worker = Worker(queue)
    worker.work(rounds=3)

    def produce() -> None:
        with MongoClient[dict[str, Any]](mongo_url) as client:
            producer = create_queue(client[db.name])
            for n in range(0, PRODUCED, 20):
                producer.add_many([("a", {"n": n})] * 20)

    producers = [threading.Thread(target=produce) for _ in range(2)]
    for thread in producers:
        thread.start()
    for _ in range(20):
        urgent = queue.enqueue("a", priority=-1)
        started = worker.work(rounds=1)
        assert started[0].job.id == urgent
        worker.work(rounds=2)
    fair = queue.enqueue("a")
    assert fair is not None
    for thread in producers:
        thread.join(60)
    until_fair = worker.work(until=lambda started: any(claim.job.id == fair for claim in started))
    added = plain.get(fair).created_at  # type: ignore[union-attr]  # it is there
    assert all(claim.job.created_at <= added for claim in until_fair[:-SLOTS])
    worker.work(until=lambda started: not started)
    assert db.job.count_documents({"status": "completed", "durable.attempt": 1}) == BACKLOG + 2 * PRODUCED + 21
    assert db.job.count_documents({}) == BACKLOG + 2 * PRODUCED + 21
    assert len(worker.ids) == len(set(worker.ids))


class Worker:
    """Claims as many jobs as it has slots and completes them, round after round."""

    def __init__(self, queue: JobQueue) -> None:
        self._backend = queue.backend
        self.ids: list[str] = []

    def work(
        self, rounds: int | None = None, until: Callable[[list[Claim]], bool] = lambda started: False
    ) -> list[Claim]:
        """Works so many rounds, or until the last round's claims are as asked, and gives all claims in order."""
        all_started: list[Claim] = []
        while rounds is None or rounds > 0:
            started = self._backend.claim(["a"], SLOTS, lease=LEASE)
            self._backend.settle([claim.settled("complete") for claim in started])
            all_started += started
            self.ids += [claim.job.id for claim in started]
            if until(started):
                break
            rounds = None if rounds is None else rounds - 1
        return all_started


def test_many_jobs_are_enqueued_in_one_go_and_each_is_answered(db: Database[dict[str, Any]]) -> None:
    queue = JobQueue(db)
    first, taken, third = queue.enqueue_many(
        [Enqueue("a", dedupe_key="k"), Enqueue("a", dedupe_key="k"), Enqueue("b", priority=3)]
    )
    assert taken is None
    assert {job["_id"] for job in db.job.find()} == {first, third}
