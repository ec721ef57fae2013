"""A queue whose driver calls a test can stop before, follow, or make fail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from simplequeue.collection import CollectionJobs
from simplequeue.jobs import blocking, native
from simplequeue.queue import AsyncQueue, Queue

Hook = Callable[[str, int], None]
NAMES = (
    "insert_one",
    "insert_many",
    "find_one",
    "find",
    "find_one_and_update",
    "update_one",
    "delete_many",
    "ensure_index",
    "watch",
)


class Hooks:
    """Calls ``before`` and ``after`` around each call of Jobs, with its name and which call of that name it is.

    What a hook raises, the caller sees: raised before, the call was not made; raised after, it was, and its answer
    is lost.
    """

    def __init__(self, before: Hook | None = None, after: Hook | None = None) -> None:
        self.before: Hook = before or (lambda name, number: None)
        self.after: Hook = after or (lambda name, number: None)
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def sync_queue(self, db: Any) -> Queue:
        return Queue(self.jobs(db, blocking))

    def async_queue(self, db: Any) -> AsyncQueue:
        return AsyncQueue(self.jobs(db, native))

    def jobs(self, db: Any, call: Any) -> CollectionJobs:
        kind = type("HookedJobs", (CollectionJobs,), {name: self._hooked(name) for name in NAMES})
        hooked: CollectionJobs = kind(db.job, call)
        return hooked

    def _hooked(self, name: str) -> Any:
        original = getattr(CollectionJobs, name)

        async def call(jobs: CollectionJobs, *args: Any, **kwargs: Any) -> Any:
            with self._lock:
                number = self.counts[name]
                self.counts[name] += 1
            self.before(name, number)
            result = await original(jobs, *args, **kwargs)
            self.after(name, number)
            return result

        return call
