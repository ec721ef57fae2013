"""``simplequeue stats``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Queue
from tests.commands.conftest import Shell, added, begun, documents, failure
from tests.commands.processes import shown_at_a_terminal
from tests.commands.profile import profiled

Db = Database[dict[str, Any]]
NO_KIND = {"retries-exhausted": 0, "fatal": 0, "stalled": 0}


@pytest.fixture
def jobs_of_all_kinds(durable: JobQueue, queue: Queue, db: Db) -> None:
    """Three actions: one that is 40 minutes late and fails, one that is at work, one of plain jobs."""
    late = added(durable, "mail", priority=5)
    now = db.command("hello")["localTime"]
    db.job.update_one({"_id": late}, {"$set": {"durable.run_at": now - timedelta(minutes=40, seconds=5)}})
    added(durable, "mail", delay=3_600)
    failure(durable, "mail")
    failure(durable, "mail")
    begun(durable, "mail", max_attempts=1).fail("no")
    begun(durable, "sync").complete()
    begun(durable, "sync")
    queue.cancel(queue.add("greet").id)


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_it_counts_each_action_and_all(shell: Shell) -> None:
    result = shell("stats")
    assert (result.exit_code, result.stderr) == (0, "")
    titles, *rows = [line.split() for line in result.stdout.partition("\n\n")[0].splitlines()]
    assert titles == ["ACTION", "LAG", "QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "SUPERSEDED"]
    assert [row[:1] + row[2:] for row in rows] == [
        ["greet", "0", "0", "0", "0", "1", "0"],
        ["mail", "2", "0", "0", "3", "0", "0"],
        ["sync", "0", "1", "1", "0", "0", "0"],
        ["TOTAL", "2", "1", "1", "3", "1", "0"],
    ]
    assert [row[1][:3] for row in rows] == ["-", "40m", "-", "40m"]


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_it_says_why_jobs_have_failed_where_some_have(shell: Shell) -> None:
    assert [line.split() for line in shell("stats").stdout.partition("\n\n")[2].splitlines()] == [
        ["ACTION", "FAILED", "RETRIES-EXHAUSTED", "FATAL", "STALLED"],
        ["mail", "3", "1", "2", "0"],
        ["TOTAL", "3", "1", "2", "0"],
    ]
    assert "RETRIES-EXHAUSTED" not in shell("stats", "sync").stdout


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_with_json_it_prints_numbers(shell: Shell) -> None:
    greet, mail, sync, total = documents(shell("stats", "--json"))
    assert [counts["action"] for counts in (greet, mail, sync, total)] == ["greet", "mail", "sync", None]
    assert mail["failed_by_kind"] == {"retries-exhausted": 1, "fatal": 2, "stalled": 0}
    assert 2_400 < mail["oldest_queued_lag"] <= total["oldest_queued_lag"] < 3_600
    assert mail["oldest_queued_run_at"] == total["oldest_queued_run_at"]
    assert sync == {
        "action": "sync",
        "queued": 0,
        "running": 1,
        "completed": 1,
        "failed": 0,
        "cancelled": 0,
        "superseded": 0,
        "failed_by_kind": NO_KIND,
        "oldest_queued_run_at": None,
        "oldest_queued_lag": 0.0,
    }


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_named_actions_are_shown_alone_and_once_also_without_jobs(shell: Shell) -> None:
    rows = [line.split() for line in shell("stats", "unknown", "mail", "unknown").stdout.splitlines()]
    assert [row[0] for row in rows if row] == ["ACTION", "unknown", "mail", "ACTION", "mail"]
    assert rows[1] == ["unknown", "-", "0", "0", "0", "0", "0", "0"]


def test_without_any_job_the_total_is_nothing(shell: Shell) -> None:
    result = shell("stats")
    assert (result.exit_code, result.stdout.splitlines()[1].split()) == (0, ["TOTAL", "-", *["0"] * 6])


def test_what_another_program_stored_as_an_action_counts_in_the_total_only(shell: Shell, queue: Queue, db: Db) -> None:
    for spoiled in (None, 5, "", ["list"], "x" * 1_001):
        db.job.update_one({"_id": queue.add("greet").id}, {"$set": {"action": spoiled}})
    queue.add("greet")
    assert [(counts["action"], counts["queued"]) for counts in documents(shell("--json", "stats"))] == [
        ("greet", 1),
        ("list", 1),
        (None, 6),
    ]


@pytest.mark.parametrize("words", [[""], ["\udcff"], ["x" * 1_001], ["--kind", "fatal"]])
def test_wrong_usage_is_told(shell: Shell, words: list[str]) -> None:
    result = shell("stats", *words)
    assert (result.exit_code, result.stdout) == (2, "")


def test_it_reads_indexes_and_never_the_collection(shell: Shell, queue: Queue, db: Db) -> None:
    queue.add_many([(f"action-{n % 10}", {}) for n in range(3_000)])
    for status, share in (("completed", 3), ("failed", 4), ("running", 5)):
        ids = [job["_id"] for job in db.job.find({"status": "queued"}, limit=3_000 // share)]
        times = {"started_at": "$created_at", "finished_at": "$created_at"}
        db.job.update_many({"_id": {"$in": ids}}, [{"$set": {"status": status, **times}}])
    with profiled(db) as profile:
        assert len(documents(shell("--json", "stats"))) == 11
        reads = profile(ns=f"{db.name}.job", planSummary={"$exists": True})
    assert len(reads) > 100
    assert {read["planSummary"].partition(" ")[0] for read in reads} <= {"COUNT_SCAN", "DISTINCT_SCAN", "IXSCAN", "EOF"}
    # The oldest that is due is looked at; nothing else.
    assert max(read.get("docsExamined", 0) for read in reads) <= 1
    assert not any("hasSortStage" in read for read in reads)


def test_a_terminal_of_80_columns_is_enough(durable: JobQueue, environment: dict[str, str]) -> None:
    failure(durable, "sync-calendar-events")
    lines = shown_at_a_terminal("stats", columns=80, environment=environment)
    assert [line.split()[0] for line in lines if line] == [*("ACTION", "sync-calendar-events", "TOTAL")] * 2
    failure(durable, "an-action-with-a-much-longer-name")
    lines = shown_at_a_terminal("stats", columns=80, environment=environment)
    assert "an-action-with-a-much-longer-…" in lines
    assert max(map(len, lines)) <= 80
