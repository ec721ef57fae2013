"""Threads that change, cancel and sweep jobs while a worker runs them, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext.options import Enqueue
from durabl_ext.outcomes import Completed, LeaseLost, NotFound, Released
from tests import cells
from tests.core.conftest import LONG_AGO, Core, indexed

RACES = 500
THREADS = 8


@pytest.fixture
def core(db: Database[dict[str, Any]], mongo_url: str) -> Iterator[Core]:
    with cells.blocking_on_mongod(db, mongo_url) as cell:
        yield indexed(cell)


def at_once(*doings: Callable[[], Any]) -> list[Any]:
    """Lets threads do things, all beginning at one moment, and gives what each returned."""
    barrier = Barrier(len(doings))

    def begin(do: Callable[[], Any]) -> Any:
        barrier.wait(30)
        return do()

    with ThreadPoolExecutor(len(doings)) as threads:
        return list(threads.map(begin, doings))


def test_a_cancel_beside_claims_returns_the_job_exactly_when_it_won(core: Core) -> None:
    ids = core.enqueue_many(*[Enqueue("a", {"n": n}) for n in range(RACES)])

    def cancel() -> list[Any]:
        return [core.cell.queue.cancel(id) for id in Random(0).sample(ids, RACES)]

    def claim() -> list[str]:
        return [job.id for _ in range(RACES // 4) for job, _ in core.claim(limit=4)]

    cancels, claimed = at_once(cancel, claim)
    cancelled = [job.id for job in cancels if job is not None]
    assert sorted(cancelled + claimed) == sorted(map(str, ids))
    assert claimed
    assert cancelled
    assert core.cell.collection.count_documents({"status": "cancelled"}) == len(cancelled)
    assert core.cell.collection.count_documents({"status": "running"}) == len(claimed)


def test_eight_threads_that_update_different_keys_of_a_run_lose_none(core: Core) -> None:
    id = core.enqueue(data={"v": 0})

    def update(key: int) -> Callable[[], None]:
        def doing() -> None:
            for n in range(RACES // THREADS):
                assert core.cell.queue.update(id, {f"key{key}": n}).matched_count == 1

        return doing

    def work() -> None:
        for _ in range(20):
            claimed = core.claim_one()
            core.heartbeat(claimed)
            assert core.settle(claimed, "release") == Released()
        assert core.settle(core.claim_one(), "complete") == Completed()

    at_once(work, *[update(key) for key in range(THREADS)])
    assert core.get(id).data == {"v": 0, **{f"key{key}": RACES // THREADS - 1 for key in range(THREADS)}}


def test_stale_workers_beside_newer_runs_and_a_sweep_end_nothing_and_bring_no_job_back(core: Core) -> None:
    core.enqueue_many(*[Enqueue("a")] * RACES)
    stale = core.claim(limit=RACES)
    core.cell.collection.update_many({}, {"$set": {"durable.lease_expires_at": LONG_AGO}})
    assert core.recover().handled == RACES
    core.cell.collection.update_many({}, {"$set": {"durable.run_at": LONG_AGO}})
    newer = core.claim(limit=RACES)

    def finish_late() -> list[Any]:
        return [core.settle(claimed, "complete") for claimed in stale]

    def finish_and_sweep() -> int:
        deleted = 0
        for claimed in newer:
            assert core.settle(claimed, "complete") == Completed()
            deleted += core.cell.queue.sweep().deleted_count
        return deleted

    outcomes, deleted = at_once(finish_late, finish_and_sweep)
    assert deleted == RACES
    assert set(outcomes) <= {LeaseLost(), NotFound()}
    assert core.cell.collection.count_documents({}) == 0
