"""What starts in the slots of runs that end goes with their ends in one write."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from durabl_ext import AsyncJobQueue, AsyncMongoJobQueue, Enqueue, MongoJobQueue
from durabl_ext.claims import Claim
from durabl_ext.core.plans import Settlement
from durabl_ext.job import durable_from
from durabl_ext.runtime.committer import Committer, Turn
from durabl_ext.runtime.slots import Slots
from simplequeue.job import new_document
from tests.runtime.conftest import Calls, Opener, Runs
from tests.runtime.fronts import worker_of
from tests.watching import DEADLINE, ended, until

DB = Database[dict[str, Any]]


def test_the_slots_of_runs_that_end_together_are_filled_in_the_same_write(db: DB, open_queue: Opener) -> None:
    calls, together = Calls(), threading.Barrier(4)
    queue, seen = open_queue(calls), Runs(lambda job, ctx: together.wait(60))
    queue.process("a", seen, concurrency=4)
    ids = queue.enqueue_many([Enqueue("a")] * 40)
    queue.start(reaper=False)
    until(ended(db.job, ids))
    assert sorted(seen.ids) == sorted(ids)
    assert seen.most_at_once == 4
    # However the ends of four come: in one write, or the first of them in a write of their own.
    assert len(calls.turns) >= 5
    assert all(turn["a"] >= 3 for turn in calls.turns)
    assert db.job.count_documents({"durable.attempt": 1}) == 40


def test_with_one_slot_each_end_starts_the_next_job(db: DB, open_queue: Opener) -> None:
    calls, seen = Calls(), Runs()
    queue = open_queue(calls)
    queue.process("a", seen)
    ids = queue.enqueue_many([Enqueue("a")] * 20)
    queue.start(reaper=False)
    until(ended(db.job, ids))
    assert seen.ids == ids
    assert calls.turns[:19] == [{"a": 1}] * 19
    assert calls.wants[0] == {"a": 1}


def test_ends_whose_write_fails_are_written_again_and_the_others_start_later(db: DB, open_queue: Opener) -> None:
    calls, seen = Calls(), Runs()
    calls.fail("settle", AutoReconnect("connection closed"), first=0, times=3)
    queue = open_queue(calls)
    queue.process("a", seen)
    ids = queue.enqueue_many([Enqueue("a")] * 3)
    queue.start(reaper=False)
    until(ended(db.job, ids))
    assert seen.ids == ids
    assert db.job.count_documents({"durable.attempt": 1, "status": "completed"}) == 3


def test_what_a_turn_has_started_when_the_drain_begins_is_given_back_with_no_attempt_spent(
    db: DB, open_queue: Opener
) -> None:
    calls, under_way, go_on = Calls(), threading.Event(), threading.Event()

    def before(name: str, number: int) -> None:
        if (name, number) == ("settle", 0):
            under_way.set()
            go_on.wait(60)

    calls.before = before
    queue, seen = open_queue(calls), Runs()
    queue.process("a", seen)
    first, second = queue.enqueue_many([Enqueue("a")] * 2)
    queue.start(reaper=False)
    assert under_way.wait(DEADLINE)
    drain = threading.Thread(target=queue.shutdown)
    drain.start()
    until(lambda: worker_of(queue).draining)
    go_on.set()
    drain.join(DEADLINE)
    assert seen.ids == [first]
    stored = {job["_id"]: (job["status"], job["durable"]["attempt"]) for job in db.job.find()}
    assert stored == {first: ("completed", 1), second: ("queued", 0)}
    assert len(calls.turns) == 1


def test_a_backend_that_only_settles_and_claims_is_asked_for_the_one_and_then_the_other(
    db: DB, open_queue: Opener
) -> None:
    calls, seen = Calls(), Runs()
    original = calls.backend

    def without(db: Any) -> Any:
        backend = original(db)
        type(backend).settle_and_claim = None
        return backend

    calls.backend = without  # type: ignore[method-assign]  # the backend of somebody else
    queue = open_queue(calls)
    queue.process("a", seen, concurrency=2)
    ids = queue.enqueue_many([Enqueue("a")] * 12)
    queue.start(reaper=False)
    until(ended(db.job, ids))
    assert sorted(seen.ids) == sorted(ids)
    assert calls.turns == []
    assert calls.counts["claim"] >= 6


class InTrouble:
    """Fails to say what starts where others end, or to take note of it."""

    def __init__(self, failing: str) -> None:
        self._failing = failing

    async def ready(self) -> None: ...

    def turn(self, settlements: Sequence[Settlement]) -> Turn | None:
        self._may_fail("turn")
        return Turn({"a": 1}, {}, timedelta(seconds=60), lambda claims: self._may_fail("over"))

    def ended(self, settlements: Iterable[Settlement]) -> None:
        self._may_fail("ended")

    def _may_fail(self, name: str) -> None:
        if name == self._failing:
            raise RuntimeError(name)


@pytest.mark.parametrize("failing", ["turn", "over", "ended"])
def test_whoever_ends_a_run_is_answered_whatever_is_to_start_in_its_slot(db: DB, mongo_url: str, failing: str) -> None:
    async def settle() -> list[Any]:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            backend = AsyncMongoJobQueue(client[db.name])
            await backend.startup()
            await backend.enqueue([Enqueue("a")])
            (run,) = await backend.claim(["a"], 1, lease=timedelta(seconds=60))
            committer, answers = Committer(backend), []
            async with asyncio.timeout(DEADLINE):
                for committer.turns in (InTrouble(failing), None):
                    answers += await committer.settle([run.settled("complete")])
            return answers

    trouble, outcome = asyncio.run(settle())
    assert repr(trouble) == f"RuntimeError({failing!r})"
    assert type(outcome).__name__ == "Completed"


def test_handlers_that_start_with_the_ends_of_others_have_the_context_of_the_start(db: DB, mongo_url: str) -> None:
    var: ContextVar[str] = ContextVar("var", default="none")
    found: list[str] = []

    async def work_off() -> None:
        all_done = asyncio.Event()

        async def handler(job: Any, ctx: Any) -> None:
            found.append(var.get())
            var.set(f"left by {job.id}")
            if len(found) == 10:
                all_done.set()

        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            queue = AsyncJobQueue(client[db.name])
            queue.process("a", handler)
            await queue.enqueue_many([Enqueue("a")] * 10)
            var.set("of the start")
            async with queue:
                var.set("later")
                async with asyncio.timeout(DEADLINE):
                    await all_done.wait()

    asyncio.run(work_off())
    assert found == ["of the start"] * 10


def claim_of(id: str, token: str) -> Claim:
    document = {**new_document("a", {}, datetime.now(UTC)), "_id": id}
    return Claim(durable_from(document), token)


def test_a_slot_is_freed_once_and_only_by_the_claim_that_has_it() -> None:
    slots, first, again = Slots(), claim_of("x", "one"), claim_of("x", "two")
    slots.take(first)
    slots.take(again)
    ends = [claim.settled("complete") for claim in (first, claim_of("y", "one"))]
    assert slots.of(ends) == {"a": 1}  # the other was claimed by somebody else than the worker
    for end in ends * 2:
        slots.free(end)
    assert slots.taken("a") == 1
    slots.free(again)
    assert (slots.taken("a"), slots.taken("b")) == (0, 0)


def test_a_backend_ends_and_starts_in_one_write(db: DB, mongo_url: str) -> None:
    with MongoClient[dict[str, Any]](mongo_url) as client:
        backend = MongoJobQueue(client[db.name])
        backend.startup()
        ids = backend.enqueue([Enqueue("a")] * 2)
        (run,) = backend.claim(["a"], 1, lease=timedelta(seconds=60))
        outcomes, claims = backend.settle_and_claim([run.settled("complete")], {"a": 1}, lease=60)
        assert [type(outcome).__name__ for outcome in outcomes] == ["Completed"]
        assert [claim.job.id for claim in claims] == ids[1:]
        with pytest.raises(ValueError, match="actions"):
            backend.settle_and_claim([claims[0].settled("complete")], {"a": 0}, lease=60)
        assert db.job.find_one({"_id": ids[1]})["status"] == "running"  # type: ignore[index]  # it is there
