"""Calls that a test holds up, and callers that wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from durabl_ext import Enqueue, MongoJobQueue
from durabl_ext.together import CallerInThread, Room
from simplequeue.collection import CollectionJobs
from simplequeue.job import Document
from simplequeue.jobs import Session, blocking
from tests.watching import DEADLINE

Trouble = Callable[[list[str]], None]


class HeldJobs(CollectionJobs):
    """Keeps its first insert at the door until the test lets it in, and remembers the actions of each.

    Attributes:
        calls: The actions of each insert.
        before: Called with the actions of an insert that is to be made; may raise.
        after: Called when it was made; may raise, so that its answer is lost.
    """

    def __init__(self, collection: Any) -> None:
        super().__init__(collection, blocking)
        self.calls: list[list[str]] = []
        self.before: Trouble = lambda actions: None
        self.after: Trouble = lambda actions: None
        self._knocked = threading.Event()
        self._door = threading.Event()

    async def insert_each(self, documents: list[Document], *, session: Session | None = None) -> set[int]:
        actions = [document["action"] for document in documents]
        first = not self.calls
        self.calls.append(actions)
        if first:
            self._knocked.set()
            assert self._door.wait(DEADLINE)
        self.before(actions)
        refused = await super().insert_each(documents, session=session)
        self.after(actions)
        return refused

    def open(self) -> None:
        """Lets the first insert in."""
        self._door.set()

    def await_knock(self) -> None:
        """Waits until the first insert is at the door."""
        assert self._knocked.wait(DEADLINE)


class Crowd:
    """Callers in threads, of whom the first sends and is held up while the others come, one after the other.

    Args:
        jobs: What holds it up.
        asleep: Released by each caller that is about to wait.
        pool: Whose threads they call from.
    """

    def __init__(self, jobs: HeldJobs, asleep: threading.Semaphore, pool: ThreadPoolExecutor) -> None:
        self.jobs = jobs
        self.backend = MongoJobQueue.on(jobs)
        self.asleep = asleep
        self.pool = pool
        self.first = pool.submit(self.backend.enqueue, [Enqueue("first")])
        jobs.await_knock()

    def comes(self, *asked: Enqueue) -> Future[list[str | None]]:
        """Lets one more come, who is to wait."""
        caller = self.pool.submit(self.backend.enqueue, asked)
        assert self.asleep.acquire(timeout=DEADLINE)
        return caller

    def until_asleep(self, caller: Future[Any]) -> None:
        """Waits until a caller waits, or is done."""
        caller.add_done_callback(lambda done: self.asleep.release())
        assert self.asleep.acquire(timeout=DEADLINE)

    def rooms(self) -> list[Room]:
        """Where callers of this process wait."""
        insert_each: Any = self.backend.here._insert_each
        return list(insert_each.__self__._rooms.values())

    def goes(self, *asked: Enqueue, **options: Any) -> list[str | None]:
        """Lets one more call, who is not to wait."""
        return self.pool.submit(self.backend.enqueue, asked, **options).result(DEADLINE)

    def told(self, *callers: Future[list[str | None]]) -> list[Any]:
        """Lets the first go on and gives what each was told: its answer, or its error."""
        self.jobs.open()
        self.first.result(DEADLINE)
        return [caller.exception(DEADLINE) or caller.result() for caller in callers]


def count_sleepers(monkeypatch: Any) -> threading.Semaphore:
    """Gives what each caller releases that is about to wait; what it waits for is what it was."""
    asleep = threading.Semaphore(0)
    woken = CallerInThread.woken

    async def counted(self: CallerInThread) -> bool:
        asleep.release()
        return await woken(self)

    monkeypatch.setattr(CallerInThread, "woken", counted)
    return asleep


@contextmanager
def crowd_on(collection: Any, monkeypatch: Any) -> Iterator[Crowd]:
    """A crowd, on a collection with all indexes, whose callers have endless patience."""
    monkeypatch.setattr("durabl_ext.together.PATIENCE", DEADLINE)
    jobs = HeldJobs(collection)
    MongoJobQueue.on(jobs).startup()
    with ThreadPoolExecutor() as pool:
        try:
            yield Crowd(jobs, count_sleepers(monkeypatch), pool)
        finally:
            jobs.open()
