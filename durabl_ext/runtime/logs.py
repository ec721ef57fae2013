"""What runs log: gathered in the process, and written many lines at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from durabl_ext.runtime.runs import Run
from durabl_ext.runtime.store import Store
from simplequeue.threads import tell

FLUSH_AFTER = 1.0
"""Seconds for which a line of log may wait, so that many go in one write."""


class Logs:
    """Writes the lines of runs, of each some time after the first of them and at its end.

    Args:
        store: Where.
        runs: Those that are managed; of others nothing is written.
        logger: For warnings.
    """

    def __init__(self, store: Store, runs: Collection[Run], logger: logging.Logger) -> None:
        self._store = store
        self._runs = runs
        self._logger = logger
        self._flushes: dict[Run, asyncio.Task[None]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, run: Run, message: str) -> None:
        """Takes in a line, from any thread; ``loop`` is where all else here happens."""
        run.log(message)
        tell(loop, self._flush_soon, run)  # where it is closed there is no run any more

    def has(self, run: Run) -> bool:
        """Whether lines of a run wait to be written, or are on their way."""
        return bool(run.lines) or run.flushing.locked()

    async def flush(self, run: Run, *, last: bool = False) -> None:
        """Writes the lines that wait; what cannot be written at last is dropped, as a log fails no job."""
        async with run.flushing:  # the end must not overtake lines that are on their way
            lines = run.taken_lines()
            if not lines:
                return
            try:
                await self._store.log(run.claim, lines)
            except Exception as error:
                if last:
                    self._logger.warning("%d lines of the log of job %s are lost: %r", len(lines), run.job.id, error)
                else:
                    run.lines.extendleft(reversed(lines))

    def forget(self, run: Run) -> None:
        """Writes nothing of a run any more."""
        if (flush := self._flushes.pop(run, None)) is not None:
            flush.cancel()

    def _flush_soon(self, run: Run) -> None:
        if run in self._runs and run not in self._flushes:
            self._flushes[run] = asyncio.create_task(self._flush_later(run))

    async def _flush_later(self, run: Run) -> None:
        await asyncio.sleep(FLUSH_AFTER)
        del self._flushes[run]
        await self.flush(run)
