"""Several listeners, and others who want the same job, on a real server."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pymongo.database import Database

from simplequeue import Job, Status, create_queue
from tests.watching import Recorder, ended, until


def test_a_backlog_is_shared_and_never_taken_whole(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    ids = [job.id for job in queue.add_many([("a", None)] * 2_000)]
    most_running: Counter[int] = Counter()
    before, both = threading.active_count(), threading.Event()

    def watch(job: Job) -> None:
        both.wait(60)
        most_running[db.job.count_documents({"status": "running"})] += 1

    one, two = Recorder(watch), Recorder(watch)
    with queue.listen(one, concurrency=4), create_queue(db).listen(two, concurrency=4):
        one.wait_for(1)
        # Eight slots, and each listener's loop, its change stream, its look, its closing and a spare.
        assert threading.active_count() - before <= 8 + 2 * 5
        both.set()
        until(ended(db.job, ids))
    assert max(most_running) <= 8
    assert one.most_at_once <= 4
    assert two.most_at_once <= 4
    assert sorted(one.ids + two.ids) == sorted(ids)
    assert min(len(one.jobs), len(two.jobs)) >= 200


def test_each_job_is_run_by_exactly_one_listener(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    ids = [job.id for job in queue.add_many([("a", {"n": n}) for n in range(1_000)])]
    seen = [Recorder() for _ in range(4)]
    listeners = [create_queue(db).listen(recorder, concurrency=8) for recorder in seen]
    until(ended(db.job, ids))
    assert all(listener.stop(30) for listener in listeners)
    assert Counter(id for recorder in seen for id in recorder.ids) == Counter(ids)


def test_a_cancel_and_a_claim_have_one_winner_in_500_races(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    go = threading.Event()
    seen = Recorder(lambda job: go.wait(60))
    jobs = queue.add_many([("a", None)] * 500)
    barrier = threading.Barrier(5)

    def cancel(part: list[Job]) -> list[str]:
        barrier.wait(60)
        return [job.id for job in part if queue.cancel(job.id) is not None]

    with ThreadPoolExecutor(4) as pool:
        cancelling = [pool.submit(cancel, jobs[start::4]) for start in range(4)]
        with queue.listen(seen, concurrency=8):
            seen.wait_for(8)  # the listener is at work before the race is on, and held until it is
            barrier.wait(60)
            go.set()
            cancelled = [id for part in cancelling for id in part.result()]
            until(ended(db.job, [job.id for job in jobs]))
    assert sorted(cancelled + seen.ids) == sorted(job.id for job in jobs)
    assert cancelled
    assert seen.ids
    assert {queue.get(id).status for id in cancelled} == {Status.CANCELLED}  # type: ignore[union-attr]  # none is gone
    assert {queue.get(id).status for id in seen.ids} == {Status.COMPLETED}  # type: ignore[union-attr]  # none is gone


def test_a_cancel_never_takes_an_ending_back_in_500_races(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    jobs = queue.add_many([("a", None)] * 500)
    won: list[str] = []

    def cancel_the_own(job: Job) -> None:
        if queue.cancel(job.id) is not None:
            won.append(job.id)

    with queue.listen(cancel_the_own, concurrency=8):
        until(ended(db.job, [job.id for job in jobs]))
    assert won == []
    assert db.job.count_documents({"status": "completed"}) == 500


def test_eight_threads_that_update_different_keys_lose_nothing(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    job = queue.add("a")
    barrier = threading.Barrier(8)

    def update(thread: int) -> None:
        barrier.wait(60)
        for n in range(60):
            assert queue.update(job.id, {f"t{thread}_{n}": n, f"last{thread}": n}).matched_count == 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(update, range(8)))
    after = queue.get(job.id)
    assert after is not None
    assert after.data == {f"t{t}_{n}": n for t in range(8) for n in range(60)} | {f"last{t}": 59 for t in range(8)}


def test_a_sweep_beside_workers_takes_only_what_has_ended(db: Database[dict[str, Any]]) -> None:
    queue = create_queue(db)
    sweeping = threading.Event()

    def sweep_until_told() -> int:
        deleted = 0
        while not sweeping.is_set():
            deleted += queue.sweep().deleted_count
        return deleted + queue.sweep().deleted_count

    seen = Recorder()
    with ThreadPoolExecutor(1) as pool:
        swept = pool.submit(sweep_until_told)
        with queue.listen(seen, concurrency=8):
            ids = [job.id for job in queue.add_many([("a", None)] * 500)]
            seen.wait_for_ends(500)
        sweeping.set()
        assert swept.result(60) == 500
    assert sorted(seen.ids) == sorted(ids)
    assert db.job.count_documents({}) == 0
