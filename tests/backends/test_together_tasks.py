"""What callers in tasks are told when one of them sends for others, and when one is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from durabl_ext import AsyncMongoJobQueue, Enqueue
from durabl_ext.together import CallerInTask, TasksTogether
from simplequeue.collection import CollectionJobs
from simplequeue.job import Document, new_document
from simplequeue.jobs import Session, native
from tests.backends.test_together import stored
from tests.watching import DEADLINE

Ids = list[str | None]


class HeldTaskJobs(CollectionJobs):
    """Keeps its first insert at the door until the test lets it in, and remembers the actions of each."""

    def __init__(self, collection: Any) -> None:
        super().__init__(collection, native)
        self.calls: list[list[str]] = []
        self.knocked = asyncio.Event()
        self.door = asyncio.Event()
        self.after: Callable[[list[str]], Awaitable[None]] | None = None

    async def insert_each(self, documents: list[Document], *, session: Session | None = None) -> set[int]:
        actions = [document["action"] for document in documents]
        self.calls.append(actions)
        if len(self.calls) == 1:
            self.knocked.set()
            await self.door.wait()
        refused = await super().insert_each(documents, session=session)
        if self.after is not None:
            await self.after(actions)
        return refused


class TaskCrowd:
    """Callers in tasks, of whom the first sends and is held up while the others come, one after the other."""

    def __init__(self, jobs: HeldTaskJobs, asleep: asyncio.Semaphore) -> None:
        self.jobs = jobs
        self.backend = AsyncMongoJobQueue.on(jobs)
        self._asleep = asleep
        self.first = asyncio.create_task(self.backend.enqueue([Enqueue("first")]))

    async def comes(self, *asked: Enqueue) -> asyncio.Task[Ids]:
        caller = asyncio.create_task(self.backend.enqueue(asked))
        await self._asleep.acquire()
        return caller

    async def told(self, *callers: asyncio.Task[Ids]) -> list[Any]:
        self.jobs.door.set()
        return await asyncio.gather(*callers, return_exceptions=True)


Scene = Callable[[TaskCrowd], Coroutine[Any, Any, None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play(mongo_url: str, db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Play:
    """Plays a scene with a crowd whose first caller is at the door, on a loop of its own."""
    monkeypatch.setattr("durabl_ext.together.PATIENCE", DEADLINE)
    woken = CallerInTask.woken

    async def on_loop(scene: Scene) -> None:
        asleep = asyncio.Semaphore(0)

        async def counted(self: CallerInTask) -> bool:
            asleep.release()
            return await woken(self)

        monkeypatch.setattr(CallerInTask, "woken", counted)
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client, asyncio.timeout(DEADLINE / 2):
            jobs = HeldTaskJobs(client[db.name].job)
            await AsyncMongoJobQueue.on(jobs).startup()
            crowd = TaskCrowd(jobs, asleep)
            await jobs.knocked.wait()
            await scene(crowd)

    return lambda scene: asyncio.run(on_loop(scene))


def test_tasks_that_enqueue_at_the_same_time_share_one_write_and_each_gets_its_own_id(
    play: Play, db: Database[dict[str, Any]]
) -> None:
    async def scene(crowd: TaskCrowd) -> None:
        a, b = await crowd.comes(Enqueue("a")), await crowd.comes(Enqueue("b"), Enqueue("b"))
        first, *ids = await crowd.told(crowd.first, a, b)
        assert crowd.jobs.calls == [["first"], ["a", "b", "b"]]
        assert stored(db) == {"first": first, "a": ids[0], "b": ids[1]}

    play(scene)


def test_tasks_are_told_each_of_its_own_job_what_the_server_refused(play: Play, db: Database[dict[str, Any]]) -> None:
    async def scene(crowd: TaskCrowd) -> None:
        db.command("collMod", "job", validator={"data.wrong": {"$exists": False}})
        a, b = await crowd.comes(Enqueue("a", dedupe_key="k")), await crowd.comes(Enqueue("a", dedupe_key="k"))
        c, d = await crowd.comes(Enqueue("c", {"wrong": 1})), await crowd.comes(Enqueue("d"))
        ids, taken, error, others = await crowd.told(a, b, c, d)
        assert taken == [None]
        assert isinstance(error, BulkWriteError)
        assert [(refusal["index"], refusal["code"]) for refusal in error.details["writeErrors"]] == [(0, 121)]
        assert (stored(db)["a"], stored(db)["d"]) == (ids, others)

    play(scene)


@pytest.mark.parametrize("answered", [True, False], ids=["stored", "not stored"])
def test_a_task_that_is_cancelled_while_it_sends_for_others_loses_and_holds_up_no_job_of_theirs(
    play: Play, db: Database[dict[str, Any]], answered: bool
) -> None:
    async def scene(crowd: TaskCrowd) -> None:
        late: list[asyncio.Task[Ids]] = []

        async def cancel(actions: list[str]) -> None:
            if actions == ["a", "b", "c"]:
                late.append(await crowd.comes(Enqueue("late")))
                a.cancel()
                if not answered:
                    db.job.delete_many({"action": {"$in": actions}})
                await asyncio.sleep(0)  # where it is cancelled

        crowd.jobs.after = cancel
        a, b, c = [await crowd.comes(Enqueue(action)) for action in "abc"]
        error, *ids = await crowd.told(a, b, c)
        assert isinstance(error, asyncio.CancelledError)
        assert [stored(db)["b"], stored(db)["c"], stored(db)["late"]] == [*ids, await late[0]]
        assert ("a" in stored(db)) is answered

    play(scene)


def test_a_task_that_is_cancelled_while_it_waits_stores_nothing_and_holds_up_nobody(
    play: Play, db: Database[dict[str, Any]]
) -> None:
    async def scene(crowd: TaskCrowd) -> None:
        a, b = await crowd.comes(Enqueue("a")), await crowd.comes(Enqueue("b"))
        a.cancel()
        error, ids = await crowd.told(a, b)
        assert isinstance(error, asyncio.CancelledError)
        assert crowd.jobs.calls == [["first"], ["b"]]
        assert stored(db) == {"first": crowd.first.result(), "b": ids}

    play(scene)


def test_a_task_that_is_cancelled_as_its_turn_comes_lets_the_next_one_send(
    play: Play, db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(crowd: TaskCrowd) -> None:
        def wake_and_cancel(self: CallerInTask) -> None:
            wake(self)
            a.cancel()  # it has not run yet

        wake = CallerInTask.wake
        a, b = await crowd.comes(Enqueue("a")), await crowd.comes(Enqueue("b"))
        monkeypatch.setattr(CallerInTask, "wake", wake_and_cancel)
        error, ids = await crowd.told(a, b)
        assert isinstance(error, asyncio.CancelledError)
        assert stored(db) == {"first": crowd.first.result(), "b": ids}

    play(scene)


def test_a_task_whose_job_is_on_its_way_may_be_cancelled_and_the_others_are_told(
    play: Play, db: Database[dict[str, Any]]
) -> None:
    async def scene(crowd: TaskCrowd) -> None:
        async def cancel(actions: list[str]) -> None:
            if actions == ["a", "b", "c"]:
                b.cancel()
                await asyncio.sleep(0)

        crowd.jobs.after = cancel
        a, b, c = [await crowd.comes(Enqueue(action)) for action in "abc"]
        a_told, error, c_told = await crowd.told(a, b, c)
        assert isinstance(error, asyncio.CancelledError)
        assert crowd.jobs.calls == [["first"], ["a", "b", "c"]]
        assert (stored(db)["a"], stored(db)["c"]) == (a_told, c_told)

    play(scene)


def test_a_call_that_hangs_holds_up_for_a_moment_only_tasks_that_have_nothing_in_it(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(crowd: TaskCrowd) -> None:
        monkeypatch.setattr("durabl_ext.together.PATIENCE", 0)
        a, b = [asyncio.create_task(crowd.backend.enqueue([Enqueue(action)])) for action in "ab"]
        await asyncio.gather(a, b)
        assert not crowd.first.done()
        await crowd.told(crowd.first)

    play(scene)


def test_who_comes_on_another_loop_waits_for_nobody_of_one_that_ended_while_it_sent(
    mongo_url: str, db: Database[dict[str, Any]]
) -> None:
    client = AsyncMongoClient[dict[str, Any]](mongo_url)  # bound to a loop by its first call
    jobs = HeldTaskJobs(client[db.name].job)
    shared = TasksTogether(jobs)

    async def insert(action: str) -> list[str]:
        documents = [new_document(action, {}, datetime.now(UTC)) for _ in range(3)]
        assert await asyncio.gather(*(shared.insert_each([document]) for document in documents)) == [set()] * 3
        return [document["_id"] for document in documents]

    async def broken_off() -> None:
        task = asyncio.create_task(insert("lost"))
        await jobs.knocked.wait()
        assert not task.done()

    async def on_another_loop() -> list[str]:
        async with client:
            return await insert("a")

    asyncio.run(broken_off())
    assert jobs.calls == [["lost"]]
    assert asyncio.run(on_another_loop()) == sorted(stored(db)["a"])
    assert jobs.calls == [["lost"], ["a"], ["a", "a"]]
