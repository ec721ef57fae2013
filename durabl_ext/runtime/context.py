"""What a handler is given beside its job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from durabl_ext.errors import TransactionsUnsupportedError
from durabl_ext.job import DurableJob
from durabl_ext.runtime.hold import Hold
from durabl_ext.runtime.signal import AsyncSignal, Signal
from durabl_ext.runtime.transactions import Waited, completing


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a sync handler may ask and say while it runs.

    Attributes:
        signal: Tells it when it should end early.
        log: Adds a line to the job's own log, stored soon and before the run ends; never raises and never waits.
    """

    signal: Signal
    log: Callable[[str], None]
    _hold: Hold | None = field(default=None, repr=False)
    _job_id: str = field(default="(none)", repr=False)

    def transaction(self) -> AbstractContextManager[ClientSession]:
        """Gives a session in a ``with`` block: its writes, jobs it enqueues and this job's completion commit together.

        Where the block raises, nothing of it is stored and the run fails as any does. So it does where somebody else
        writes to the same documents at that time (a WriteConflict): a block cannot be run again by itself, so the
        attempt is spent and the next one finds the data as it is then. Jobs are enqueued with ``session=``; a dedupe
        key needs that ``startup`` was called before. An update of this very job needs ``session=`` too.

        For the time of the block the lease lasts at least 65 seconds, and MongoDB ends a transaction after 60 to 90: if
        this process dies in the middle, the job waits that long for its next run. Lines that are logged before the end
        of the block are stored with it; later ones are dropped, since the job has ended.

        Raises:
            TransactionsUnsupportedError: The server is no replica set, or the queue is in memory.
            RunAborted: The lease is lost. Let it pass.
            RuntimeError: This run has had a transaction already.
            pymongo.errors.PyMongoError: The transaction cannot begin or commit; nothing of it is stored. Let it pass,
                and the job is tried again.
        """
        return cast(AbstractContextManager[ClientSession], Waited(completing(held(self._hold, self._job_id))))


@dataclass(frozen=True, slots=True)
class AsyncJobContext:
    """What an ``async def`` handler may ask and say while it runs; as ``JobContext``."""

    signal: AsyncSignal
    log: Callable[[str], None]
    _hold: Hold | None = field(default=None, repr=False)

    def transaction(self) -> AbstractAsyncContextManager[AsyncClientSession]:
        """Gives a session in an ``async with`` block, as ``JobContext.transaction`` does.

        On a ``JobQueue`` it is a session of its client, whose calls wait.
        """
        return cast(AbstractAsyncContextManager[AsyncClientSession], completing(held(self._hold, "(none)")))


def held(hold: Hold | None, job_id: str) -> Hold:
    """A context's way to its job.

    Raises:
        TransactionsUnsupportedError: It has none.
    """
    if hold is None:
        reason = "its def handler cannot wait for the driver of an async queue"
        raise TransactionsUnsupportedError(job_id, reason, "make the handler async def")
    return hold


Handler = Callable[[DurableJob, Any], object]
AsyncHandler = Callable[[DurableJob, AsyncJobContext], Awaitable[object]]
