"""Fixtures for pytest, which finds them through an entry point: a real MongoDB, and a queue on it.

Beside the packages, since pytest loads this at each start, in projects too that never ask for a fixture: importing it
imports nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pymongo import MongoClient

    from durabl_ext import JobQueue

SHUTDOWN = 5.0
"""Seconds that handlers have to end when their test has."""


@pytest.fixture(scope="session")
def mongo_replica_set() -> Iterator[MongoClient[dict[str, Any]]]:
    """A client of a private MongoDB with transactions and change streams, which ends with the test session.

    It needs a mongod: on the PATH, named by MONGOD, or that of the extra ``mongod``.
    """
    from simplequeue.embedded import mongod

    with mongod() as client:
        yield client


@pytest.fixture
def durable_queue(mongo_replica_set: MongoClient[dict[str, Any]]) -> Iterator[JobQueue]:
    """A JobQueue on a database of this test's own, shut down and dropped after it.

    The queue is not started: register processors, then ``start()`` it.
    """
    from uuid6 import uuid7

    from durabl_ext import JobQueue

    name = f"test_{uuid7().hex}"
    queue = JobQueue(mongo_replica_set[name])
    yield queue
    queue.shutdown(SHUTDOWN)
    mongo_replica_set.drop_database(name)
