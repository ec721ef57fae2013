"""Bounds on the time of a body and of its steps, where nothing else can end them.

A thread cannot be ended from outside. Its signal is set; if it does not heed that, it is left behind: its run ends
without it, and what it still does to the journal is refused.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

from simplequeue.threads import tell

GRACE = 1.0
"""Seconds that something has to end by itself once it was told to."""


class Limit:
    """A time by which something has to end.

    Attributes:
        late: Whether it has passed.
    """

    def __init__(self, seconds: float, error: BaseException, told: Callable[[], object]) -> None:
        self.late = False
        self.at = time.monotonic() + seconds
        self.error = error
        self.told = told


class Watchdog:
    """Watches over one run; made on the loop that does."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits: dict[Limit, None] = {}
        self._changed = asyncio.Event()
        self._awake_at = math.inf

    def add(self, limit: Limit) -> None:
        """Watches over a limit; from any thread."""
        self._limits[limit] = None
        if limit.at < self._awake_at:
            tell(self._loop, self._changed.set)

    def remove(self, limit: Limit) -> None:
        """Watches over it no longer; from any thread."""
        self._limits.pop(limit, None)

    async def watch(self, running: asyncio.Future[Any]) -> BaseException | None:
        """Waits until something has ended; gives the error of the limit it has overrun if it is to be left behind."""
        while not running.done():
            self._changed.clear()
            self._awake_at = math.inf  # whoever adds one while the soonest is looked for has it looked for again
            soonest = min((limit.at for limit in tuple(self._limits)), default=math.inf)
            self._awake_at = soonest
            changed = asyncio.ensure_future(self._changed.wait())
            left = None if soonest == math.inf else max(soonest - time.monotonic(), 0)
            await asyncio.wait((running, changed), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if not running.done() and (error := self._overrun()) is not None:
                return error
        return None

    def _overrun(self) -> BaseException | None:
        now = time.monotonic()
        for limit in [limit for limit in tuple(self._limits) if limit.at <= now]:
            if limit.late:
                return limit.error
            limit.late = True
            limit.at = now + GRACE
            limit.told()
        return None
