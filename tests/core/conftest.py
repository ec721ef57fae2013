"""What the tests of the extension's decisions stand on: a cell with all indexes, and short words for the decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from durabl_ext.core import claim as claiming
from durabl_ext.core.enqueue import enqueue
from durabl_ext.core.indexes import ALL
from durabl_ext.core.leases import heartbeat
from durabl_ext.core.plans import How, Settlement
from durabl_ext.core.recover import Recovered, recover
from durabl_ext.core.settle import settle
from durabl_ext.job import DurableJob, durable_from
from durabl_ext.options import Enqueue, checked
from durabl_ext.outcomes import Settled
from simplequeue.failure import StoredError
from simplequeue.jobs import Session
from tests.cells import Cell, blocking_on_mongod, native_on_mongod, threaded_on_mongod
from tests.plans import Explainer, Plan

LEASE = timedelta(seconds=300)
FAILURE: StoredError = {"name": "ValueError", "message": "no", "stack": "…"}
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
BATCH = 16


@dataclass
class Core:
    """The decisions in one cell, as plain calls."""

    cell: Cell
    uniform: Callable[[float, float], float] = lambda low, high: low
    tokens: Any = field(default_factory=lambda: (f"token{n}" for n in count()))

    def enqueue(self, action: str = "a", data: Mapping[str, Any] | None = None, **options: Any) -> str | None:
        return self.enqueue_many(Enqueue(action, data, **options))[0]

    def enqueue_many(self, *asked: Enqueue, session: Session | None = None) -> list[str | None]:
        requests = [checked(one, self.cell.jobs.codec) for one in asked]
        ids: list[str | None] = self.cell.do(enqueue(self.cell.jobs, requests, session))
        return ids

    def claim(
        self, *actions: str, limit: int = 1, adopt: Mapping[str, int] | None = None, lease: timedelta = LEASE
    ) -> list[tuple[DurableJob, str]]:
        terms = claiming.Terms(next(self.tokens), lease, adopt or {})
        claimed = self.cell.do(claiming.claim(self.cell.jobs, dict.fromkeys(actions or ("a",), limit), limit, terms))
        assert not claimed.doubtful
        return [(job, terms.token) for job in claimed.jobs]

    def claim_one(self, *actions: str) -> tuple[DurableJob, str]:
        (claimed,) = self.claim(*actions)
        return claimed

    def settle(self, claimed: tuple[DurableJob, str], how: How, **more: Any) -> Settled:
        return self.settle_all([(claimed, how)], **more)[0]

    def settle_all(self, endings: list[tuple[tuple[DurableJob, str], How]], **more: Any) -> list[Settled]:
        settlements = [
            Settlement(*claimed, how, error=None if how in ("complete", "release") else FAILURE, **more)
            for claimed, how in endings
        ]
        outcomes: list[Settled] = self.cell.do(settle(self.cell.jobs, settlements, self.uniform))
        return outcomes

    def heartbeat(self, *claims: tuple[DurableJob, str], lease: timedelta = LEASE) -> list[Any]:
        pairs = [(job.id, token) for job, token in claims]
        outcomes: list[Any] = self.cell.do(heartbeat(self.cell.jobs, pairs, lease))
        return outcomes

    def recover(self, limit: int = 1_000) -> Recovered:
        recovered: Recovered = self.cell.do(recover(self.cell.jobs, limit, self.uniform))
        return recovered

    def get(self, id: str | None) -> DurableJob:
        return durable_from(self.stored(id))

    def stored(self, id: str | None) -> dict[str, Any]:
        stored: dict[str, Any] = self.cell.do(self.cell.jobs.find_one({"_id": id}))
        return stored

    def change(self, id: str | None, **fields: Any) -> None:
        """Changes a stored job past every decision; a double underscore stands for a dot."""
        changes = {name.replace("__", "."): value for name, value in fields.items()}
        assert self.cell.collection.update_one({"_id": id}, {"$set": changes}).matched_count == 1

    def make_due(self, id: str | None) -> None:
        self.change(id, durable__run_at=LONG_AGO)

    def expire(self, id: str | None) -> None:
        self.change(id, durable__lease_expires_at=LONG_AGO)


@dataclass
class Explained:
    """The decisions on a server, with a look at what they cost."""

    core: Core
    explainer: Explainer

    def costs(self, decide: Callable[[], object]) -> list[Plan]:
        """Runs a decision and gives the plans of its commands: no scan of the collection, no sort, no second choice."""
        _, plans = self.explainer.of(decide)
        for plan in plans:
            assert not {"COLLSCAN", "SORT"} & set(plan.stages), plan
            # The look for one job names no index; the wrong ones lose as soon as they have anything to walk over.
            assert plan.rejected == 0 or (plan.command == "find" and plan.keys <= 1), plan
        return plans

    def do(self, decision: Any) -> list[Plan]:
        return self.costs(lambda: self.core.cell.do(decision))

    def claim(self, *actions: str) -> list[Plan]:
        return self.costs(lambda: self.core.claim(*actions, limit=BATCH))


def indexed(cell: Cell) -> Core:
    """The decisions in a cell that has all indexes."""
    for index in ALL:
        cell.do(cell.jobs.ensure_index(index))
    return Core(cell)


@pytest.fixture
def core(cell: Cell) -> Core:
    return indexed(cell)


@pytest.fixture(params=[blocking_on_mongod, threaded_on_mongod, native_on_mongod], ids=lambda cell: cell.__name__)
def real_core(request: pytest.FixtureRequest, db: Database[dict[str, Any]], mongo_url: str) -> Iterator[Core]:
    """The decisions in the cells with a server, for what mongomock cannot even store."""
    with request.param(db, mongo_url) as cell:
        yield indexed(cell)


@pytest.fixture
def on_server(db: Database[dict[str, Any]], mongo_url: str) -> Iterator[Explained]:
    explainer = Explainer(db)
    with (
        MongoClient[dict[str, Any]](mongo_url, event_listeners=[explainer]) as client,
        blocking_on_mongod(client[db.name], mongo_url) as cell,
    ):
        yield Explained(indexed(cell), explainer)
