"""What the tests of the commands stand on: a queue to look at, and a shell that knows where it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pymongo.database import Database

from simplequeue import Queue, create_queue
from simplequeue_scripts.main import main

Shell = Callable[..., Result]


@pytest.fixture
def queue(db: Database[dict[str, Any]]) -> Queue:
    return create_queue(db)


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


def documents(result: Result) -> list[dict[str, Any]]:
    """What a command has printed with --json."""
    return [json.loads(line) for line in result.stdout.splitlines()]
