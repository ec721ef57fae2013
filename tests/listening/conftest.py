"""Servers that a test may freeze, kill and make fail: always of its own, whatever TEST_MONGO_URL says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from uuid6 import uuid7

from simplequeue.embedded import Mongod
from tests.servers import QuickMongod

FailCommand = Callable[..., AbstractContextManager[Callable[[], int]]]


@pytest.fixture(scope="module")
def server() -> Iterator[Mongod]:
    """A replica set of one member that no other module shares."""
    started = QuickMongod()
    with started:
        yield started


@pytest.fixture
def own_db(server: Mongod) -> Iterator[Database[dict[str, Any]]]:
    """A database on that server, through a client that gives up after two seconds without one."""
    with MongoClient[dict[str, Any]](server.uri, serverSelectionTimeoutMS=2_000) as client:
        yield client[f"test_{uuid7().hex}"]


@pytest.fixture
def fail_command(own_db: Database[dict[str, Any]]) -> FailCommand:
    """Has the server fail commands as told; gives a function that says how often it has."""
    admin = own_db.client.admin
    failpoint = {"configureFailPoint": "failCommand"}

    @contextmanager
    def failing(commands: list[str], times: int, **how: Any) -> Iterator[Callable[[], int]]:
        already = admin.command({**failpoint, "mode": {"times": times}, "data": {"failCommands": commands, **how}})[
            "count"
        ]

        def count() -> int:
            state = admin.command({"getParameter": 1, "failpoint.failCommand": 1})["failpoint.failCommand"]
            return int(state["timesEntered"]) - int(already)

        try:
            yield count
        finally:
            admin.command({**failpoint, "mode": "off"})

    return failing
