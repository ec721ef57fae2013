"""The cells of the conformance suite: every way to run the decisions, on every store, behind one sync face.

A test is written once, as plain sync code. For an asynchronous queue each call runs on a loop in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from pymongo import AsyncMongoClient

from simplequeue import AsyncListener, AsyncQueue, create_queue
from simplequeue.collection import CollectionJobs
from simplequeue.jobs import run, threaded
from simplequeue.threads import LoopThread, Threads


@dataclass
class Cell:
    """A queue, its collection for looking past it, and what decisions run on.

    Attributes:
        queue: The public queue, with a sync face.
        jobs: The adapter beneath it.
        do: Runs a decision over the adapter and gives its result.
        collection: The raw collection.
        real: Whether a server is behind it.
    """

    queue: Any
    jobs: CollectionJobs
    do: Callable[[Coroutine[Any, Any, Any]], Any]
    collection: Any
    real: bool


class OnLoop:
    """A sync face of an object with async methods."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = self._loop.call(method(*args, **kwargs))
            return OnLoop(result, self._loop) if isinstance(result, AsyncListener) else result

        return call

    def __enter__(self) -> OnLoop:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop(30)


@contextmanager
def blocking_on_mongod(db: Any, url: str) -> Iterator[Cell]:
    queue = create_queue(db)
    yield Cell(queue, queue._jobs, run, db.job, real=True)


@contextmanager
def blocking_on_mongomock(db: Any, url: str) -> Iterator[Cell]:
    queue = create_queue(db)
    yield Cell(queue, queue._jobs, run, db.job, real=False)


@contextmanager
def threaded_on_mongod(db: Any, url: str) -> Iterator[Cell]:
    with _threaded(db, real=True) as cell:
        yield cell


@contextmanager
def threaded_on_mongomock(db: Any, url: str) -> Iterator[Cell]:
    with _threaded(db, real=False) as cell:
        yield cell


@contextmanager
def native_on_mongod(db: Any, url: str) -> Iterator[Cell]:
    loop = LoopThread("test-native")
    client = AsyncMongoClient[dict[str, Any]](url)
    try:
        queue = create_queue(client[db.name])
        yield Cell(OnLoop(queue, loop), queue._jobs, loop.call, db.job, real=True)
    finally:
        loop.call(client.close())
        loop.close()


@contextmanager
def _threaded(db: Any, *, real: bool) -> Iterator[Cell]:
    loop, threads = LoopThread("test-threaded"), Threads("test-threaded-call")
    try:
        jobs = create_queue(db)._jobs.through(lambda call: threaded(call, threads))
        yield Cell(OnLoop(AsyncQueue(jobs), loop), jobs, loop.call, db.job, real)
    finally:
        threads.close()
        loop.close()


CELLS: tuple[Callable[[Any, str], AbstractContextManager[Cell]], ...] = (
    blocking_on_mongod,
    threaded_on_mongod,
    native_on_mongod,
    blocking_on_mongomock,
    threaded_on_mongomock,
)
