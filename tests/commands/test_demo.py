"""``simplequeue demo``."""

from __future__ import annotations

import sys
import time

import pytest
from click.testing import CliRunner, Result

from simplequeue_scripts.demo import demo

STEPS = (
    "greet name=Ada        queued -> running",
    "greet name=Ada        running -> completed",
    "divide by=0           running -> failed",
    "greet name=nobody     queued -> cancelled",
    "ZeroDivisionError: division by zero",
)


CRASH = ("attempt 1, page 2 of 4", "is killed", "attempt 2, page 4 of 4", "report completed in attempt 2 of 3")


def shown() -> Result:
    result = CliRunner(env={"MONGO_URL": None, "SIMPLEQUEUE_DB": None}).invoke(demo)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_it_shows_jobs_pass_through_their_states_and_one_survive_the_death_of_its_worker() -> None:
    began = time.monotonic()
    result = shown()
    assert (result.exit_code, result.stderr) == (0, "")
    for step in (*STEPS, *CRASH):
        assert step in result.stdout
    assert "attempt 1, page 3" not in result.stdout
    table = result.stdout[result.stdout.index("ID  ") :].splitlines()[1:6]
    assert [line.split()[1] for line in table] == ["cancelled", "failed", "completed", "completed", "completed"]
    ids = [line.split()[0] for line in table]
    assert ids == sorted(ids, reverse=True)  # newest first, as ls has them
    assert time.monotonic() - began < 60  # it takes six seconds; a busy machine may take longer


def test_without_a_mongod_it_says_why_and_works_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGOD", "/missing/mongod")
    result = shown()
    assert result.exit_code == 0
    assert "MONGOD=/missing/mongod is not an executable file" in result.stderr
    assert "with mongomock" in result.stdout
    assert "is killed" not in result.stdout
    for step in STEPS:
        assert step in result.stdout


def test_with_neither_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGOD", "/missing/mongod")
    monkeypatch.setitem(sys.modules, "mongomock", None)
    result = shown()
    assert result.exit_code == 1
    assert "pip install mongomock" in result.stderr
