"""Heartbeats: for all runs of a process together, one call for those whose turn it is.

A failure is tried again soon and kills nothing. Whether a run still has its lease is judged by a clock of its own,
beside these calls: one that hangs must not keep a run from being told.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
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
        self._runs: set[Run] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._watched_until = math.inf
        self._sleeps_until = 0.0
        self._changed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._closed = False
        self._renewing = asyncio.Lock()

    def add(self, run: Run) -> None:
        """Renews the lease of a run from now on, and watches over its deadline."""
        self._runs.add(run)
        if run.deadline < self._watched_until:  # of those that come together only the first
            self._watched_until = run.deadline
            asyncio.get_running_loop().call_soon(self._check_deadlines)
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        elif run.next_beat < self._sleeps_until:
            self._changed.set()

    def remove(self, run: Run) -> None:
        """Leaves a run alone."""
        self._runs.discard(run)

    async def quiet(self) -> None:
        """Waits for renewals that are on their way; those of a run that is left alone are the last ones then."""
        async with self._renewing:
            pass

    def look(self) -> None:
        """Renews a run again that was left alone."""
        self._changed.set()

    async def close(self) -> None:
        """Renews nothing any more."""
        self._runs.clear()
        if self._watch is not None:
            self._watch.cancel()
        self._closed = True
        if self._beating is not None:
            # A wait_for that is cancelled at the moment it is answered swallows that, before Python 3.12.
            self._beating.cancel()
            await asyncio.wait((self._beating,))

    def _check_deadlines(self) -> None:
        """Tells those whose lease may have ended, and comes again when the next one may have."""
        now, loop = time.monotonic(), asyncio.get_running_loop()
        for run in [run for run in self._runs if run.deadline <= now]:
            self._lost(run, "deadline")
        if self._watch is not None:
            self._watch.cancel()
        if self._closed:
            return
        self._watched_until = min((run.deadline for run in self._runs if run.deadline > now), default=math.inf)
        left = self._watched_until - now
        self._watch = None if left == math.inf else loop.call_later(left, self._check_deadlines)

    async def _beat(self) -> None:
        while not self._closed:
            self._changed.clear()
            now = time.monotonic()
            # No list of them may live on here while it sleeps: runs that are over would be kept, with their payloads.
            due = [run for run in self._beating_runs() if run.next_beat <= now]
            if due:
                async with self._renewing:
                    await self._renew([run for run in due if run.alone is None])
                continue
            self._sleeps_until = min((run.next_beat for run in self._beating_runs()), default=math.inf)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._sleeps_until == math.inf else self._sleeps_until - now):
                    await self._changed.wait()
            self._sleeps_until = 0.0

    def _beating_runs(self) -> Iterator[Run]:
        return (run for run in self._runs if not run.stop.reason and run.alone is None)

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
        self._check_deadlines()
