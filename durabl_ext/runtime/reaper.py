"""The reaper: puts back what dead runs left, and deletes what has been kept long enough, from time to time.

Sweeps are idempotent, so that one in every worker does no harm; within one they never overlap. A sweep that fails is
reported, and the next one comes as planned.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta

from durabl_ext import events
from durabl_ext.events import told
from durabl_ext.runtime.engine import Engine

LIMIT = 1_000
RETENTION_BATCH = 10_000
"""Ended jobs deleted in one sweep; what is left waits for the next, so that recovery is never held up for long."""


@dataclass(frozen=True, slots=True)
class ReaperStarted:
    """The reaper runs now; its first sweep took ``recovered`` jobs from dead runs (None: that sweep failed)."""

    recovered: int | None


@dataclass(frozen=True, slots=True)
class ReaperAlreadyRunning:
    """This queue's reaper was running before; nothing was changed."""

    def __bool__(self) -> bool:
        return False


class Reaper:
    """Sweeps every so often.

    Args:
        engine: Whose store is swept.
        interval: Seconds between sweeps.
        retention: How long ended jobs are kept; None means for ever.
    """

    def __init__(self, engine: Engine, interval: float, retention: timedelta | None) -> None:
        self._engine = engine
        self._interval = interval
        self._retention = retention

    async def sweep(self) -> int | None:
        """Recovers what dead runs left, and gives how many jobs that were; None when it failed."""
        handled: int | None = 0
        try:
            while True:
                recovered = await self._engine.store.recover(LIMIT)
                handled = (handled or 0) + recovered.handled
                for id in recovered.stuck:
                    self._engine.logger.error("job %s cannot be recovered: the server refuses its document", id)
                if recovered.handled or recovered.saturated:
                    saturated = recovered.saturated
                    event = events.ReaperRecovered(handled=recovered.handled, saturated=saturated, at=self._engine.at())
                    told(self._engine.sink, event)
                if not (recovered.saturated and recovered.handled):
                    break
        except Exception as error:
            handled = None
            self._engine.logger.warning("a sweep of the reaper failed, the next one comes as planned: %r", error)
            told(self._engine.sink, events.ReaperFailed(phase="recover", at=self._engine.at()))
        await self._delete_old()
        return handled

    async def serve(self, first: Awaitable[object]) -> None:
        """Waits for the first sweep and goes on sweeping until cancelled."""
        await first
        while True:
            # Spread out, so that the reapers of workers which were started together do not sweep together.
            await asyncio.sleep(self._interval * _jitter.uniform(0.8, 1.0))
            await self.sweep()

    async def _delete_old(self) -> None:
        if self._retention is None:
            return
        try:
            await self._engine.store.sweep(await self._engine.now() - self._retention, limit=RETENTION_BATCH)
        except Exception as error:
            self._engine.logger.warning("deleting ended jobs failed, the next sweep tries again: %r", error)
            told(self._engine.sink, events.ReaperFailed(phase="retention", at=self._engine.at()))


# Not the module's own generator: an application's seed must not make workers everywhere come back at once.
_jitter = random.Random()
