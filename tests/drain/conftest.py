"""Queues that run jobs, in both colours, and servers that a test may freeze, kill and make fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from durabl_ext.runtime import worker
from tests.drain.queues import Maker
from tests.listening.conftest import fail_command, own_db, server
from tests.runtime.ways import own_way, way

__all__ = ["fail_command", "own_db", "own_way", "server", "way"]


@pytest.fixture(autouse=True)
def writes_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a drain wait for its writes for as long as a busy machine takes: a test looks at what they stored."""
    monkeypatch.setattr(worker, "RELEASE", 30.0)


@pytest.fixture
def handlers_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for handlers that heed their signal: they have ended when the drain has."""
    monkeypatch.setattr(worker, "YIELD", 30.0)


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, mongo_url: str) -> Iterator[Maker]:
    """Makes queues of one colour; a test that takes it runs once in each."""
    maker = Maker(request.param, mongo_url)
    yield maker
    maker.end()
