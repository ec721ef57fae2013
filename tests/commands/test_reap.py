"""``simplequeue reap``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Queue
from simplequeue_scripts import reap as module
from tests.commands.conftest import Shell, begun, documents

Db = Database[dict[str, Any]]


def dead(durable: JobQueue, db: Db, count: int = 1, **options: Any) -> list[str]:
    """Leaves jobs whose runs have died, the first longest ago, and gives their ids."""
    ids = [begun(durable, **options).job.id for _ in range(count)]
    for place, id in enumerate(ids):
        lease = datetime(2026, 1, 31, 12, place, tzinfo=UTC)
        db.job.update_one({"_id": id}, {"$set": {"durable.lease_expires_at": lease}})
    return ids


def statuses(db: Db, ids: list[str]) -> list[str]:
    return [job["status"] for job in db.job.find({"_id": {"$in": ids}}, sort=[("_id", 1)])]


def test_it_takes_jobs_from_dead_runs_and_leaves_the_others(
    shell: Shell, durable: JobQueue, queue: Queue, db: Db
) -> None:
    ids = dead(durable, db, 2) + dead(durable, db, max_attempts=1)
    alive, plain = begun(durable).job.id, queue.add("greet").id
    db.job.update_one({"_id": plain}, {"$set": {"status": "running", "started_at": datetime(2026, 1, 1, tzinfo=UTC)}})
    result = shell("reap")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "recovered 3 jobs\n", "")
    assert statuses(db, ids) == ["queued", "queued", "failed"]
    assert statuses(db, [alive, plain]) == ["running", "running"]
    assert shell("reap").stdout == "recovered 0 jobs\n"


def test_with_json_it_prints_numbers(shell: Shell, durable: JobQueue, db: Db) -> None:
    dead(durable, db)
    assert documents(shell("reap", "--json")) == [{"recovered": 1, "saturated": False, "stuck": []}]


def test_it_sweeps_again_while_there_may_be_more(
    shell: Shell, durable: JobQueue, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    dead(durable, db, 5)
    assert shell("reap").output == "recovered 5 jobs\n"


def test_it_stops_at_the_limit_and_says_that_there_may_be_more(
    shell: Shell, durable: JobQueue, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    ids = dead(durable, db, 5)
    result = shell("reap", "--limit", "3")
    assert (result.exit_code, result.stdout) == (0, "recovered 3 jobs\n")
    assert result.stderr == "there may be more; start it again for these\n"
    assert statuses(db, ids) == ["queued"] * 3 + ["running"] * 2


@pytest.fixture
def stuck(durable: JobQueue, db: Db) -> list[str]:
    """Two jobs of dead runs, longest ago, that the server refuses to change."""
    ids = dead(durable, db, 2)
    db.job.update_many({"_id": {"$in": ids}}, {"$set": {"data.pinned": True}})
    db.command("collMod", "job", validator={"data.pinned": {"$exists": False}})
    return ids


@pytest.mark.parametrize("batch", [1, 2, 3, 1_000])
def test_stuck_jobs_are_named_and_stand_in_nobodys_way(
    shell: Shell, durable: JobQueue, db: Db, monkeypatch: pytest.MonkeyPatch, stuck: list[str], batch: int
) -> None:
    monkeypatch.setattr(module, "BATCH", batch)
    dead(durable, db, 3)
    db.job.update_many({"_id": {"$nin": stuck}}, {"$currentDate": {"durable.lease_expires_at": True}})
    result = shell("reap")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "recovered 3 jobs",
        *(f"{id} stuck: the server refuses to change it; see simplequeue inspect" for id in stuck),
    ]


def test_stuck_jobs_are_in_the_json(shell: Shell, stuck: list[str]) -> None:
    result = shell("--json", "reap")
    assert (result.exit_code, documents(result)) == (1, [{"recovered": 0, "saturated": False, "stuck": stuck}])


@pytest.mark.parametrize("words", [["--limit", "0"], ["--limit", "x"], ["superfluous"]])
def test_wrong_usage_is_told(shell: Shell, words: list[str]) -> None:
    result = shell("reap", *words)
    assert (result.exit_code, result.stdout) == (2, "")
