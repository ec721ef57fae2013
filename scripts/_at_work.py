"""A queue of the extension, sync or async, as what a worker waits for and stops."""

from __future__ import annotations

from durabl_ext import AsyncJobQueue, JobQueue
from simplequeue.threads import LoopThread


class Started:
    """A sync queue at work."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue

    def wait(self, timeout: float | None = None) -> bool:
        return self._queue.wait_drained(timeout)

    def stop(self, timeout: float | None = None) -> bool:
        return self._queue.shutdown() if timeout is None else self._queue.shutdown(timeout)


class AsyncStarted:
    """An async queue at work, on a loop in a thread: the main thread waits for signals."""

    def __init__(self, queue: AsyncJobQueue, loop: LoopThread) -> None:
        self._queue = queue
        self._loop = loop

    def wait(self, timeout: float | None = None) -> bool:
        return self._loop.call(self._queue.wait_drained(timeout))

    def stop(self, timeout: float | None = None) -> bool:
        return self._loop.call(self._queue.shutdown() if timeout is None else self._queue.shutdown(timeout))


def started(queue: JobQueue | AsyncJobQueue, reaper: bool) -> Started | AsyncStarted:
    """Starts a queue and gives what to wait for."""
    if isinstance(queue, JobQueue):
        queue.start(reaper=reaper)
        return Started(queue)
    loop = LoopThread("simplequeue-worker")
    loop.call(queue.start(reaper=reaper))
    return AsyncStarted(queue, loop)
