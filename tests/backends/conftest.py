"""A backend in each cell, with a sync face."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from durabl_ext import AsyncMongoJobQueue, Claim, Enqueue
from tests.cells import Cell

LEASE = 300.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass
class Face:
    """Calls the methods of an asynchronous backend in its cell."""

    cell: Cell
    inner: AsyncMongoJobQueue

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.inner, name)
        return lambda *args, **options: self.cell.do(method(*args, **options))

    def add(self, action: str = "a", data: Any = None, **options: Any) -> str:
        (id,) = self.enqueue([Enqueue(action, data, **options)])
        assert isinstance(id, str)
        return id

    def start(self, *actions: str, limit: int = 1) -> list[Claim]:
        claims: list[Claim] = self.claim(actions or ("a",), limit, lease=LEASE)
        return claims

    def change(self, id: str, **fields: Any) -> None:
        """Changes a stored job past every decision; a double underscore stands for a dot."""
        changes = {name.replace("__", "."): value for name, value in fields.items()}
        assert self.cell.collection.update_one({"_id": id}, {"$set": changes}).matched_count == 1


@pytest.fixture
def backend(cell: Cell) -> Face:
    return Face(cell, AsyncMongoJobQueue.on(cell.jobs))
