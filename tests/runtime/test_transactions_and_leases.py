"""A transaction and the leases of its worker: its own lasts for it, and those of other runs are renewed meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from durabl_ext import JobQueue, MongoJobQueue, RunAborted
from tests.runtime.conftest import Calls, Opener, Told
from tests.runtime.test_leases import take_away
from tests.runtime.ways import WAYS, Way, block, held, made
from tests.watching import ended, until

DB = Database[dict[str, Any]]
CANCELLED = [way for way in WAYS if way != "def"]
"""Nobody can cancel a thread."""


@contextmanager
def sweeping(db: DB) -> Iterator[Callable[[], int]]:
    """Recovers what has expired every 0.1 s, as a reaper elsewhere would; gives how often it has."""
    stop, sweeps, backend = threading.Event(), [], MongoJobQueue(db)

    def sweep() -> None:
        while not stop.wait(0.1):
            sweeps.append(backend.recover())

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        yield lambda: len(sweeps)
    finally:
        stop.set()
        thread.join()


def test_a_block_longer_than_its_lease_runs_once_and_holds_up_no_reaper(db: DB, way: Way) -> None:
    told = Told()
    swept: list[int] = []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            began = sweeps()
            await (held(passed) if way.waits else asyncio.sleep(3))  # three leases
            swept.append(sweeps() - began)

    passed = threading.Event()
    queue = way.open(visibility_timeout=1, on_job_event=told)
    queue.process("a", way.handler(work))
    with sweeping(db) as sweeps:
        queue.start(reaper=False)
        id = queue.add()
        threading.Timer(3, passed.set).start()
        until(ended(db.job, [id]))
        told.wait_for("completed")
    assert (queue.get(id).status, queue.get(id).attempt) == ("completed", 1)
    assert [event.kind for event in told.events] == ["claimed", "completed"]
    assert swept[0] > 5
    assert db.orders.count_documents({}) == 1


@pytest.mark.parametrize(
    ("way", "by"), [*((way, "the queue") for way in WAYS), ("async def", "a lease client")], indirect=["way"]
)
def test_the_heartbeats_of_runs_that_were_claimed_together_are_not_held_up_by_a_block(
    db: DB, client: MongoClient[dict[str, Any]], way: Way, by: str
) -> None:
    told, inside, go_on, end = Told(), threading.Event(), threading.Event(), threading.Event()
    options: dict[str, Any] = {}
    if by == "a lease client":
        options["lease_client"] = client

    async def work(job: Any, ctx: Any) -> None:
        if not job.data:
            await held(end)
            ctx.signal.raise_if_set()
            return
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            inside.set()
            await held(go_on)

    queue = way.open(visibility_timeout=1.2, on_job_event=told, **options)
    queue.process("a", way.handler(work), concurrency=5)
    own = queue.add("a", {"own": True})
    others = [queue.add() for _ in range(4)]
    queue.start(reaper=False)
    assert inside.wait(60)
    assert len({job["durable"]["token"] for job in db.job.find()}) == 1
    leases: dict[str, set[datetime]] = {id: set() for id in others}
    until_then = time.monotonic() + 3  # two and a half leases
    while time.monotonic() < until_then:
        for job in db.job.find({"_id": {"$in": others}}):
            lease = job["durable"]["lease_expires_at"]
            assert lease.replace(tzinfo=UTC) > datetime.now(UTC)
            leases[job["_id"]].add(lease)
        threading.Event().wait(0.05)
    assert min(len(seen) for seen in leases.values()) >= 5
    go_on.set()
    until(ended(db.job, [own]))
    end.set()
    told.wait_for("completed", 5)
    assert told.of("lease-lost") == []
    assert db.job.count_documents({"status": "completed", "durable.attempt": 1}) == 5


def test_the_end_of_another_run_is_not_held_up_by_a_block(db: DB, way: Way) -> None:
    inside, go_on = threading.Event(), threading.Event()

    async def work(job: Any, ctx: Any) -> None:
        if job.data:
            async with block(ctx):
                inside.set()
                await held(go_on)
        else:
            await held(inside)
            ctx.log("a line")

    queue = way.open()
    queue.process("a", way.handler(work), concurrency=2)
    own, other = queue.add("a", {"own": True}), queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [other]), 20)
    assert queue.get(own).status == "running"
    assert [line.message for line in queue.get(other).logs] == ["a line"]
    go_on.set()
    until(ended(db.job, [own]))


@pytest.mark.parametrize("lease", [30, 300], ids=["found by the renewal", "found by the first write"])
def test_a_claim_that_another_has_taken_commits_nothing_and_harms_the_newer_one_in_nothing(
    db: DB, way: Way, lease: float
) -> None:
    told, begun, go_on, raised = Told(), threading.Event(), threading.Event(), []

    async def work(job: Any, ctx: Any) -> None:
        begun.set()
        await held(go_on)
        try:
            async with block(ctx) as session:
                await made(way.db.orders.insert_one({"_id": job.id}, session=session))
        except BaseException as error:
            raised.append(error)
            raise

    queue = way.open(visibility_timeout=lease, on_job_event=told)
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    id = queue.add(backoff="fixed", backoff_delay=0)
    assert begun.wait(60)
    take_away(db, id)
    queue.queue._processors.clear()  # so that the newer claim is another's
    rival = MongoJobQueue(db).claim_by_id(id, lease=60)
    newer = db.job.find_one({"_id": id})
    assert rival is not None
    go_on.set()
    told.wait_for("lease-lost")
    until(lambda: raised)
    assert isinstance(raised[0], RunAborted | asyncio.CancelledError)
    assert queue.shutdown(10) is True
    assert db.job.find_one({"_id": id}) == newer
    assert db.orders.count_documents({}) == 0
    assert [event.kind for event in told.events] == ["claimed", "lease-lost"]


def test_nobody_can_take_a_claim_while_its_block_is_open(db: DB, way: Way) -> None:
    inside, go_on, taken = threading.Event(), threading.Event(), []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id}, session=session))
            inside.set()
            await held(go_on)

    def take() -> None:
        db.job.update_one({"_id": id}, {"$set": {"durable.lease_expires_at": datetime(2020, 1, 1, tzinfo=UTC)}})
        taken.append(MongoJobQueue(db).recover().handled)

    queue = way.open()
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    id = queue.add()
    assert inside.wait(60)
    thief = threading.Thread(target=take)
    thief.start()
    thief.join(0.5)
    assert thief.is_alive()
    go_on.set()
    thief.join()
    assert taken == [0]
    assert (queue.get(id).status, queue.get(id).attempt) == ("completed", 1)
    assert db.orders.count_documents({}) == 1


def test_heartbeats_pause_for_a_block_and_go_on_after_one_that_failed(db: DB, way: Way) -> None:
    calls, beats = Calls(), []

    async def work(job: Any, ctx: Any) -> None:
        with suppress(LookupError):
            async with block(ctx):
                beats.append(calls.counts["heartbeat"])
                await pass_time(1)  # five beats
                beats.append(calls.counts["heartbeat"])
                raise LookupError
        await made_true(lambda: calls.counts["heartbeat"] >= beats[0] + 3)

    async def pass_time(seconds: float) -> None:
        await (held(soon(seconds)) if way.waits else asyncio.sleep(seconds))

    async def made_true(holds: Callable[[], bool]) -> None:
        await (held(when(holds)) if way.waits else asyncio.to_thread(until, holds))

    queue = way.open(calls.backend(way.db), visibility_timeout=60)
    queue.process("a", way.handler(work), heartbeat_interval=0.2)
    queue.start(reaper=False)
    id = queue.add()
    until(ended(db.job, [id]))
    assert (queue.get(id).status, beats[0]) == ("completed", beats[1])


def soon(seconds: float) -> threading.Event:
    """Is set in so many seconds."""
    event = threading.Event()
    threading.Timer(seconds, event.set).start()
    return event


def when(holds: Callable[[], bool]) -> threading.Event:
    """Is set once something holds."""
    event = threading.Event()

    def watch() -> None:
        until(holds)
        event.set()

    threading.Thread(target=watch).start()
    return event


# Cancelled in the middle.


class CancelledAt:
    """Awaits a coroutine in its own task, which is cancelled while it waits for the n-th time.

    Attributes:
        reached: Whether it waited so often.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, object], number: int, times: int) -> None:
        self._coroutine = coroutine
        self._number = number
        self._times = times
        self.reached = False

    async def run(self) -> None:
        task = asyncio.ensure_future(self._awaited())
        await asyncio.wait((task,))
        task.result()

    async def _awaited(self) -> None:
        await self

    def __await__(self) -> Generator[Any, None, None]:
        task: Any = asyncio.current_task()
        loop = asyncio.get_running_loop()
        inner = self._coroutine.__await__()
        send: Callable[[], Any] = lambda: next(inner)  # noqa: E731  # replaced by a throw
        number = 0
        while True:
            try:
                waited = send()
            except StopIteration:
                return
            if number == self._number:
                self.reached = True
                for _ in range(self._times):
                    loop.call_soon(task.cancel)
            number += 1
            try:
                yield waited
            except BaseException as error:
                thrown = error
                send = lambda: inner.throw(thrown)  # noqa: B023, E731  # called before the next
            else:
                send = lambda: next(inner)  # noqa: E731


@pytest.mark.parametrize("way", CANCELLED, indirect=True)
@pytest.mark.parametrize("times", [1, 2], ids=["cancelled once", "cancelled twice"])
def test_cancelled_at_any_moment_a_block_is_stored_or_not_and_the_run_ends(db: DB, way: Way, times: int) -> None:
    """A transaction that is left open on the server would hold up the end of its run for a minute or more."""
    reached: dict[str, bool] = {}

    async def work(job: Any, ctx: Any) -> None:
        async def cut() -> None:
            async with block(ctx) as session:
                ctx.log("a line")
                await made(way.db.orders.insert_one({"_id": job.id}, session=session))
                await asyncio.sleep(0)

        cancelled = CancelledAt(cut(), job.data["n"], times)
        try:
            await cancelled.run()
        finally:
            reached[job.id] = cancelled.reached

    db.create_collection("orders")
    told = Told()
    queue = way.open(visibility_timeout=10, on_job_event=told)
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    outcomes = []
    for n in range(200):
        id = queue.add("a", {"n": n}, max_attempts=1)
        until(ended(db.job, [id]), 20)
        until(lambda: len(reached) == n + 1)  # noqa: B023  # called at once
        stored = db.orders.count_documents({"_id": id})
        job = queue.get(id)
        assert (job.status, stored) in (("failed", 0), ("completed", 1)), n
        assert [line.message for line in job.logs] in ([], ["a line"])
        outcomes.append(job.status)
        if not reached[id]:
            break
    else:
        pytest.fail("it never ran through")
    told.wait_for("completed", outcomes.count("completed"))
    assert outcomes.count("failed") > 3
    assert outcomes[-1] == "completed"
    assert [event.kind for event in told.events if event.kind != "claimed"] == outcomes
    assert queue.shutdown(10) is True


def test_a_block_that_is_cancelled_before_it_was_given_its_job_keeps_nothing_of_it(db: DB, open_sync: Opener) -> None:
    async def work(job: Any, ctx: Any) -> None:
        with suppress(LookupError):
            async with ctx.transaction():
                raise LookupError  # now it is known that there are transactions
        go_on = threading.Event()
        ctx._hold._loop.call_soon_threadsafe(go_on.wait, 30)  # the worker's loop, which gives the job
        with suppress(asyncio.CancelledError):
            await CancelledAt(enter(ctx), 0, 1).run()
        go_on.set()

    async def enter(ctx: Any) -> None:
        async with ctx.transaction():
            pytest.fail("it was cancelled before")

    queue = open_sync(visibility_timeout=60)
    queue.process("a", work, heartbeat_interval=0.2)
    queue.start(reaper=False)
    id = queue.add()
    until(ended(db.job, [id]), 20)
    assert queue.get(id).status == "completed"


@pytest.mark.parametrize("way", CANCELLED, indirect=True)
def test_a_handler_whose_block_was_cut_off_goes_on_and_completes(db: DB, way: Way) -> None:

    async def work(job: Any, ctx: Any) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3), block(ctx) as session:
                await made(way.db.orders.insert_one({"_id": job.id, "n": 1}, session=session))
                await asyncio.Event().wait()
        async with block(ctx) as session:
            await made(way.db.orders.insert_one({"_id": job.id, "n": 2}, session=session))

    queue = way.open()
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    id = queue.add(max_attempts=1)
    until(ended(db.job, [id]))
    assert queue.get(id).status == "completed"
    assert db.orders.find_one() == {"_id": id, "n": 2}


def test_the_lease_lasts_for_the_block_and_is_not_shortened_after_it(db: DB, way: Way) -> None:
    leases: list[timedelta] = []

    async def work(job: Any, ctx: Any) -> None:
        with suppress(LookupError):
            async with block(ctx):
                leases.append(JobQueue(db).get(job.id).lease_expires_at - datetime.now(UTC))  # type: ignore[union-attr, operator]  # it runs
                raise LookupError
        leases.append(JobQueue(db).get(job.id).lease_expires_at - datetime.now(UTC))  # type: ignore[union-attr, operator]  # it runs

    queue = way.open(visibility_timeout=1)
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    id = queue.add()
    until(ended(db.job, [id]))
    assert queue.get(id).status == "completed"
    assert min(leases) > timedelta(seconds=60)
