"""What the tests of the commands stand on: a queue to look at, and a shell that knows where it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pymongo.database import Database

from durabl_ext import JobHandle, JobQueue
from simplequeue import Queue, create_queue
from simplequeue_scripts.main import main

Shell = Callable[..., Result]


@pytest.fixture
def queue(db: Database[dict[str, Any]]) -> Queue:
    return create_queue(db)


@pytest.fixture
def durable(db: Database[dict[str, Any]]) -> JobQueue:
    """The same jobs, as the extension sees them."""
    jobs = JobQueue(db)
    jobs.startup()
    return jobs


@pytest.fixture
def environment(mongo_url: str, db: Database[dict[str, Any]]) -> dict[str, str]:
    """The environment of a shell in which the commands find the test's database."""
    return {"MONGO_URL": mongo_url, "SIMPLEQUEUE_DB": db.name}


@pytest.fixture
def shell(environment: dict[str, str]) -> Shell:
    """Runs ``simplequeue`` with the words of a command line, in this process."""

    def run(*words: str, input: str | bytes | None = None, **more: str | None) -> Result:
        result = CliRunner(env={**environment, **more}).invoke(main, words, input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception  # what a user would see as a traceback
        return result

    return run


def added(durable: JobQueue, action: str = "mail", **options: Any) -> str:
    """Enqueues a job and gives its id."""
    id = durable.enqueue(action, **options)
    assert id is not None
    return id


def begun(durable: JobQueue, action: str = "mail", **options: Any) -> JobHandle:
    """Starts a new job and gives its handle."""
    handle = durable.claim_or_enqueue(action, **options)
    assert handle is not None
    return handle


def failure(durable: JobQueue, action: str = "mail", error: str = "no", **options: Any) -> str:
    """Leaves a job that has failed for good and gives its id."""
    handle = begun(durable, action, **options)
    handle.fail_fatal(error)
    return handle.job.id


def minutes_apart(db: Database[dict[str, Any]], *ids: str) -> None:
    """Lets jobs have ended one after the other: on a fast machine several end in a millisecond."""
    for place, id in enumerate(ids):
        ended = datetime(2026, 1, 31, 12, place, tzinfo=UTC)
        assert db.job.update_one({"_id": id}, {"$set": {"finished_at": ended}}).modified_count == 1


def documents(result: Result) -> list[dict[str, Any]]:
    """What a command has printed with --json."""
    return [json.loads(line) for line in result.stdout.splitlines()]
