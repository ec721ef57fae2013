"""How a run under test reaches the store: as any run does, past a ``Watch``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from durabl_ext.claims import Claim
from durabl_ext.core.journal import Step
from durabl_ext.core.transaction import Transaction
from durabl_ext.decisions import Decisions
from durabl_ext.outcomes import Appended, LeaseLost, NotFound, Renewed
from durabl_ext.runtime.access import Accesses
from durabl_ext.testing import stage
from durabl_ext.testing.watch import Watch
from simplequeue.jobs import Session
from simplequeue.payload import Codec

OnLoop = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]


def watched(watch: Watch, awaited: Decisions, waiting: Decisions, now: datetime) -> Accesses:
    """The ways of one run to the store.

    Args:
        watch: What sees it write.
        awaited: The store for what awaits.
        waiting: The store for what waits in a thread.
        now: What the time is.
    """
    return Accesses(_Watched(watch, awaited, now, _here), _Watched(watch, waiting, now, _there))


async def _here(coroutine: Coroutine[Any, Any, None]) -> None:
    await coroutine


async def _there(coroutine: Coroutine[Any, Any, None]) -> None:
    stage.wait_for(coroutine)


class _Watched:
    """An ``Access``."""

    def __init__(self, watch: Watch, own: Decisions, now: datetime, on_loop: OnLoop) -> None:
        self._watch = watch
        self._own = own
        self._now = now
        self._on_loop = on_loop

    @property
    def codec(self) -> Codec:
        return self._own.codec

    async def now(self) -> datetime:
        return self._now

    async def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewed | LeaseLost]:
        self._watch.check()
        return await self._own.heartbeat(claims, lease=lease)

    async def append_step(self, claim: Claim, step: Step) -> Appended | LeaseLost | NotFound:
        return await self._watch.around(step, lambda: self._own.append_step(claim, step), self._on_loop)

    async def transaction(self, claim: Claim) -> Transaction:
        made = _WatchedTransaction(self._watch, await self._own.transaction(claim), self._on_loop)
        return cast(Transaction, made)


class _WatchedTransaction:
    """What a step does with a ``Transaction``."""

    def __init__(self, watch: Watch, own: Transaction, on_loop: OnLoop) -> None:
        self.session: Session = own.session
        self._watch = watch
        self._own = own
        self._on_loop = on_loop
        self._step: Step

    async def begin(self) -> bool:
        return await self._own.begin()

    async def append(self, step: Step) -> Appended | LeaseLost | NotFound:
        self._step = step
        return await self._own.append(step)

    async def commit(self) -> None:
        await self._watch.around(self._step, self._own.commit, self._on_loop, self._own.abort)

    async def abort(self) -> None:
        await self._own.abort()

    async def close(self) -> None:
        await self._own.close()
