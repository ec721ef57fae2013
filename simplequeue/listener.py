"""The two fronts of a listening: one that waits, one that awaits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from simplequeue.collection import CollectionJobs
from simplequeue.jobs import Jobs, threaded
from simplequeue.listen import Listening
from simplequeue.payload import PayloadError, checked_action, checked_count
from simplequeue.slots import Handler, Slots, TaskSlots, ThreadSlots, checked_handler
from simplequeue.threads import LoopThread, Threads

LEAVE_TIMEOUT = 30.0
"""Seconds that leaving a ``with`` block waits for handlers."""

CLOSE_TIMEOUT = 1.0
"""Seconds that an AsyncListener takes at most to give back its server cursor, while the caller's loop still runs."""


class Listener:
    """Runs jobs in the background. Made by ``Queue.listen``; as a context manager it stops with 30 seconds.

    Its threads are daemons: a handler that hangs does not keep the process from exiting.
    """

    def __init__(
        self,
        jobs: CollectionJobs,
        handler: Handler,
        actions: Iterable[str] | None,
        concurrency: int,
        poll_interval: float | timedelta | None,
    ) -> None:
        options = _checked(handler, actions, concurrency, poll_interval)
        self._stopped = threading.Event()
        self._drained = threading.Event()
        self._lock = threading.Lock()
        self._closer: threading.Thread | None = None
        self._thread = LoopThread("simplequeue-listener")
        self._calls = Threads("simplequeue-call")
        try:
            looking = jobs.through(lambda call: threaded(call, self._calls))
            self._listening = self._thread.call(_begun(looking, ThreadSlots(jobs), options))
        except BaseException:
            self._release()
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Takes no more jobs and waits for those that run.

        An end that could not be stored so far is tried until then; what is not stored by then leaves its job running,
        and an error in the log says so.

        Args:
            timeout: Seconds to wait. None means without limit. Handlers that take longer go on, in daemon threads.

        Returns:
            True when every handler has finished.

        Raises:
            RuntimeError: Called without a timeout by a handler, which would wait for itself.
        """
        if timeout is None:
            self._listening.refuse_inside()
        with self._lock:
            if self._closer is None:
                self._thread.call(self._listening.stop())
                self._closer = threading.Thread(target=self._close, name="simplequeue-close", daemon=True)
                self._closer.start()
        if not (finished := self._drained.wait(timeout)):
            self._thread.tell(self._listening.give_up)
        self._stopped.set()
        return finished

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until somebody has stopped the listener: a worker's main line.

        Args:
            timeout: Seconds to wait. None means without limit.

        Returns:
            True when it is stopped, False after the timeout.
        """
        return self._stopped.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(LEAVE_TIMEOUT)

    def _close(self) -> None:
        self._thread.call(self._listening.drained())
        self._drained.set()
        self._thread.call(self._listening.close())
        self._release()

    def _release(self) -> None:
        self._calls.close()
        self._thread.close()


class AsyncListener:
    """Runs jobs in the background on the caller's loop. Made by ``AsyncQueue.listen``."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._stopped = asyncio.Event()
        self._drained = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def begin(
        cls,
        jobs: Jobs,
        handler: Handler,
        actions: Iterable[str] | None,
        concurrency: int,
        poll_interval: float | timedelta | None,
    ) -> Self:
        """Starts listening."""
        options = _checked(handler, actions, concurrency, poll_interval)
        return cls(await _begun(jobs, TaskSlots(jobs), options))

    async def stop(self, timeout: float | None = None) -> bool:
        """Takes no more jobs and waits for those that run, as ``Listener.stop`` does."""
        if timeout is None:
            self._listening.refuse_inside()
        if self._closing is None:
            await self._listening.stop()
            self._closing = asyncio.create_task(self._close())
        try:
            await asyncio.wait_for(self._drained.wait(), timeout)
        except TimeoutError:
            self._listening.give_up()
        else:
            await asyncio.wait((self._closing,), timeout=CLOSE_TIMEOUT)
        self._stopped.set()
        return self._drained.is_set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until somebody has stopped the listener, as ``Listener.wait`` does."""
        try:
            return await asyncio.wait_for(self._stopped.wait(), timeout)
        except TimeoutError:
            return False

    async def _close(self) -> None:
        await self._listening.drained()
        self._drained.set()
        await self._listening.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(LEAVE_TIMEOUT)


Options = tuple[Handler, list[str] | None, int, float | None]


async def _begun(jobs: Jobs, slots: Slots, options: Options) -> Listening:
    handler, actions, concurrency, poll_interval = options
    listening = Listening(jobs, slots, handler, actions=actions, concurrency=concurrency, poll_interval=poll_interval)
    await listening.start()
    return listening


def _checked(handler: object, actions: object, concurrency: object, poll_interval: float | timedelta | None) -> Options:
    return (
        checked_handler(handler),
        None if actions is None else _checked_actions(actions),
        checked_count(concurrency, "concurrency"),
        None if poll_interval is None else _checked_seconds(poll_interval, "poll_interval"),
    )


def _checked_actions(actions: Any) -> list[str]:
    if isinstance(actions, str) or not isinstance(actions, Iterable):
        raise PayloadError("actions", f"expected a list of actions such as ['send-mail'], found {actions!r}")
    checked = [checked_action(action, f"actions[{index}]") for index, action in enumerate(actions)]
    if not checked:
        raise PayloadError("actions", "is empty, so nothing would ever run; leave it out to take all")
    return checked


def _checked_seconds(value: Any, path: str) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= threading.TIMEOUT_MAX:
        raise PayloadError(path, f"expected a positive number of seconds or a timedelta, found {value!r}")
    return float(seconds)
