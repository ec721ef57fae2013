"""The default queue: set once, overridden for a block, restored exactly."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import (
    AsyncDummyBackend,
    AsyncJobQueue,
    DummyBackend,
    JobQueue,
    PayloadError,
    QueueShutdownError,
    create_job_queue,
    get_default_queue,
    get_global_backend,
    global_queue,
    set_global_backend,
    settings,
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_state", settings._State())


def test_without_a_default_the_error_names_what_sets_one() -> None:
    for ask in (get_default_queue, get_global_backend, create_job_queue):
        with pytest.raises(RuntimeError, match="set_global_backend"):
            ask()


def test_the_default_queue_is_one_and_has_the_options_that_were_set() -> None:
    backend = DummyBackend()
    set_global_backend(backend, visibility_timeout=60)
    queue = get_default_queue()
    assert isinstance(queue, JobQueue)
    assert get_default_queue() is queue
    assert queue.backend is backend is get_global_backend()
    assert queue._lease == timedelta(seconds=60)


def test_a_database_makes_the_backend_and_an_async_one_an_async_queue(db: Database[dict[str, Any]]) -> None:
    set_global_backend(db, collection="tasks")
    assert get_default_queue().enqueue("a") is not None
    assert db.tasks.count_documents({}) == 1
    set_global_backend(AsyncDummyBackend())
    assert isinstance(get_default_queue(), AsyncJobQueue)


def test_what_cannot_be_set_leaves_what_was_there() -> None:
    set_global_backend(DummyBackend())
    before = get_default_queue()
    with pytest.raises(PayloadError):
        set_global_backend(DummyBackend(), visibility_timeout=-1)
    with pytest.raises(TypeError):
        set_global_backend("app")
    assert get_default_queue() is before


def test_a_further_queue_has_the_options_that_are_set_but_for_those_given() -> None:
    backend, other = DummyBackend(), DummyBackend()
    set_global_backend(backend, visibility_timeout=60)
    further = create_job_queue()
    assert further is not get_default_queue()
    assert (further.backend, further._lease) == (backend, timedelta(seconds=60))
    assert create_job_queue(visibility_timeout=5)._lease == timedelta(seconds=5)
    elsewhere = create_job_queue(other)
    assert (elsewhere.backend, elsewhere._lease) == (other, timedelta(seconds=60))


def test_a_block_has_a_default_of_its_own_and_the_one_before_is_restored_untouched() -> None:
    set_global_backend(DummyBackend())
    before = get_default_queue()
    backend = DummyBackend()
    with global_queue(backend, visibility_timeout=7) as queue:
        assert get_default_queue() is queue
        get_default_queue().enqueue("a")
        with pytest.raises(RuntimeError, match="do not overlap"), global_queue(DummyBackend()):
            pass
    assert len(backend.jobs) == 1
    assert get_default_queue() is before
    with pytest.raises(QueueShutdownError):
        queue.start()
    before.start_reaper(60)
    before.shutdown()


def test_a_block_that_raises_restores_as_well() -> None:
    with pytest.raises(KeyError), global_queue(DummyBackend()):
        raise KeyError
    with pytest.raises(RuntimeError, match="set_global_backend"):
        get_default_queue()


def test_an_async_block_is_for_an_async_queue() -> None:
    async def main() -> None:
        async with global_queue(AsyncDummyBackend()) as queue:
            assert get_default_queue() is queue
            await queue.enqueue("a")
        with pytest.raises(TypeError, match="with global_queue"):
            async with global_queue(DummyBackend()):
                pass
        with pytest.raises(TypeError, match="async with global_queue"), global_queue(AsyncDummyBackend()):
            pass

    asyncio.run(main())
