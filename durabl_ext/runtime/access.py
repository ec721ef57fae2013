"""How a handler's own calls reach the store from where the handler runs: waiting in its thread, or awaited on its loop.

Always coroutines. Those of a handler that waits never suspend, so that ``simplequeue.jobs.run`` runs them in one step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.claims import Claim
from durabl_ext.core.journal import Step
from durabl_ext.core.transaction import Transaction
from durabl_ext.errors import TransactionsUnsupportedError
from durabl_ext.mongo import MongoJobQueue
from durabl_ext.outcomes import Appended, LeaseLost, NotFound, Renewed
from simplequeue.collection import codec_of
from simplequeue.jobs import blocking
from simplequeue.payload import Codec
from simplequeue.threads import Threads


class Access(Protocol):
    """The calls that a run makes on its own job; ``AsyncBackend`` says what each does."""

    async def now(self) -> datetime: ...
    async def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewed | LeaseLost]: ...
    async def append_step(self, claim: Claim, step: Step) -> Appended | LeaseLost | NotFound: ...


@dataclass(frozen=True, slots=True)
class Accesses:
    """What handlers of one queue are given.

    Attributes:
        awaited: For those that await.
        waiting: For those that wait; None on an async queue, whose driver nothing can wait for.
    """

    awaited: Access
    waiting: Access | None


def accesses(backend: Backend, threads: Threads) -> Accesses:
    """The ways to a sync backend."""
    if isinstance(backend, MongoJobQueue):
        return Accesses(backend.through(threads), backend.here)
    return Accesses(_Called(backend, threads.run), _Called(backend, blocking))


def async_accesses(backend: AsyncBackend) -> Accesses:
    """The way to an async backend."""
    return Accesses(backend, None)


def codec(access: Access) -> Codec:
    """How the store encodes values: the driver's way, unless it says otherwise."""
    own: Codec = getattr(access, "codec", codec_of(None))
    return own


async def transaction(access: Access, claim: Claim) -> Transaction:
    """A transaction of a run.

    Raises:
        TransactionsUnsupportedError: The backend, or its server, has none.
    """
    make = getattr(access, "transaction", None)
    if make is None:
        name = type(access.backend if isinstance(access, _Called) else access).__qualname__
        raise TransactionsUnsupportedError(claim.job.id, f"its backend has none, a {name}", "use MongoJobQueue")
    made: Transaction = await make(claim)
    return made


class _Called:
    def __init__(self, backend: Backend, call: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self.backend = backend
        self._call = call

    async def now(self) -> datetime:
        now: datetime = await self._call(self.backend.now)
        return now

    async def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewed | LeaseLost]:
        renewed: list[Renewed | LeaseLost] = await self._call(lambda: self.backend.heartbeat(claims, lease=lease))
        return renewed

    async def append_step(self, claim: Claim, step: Step) -> Appended | LeaseLost | NotFound:
        answer: Appended | LeaseLost | NotFound = await self._call(lambda: self.backend.append_step(claim, step))
        return answer
