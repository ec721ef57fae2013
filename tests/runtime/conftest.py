"""Queues of both colours behind one sync face, and backends whose calls a test can count, hold and fail."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from uuid6 import uuid7

from durabl_ext import AsyncJobQueue, AsyncMongoJobQueue, JobQueue, MongoJobQueue
from simplequeue.threads import LoopThread
from tests.listening.conftest import fail_command, own_db, server  # noqa: F401  # fixtures
from tests.runtime.fronts import Front
from tests.runtime.idle import idle
from tests.runtime.ways import own_way, way  # noqa: F401  # fixtures
from tests.watching import DEADLINE

POLL_NEVER = 600.0
"""Seconds; no test lives to see such a poll."""


class Calls:
    """Makes backends that call ``before`` with the name of each call and which of that name it is.

    It may raise, or wait: the call is not made, or made later.

    Attributes:
        counts: How many calls there were, by name.
        batches: How many ends each call of ``settle`` had, with or without a claim.
        beats: How many runs each call of ``heartbeat`` had.
        wants: How many jobs of each action each call of ``claim`` asked for.
        turns: The same of each call that settles and claims, which counts as one of ``settle``.
    """

    NAMES = ("claim", "settle", "settle_and_claim", "heartbeat", "log", "next_due", "recover")

    def __init__(self) -> None:
        self.before: Callable[[str, int], object] = lambda name, number: None
        self.counts: Counter[str] = Counter()
        self.batches: list[int] = []
        self.beats: list[int] = []
        self.wants: list[dict[str, int]] = []
        self.turns: list[dict[str, int]] = []
        self._lock = threading.Lock()

    def fail(self, name: str, error: Exception, first: int = 0, times: int = 1_000_000) -> None:
        """Has some calls of a name fail before they are made."""

        def before(called: str, number: int) -> None:
            if called == name and first <= number < first + times:
                raise error

        self.before = before

    def backend(self, db: Any) -> Any:
        kind = MongoJobQueue if isinstance(db, Database) else AsyncMongoJobQueue
        hooked = self._sync if kind is MongoJobQueue else self._async
        return type("Hooked", (kind,), {name: hooked(getattr(kind, name), name) for name in self.NAMES})(db)

    def _count(self, name: str, args: tuple[Any, ...]) -> int:
        with self._lock:
            if name == "settle_and_claim":
                self.turns.append(dict(args[1]))
            name = self._as(name)
            if name == "settle":
                self.batches.append(len(args[0]))
            if name == "claim":
                self.wants.append(dict(args[0]))
            if name == "heartbeat":
                self.beats.append(len(args[0]))
            self.counts[name] += 1
            return self.counts[name] - 1

    @staticmethod
    def _as(name: str) -> str:
        return "settle" if name == "settle_and_claim" else name

    def _sync(self, original: Any, name: str) -> Any:
        def call(backend: Any, *args: Any, **options: Any) -> Any:
            self.before(self._as(name), self._count(name, args))
            return original(backend, *args, **options)

        return call

    def _async(self, original: Any, name: str) -> Any:
        async def call(backend: Any, *args: Any, **options: Any) -> Any:
            await asyncio.to_thread(self.before, self._as(name), self._count(name, args))
            return await original(backend, *args, **options)

        return call


class Runs:
    """A handler that remembers its jobs and contexts, may do something, and lets a test wait for it."""

    def __init__(self, act: Callable[[Any, Any], object] | None = None) -> None:
        self._act = act
        self._changed = threading.Condition()
        self.jobs: list[Any] = []
        self.contexts: list[Any] = []
        self.ended = 0
        self.most_at_once = 0

    def __call__(self, job: Any, ctx: Any) -> None:
        with self._changed:
            self.jobs.append(job)
            self.contexts.append(ctx)
            self.most_at_once = max(self.most_at_once, len(self.jobs) - self.ended)
            self._changed.notify_all()
        try:
            if self._act is not None:
                self._act(job, ctx)
        finally:
            with self._changed:
                self.ended += 1
                self._changed.notify_all()

    @property
    def ids(self) -> list[str]:
        return [job.id for job in self.jobs]

    def wait_for(self, count: int) -> list[Any]:
        """Waits until so many runs have begun, and gives their jobs."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.jobs) >= count, DEADLINE), f"{len(self.jobs)} of {count}"
            return list(self.jobs)

    def wait_for_ends(self, count: int) -> None:
        """Waits until the handler has ended for so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.ended >= count, DEADLINE), f"{self.ended} of {count}"


class Told:
    """An event sink that remembers, and lets a test wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.events: list[Any] = []

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.kind == kind]

    def wait_for(self, kind: str, count: int = 1) -> Any:
        """Waits for so many events of a kind and gives the last of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.of(kind)) >= count, DEADLINE), self.events
            return self.of(kind)[count - 1]


OpenQueue = Callable[..., Front]


class Opener:
    """Makes queues of one colour, and shuts them down at the end of a test."""

    def __init__(self, colour: str, name: str, db: Any, url: str) -> None:
        self._db = db
        self._fronts: list[Front] = []
        self._loop = LoopThread("test-queue") if colour == "async" else None
        self._client = AsyncMongoClient[dict[str, Any]](url) if colour == "async" else None
        if self._client is not None:
            self._db = self._client[name]

    def __call__(self, calls: Calls | None = None, **options: Any) -> Front:
        on = self._db if calls is None else calls.backend(self._db)
        kind: Any = JobQueue if self._loop is None else AsyncJobQueue
        front = Front(kind(on, **options), self._loop)
        self._fronts.append(front)
        return front

    def close(self) -> None:
        for front in self._fronts:
            front.shutdown(0)
        if self._loop is not None and self._client is not None:
            self._loop.call(self._client.close())
            self._loop.close()


@pytest.fixture(params=["sync", "async"])
def open_queue(request: pytest.FixtureRequest, db: Database[dict[str, Any]], mongo_url: str) -> Iterator[Opener]:
    """Makes queues on the test's database, of both colours in turn."""
    opener = Opener(request.param, db.name, db, mongo_url)
    yield opener
    opener.close()


@pytest.fixture
def open_sync(db: Database[dict[str, Any]], mongo_url: str) -> Iterator[Opener]:
    """Makes sync queues on the test's database."""
    opener = Opener("sync", db.name, db, mongo_url)
    yield opener
    opener.close()


@pytest.fixture
def queue(open_queue: Opener) -> Front:
    """A queue on the test's database, of both colours in turn."""
    return open_queue()


@pytest.fixture(scope="package")
def idle_worker(client: MongoClient[dict[str, Any]], mongo_url: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that has nothing to do, and says after a minute what it asked of the server."""
    name = f"test_{uuid7().hex}"
    with idle(mongo_url, name) as process:
        yield process
    client.drop_database(name)


@pytest.fixture(scope="package", autouse=True)
def idle_from_the_start(request: pytest.FixtureRequest) -> None:
    """Starts it at once where a test will read what it says: the others run while it is watched."""
    if any("idle_worker" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("idle_worker")
