"""Threads that do not keep a process alive.

The threads of a ThreadPoolExecutor are joined when the interpreter ends, so one hung call keeps the process from
exiting. These are daemons. Nothing here knows of jobs or of a server.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger("simplequeue")


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
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def task() -> None:
            try:
                result = context.run(call)
            except BaseException as error:
                _tell(loop, _set_exception, answer, error)
            else:
                _tell(loop, _set_result, answer, result)

        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()
        inbox.put(task)
        return await answer

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
        """Runs a coroutine on the loop and waits for its result, from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Lets the loop end; what still runs on it is cancelled."""
        self._closed = True
        _tell(self._loop, self._loop.stop)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            while not self._closed:
                # asyncio lets SystemExit and KeyboardInterrupt of any task end the loop. A task that foreign code
                # started must not take the thread that others wait for with it.
                try:
                    runner.get_loop().run_forever()
                except (SystemExit, KeyboardInterrupt):
                    logger.exception("a task of %s tried to end the process", self._thread.name)


def _set_result(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _set_exception(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        # A future refuses StopIteration, which would leave its waiter waiting.
        answer.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise  # nobody waits on a closed loop any more
