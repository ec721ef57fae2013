"""Queues that run jobs, in both colours, and servers that a test may freeze, kill and make fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drain.queues import Maker
from tests.listening.conftest import fail_command, own_db, server

__all__ = ["fail_command", "own_db", "server"]


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, mongo_url: str) -> Iterator[Maker]:
    """Makes queues of one colour; a test that takes it runs once in each."""
    maker = Maker(request.param, mongo_url)
    yield maker
    maker.end()
