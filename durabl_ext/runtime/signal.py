"""How a run is told to end early.

One ``Stop`` a run, set once, from any thread; a handler sees it as a ``Signal``, or as an ``AsyncSignal`` when it
awaits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

from simplequeue.threads import tell

Reason = Literal["lease-lost", "deadline", "shutdown"]


class RunAborted(BaseException):  # the name users know it by
    """Ends a handler whose run was told to stop. No ``except Exception`` catches it; let it pass.

    Attributes:
        reason: Why the run was told to stop.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the run was told to stop: {self.reason}"


# One for all: what it guards takes no time, and each run has a Stop.
_lock = threading.Lock()


class Stop:
    """Is set once with a reason, and calls back whoever asked for it."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self._callbacks: list[Callable[[], object]] = []

    def set(self, reason: Reason) -> None:
        """Tells the run to stop; a later reason changes nothing."""
        with _lock:
            if self.reason is not None:
                return
            self.reason = reason
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def when_set(self, callback: Callable[[], object]) -> None:
        """Calls back once it is set; at once if it is."""
        with _lock:
            if self.reason is None:
                self._callbacks.append(callback)
                return
        callback()

    def calls_nobody(self) -> None:
        """Forgets whom to call back."""
        self._callbacks = []


class Signal:
    """Tells a handler that its run should end: look at it between steps, or wait on it instead of sleeping."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Whether the run should end."""
        return self._stop.reason is not None

    @property
    def reason(self) -> Reason | None:
        """Why: ``"lease-lost"``, ``"deadline"`` (no heartbeat got through, or a time is over) or ``"shutdown"``."""
        return self._stop.reason

    def wait(self, timeout: float | None = None) -> bool:
        """Waits so many seconds (None: without limit) or until the run should end, and says whether it should."""
        with _lock:
            made = self._event is None
            event = self._event = self._event or threading.Event()
        if made:  # most handlers never wait on it
            self._stop.when_set(event.set)
        event.wait(timeout)
        return self.is_set()

    def raise_if_set(self) -> None:
        """Raises RunAborted if the run should end."""
        if self._stop.reason is not None:
            raise RunAborted(self._stop.reason)


class AsyncSignal:
    """Tells a handler that its run should end, as ``Signal`` does, for one that awaits on the loop it was made on."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._event: asyncio.Event | None = None

    def is_set(self) -> bool:
        """Whether the run should end."""
        return self._stop.reason is not None

    @property
    def reason(self) -> Reason | None:
        """Why, as for ``Signal``."""
        return self._stop.reason

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits so many seconds (None: without limit) or until the run should end, and says whether it should."""
        if self._event is None:  # most handlers never wait on it
            self._event = asyncio.Event()
            self._stop.when_set(partial(tell, asyncio.get_running_loop(), self._event.set))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout)
        return self.is_set()

    def raise_if_set(self) -> None:
        """Raises RunAborted if the run should end."""
        if self._stop.reason is not None:
            raise RunAborted(self._stop.reason)
