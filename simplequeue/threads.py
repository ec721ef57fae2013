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
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")

logger = logging.getLogger("simplequeue")

MISSED_SIGNAL = 0.5
"""Seconds. A signal that comes just before the main thread falls asleep, or to another thread, does not wake it: Python
runs its handler when the main thread next wakes by itself."""


Done = Callable[[Any, BaseException | None], object]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that waits for a thread, and what is told its result on the loop that asked for it."""

    make: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    done: Done


class Threads:
    """Runs calls from an event loop in daemon threads, as many as there are calls at once; idle ones are reused.

    Calls that come together go to one thread, which wakes the next before it begins: if the call takes no time it has
    made the next one itself by then, and if it waits for something the next thread takes over. So a lot of quick calls
    costs one change of threads, and their results one wake-up of the loop.

    Args:
        name: What the threads are called, for a stack dump.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._results: deque[tuple[_Call, Any, BaseException | None]] = deque()
        self._idle: list[threading.Lock] = []
        self._waking = False
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """Gives what the call returns or raises; when the waiting task is cancelled, the call itself goes on."""
        # An error travels as a value: thrown into the waiting task, a GeneratorExit would close its coroutines, a
        # StopIteration is refused, and SystemExit ends the loop.
        answer: asyncio.Future[tuple[T, BaseException | None]] = asyncio.get_running_loop().create_future()
        self.begin(call, lambda result, error: None if answer.done() else answer.set_result((result, error)))
        result, error = await answer
        if error is not None:
            raise error
        return result

    def begin(self, call: Callable[[], Any], done: Done) -> None:
        """Has a call made, and what it returned and raised told on the running loop to ``done``, which must not raise.

        Where no thread can be had, that is what it has raised: a RuntimeError.
        """
        with self._lock:
            self._waiting.append(_Call(call, contextvars.copy_context(), asyncio.get_running_loop(), done))
            if self._waking:
                return
            self._waking = True
        self._wake()

    def close(self) -> None:
        """Lets each thread end once it is idle."""
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for turn in idle:
            turn.release()

    def _wake(self) -> None:
        """Wakes an idle thread, or starts one; where none can be had, who waits for one is told so."""
        try:
            try:
                self._idle.pop().release()
            except IndexError:
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._waking = False
                stranded = list(self._waiting)
                self._waiting.clear()
            self._results.extend((asked, None, error) for asked in stranded)
            self._report()
        except BaseException:
            self._waking = False
            raise

    def _serve(self) -> None:
        turn = threading.Lock()
        turn.acquire()
        while True:
            with self._lock:
                self._waking = False
            self._report()
            while (asked := self._next()) is not None:
                result, error = None, None
                try:
                    result = asked.context.run(asked.make)
                except BaseException as raised:
                    error = raised
                self._results.append((asked, result, error))
                del asked, result, error  # they must not live on in an idle thread
            with self._lock:
                if self._waiting:
                    continue
                if self._closed:
                    return
                self._idle.append(turn)
            turn.acquire()

    def _next(self) -> _Call | None:
        """Takes the next call. Before it is made results are told that are there, here or by the thread that wakes."""
        with self._lock:
            asked = self._waiting.popleft() if self._waiting else None
            more = bool(self._waiting)
            wake = more and not self._waking
            self._waking = self._waking or wake
        if wake:
            self._wake()
        if not more:
            self._report()
        return asked

    def _report(self) -> None:
        """Tells the loops that wait the results there are."""
        ended: dict[asyncio.AbstractEventLoop, list[tuple[Done, Any, BaseException | None]]] = {}
        with suppress(IndexError):
            while True:
                asked, result, error = self._results.popleft()
                ended.setdefault(asked.loop, []).append((asked.done, result, error))
        for loop, calls in ended.items():
            tell(loop, _told, calls)


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
        # A loop keeps the context it is made in, which may be that of the first job.
        self._loop = contextvars.Context().run(asyncio.new_event_loop)
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


def _told(calls: list[tuple[Done, Any, BaseException | None]]) -> None:
    for done, result, error in calls:
        done(result, error)


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
