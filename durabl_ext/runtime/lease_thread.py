"""Heartbeats in a thread of their own, for a loop that handlers may block.

A coroutine that computes for a minute stops everything else on its loop, the renewal of its own lease included. Here
leases are renewed through a client of the sync driver, which that loop cannot touch.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

from durabl_ext.backends import Backend
from durabl_ext.runtime.heartbeats import Heartbeats, Lost
from durabl_ext.runtime.runs import Run
from durabl_ext.runtime.store import StoreInThreads
from simplequeue.threads import LoopThread, Threads


class LeaseThread:
    """Renews the leases of runs, as ``Heartbeats`` does, whatever the loop that made it does."""

    def __init__(self, backend: Backend, lease: timedelta, lost: Lost, logger: logging.Logger) -> None:
        self._threads = Threads("durabl-lease-call")
        self._loop = LoopThread("durabl-leases")

        async def made() -> Heartbeats:
            return Heartbeats(StoreInThreads(backend, self._threads), lease, lost, logger)

        self._heartbeats = self._loop.call(made())

    def add(self, run: Run) -> None:
        """Renews the lease of a run from now on, and watches over its deadline."""
        self._loop.tell(partial(self._heartbeats.add, run))

    def remove(self, run: Run) -> None:
        """Leaves a run alone."""
        self._loop.tell(partial(self._heartbeats.remove, run))

    async def quiet(self) -> None:
        """Waits for renewals that are on their way."""
        await self._loop.result(self._heartbeats.quiet())

    def look(self) -> None:
        """Renews a run again that was left alone."""
        self._loop.tell(self._heartbeats.look)

    async def close(self) -> None:
        """Renews nothing any more."""
        await self._loop.result(self._heartbeats.close())
        self._threads.close()
        self._loop.close()
