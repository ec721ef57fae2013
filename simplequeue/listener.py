"""The two fronts of a listening: one that waits, one that awaits."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from simplequeue.collection import CollectionJobs
from simplequeue.handlers import checked_handler
from simplequeue.jobs import Jobs, threaded
from simplequeue.listen import Listening
from simplequeue.payload import PayloadError, checked_action, checked_count
from simplequeue.slots import Handler, Slots, TaskSlots, ThreadSlots
from simplequeue.threads import Latch, LoopThread, Threads

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
        self._process = os.getpid()
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._stopped, self._drained = Latch(), Latch()
        self._thread = LoopThread("simplequeue-listener")
        self._calls = Threads("simplequeue-call")
        slots = ThreadSlots(jobs)
        begun: list[Listening] = []
        try:
            looking = jobs.through(lambda call: threaded(call, self._calls))
            self._thread.call(_begin(begun, looking, slots, options))
            self._listening = begun[0]
            # There from the start, so that stop() needs neither a lock nor a new thread and works in a signal handler.
            threading.Thread(target=self._close, name="simplequeue-close", daemon=True).start()
        except BaseException:
            for listening in begun:
                listening.accept_no_more()
            slots.close()
            self._release()
            raise

    def stop(self, timeout: float | timedelta | None = None) -> bool:
        """Takes no more jobs and waits for those that run.

        An end that could not be stored so far is tried until then; what is not stored by then leaves its job running,
        and an error in the log says so.

        Args:
            timeout: Seconds, or a timedelta, to wait. None means without limit. Handlers that take longer go on, in
                daemon threads.

        Returns:
            True when every handler has finished.

        Raises:
            RuntimeError: Called without a timeout by a handler, which would wait for itself.
        """
        seconds = _checked_timeout(timeout)
        if seconds is None:
            self._listening.refuse_inside()
        if os.getpid() != self._process:
            return True  # a forked child has no part in what the parent runs
        out_of_time = False
        self._thread.tell(self._listening.wait_begins)
        try:
            self._asked.put(None)
            finished = self._drained.wait(seconds)
            out_of_time = not finished
            return finished
        finally:
            self._thread.tell(partial(self._listening.wait_ends, out_of_time))
            self._stopped.set()

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Waits until somebody has stopped the listener: a worker's main line.

        Args:
            timeout: Seconds, or a timedelta, to wait. None means without limit.

        Returns:
            True when it is stopped, False after the timeout.
        """
        return os.getpid() != self._process or self._stopped.wait(_checked_timeout(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(LEAVE_TIMEOUT)

    def _close(self) -> None:
        self._asked.get()
        self._thread.call(self._listening.stop())
        self._thread.call(self._listening.drained())
        self._drained.set()
        self._stopped.set()
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
        begun: list[Listening] = []
        await _begin(begun, jobs, TaskSlots(jobs), options)
        return cls(begun[0])

    async def stop(self, timeout: float | timedelta | None = None) -> bool:
        """Takes no more jobs and waits for those that run, as ``Listener.stop`` does."""
        seconds = _checked_timeout(timeout)
        if seconds is None:
            self._listening.refuse_inside()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        out_of_time = False
        self._listening.wait_begins()
        try:
            await asyncio.wait_for(self._drained.wait(), seconds)
        except TimeoutError:
            out_of_time = True
        else:
            await asyncio.wait((self._closing,), timeout=CLOSE_TIMEOUT)
        finally:
            self._listening.wait_ends(out_of_time)
            self._stopped.set()
        return self._drained.is_set()

    async def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Waits until somebody has stopped the listener, as ``Listener.wait`` does."""
        try:
            return await asyncio.wait_for(self._stopped.wait(), _checked_timeout(timeout))
        except TimeoutError:
            return False

    async def _close(self) -> None:
        await self._listening.stop()
        await self._listening.drained()
        self._drained.set()
        self._stopped.set()
        await self._listening.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(LEAVE_TIMEOUT)


MOMENT = 0.1

Options = tuple[Handler, list[str] | None, int, float | None]


async def _begin(begun: list[Listening], jobs: Jobs, slots: Slots, options: Options) -> None:
    """Starts a listening. It is in the list before it takes its first job, so that no interruption can lose it."""
    handler, actions, concurrency, poll_interval = options
    begun.append(Listening(jobs, slots, handler, actions=actions, concurrency=concurrency, poll_interval=poll_interval))
    await begun[0].start()


def _checked(handler: object, actions: object, concurrency: object, poll_interval: float | timedelta | None) -> Options:
    return (
        checked_handler(handler, "a job", 1),
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


def _checked_timeout(timeout: Any) -> float | None:
    """Gives a timeout in seconds. The least is a moment, in which a listener that has nothing to do can say so."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise PayloadError("timeout", f"expected a number of seconds, a timedelta or None, found {timeout!r}")
    return max(float(seconds), MOMENT)
