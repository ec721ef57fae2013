"""What the tests stand on: a real replica set, and a database of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import mongomock
import pytest
from hypothesis import HealthCheck, settings
from pymongo import MongoClient
from pymongo.database import Database
from uuid6 import uuid7

from simplequeue.embedded import MongodUnavailable
from tests.cells import CELLS, Cell
from tests.servers import QuickMongod

# On a busy machine any example may take its time. What else the profile says, as in CI, is kept.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def mongo_url() -> Iterator[str]:
    """The replica set of ``TEST_MONGO_URL``, or one that lives as long as the tests."""
    if given := os.environ.get("TEST_MONGO_URL"):
        yield given
    else:
        server = QuickMongod()
        with ExitStack() as stack:
            try:
                stack.enter_context(server)
            except MongodUnavailable as reason:
                pytest.exit(f"the tests need a MongoDB: {reason}", returncode=1)
            yield server.uri


@pytest.fixture(scope="session")
def client(mongo_url: str) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongo_url) as connected:
        yield connected


@pytest.fixture
def db(client: MongoClient[dict[str, Any]]) -> Iterator[Database[dict[str, Any]]]:
    """A database that no other test sees."""
    database = client[f"test_{uuid7().hex}"]
    yield database
    client.drop_database(database)


@pytest.fixture
def mock_db() -> Any:
    return mongomock.MongoClient().mock


@pytest.fixture(params=CELLS, ids=lambda open_cell: open_cell.__name__)
def cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    """One way to run the queue on one store; a test that takes it runs once in each cell."""
    mock = request.param.__name__.endswith("mongomock")
    database = request.getfixturevalue("mock_db" if mock else "db")
    with request.param(database, request.getfixturevalue("mongo_url")) as opened:
        yield opened
