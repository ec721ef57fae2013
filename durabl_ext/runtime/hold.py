"""What a run lets its handler do with its own job, beside its work.

Made for each call of a handler, for the place where it runs. The run itself is managed elsewhere, on a loop that this
reaches by ``there``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol, Self, TypeVar, cast

from durabl_ext.claims import Claim
from durabl_ext.outcomes import LeaseLost, Renewed
from durabl_ext.runtime.access import Access, Accesses
from durabl_ext.runtime.runs import Owner, Run
from durabl_ext.runtime.signal import RunAborted
from simplequeue.threads import settled, tell

T = TypeVar("T")


class Keeper(Protocol):
    """Who manages a run: renews its lease and writes its log."""

    lease: timedelta

    async def leave_alone(self, run: Run, owner: Owner) -> None:
        """Writes nothing to the job from now on, until ``take_back`` by the same owner; one owner at a time."""

    def take_back(self, run: Run, owner: Owner) -> None:
        """Writes to the job again, if that owner had it left alone; one that has not yet is not given it any more."""

    def lost(self, run: Run, op: Literal["heartbeat", "journal"]) -> None:
        """Takes note that the claim is no longer this run's."""


@dataclass(frozen=True, slots=True)
class Managed:
    """A run and who manages it, for whoever calls its handler."""

    run: Run
    keeper: Keeper
    log: Callable[[str], None]
    loop: asyncio.AbstractEventLoop | None
    """Where it is managed; None when that is the thread that calls the handler."""


class Hold:
    """A handler's own way to its job.

    Args:
        managed: The run.
        ways: How calls are made.
        access: Which of these where the handler runs.

    Attributes:
        open: Whether a transaction of the handler has the job.
    """

    def __init__(self, managed: Managed, ways: Accesses, access: Access) -> None:
        self.run = managed.run
        self.keeper = managed.keeper
        self.log = managed.log
        self.access = access
        self.waits = access is ways.waiting
        self.open = False
        self._managed = managed
        self._ways = ways
        self._loop = managed.loop

    @classmethod
    def waiting(cls, managed: Managed, ways: Accesses) -> Self | None:
        """For a handler that waits in a thread; None where nothing can wait for the driver."""
        return None if ways.waiting is None else cls(managed, ways, ways.waiting)

    def in_thread(self) -> Self | None:
        """The same for what runs in a thread."""
        return self.waiting(self._managed, self._ways)

    @property
    def claim(self) -> Claim:
        """The claim."""
        return self.run.claim

    async def heartbeat(self) -> Renewed | LeaseLost:
        """Renews the lease now."""
        if self.run.alone is not None:  # its transaction has the job, and a lease that lasts for it
            return Renewed(await self.access.now() + timedelta(seconds=self.run.deadline - time.monotonic()))
        return await self.renew(self.keeper.lease)

    def lost(self) -> RunAborted:
        """Takes note that the claim is lost, and gives what to raise."""
        self.keeper.lost(self.run, "journal")
        return RunAborted("lease-lost")

    async def pause(self, seconds: float) -> None:
        """Waits."""
        if self.waits:
            threading.Event().wait(seconds)
        else:
            await asyncio.sleep(seconds)

    async def renew(self, lease: timedelta) -> Renewed | LeaseLost:
        """Has the lease last for so long from now, if it does not last longer already."""
        asked_at = time.monotonic()
        (answer,) = await self.access.heartbeat([self.claim], lease=lease)
        if isinstance(answer, LeaseLost):
            self.keeper.lost(self.run, "heartbeat")
        else:
            self.run.renewed(asked_at, lease)
        return answer

    async def there(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Has the loop that manages the run do something, and waits for it."""
        if self._loop is None:
            return await coroutine
        if self.waits:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        if asyncio.get_running_loop() is self._loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def to_its_end(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Awaits something that a cancellation must not cut off in the middle; it is raised afterwards.

        A call that is cut off goes on, in its thread or on the server: a commit whose answer nobody knows, or a
        transaction that begins after it was aborted and has the job until the server ends it.
        """
        if self.waits:
            return await coroutine
        task, cancelled = asyncio.ensure_future(settled(coroutine)), None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
        result, trouble = task.result()
        if cancelled is not None:
            raise cancelled from trouble
        if trouble is not None:
            raise trouble
        return cast(T, result)

    def tell(self, callback: Callable[[], object]) -> None:
        """Has that loop call something."""
        if self._loop is None or (not self.waits and asyncio.get_running_loop() is self._loop):
            callback()
        else:
            tell(self._loop, callback)
