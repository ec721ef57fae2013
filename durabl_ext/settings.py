"""The queue of an application that wants one without passing it around.

A process-wide default is a convenience, never the only way in: every part takes a queue or a backend. It is for sync
queues and async ones alike; what was set decides which.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.queue import AsyncJobQueue, JobQueue

AnyQueue = JobQueue | AsyncJobQueue


@dataclass(frozen=True)
class _Global:
    """What was set, and the default queue that was made of it."""

    db_or_backend: Any
    options: Mapping[str, Any]
    queue: AnyQueue


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: _Global | None = None
        self.scoped = False


_state = _State()


def set_global_backend(db_or_backend: Any, **options: Any) -> None:
    """Sets where the default queue's jobs are, and its options; replaces what was set before.

    A queue that the default was before is left as it is: who started it shuts it down.

    Args:
        db_or_backend: As for ``JobQueue`` or ``AsyncJobQueue``; which it is decides which the queue is.
        options: The queue's options.

    Raises:
        TypeError, PayloadError: As for the queue; nothing was set.
    """
    made = _Global(db_or_backend, dict(options), _made(db_or_backend, options))
    with _state.lock:
        _state.current = made


def get_global_backend() -> Backend | AsyncBackend:
    """Gives the default queue's backend.

    Raises:
        RuntimeError: None is set; call ``set_global_backend`` when the program starts.
    """
    return _set().queue.backend


def get_default_queue() -> Any:
    """Gives the default queue, the same one each time: a ``JobQueue``, or an ``AsyncJobQueue`` if that was set.

    Raises:
        RuntimeError: None is set; call ``set_global_backend`` when the program starts.
    """
    return _set().queue


def create_job_queue(db_or_backend: Any = None, **overrides: Any) -> Any:
    """Makes a further queue with the options that are set, but for those given.

    Args:
        db_or_backend: Where its jobs are. None means where the default queue's are.
        overrides: Options that differ.

    Raises:
        RuntimeError: Nothing is given and none is set.
    """
    if db_or_backend is not None:
        return _made(db_or_backend, {**(_state.current.options if _state.current else {}), **overrides})
    current = _set()
    return _made(current.db_or_backend, {**current.options, **overrides})


class global_queue:  # noqa: N801  # used like a function: with global_queue(db) as queue
    """Sets the default queue for the length of a ``with`` or ``async with`` block, then restores what was set before.

    The queue of the block is shut down at its end; the one before is not touched. Blocks do not overlap.

    Args: as for ``set_global_backend``.

    Raises:
        RuntimeError: Another such block is open.
    """

    def __init__(self, db_or_backend: Any, **options: Any) -> None:
        self._made = _Global(db_or_backend, dict(options), _made(db_or_backend, options))
        self._before: _Global | None = None

    def __enter__(self) -> JobQueue:
        if not isinstance(self._made.queue, JobQueue):
            raise TypeError("an async queue is used with: async with global_queue(...)")
        self._enter()
        return self._made.queue

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if isinstance(self._made.queue, JobQueue):
            self._made.queue.shutdown()

    async def __aenter__(self) -> AsyncJobQueue:
        if not isinstance(self._made.queue, AsyncJobQueue):
            raise TypeError("a sync queue is used with: with global_queue(...)")
        self._enter()
        return self._made.queue

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if isinstance(self._made.queue, AsyncJobQueue):
            await self._made.queue.shutdown()

    def _enter(self) -> None:
        with _state.lock:
            if _state.scoped:
                raise RuntimeError("global_queue: another block is open; blocks do not overlap")
            _state.scoped, self._before, _state.current = True, _state.current, self._made

    def _leave(self) -> None:
        with _state.lock:
            _state.scoped, _state.current = False, self._before


def _set() -> _Global:
    if _state.current is None:
        raise RuntimeError("no default queue is set: call set_global_backend(db) when the program starts")
    return _state.current


def _made(db_or_backend: Any, options: Mapping[str, Any]) -> AnyQueue:
    # A backend of somebody else's is async when its methods are.
    claims = getattr(type(db_or_backend), "claim_or_enqueue", None)
    is_async = isinstance(db_or_backend, AsyncDatabase) or inspect.iscoroutinefunction(claims)
    return AsyncJobQueue(db_or_backend, **options) if is_async else JobQueue(db_or_backend, **options)
