"""Heartbeats: for all runs of a process together, one call for those whose turn it is.

A failure is tried again soon and kills nothing. Whether a run still has its lease is judged by a clock of its own,
beside these calls: one that hangs must not keep a run from being told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Literal

from durabl_ext.outcomes import LeaseLost
from durabl_ext.runtime.runs import Run
from durabl_ext.runtime.store import Store

RETRY = 4
"""How many tries there are in the time between two heartbeats, once one has failed."""

Lost = Callable[[Run, Literal["heartbeat", "deadline"]], None]


class Heartbeats:
    """Renews the leases of runs until they are taken out.

    Args:
        store: Where.
        lease: What a heartbeat makes a lease last.
        lost: What to call for a run whose lease is lost, with what noticed it.
        logger: For warnings.
    """

    def __init__(self, store: Store, lease: timedelta, lost: Lost, logger: logging.Logger) -> None:
        self._store = store
        self._lease = lease
        self._lost = lost
        self._logger = logger
        self._runs: dict[Run, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._closed = False
        self._renewing = asyncio.Lock()

    def add(self, run: Run) -> None:
        """Renews the lease of a run from now on, and watches over its deadline."""
        loop = asyncio.get_running_loop()
        self._runs[run] = loop.call_later(max(run.deadline - time.monotonic(), 0), self._check_deadline, run)
        self._changed.set()
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())

    def remove(self, run: Run) -> None:
        """Leaves a run alone."""
        if (timer := self._runs.pop(run, None)) is not None:
            timer.cancel()

    async def quiet(self) -> None:
        """Waits for renewals that are on their way; those of a run that is left alone are the last ones then."""
        async with self._renewing:
            pass

    def look(self) -> None:
        """Renews a run again that was left alone."""
        self._changed.set()

    async def close(self) -> None:
        """Renews nothing any more."""
        for run in list(self._runs):
            self.remove(run)
        self._closed = True
        if self._beating is not None:
            # A wait_for that is cancelled at the moment it is answered swallows that, before Python 3.12.
            self._beating.cancel()
            await asyncio.wait((self._beating,))

    def _check_deadline(self, run: Run) -> None:
        if run not in self._runs:
            return
        if run.expired():
            self._lost(run, "deadline")
        else:
            loop = asyncio.get_running_loop()
            self._runs[run] = loop.call_later(run.deadline - time.monotonic(), self._check_deadline, run)

    async def _beat(self) -> None:
        while not self._closed:
            self._changed.clear()
            now = time.monotonic()
            beating = [run for run in self._runs if not run.stop.reason and run.alone is None]
            due = [run for run in beating if run.next_beat <= now]
            if due:
                async with self._renewing:
                    await self._renew([run for run in due if run.alone is None])
                continue
            soonest = min((run.next_beat for run in beating), default=None)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), None if soonest is None else soonest - now)

    async def _renew(self, due: list[Run]) -> None:
        if not due:
            return
        asked_at = time.monotonic()
        shortest = min(run.interval for run in due)
        try:
            # A call that hangs is given up: the runs that begin meanwhile need theirs.
            answers = await asyncio.wait_for(
                self._store.heartbeat([run.claim for run in due], lease=self._lease), timeout=shortest
            )
        except Exception as error:
            self._logger.warning("%d leases could not be renewed, trying again: %r", len(due), error)
            for run in due:
                run.next_beat = time.monotonic() + run.interval / RETRY
            return
        for run, answer in zip(due, answers, strict=True):
            run.next_beat = asked_at + run.interval
            if not isinstance(answer, LeaseLost):
                run.renewed(asked_at, self._lease)
            elif run in self._runs:
                self._lost(run, "heartbeat")
