"""What is believed after a write of which no majority has said that it has it, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import BulkWriteError, PyMongoError, WriteError
from pymongo.monitoring import CommandListener, CommandStartedEvent

from durabl_ext.core import claim as claiming
from durabl_ext.core.plans import How
from durabl_ext.outcomes import Completed, Released, RetryScheduled
from simplequeue.jobs import run
from simplequeue.states import Status
from tests import cells
from tests.core.conftest import LEASE, Core, indexed


class Reads(CommandListener):
    """Notes the read concern of every find."""

    def __init__(self) -> None:
        self.levels: list[str | None] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.levels.append(event.command.get("readConcern", {}).get("level"))

    def succeeded(self, event: object) -> None:
        """Nothing to note."""

    def failed(self, event: object) -> None:
        """Nothing to note."""


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def core(db: Database[dict[str, Any]], mongo_url: str, reads: Reads) -> Iterator[Core]:
    with (
        MongoClient[dict[str, Any]](mongo_url, event_listeners=[reads], appName=db.name) as client,
        cells.blocking_on_mongod(client[db.name], mongo_url) as cell,
    ):
        yield indexed(cell)


def leave_the_next_update_without_a_majority(db: Database[dict[str, Any]]) -> None:
    failure = {"code": 64, "errmsg": "waiting for replication timed out"}
    data = {"failCommands": ["update"], "writeConcernError": failure, "appName": db.name}
    db.client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)


@contextmanager
def refusing_each_update(db: Database[dict[str, Any]]) -> Iterator[None]:
    """The server answers in time, and says of each update for itself that it has an error of its own."""
    db.client.admin.command("configureFailPoint", "failAllUpdates", mode="alwaysOn")
    try:
        yield
    finally:
        db.client.admin.command("configureFailPoint", "failAllUpdates", mode="off")


@pytest.mark.parametrize("how", ["complete", "fail", "release"])
def test_a_run_is_not_failed_for_what_the_server_is_to_blame_for(
    core: Core, db: Database[dict[str, Any]], how: How
) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    with refusing_each_update(db), pytest.raises((WriteError, BulkWriteError)):
        core.settle(claimed, how)
    assert core.get(id).status is Status.RUNNING
    outcome = core.settle(claimed, how)
    assert type(outcome) is {"complete": Completed, "fail": RetryScheduled, "release": Released}[how]


def test_a_dead_run_is_not_failed_for_what_the_server_is_to_blame_for(core: Core, db: Database[dict[str, Any]]) -> None:
    id = core.enqueue()
    core.claim_one()
    core.expire(id)
    with refusing_each_update(db), pytest.raises((WriteError, BulkWriteError)):
        core.recover()
    assert core.recover().handled == 1
    assert core.get(id).status is Status.QUEUED


def test_a_settle_in_doubt_asks_a_majority_and_says_completed_or_that_it_does_not_know(
    core: Core, db: Database[dict[str, Any]], reads: Reads
) -> None:
    core.enqueue()
    claimed = core.claim_one()
    reads.levels.clear()
    leave_the_next_update_without_a_majority(db)
    with suppress(PyMongoError):
        assert core.settle(claimed, "complete") == Completed()
    assert reads.levels == ["majority"]
    assert core.settle(claimed, "complete") == Completed()


def test_a_claim_in_doubt_asks_a_majority_and_says_that_there_may_be_more(
    core: Core, db: Database[dict[str, Any]], reads: Reads
) -> None:
    id = core.enqueue()
    leave_the_next_update_without_a_majority(db)
    claimed = run(claiming.claim(core.cell.jobs, {"a": 1}, 1, claiming.Terms("t", LEASE, {})))
    assert [job.id for job in claimed.jobs] in ([], [id])  # as a majority had it at that moment
    assert claimed.doubtful
    assert reads.levels[-1] == "majority"
    assert set(reads.levels[:-1]) == {None}
    assert core.stored(id)["durable"]["token"] == "t"


def test_where_no_write_was_in_doubt_the_primary_is_believed(core: Core, reads: Reads) -> None:
    core.enqueue()
    claimed = core.claim_one()
    core.settle(claimed, "complete")
    core.settle(claimed, "complete")
    assert set(reads.levels) == {None}
