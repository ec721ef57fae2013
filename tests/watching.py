"""How tests wait: for something to happen, with a deadline that only a hung test meets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from simplequeue import Job

DEADLINE = 60.0


class Recorder:
    """A handler that remembers its jobs, may hold them, and lets a test wait for them."""

    def __init__(self, act: Callable[[Job], object] | None = None) -> None:
        self._act = act
        self._changed = threading.Condition()
        self.jobs: list[Job] = []
        self.ended: list[Job] = []
        self.most_at_once = 0

    def __call__(self, job: Job) -> None:
        with self._changed:
            self.jobs.append(job)
            self.most_at_once = max(self.most_at_once, len(self.jobs) - len(self.ended))
            self._changed.notify_all()
        try:
            if self._act is not None:
                self._act(job)
        finally:
            with self._changed:
                self.ended.append(job)
                self._changed.notify_all()

    @property
    def ids(self) -> list[str]:
        return [job.id for job in self.jobs]

    def wait_for(self, count: int, deadline: float = DEADLINE) -> list[Job]:
        """Waits until so many jobs have begun, and gives them."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.jobs) >= count, deadline):
                raise AssertionError(f"{len(self.jobs)} of {count} jobs have begun after {deadline:g} s")
            return list(self.jobs)

    def wait_for_ends(self, count: int, deadline: float = DEADLINE) -> list[Job]:
        """Waits until the handler has ended for so many jobs, and gives them."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.ended) >= count, deadline):
                raise AssertionError(f"{len(self.ended)} of {count} handlers have ended after {deadline:g} s")
            return list(self.ended)


def until(holds: Callable[[], Any], deadline: float = DEADLINE) -> Any:
    """Waits for a condition that nobody announces, such as one in the database, and gives its truth."""
    ends = time.monotonic() + deadline
    pause = threading.Event()
    while not (truth := holds()):
        if time.monotonic() > ends:
            raise AssertionError(f"the condition did not come true in {deadline:g} s")
        pause.wait(0.01)
    return truth


def settled(value: Callable[[], Any], rest: float = 0.5, deadline: float = DEADLINE) -> Any:
    """Waits until a value has stayed the same for so many seconds, and gives it: what was on its way has arrived."""
    since, last = time.monotonic(), value()

    def rests() -> bool:
        nonlocal since, last
        if (now := value()) != last:
            since, last = time.monotonic(), now
        return time.monotonic() - since >= rest

    until(rests, deadline)
    return last


def ended(collection: Any, ids: list[str]) -> Callable[[], bool]:
    """Whether all of these jobs have ended."""
    return lambda: bool(
        collection.count_documents({"_id": {"$in": ids}, "status": {"$nin": ["queued", "running"]}}) == len(ids)
    )
