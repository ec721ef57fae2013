"""An application with a session of its own, sync or asynchronous, behind one sync face."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from durabl_ext.options import Enqueue
from tests.core.conftest import Core


@dataclass
class Caller:
    """An application that writes orders, with a client of its own, and a rival beside it.

    Attributes:
        core: The decisions over the caller's client.
        rival: The same over another one.
        session: The caller's session.
    """

    core: Core
    rival: Core
    session: Any = field(init=False)

    def __post_init__(self) -> None:
        self._client = self.core.cell.jobs._collection.database.client
        self._orders = self.core.cell.jobs._collection.database.orders
        self.session = self._client.start_session()

    def made(self, answer: Any) -> Any:
        """What a call of a driver of either kind gives."""
        return self.core.cell.do(answer) if inspect.iscoroutine(answer) else answer

    def order(self) -> None:
        """Makes the caller's own write."""
        self.made(self._orders.insert_one({}, session=self.session))

    @property
    def orders(self) -> int:
        """How many orders the rival sees."""
        count: int = self.rival.cell.collection.database.orders.count_documents({})
        return count

    def enqueue(self, action: str = "a", data: Any = None, **options: Any) -> str | None:
        return self.core.enqueue_many(Enqueue(action, data, **options), session=self.session)[0]

    def begin(self) -> None:
        self.made(self.session.start_transaction())

    def commit(self) -> None:
        self.made(self.session.commit_transaction())

    def abort(self) -> None:
        self.made(self.session.abort_transaction())

    def with_transaction(self, body: Callable[[], None]) -> int:
        """Runs a body as the driver's helper does, and gives how often it did."""
        runs = 0

        def counted() -> None:
            nonlocal runs
            runs += 1
            assert runs <= 3, "the driver runs the transaction again and again"
            body()

        async def in_thread(session: Any) -> None:
            await asyncio.to_thread(counted)

        native = inspect.iscoroutinefunction(self.session.commit_transaction)
        self.made(self.session.with_transaction(in_thread if native else lambda session: counted()))
        return runs
