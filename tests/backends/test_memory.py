"""The backends in memory: what users' unit tests rely on."""

from __future__ import annotations

import asyncio
import sys
from uuid import UUID

import pytest

from durabl_ext import AsyncDummyBackend, AsyncImmediateBackend, AsyncJobQueue, DummyBackend, ImmediateBackend, JobQueue
from simplequeue import Status
from tests.backends.conftest import LEASE


def test_a_dummy_backend_records_what_was_enqueued_in_order() -> None:
    backend = DummyBackend()
    queue = JobQueue(backend)
    first = queue.enqueue("mail", {"to": "ada"}, dedupe_key="mail:ada")
    assert queue.enqueue("mail", {"to": "ada"}, dedupe_key="mail:ada") is None
    second = queue.enqueue("sync", priority=-1, delay=60)
    assert [job.id for job in backend.jobs] == [first, second]
    job = backend.jobs[0]
    assert (job.action, job.data, job.status, job.dedupe_key) == ("mail", {"to": "ada"}, Status.QUEUED, "mail:ada")


def test_a_dummy_backend_honours_times_and_priorities() -> None:
    backend = DummyBackend()
    queue = JobQueue(backend)
    queue.enqueue("a", {"n": "later"}, delay=60)
    queue.enqueue("a", {"n": "second"}, priority=1)
    queue.enqueue("a", {"n": "first"}, priority=0)
    claims = backend.claim(["a"], 5, lease=LEASE)
    assert [claim.job.data["n"] for claim in claims] == ["first", "second"]


def test_two_backends_in_memory_share_nothing() -> None:
    one, other = DummyBackend(), DummyBackend()
    JobQueue(one).enqueue("a")
    assert other.jobs == []


def test_an_async_queue_has_a_backend_in_memory_too() -> None:
    async def main() -> None:
        backend = AsyncDummyBackend()
        queue = AsyncJobQueue(backend)
        id = await queue.enqueue("a", {"n": 1})
        assert [job.id for job in backend.jobs] == [id]
        immediate = AsyncImmediateBackend()
        later = await AsyncJobQueue(immediate).enqueue("a", delay=1_000)
        assert later is not None
        assert (await immediate.claim_by_id(later, lease=LEASE)) is not None

    asyncio.run(main())


def test_an_immediate_backend_starts_a_job_whatever_its_time() -> None:
    backend = ImmediateBackend()
    id = JobQueue(backend).enqueue("a", delay=1_000)
    assert id is not None
    claim = backend.claim_by_id(UUID(id), lease=LEASE)
    assert claim is not None
    assert claim.job.status is Status.RUNNING
    assert backend.claim_by_id(id, lease=LEASE) is None
    assert backend.claim_by_id("no-uuid", lease=LEASE) is None


def test_without_mongomock_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mongomock", None)
    with pytest.raises(ImportError, match="pip install mongomock"):
        DummyBackend()
