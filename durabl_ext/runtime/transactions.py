"""A transaction beside heartbeats, logs and group commits, which all write to the job as well.

While it lasts the run is taken out of them: an outside heartbeat would make it fail, and once it has the job it would
hold up the heartbeats of all runs that are renewed in the same call. Its lease is made to last for it instead.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Generic, TypeVar

from durabl_ext.core.transaction import Transaction, is_transient
from durabl_ext.inside import job_here
from durabl_ext.outcomes import LeaseLost
from durabl_ext.runtime.access import transaction
from durabl_ext.runtime.hold import Hold
from durabl_ext.runtime.runs import Owner
from simplequeue.jobs import Session, run

T = TypeVar("T")

LIMIT = 60.0
"""Seconds that a transaction may take: what MongoDB gives one before it ends it (transactionLifetimeLimitSeconds).

It looks every half of that: one whose process was killed was there for 89 seconds (tried). Until then whoever writes to
the job waits, a sweep of a reaper included.
"""

BEYOND = 5.0
"""Seconds by which the lease outlives the transaction, so that its end is there before a reaper is."""

BEGINS = 10
"""How often a transaction is begun while somebody else writes to the job; with the pauses, for two seconds."""

PAUSE = 0.04


@asynccontextmanager
async def opened(hold: Hold) -> AsyncIterator[Transaction]:
    """Gives a transaction that has not begun, while nobody else of this process writes to the job.

    Raises:
        TransactionsUnsupportedError: There is none here.
        RunAborted: The claim is no longer this run's.
    """
    made = await transaction(hold.access, hold.claim)
    owner = Owner()
    hold.open = True
    before = job_here.set(hold.claim.job.id)
    try:
        await hold.there(hold.keeper.leave_alone(hold.run, owner))
        if hold.run.deadline - time.monotonic() < LIMIT + BEYOND and isinstance(
            await hold.renew(timedelta(seconds=LIMIT + BEYOND)), LeaseLost
        ):
            raise hold.lost()
        yield made
    finally:
        try:
            await hold.to_its_end(made.close())  # first: a heartbeat would wait for it, and those of other runs too
        finally:
            hold.open = False
            hold.tell(lambda: hold.keeper.take_back(hold.run, owner))
            job_here.reset(before)


async def begin(hold: Hold, made: Transaction) -> None:
    """Begins a transaction, again while somebody else writes to the job: nothing of it has been done yet.

    Raises:
        RunAborted: The claim is no longer this run's.
        PyMongoError: It cannot begin.
    """
    for left in reversed(range(BEGINS)):
        try:
            if await hold.to_its_end(made.begin()):
                return
        except Exception as error:
            await hold.to_its_end(made.abort())
            if not left or not is_transient(error):
                raise
        else:
            raise hold.lost()
        await hold.pause(PAUSE * (BEGINS - left))


@asynccontextmanager
async def completing(hold: Hold) -> AsyncIterator[Session]:
    """Gives a session whose writes commit together with the job's completion, at the end of the block.

    Raises:
        RuntimeError: The run has a transaction, or had one that completed its job.
    """
    if hold.open or hold.run.completed:
        state = "has completed the job" if hold.run.completed else "is open"
        raise RuntimeError(
            f"a transaction of job {hold.claim.job.id} {state}: a run has one, which ends it; put all writes into it"
        )
    async with opened(hold) as made:
        await begin(hold, made)
        yield made.session
        await hold.to_its_end(_complete(hold, made))


async def _complete(hold: Hold, made: Transaction) -> None:
    """Completes the job in a transaction and commits it."""
    if not made.session.in_transaction:
        raise RuntimeError(
            f"the block of job {hold.claim.job.id} ended the transaction itself: leave the commit to the end of the "
            "block, and raise to undo it"
        )
    lines = hold.run.taken_lines()
    hold.run.settling = True  # from here on a drain neither tells it to stop nor gives it back
    try:
        await made.log(lines)
        if not await made.complete(hold.claim.settled("complete")):
            raise RuntimeError(
                f"the block of job {hold.claim.job.id} ended or deleted the job itself: leave that to its end"
            )
        await made.commit()
    except BaseException:
        hold.run.settling = False
        hold.run.lines.extendleft(reversed(lines))
        raise
    hold.run.completed = True


class Waited(Generic[T]):
    """An asynchronous context manager whose coroutines never suspend, for a handler that waits."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager

    def __enter__(self) -> T:
        return run(self._manager.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return run(self._manager.__aexit__(kind, error, trace))
