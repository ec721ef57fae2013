"""What both kinds of queue do to register work and to say when they may start it. No I/O."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from durabl_ext.errors import QueueShutdownError
from durabl_ext.events import Sink
from durabl_ext.options import Seconds, checked_seconds
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.processors import Processor, checked_processor
from simplequeue.payload import PayloadError, checked_action

H = TypeVar("H", bound=Handler)
P = TypeVar("P")

SHUTDOWN_TIMEOUT = 20.0
"""Seconds; inside the 30 that platforms wait before they kill."""

REAPER_INTERVAL = 60.0


class PerProcess(Generic[P]):
    """Gives each process one of something: a forked child its own, whatever its parent was in the middle of."""

    def __init__(self, make: Callable[[], P]) -> None:
        self._make = make
        self._made: dict[int, P] = {}

    def here(self) -> P:
        """The one of this process."""
        process = os.getpid()
        if process not in self._made:
            self._made.setdefault(process, self._make())  # two threads may be first
        return self._made[process]


class Registry(ABC):
    """Holds the processors of a queue.

    Args:
        lease: The visibility timeout.
        sink: What is told of events.
        logger: For messages; None means the logger ``durabl_ext``.
    """

    def __init__(self, lease: timedelta, sink: Sink | None, logger: logging.Logger | None) -> None:
        if sink is not None and not callable(sink):
            raise TypeError(f"on_job_event: expected a function that takes an event, found {sink!r}")
        self._lease = lease
        self._sink = sink
        self._logger = logger or logging.getLogger("durabl_ext")
        self._processors: dict[str, Processor] = {}

    @property
    def actions(self) -> frozenset[str]:
        """The actions that have a handler."""
        return frozenset(self._processors)

    @property
    def visibility_timeout(self) -> float:
        """Seconds after which a run that shows no sign of life counts as dead."""
        return self._lease.total_seconds()

    @property
    def logger(self) -> logging.Logger:
        """Where messages go."""
        return self._logger

    @overload
    def process(
        self,
        action: str,
        *,
        concurrency: int = ...,
        poll_interval: Seconds | None = ...,
        heartbeat_interval: Seconds | None = ...,
        adopt_max_attempts: int = ...,
    ) -> Callable[[H], H]: ...
    @overload
    def process(
        self,
        action: str,
        handler: H,
        *,
        concurrency: int = ...,
        poll_interval: Seconds | None = ...,
        heartbeat_interval: Seconds | None = ...,
        adopt_max_attempts: int = ...,
    ) -> H: ...
    def process(
        self,
        action: str,
        handler: Any = None,
        *,
        concurrency: int = 1,
        poll_interval: Seconds | None = None,
        heartbeat_interval: Seconds | None = None,
        adopt_max_attempts: int = 3,
    ) -> Any:
        """Registers what works on the jobs of an action; starts nothing unless the queue is started already.

        The handler is called with the job and a context. Returning completes the job, raising fails it, to be tried
        again while attempts are left; a ``FatalJobError``, also one in an exception group, fails it for good. Without a
        handler this is a decorator.

        Args:
            action: The action; one handler for each.
            handler: A function of a job and its context, ``def`` or ``async def``. None gives a decorator.
            concurrency: How many jobs of this action run in this process at once.
            poll_interval: Seconds, or a timedelta, between looks without a signal. None means 60 with a change stream,
                5 without.
            heartbeat_interval: Seconds, or a timedelta, between heartbeats. None means a third of the visibility
                timeout.
            adopt_max_attempts: How many attempts a plain job of the base layer gets when it is claimed; 1 keeps that
                layer's promise that a job is never run twice.

        Returns:
            The handler.

        Raises:
            TypeError: The handler is none.
            ValueError: The action has a handler, or an option is not as above.
        """
        if callable(action):
            raise TypeError(
                f"action: expected a name such as 'send-mail', found {action!r}; write @queue.process('send-mail')"
            )
        named = checked_action(action)

        def register(given: Any) -> Any:
            processor = checked_processor(
                named,
                given,
                concurrency=concurrency,
                poll_interval=poll_interval,
                heartbeat_interval=heartbeat_interval,
                adopt_max_attempts=adopt_max_attempts,
                visibility_timeout=self._lease.total_seconds(),
            )
            if named in self._processors:
                raise ValueError(f"action {named!r} has a handler already: {self._processors[named].handler!r}")
            self._processors[named] = processor
            self._look([named])
            return given

        return register if handler is None else register(handler)

    @abstractmethod
    def _look(self, actions: Iterable[str]) -> None:
        """Has a worker in this process look for jobs of some actions, if there is one."""

    @property
    @abstractmethod
    def _shut_down(self) -> bool:
        """Whether a shutdown has begun in this process."""

    def _refuse_shut_down(self) -> None:
        if self._shut_down:
            raise QueueShutdownError("this queue is shut down; it starts no more work")


def checked_timeout(value: Any, path: str = "timeout") -> float:
    """Gives back a time to wait, in seconds."""
    return checked_seconds(value, path)


def checked_wait(value: Any) -> float | None:
    """Gives back a time to wait, in seconds; None means without limit."""
    return None if value is None else checked_seconds(value, "timeout")


def checked_reaper(interval: Seconds, retention: Seconds | None) -> tuple[float, timedelta | None]:
    """Gives back the interval of a reaper and how long it keeps ended jobs."""
    seconds = checked_seconds(interval, "reaper_interval")
    if seconds <= 0:
        raise PayloadError("reaper_interval", f"expected more than 0 seconds, found {interval!r}")
    if retention is None:
        return seconds, None
    return seconds, timedelta(seconds=checked_seconds(retention, "retention"))
