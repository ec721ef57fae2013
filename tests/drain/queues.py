"""Queues of both colours behind one sync face, and backends whose calls a test can hold, follow or make fail."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, AsyncMongoJobQueue, JobQueue, MongoJobQueue
from durabl_ext.events import Event
from simplequeue.threads import LoopThread
from tests.watching import until

Hook = Callable[[str, int], None]
SAME = ("startup", "claim", "claim_by_key", "claim_or_enqueue", "settle", "heartbeat", "log", "recover", "sweep")
NAMES = {**dict(zip(SAME, SAME, strict=True)), "settle_and_claim": "settle"}
"""What each call is known as: an end is an end, whatever starts with it."""


class Hooks:
    """Calls ``before`` and ``after`` around each call of a backend, with its name and which call of that name it is."""

    def __init__(self, before: Hook | None = None, after: Hook | None = None) -> None:
        self.before: Hook = before or (lambda name, number: None)
        self.after: Hook = after or (lambda name, number: None)
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def sync_backend(self, db: Any, **options: Any) -> MongoJobQueue:
        hooked = {called: self._hooked(called, name) for called, name in NAMES.items()}
        kind = type("Hooked", (MongoJobQueue,), hooked)
        backend: MongoJobQueue = kind(db, **options)
        return backend

    def async_backend(self, db: Any, **options: Any) -> AsyncMongoJobQueue:
        kind = type(
            "AsyncHooked", (AsyncMongoJobQueue,), {name: self._async_hooked(name, as_) for name, as_ in NAMES.items()}
        )
        backend: AsyncMongoJobQueue = kind(db, **options)
        return backend

    def _number(self, name: str) -> int:
        with self._lock:
            self.counts[name] += 1
            return self.counts[name]

    def _hooked(self, called: str, name: str) -> Any:
        original = getattr(MongoJobQueue, called)

        def call(backend: Any, *args: Any, **options: Any) -> Any:
            number = self._number(name)
            self.before(name, number)
            result = original(backend, *args, **options)
            self.after(name, number)
            return result

        return call

    def _async_hooked(self, called: str, name: str) -> Any:
        original = getattr(AsyncMongoJobQueue, called)

        async def call(backend: Any, *args: Any, **options: Any) -> Any:
            number = self._number(name)
            await asyncio.to_thread(self.before, name, number)
            result = await original(backend, *args, **options)
            await asyncio.to_thread(self.after, name, number)
            return result

        return call


class Events:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.all.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.all]

    def wait_for(self, kind: str, times: int = 1) -> None:
        until(lambda: self.kinds.count(kind) >= times)


class OnLoop:
    """A sync face of an AsyncJobQueue: each call is made on a loop in a thread."""

    def __init__(self, queue: AsyncJobQueue, loop: LoopThread) -> None:
        self.inner = queue
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            result = found(*args, **options)
            return await result if inspect.isawaitable(result) else result

        return lambda *args, **options: self._loop.call(call(*args, **options))

    def __enter__(self) -> OnLoop:
        self.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.shutdown()


class Maker:
    """Makes queues of one colour, and shuts them down at the end.

    Attributes:
        colour: ``"sync"`` or ``"async"``.
        url: Where the async ones connect to, unless told.
    """

    def __init__(self, colour: str, url: str) -> None:
        self.colour = colour
        self.url = url
        self._made: list[Any] = []
        self._loops: list[tuple[LoopThread, AsyncMongoClient[Any]]] = []

    def __call__(
        self,
        db: Database[Any],
        *,
        url: str | None = None,
        hooks: Hooks | None = None,
        push: Any = "auto",
        **options: Any,
    ) -> Any:
        """A queue on a database; its client is ``db``'s, or an async one of ``url``."""
        hooks = hooks or Hooks()
        queue: Any
        if self.colour == "sync":
            queue = JobQueue(hooks.sync_backend(db, push=push), **options)
        else:
            loop = LoopThread("test-loop")
            client = AsyncMongoClient[dict[str, Any]](url or self.url)
            self._loops.append((loop, client))
            queue = OnLoop(AsyncJobQueue(hooks.async_backend(client[db.name], push=push), **options), loop)
        self._made.append(queue)
        return queue

    def end(self) -> None:
        for queue in self._made:
            queue.shutdown(0)
        for loop, client in self._loops:
            loop.call(client.close())
            loop.close()
