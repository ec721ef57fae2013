"""A queue of either colour behind one sync face."""

from __future__ import annotations

import inspect
from typing import Any

from durabl_ext import AsyncJobQueue, JobQueue
from durabl_ext.runtime.worker import Worker
from simplequeue.threads import LoopThread


class Front:
    """A queue with a sync face: what is awaitable is awaited on its loop."""

    def __init__(self, queue: JobQueue | AsyncJobQueue, loop: LoopThread | None) -> None:
        self.queue = queue
        self.is_async = loop is not None
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.queue, name)
        if self._loop is None or not callable(member):
            return member
        loop = self._loop

        def call(*args: Any, **options: Any) -> Any:
            async def on_the_loop() -> Any:
                result = member(*args, **options)
                return await result if inspect.isawaitable(result) else result

            return loop.call(on_the_loop())

        return call

    def add(self, action: str = "a", data: Any = None, **options: Any) -> str:
        """Enqueues a job that is not refused."""
        id = self.enqueue(action, data, **options)
        assert isinstance(id, str)
        return id


def worker_of(front: Front) -> Worker:
    """The worker of a queue that has started."""
    part: Any = front.queue._part
    worker: Worker = part.worker if front.is_async else part.host.worker
    return worker


def waiting_ends(front: Front) -> int:
    """How many runs have ended and wait for the write of their end, beside those that are being written."""
    return sum(len(share.settlements) for share in worker_of(front).engine._committer._waiting)
