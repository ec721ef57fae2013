"""Threads that do not keep a process alive.

The threads of a ThreadPoolExecutor are joined when the interpreter ends, so one hung call keeps the process from
exiting. These are daemons. Nothing here knows of jobs or of a server.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar, cast

T = TypeVar("T")

logger = logging.getLogger("simplequeue")

MISSED_SIGNAL = 0.5
"""Seconds. A signal that comes just before the main thread falls asleep, or to another thread, does not wake it: Python
runs its handler when the main thread next wakes by itself."""


class Threads:
    """Runs calls from an event loop in daemon threads, as many as there are calls at once; idle ones are reused.

    Args:
        name: What the threads are called, for a stack dump.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """Gives what the call returns or raises; when the waiting task is cancelled, the call itself goes on."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def task() -> None:
            # An error travels as a value: thrown into the waiting task, a GeneratorExit would close its coroutines,
            # a StopIteration is refused, and SystemExit ends the loop.
            result, error = None, None
            try:
                result = context.run(call)
            except BaseException as raised:
                error = raised
            tell(loop, _answer, answer, (result, error))

        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()
        inbox.put(task)
        result, error = await answer
        if error is not None:
            raise error
        return cast(T, result)

    def close(self) -> None:
        """Lets each thread end once it is idle."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _serve(self, inbox: SimpleQueue[Callable[[], None] | None]) -> None:
        while (task := inbox.get()) is not None:
            task()
            del task  # the call's arguments must not live on in an idle thread
            self._idle.append(inbox)
            if self._closed:
                self.close()


class Latch:
    """Is set once, and may be waited for and set anywhere, in a signal handler too.

    A threading.Event has one lock for all who wait: a signal handler that waits for the one its own thread was just
    about to wait for finds that lock taken, for ever. Here each who waits has a lock of its own.
    """

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[threading.Lock] = []

    def set(self) -> None:
        """Lets all go on who wait or will."""
        self._set = True
        for turn in list(self._waiting):
            with suppress(RuntimeError):  # somebody else set it as well
                turn.release()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def wait(self, timeout: float | None) -> bool:
        """Waits for so many seconds (None: without limit) and says whether it is set."""
        turn = threading.Lock()
        turn.acquire()
        self._waiting.append(turn)
        ends = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._set:
                left = MISSED_SIGNAL if ends is None else min(ends - time.monotonic(), MISSED_SIGNAL)
                if left <= 0:
                    break
                turn.acquire(timeout=left)
            return self._set
        finally:
            self._waiting.remove(turn)


class LoopThread:
    """Runs an event loop in a daemon thread, for code that waits in a program that has no loop.

    Args:
        name: What the thread is called, for a stack dump.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for what it returns or raises, from any other thread."""
        result, error = self.begin(coroutine).result()
        if error is not None:
            raise error
        return cast(T, result)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[tuple[T | None, BaseException | None]]:
        """Runs a coroutine on the loop, from any thread; what it returns and what it raises will be values."""
        return asyncio.run_coroutine_threadsafe(settled(coroutine), self._loop)

    def is_current(self) -> bool:
        """Whether the caller is this thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    async def result(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and gives what it returns or raises, from another loop."""
        result, error = await asyncio.wrap_future(self.begin(coroutine))
        if error is not None:
            raise error
        return cast(T, result)

    def tell(self, callback: Callable[[], object]) -> None:
        """Has the loop call something, unless it has ended."""
        tell(self._loop, callback)

    def close(self) -> None:
        """Lets the loop end; what still runs on it is cancelled."""
        self._closed = True
        tell(self._loop, self._loop.stop)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            while not self._closed:
                # asyncio lets SystemExit and KeyboardInterrupt of any task end the loop. A task that foreign code
                # started must not take the thread that others wait for with it.
                try:
                    runner.get_loop().run_forever()
                except (SystemExit, KeyboardInterrupt):
                    logger.exception("a task of %s tried to end the process", self._thread.name)


def _answer(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


async def settled(awaitable: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """Gives what something returns or raises, as values: whatever it is, the task that runs this returns."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Has a loop call something, from any thread, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise  # nobody waits on a closed loop any more
