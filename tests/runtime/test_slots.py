"""Which jobs run, in which order, and how many at once."""

from __future__ import annotations

import threading
import time
from typing import Any

from pymongo.database import Database

from durabl_ext import Enqueue
from simplequeue import create_queue
from tests.runtime.conftest import Calls, Opener, Runs
from tests.runtime.fronts import Front
from tests.watching import ended, settled, until

DB = Database[dict[str, Any]]


def add_many(queue: Front, count: int, action: str = "a", **options: Any) -> list[str]:
    ids: list[str] = queue.enqueue_many([Enqueue(action, {"n": n}, **options) for n in range(count)])
    return ids


def test_a_worker_never_runs_more_of_an_action_than_it_has_slots_and_takes_no_more(db: DB, queue: Front) -> None:
    most: list[int] = []
    together = threading.Barrier(4)  # sixty handlers, in fifteen groups that are there at once
    one = Runs(lambda job, ctx: most.append(db.job.count_documents({"status": "running", "action": "one"})))

    def meet(job: Any, ctx: Any) -> None:
        together.wait(60)
        most.append(db.job.count_documents({"status": "running", "action": "four"}) - 3)

    four = Runs(meet)
    queue.process("one", one)
    queue.process("four", four, concurrency=4)
    ids = add_many(queue, 20, "one") + add_many(queue, 60, "four")
    queue.start(reaper=False)
    until(ended(db.job, ids))
    assert (one.most_at_once, four.most_at_once) == (1, 4)
    assert max(most) <= 1
    assert sorted(one.ids + four.ids) == sorted(ids)


def test_jobs_of_an_action_without_a_handler_wait_untouched_and_wake_and_hold_up_nobody(
    db: DB, open_queue: Opener
) -> None:
    calls = Calls()
    queue, producer, seen = open_queue(calls), open_queue(), Runs()
    unknown = add_many(producer, 1_000, "unknown", priority=-5)
    before = list(db.job.find().sort("_id"))
    queue.process("a", seen)
    queue.start(reaper=False)
    ids = [queue.add() for _ in range(20)]
    until(ended(db.job, ids))
    until(lambda: calls.counts["next_due"])
    looks = settled(lambda: calls.counts["claim"])  # after what the stream says of those twenty
    for _ in range(50):
        producer.add("unknown")
    ids.append(producer.add())  # what the stream says of it comes after all of those
    until(ended(db.job, ids))
    assert calls.counts["claim"] - looks <= 5
    assert list(db.job.find({"_id": {"$in": unknown}}).sort("_id")) == before
    assert seen.ids == ids


def test_while_more_jobs_wait_than_there_are_slots_these_are_filled_in_two_parts(db: DB, open_queue: Opener) -> None:
    calls, seen = Calls(), Runs()
    queue = open_queue(calls)
    queue.process("a", seen, concurrency=200)
    queue.process("few", seen, concurrency=20)
    ids = add_many(queue, 600) + add_many(queue, 60, "few")
    queue.start(reaper=False)
    until(ended(db.job, ids))
    first, second = calls.wants[:2]
    assert first == {"a": 200, "few": 20}
    assert second.get("a", 0) <= 100
    assert seen.most_at_once <= 220
    looks = settled(lambda: calls.counts["claim"])
    until(ended(db.job, [queue.add()]))
    assert calls.wants[looks] == {"a": 200}


def test_with_one_worker_and_one_slot_the_order_is_exact(db: DB, queue: Front) -> None:
    seen = Runs()
    queue.process("a", seen)
    first = [queue.add(priority=priority) for priority in (3, -1, 0, 3, -1, 2, 0)]
    queue.start(reaper=False)
    until(ended(db.job, first))
    order = sorted(range(7), key=lambda n: ((3, -1, 0, 3, -1, 2, 0)[n], first[n]))
    assert seen.ids == [first[n] for n in order]


def test_a_more_urgent_job_that_comes_during_a_run_is_next(db: DB, queue: Front) -> None:
    hold = threading.Event()
    seen = Runs(lambda job, ctx: hold.wait(60))
    queue.process("a", seen)
    usual = add_many(queue, 3)
    queue.start(reaper=False)
    seen.wait_for(1)
    urgent = queue.add(priority=-1)
    hold.set()
    until(ended(db.job, [*usual, urgent]))
    assert seen.ids == [usual[0], urgent, *usual[1:]]


def test_the_backlog_of_one_action_does_not_keep_the_slots_of_others_empty(db: DB, queue: Front) -> None:
    hold = threading.Event()
    seen = {action: Runs(lambda job, ctx: hold.wait(60)) for action in ("one", "two", "eight")}
    backlog = [
        id for action, count in (("eight", 300), ("one", 1), ("two", 3)) for id in add_many(queue, count, action)
    ]
    for action, slots in (("one", 1), ("two", 2), ("eight", 8)):
        queue.process(action, seen[action], concurrency=slots)
    queue.start(reaper=False)
    for action, slots in (("one", 1), ("two", 2), ("eight", 8)):
        seen[action].wait_for(slots)
    hold.set()
    until(ended(db.job, backlog))
    assert [runs.most_at_once for runs in seen.values()] == [1, 2, 8]


def test_workers_that_want_the_same_jobs_share_a_backlog_until_it_is_done(db: DB, open_queue: Opener) -> None:
    all_work = threading.Event()

    def work(job: Any, ctx: Any) -> None:
        all_work.wait(60)
        time.sleep(0.002)

    seen = [Runs(work) for _ in range(4)]
    ids = add_many(open_queue(), 600)
    for runs in seen:
        worker = open_queue()
        worker.process("a", runs, concurrency=2)
        worker.start(reaper=False)
    all_work.set()
    until(ended(db.job, ids))
    assert sorted(id for runs in seen for id in runs.ids) == sorted(ids)
    assert min(len(runs.ids) for runs in seen) >= 60


def test_a_worker_whose_candidates_were_all_taken_by_others_looks_again(db: DB, open_sync: Opener) -> None:
    queue, seen = open_sync(), Runs()
    ids = add_many(queue, 12)
    stolen: list[Any] = []
    backend: Any = queue.queue.backend
    write = backend._decisions._jobs.write

    async def outrun(writes: Any, **options: Any) -> Any:
        if len(stolen) < 9:
            stolen.extend(thief.backend.claim(["a"], 3, lease=60))
        return await write(writes, **options)

    thief = open_sync()
    backend._decisions._jobs.write = outrun
    queue.process("a", seen, concurrency=3)
    queue.start(reaper=False)
    until(ended(db.job, ids[9:]))
    assert sorted(seen.ids) == ids[9:]
    thief.backend.settle([claim.settled("complete") for claim in stolen])


def test_plain_jobs_are_adopted_and_run_as_often_as_their_processor_says(db: DB, queue: Front) -> None:
    def fails(job: Any, ctx: Any) -> None:
        raise ValueError("no")

    plain = create_queue(db)
    queue.process("once", fails, adopt_max_attempts=1)
    well = Runs()
    queue.process("well", well)
    once, other = plain.add("once", {"n": 1}), plain.add("well", {"n": 2})
    queue.start(reaper=False)
    until(ended(db.job, [once.id, other.id]))
    assert queue.get(once.id).attempt == 1
    assert queue.get(once.id).failure_kind == "retries-exhausted"
    assert well.jobs[0].data == {"n": 2}


def test_a_worker_with_nothing_to_do_but_a_full_slot_is_idle(db: DB, open_queue: Opener) -> None:
    calls, hold = Calls(), threading.Event()
    queue, seen = open_queue(calls), Runs(lambda job, ctx: hold.wait(60))
    queue.process("a", seen)
    queue.process("b", seen)
    queue.start(reaper=False)
    queue.add(delay=0.2)
    seen.wait_for(1)
    add_many(queue, 2)  # they wait behind it
    queue.add("b")
    seen.wait_for(2)
    settled(calls.counts.total)  # it has seen that it can do no more
    cpu, counts = time.process_time(), calls.counts.total()
    threading.Event().wait(1)  # the time in which nothing is to happen
    assert time.process_time() - cpu < 0.3
    assert calls.counts.total() - counts <= 2
    hold.set()
