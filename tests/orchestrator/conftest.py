"""Orchestrations of every kind behind one face: ``def`` and ``async def`` bodies, queues of both colours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import AsyncOrchestrator, DurableJob, JournalView, Orchestrator, Retried
from tests.listening.conftest import fail_command, own_db, server
from tests.orchestrator.bodies import AnyBody, as_async, as_def
from tests.orchestrator.programs import FLAVOURS
from tests.runtime.conftest import Opener, Told
from tests.runtime.fronts import Front
from tests.watching import until

__all__ = ["fail_command", "own_db", "server"]

DB = Database[dict[str, Any]]


class Bench:
    """A queue, its orchestrator, and the steps that its bodies have run.

    Attributes:
        flavour: Which kind of body is defined.
        front: The queue.
        ran: What ran, in order: names of steps.
        keys: The idempotency keys these had.
        told: What the queue's event sink was told.
    """

    def __init__(self, flavour: str, opener: Opener, db: DB) -> None:
        self.flavour = flavour
        self.db = db
        self.opener = opener
        self.ran: list[str] = []
        self.keys: list[tuple[str, str]] = []
        self.told = Told()
        self.queues: list[Front] = []
        self.front: Front
        self.orchestrator: Any
        self.open()

    def open(self, **options: Any) -> Front:
        """Makes another queue, as another process would; from now on it is the one."""
        self.front = self.opener(on_job_event=self.told, **options)
        kind: Any = AsyncOrchestrator if self.front.is_async else Orchestrator
        self.orchestrator = Front(kind(self.front.queue), self.front._loop)
        self.queues.append(self.front)
        return self.front

    def body(self, body: AnyBody) -> Any:
        """A body as this kind writes it."""
        return as_def(body) if self.flavour == "def" else body

    def define(self, body: AnyBody, action: str = "a", **options: Any) -> None:
        self.orchestrator.define(action, self.body(body), **options)

    def fn(self, call: Callable[..., Any]) -> Any:
        """A function of a step as this kind would write it."""
        return call if self.flavour == "def" else as_async(call)

    def does(self, name: str, result: Any = None, act: Callable[[Any], object] | None = None) -> Any:
        """A function of a step that is remembered, may do something, and returns something."""

        def fn(step: Any) -> Any:
            self.ran.append(name)
            self.keys.append((step.seq, step.idempotency_key))
            if act is not None:
                act(step)
            return result

        return self.fn(fn)

    def add(self, action: str = "a", data: Any = None, **options: Any) -> str:
        """Enqueues a job whose attempts follow soon upon one another."""
        return self.front.add(action, data, **{"backoff": "fixed", "backoff_delay": 0.05, **options})

    def start(self, **options: Any) -> None:
        self.front.start(**{"reaper": False, **options})

    def job(self, id: str) -> DurableJob:
        job = self.front.get(id)
        assert isinstance(job, DurableJob)
        return job

    def ended(self, id: str) -> DurableJob:
        """Waits until a job has ended."""
        until(lambda: self.job(id).status not in ("queued", "running"))
        return self.job(id)

    def done(self, body: AnyBody, **options: Any) -> DurableJob:
        """Defines a body, starts, runs one job of it to its end."""
        self.define(body)
        self.start()
        return self.ended(self.add(**options))

    def steps(self, id: str) -> list[dict[str, Any]]:
        document = self.db.job.find_one({"_id": id})
        assert document is not None
        return list(document["durable"].get("steps", ()))

    def view(self, id: str, **options: Any) -> JournalView:
        view = self.orchestrator.inspect(id, **options)
        assert isinstance(view, JournalView)
        return view

    def resumed(self, id: str) -> DurableJob:
        """Resumes a failed job and waits until it has ended."""
        assert self.orchestrator.resume(id) == Retried()
        return self.ended(id)


@pytest.fixture(params=FLAVOURS)
def bench(request: pytest.FixtureRequest, db: DB, mongo_url: str) -> Iterator[Bench]:
    """Orchestrations of every kind in turn."""
    opener = Opener("async" if request.param == "async" else "sync", db.name, db, mongo_url)
    yield Bench(request.param, opener, db)
    opener.close()


@pytest.fixture(params=[flavour for flavour in FLAVOURS if flavour != "def"])
def async_bench(request: pytest.FixtureRequest, db: DB, mongo_url: str) -> Iterator[Bench]:
    """Orchestrations with ``async def`` bodies, on queues of both colours."""
    opener = Opener("async" if request.param == "async" else "sync", db.name, db, mongo_url)
    yield Bench(request.param, opener, db)
    opener.close()


@pytest.fixture
def def_bench(db: DB, mongo_url: str) -> Iterator[Bench]:
    """Orchestrations with ``def`` bodies."""
    opener = Opener("sync", db.name, db, mongo_url)
    yield Bench("def", opener, db)
    opener.close()


class Crash(Exception):  # noqa: N818  # it stands for one
    """Ends a run, as far as its journal goes, as the death of its process would."""


class Gate:
    """Where a step can be held until a test lets it go on, and a test can wait until it is there."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def hold(self, *_: object) -> None:
        self.reached.set()
        assert self.opened.wait(60)

    def wait(self) -> None:
        assert self.reached.wait(60)
