"""What a transaction asks of the server, command by command; and the backends in memory, which have none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.monitoring import CommandListener

from durabl_ext import AsyncImmediateBackend, DummyBackend, ImmediateBackend, JobQueue
from tests.runtime.conftest import Runs
from tests.runtime.ways import WAYS, Way, block, made
from tests.watching import ended, until

DB = Database[dict[str, Any]]


class Commands(CommandListener):
    """Remembers the writes and the commands of transactions, and which of them are in one."""

    NAMES = ("hello", "insert", "update", "bulkWrite", "commitTransaction", "abortTransaction", "killSessions")

    def __init__(self) -> None:
        self.all: list[str] = []

    def started(self, event: Any) -> None:
        if event.command_name in self.NAMES:
            inside = event.command_name in ("insert", "update") and "autocommit" in event.command
            target = f" {event.command[event.command_name]}" if event.command_name in ("insert", "update") else ""
            self.all.append(f"{event.command_name}{target}{' inside' if inside else ''}")

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass


@pytest.fixture(params=WAYS)
def counted(request: pytest.FixtureRequest, db: DB, mongo_url: str) -> Iterator[tuple[Way, Commands]]:
    commands = Commands()
    one = Way(request.param, mongo_url, db.name, [commands])
    yield one, commands
    one.close()


BEGIN, ORDER, COMPLETE, COMMIT = "update job inside", "insert orders inside", "update job inside", "commitTransaction"


@pytest.mark.parametrize(
    ("lease", "data", "expected"),
    [
        (300, {}, [BEGIN, ORDER, COMPLETE, COMMIT]),
        (300, {"logs": 3}, [BEGIN, ORDER, "update job inside", COMPLETE, COMMIT]),
        (30, {}, ["update job", BEGIN, ORDER, COMPLETE, COMMIT]),  # the lease is made to last
        (300, {"raises": True}, [BEGIN, ORDER, "abortTransaction"]),
    ],
    ids=["usual", "with lines of log", "a short lease", "undone"],
)
def test_a_transaction_costs_three_commands_beside_its_own_and_no_other_end(
    db: DB, counted: tuple[Way, Commands], lease: float, data: dict[str, Any], expected: list[str]
) -> None:
    way, commands = counted
    ends: list[int] = []

    async def work(job: Any, ctx: Any) -> None:
        begin = len(commands.all)
        try:
            async with block(ctx) as session:
                await made(way.db.orders.insert_one({"_id": job.id}, session=session))
                for n in range(job.data.get("logs", 0)):
                    ctx.log(f"line {n}")
                if "raises" in job.data:
                    raise ValueError("halfway")
        finally:
            ends[:] = [begin, len(commands.all)]

    db.create_collection("orders")
    queue = way.open(visibility_timeout=lease)
    queue.process("a", way.handler(work))
    queue.start(reaper=False)
    first = queue.add()  # asks whether there are transactions
    until(ended(db.job, [first]))
    id = queue.add("a", data, max_attempts=1)
    until(ended(db.job, [id]))
    assert queue.shutdown(10) is True
    begin, end = ends
    assert commands.all[begin:end] == expected
    assert [name for name in commands.all[end:] if name != "hello"] == (["update job"] if "raises" in data else [])


@pytest.mark.parametrize("name", WAYS)
def test_in_memory_a_transaction_is_an_error_that_names_the_fixture_and_fails_the_job_for_good(
    name: str, mongo_url: str
) -> None:
    entered: list[object] = []

    async def work(job: Any, ctx: Any) -> None:
        async with block(ctx):
            entered.append(job)

    way = Way(name, mongo_url, "unused")
    try:
        queue = way.open(AsyncImmediateBackend() if way.is_async else ImmediateBackend())
        queue.process("a", way.handler(work))
        id = queue.add()
        job = queue.get(id)
        assert (job.status, job.failure_kind) == ("failed", "fatal")
        assert job.error["name"] == "TransactionsUnsupportedError"
        assert "mongo_replica_set" in job.error["message"]
        assert id in job.error["message"]
        assert entered == []
    finally:
        way.close()


def test_a_worker_on_a_backend_of_somebody_else_is_told_that_it_has_none() -> None:
    class Foreign:
        """A backend that only passes on."""

        def __init__(self) -> None:
            self._inner = DummyBackend()

        def __getattr__(self, name: str) -> Any:
            if name == "transaction":
                raise AttributeError(name)
            return getattr(self._inner, name)

        def claim_or_enqueue(self, *args: Any, **options: Any) -> Any:
            return self._inner.claim_or_enqueue(*args, **options)

    def work(job: Any, ctx: Any) -> None:
        with ctx.transaction():
            threading.Event().wait()

    backend: Any = Foreign()
    queue, seen = JobQueue(backend), Runs(work)
    queue.process("a", seen)
    id: Any = queue.enqueue("a")
    queue.start(reaper=False)
    try:
        until(lambda: queue.get(id).status == "failed")  # type: ignore[union-attr]
        job: Any = queue.get(id)
        assert "Foreign" in job.error["message"]
        assert "MongoJobQueue" in job.error["message"]
    finally:
        queue.shutdown(5)
