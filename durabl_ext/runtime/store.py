"""What the runtime asks of a backend, whichever way that is called.

An asynchronous backend is taken as it is; each call of a sync one is made in a daemon thread, for which a loop waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from durabl_ext.backends import Backend
from durabl_ext.claims import Claim
from durabl_ext.core.plans import Settlement
from durabl_ext.core.recover import Recovered
from durabl_ext.job import LogLine
from durabl_ext.outcomes import Appended, LeaseLost, NoRoom, Renewed, Settled
from simplequeue.jobs import Stream
from simplequeue.threads import Threads

Watch = Callable[[], Awaitable[Stream]]


class Store(Protocol):
    """The calls that the runtime makes; ``AsyncBackend`` says what each does."""

    async def now(self) -> datetime: ...
    async def claim(
        self,
        actions: Collection[str] | Mapping[str, int],
        limit: int | None = None,
        *,
        lease: timedelta,
        adopt: Mapping[str, int] | None = None,
    ) -> list[Claim]: ...
    async def next_due(self, actions: Collection[str], after: datetime) -> datetime | None: ...
    async def claim_by_key(self, action: str, dedupe_key: str, *, lease: timedelta) -> Claim | None: ...
    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]: ...
    async def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewed | LeaseLost]: ...
    async def log(self, claim: Claim, lines: Sequence[LogLine]) -> Appended | LeaseLost | NoRoom: ...
    async def recover(self, limit: int = 1_000) -> Recovered: ...
    async def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> Any: ...


class SettleAndClaim(Protocol):
    """Ends claims and starts others in their slots, in one write; ``MongoJobQueue`` says how. No backend has to."""

    async def __call__(
        self,
        settlements: Sequence[Settlement],
        actions: Mapping[str, int],
        *,
        lease: timedelta,
        adopt: Mapping[str, int] | None = None,
    ) -> tuple[list[Settled | Exception], list[Claim]]: ...


def settle_and_claim_of(store: Store) -> SettleAndClaim | None:
    """What a store has for it, None where it settles and claims in two calls."""
    return getattr(store, "settle_and_claim", None)


class StoreInThreads:
    """Makes the calls of a sync backend in threads."""

    def __init__(self, backend: Backend, threads: Threads) -> None:
        self._backend = backend
        self._threads = threads
        both = getattr(backend, "settle_and_claim", None)
        self.settle_and_claim = None if both is None else partial(self._settle_and_claim, both)

    async def now(self) -> datetime:
        return await self._threads.run(self._backend.now)

    async def claim(
        self,
        actions: Collection[str] | Mapping[str, int],
        limit: int | None = None,
        *,
        lease: timedelta,
        adopt: Mapping[str, int] | None = None,
    ) -> list[Claim]:
        return await self._threads.run(lambda: self._backend.claim(actions, limit, lease=lease, adopt=adopt))

    async def next_due(self, actions: Collection[str], after: datetime) -> datetime | None:
        return await self._threads.run(lambda: self._backend.next_due(actions, after))

    async def claim_by_key(self, action: str, dedupe_key: str, *, lease: timedelta) -> Claim | None:
        return await self._threads.run(lambda: self._backend.claim_by_key(action, dedupe_key, lease=lease))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._threads.run(lambda: self._backend.settle(settlements))

    async def heartbeat(self, claims: Sequence[Claim], *, lease: timedelta) -> list[Renewed | LeaseLost]:
        return await self._threads.run(lambda: self._backend.heartbeat(claims, lease=lease))

    async def log(self, claim: Claim, lines: Sequence[LogLine]) -> Appended | LeaseLost | NoRoom:
        return await self._threads.run(lambda: self._backend.log(claim, lines))

    async def recover(self, limit: int = 1_000) -> Recovered:
        return await self._threads.run(lambda: self._backend.recover(limit))

    async def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> Any:
        return await self._threads.run(lambda: self._backend.sweep(before, limit=limit))

    async def _settle_and_claim(self, both: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return await self._threads.run(lambda: both(*args, **options))
