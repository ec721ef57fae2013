"""``simplequeue sweep``."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Queue
from simplequeue.operations import SWEEP_BATCH
from simplequeue.states import ENDED, Status
from simplequeue_scripts.sweep import batches
from tests.commands.conftest import Shell, added, begun, documents, failure
from tests.commands.processes import running
from tests.commands.profile import profiled
from tests.watching import Recorder

Db = Database[dict[str, Any]]


def ended_jobs(count: int, status: str, finished_at: datetime) -> list[dict[str, Any]]:
    """Documents of jobs that ended, with raw ids, which no test looks at."""
    return [
        {
            "_id": f"{status}-{finished_at.isoformat()}-{n}",
            "action": "mail",
            "status": status,
            "error": None,
            "created_at": finished_at,
            "updated_at": finished_at,
            "started_at": finished_at,
            "finished_at": finished_at,
            "data": {},
        }
        for n in range(count)
    ]


@pytest.fixture
def jobs_of_all_kinds(db: Db, queue: Queue) -> None:
    """Two jobs of every ended status, a week and an hour old, one running, one queued."""
    now = datetime.now(UTC)
    for status in ENDED:
        for age in (timedelta(days=8), timedelta(hours=1)):
            db.job.insert_many(ended_jobs(1, status.value, now - age))
    db.job.update_one({"_id": queue.add("mail").id}, {"$set": {"status": "running", "started_at": now}})
    queue.add("mail")


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_without_an_age_it_explains_and_deletes_nothing(shell: Shell, db: Db) -> None:
    for words in ([], ["--dry-run"], ["--older-than", "7d", "--before", "2026-01-31T12:00:00Z"]):
        result = shell("sweep", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "nothing was deleted" in result.stderr
        assert "--older-than" in result.stderr
        assert "--before" in result.stderr
    assert db.job.count_documents({}) == 10


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_it_deletes_what_ended_long_enough_ago(shell: Shell, db: Db) -> None:
    result = shell("sweep", "--older-than", "7d")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("deleted 4 jobs that ended at or before 20")
    assert db.job.count_documents({}) == 6
    result = shell("sweep", "--older-than", "0s", "--json")
    assert documents(result)[0]["deleted"] == 4
    assert {job["status"] for job in db.job.find()} == {"running", "queued"}


def test_ended_durable_jobs_count_and_go_and_those_that_wait_stay(shell: Shell, durable: JobQueue, db: Db) -> None:
    failure(durable)
    begun(durable).complete()
    begun(durable).fail("no")
    added(durable, delay=3_600)
    (counts,) = documents(shell("--json", "sweep", "--older-than", "0s", "--dry-run"))
    assert (counts["failed"], counts["completed"]) == (1, 1)
    assert shell("sweep", "--older-than", "0s").stdout.startswith("deleted 2 jobs ")
    assert [job["status"] for job in db.job.find()] == ["queued", "queued"]


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_it_deletes_what_ended_by_a_moment(shell: Shell, db: Db) -> None:
    ended = max(job["finished_at"] for job in db.job.find() if job["finished_at"])
    assert shell("sweep", "--before", f"{ended.isoformat()}Z", "--json").stdout.endswith('"deleted": 8}\n')


@pytest.mark.usefixtures("jobs_of_all_kinds")
def test_a_dry_run_counts_and_changes_nothing(shell: Shell, db: Db) -> None:
    result = shell("sweep", "--older-than", "7d", "--dry-run")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [[status.value, "1"] for status in ENDED]
    assert result.stderr.startswith("would delete 4 jobs that ended at or before 20")
    (counts,) = documents(shell("sweep", "--older-than", "0s", "--dry-run", "--json"))
    assert counts.pop("before") is not None
    assert counts == {"dry_run": True, "completed": 2, "failed": 2, "cancelled": 2, "superseded": 2}
    assert db.job.count_documents({}) == 10
    assert list(db.job.index_information()) == ["_id_"]


def test_it_goes_by_the_servers_clock(shell: Shell, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    server = datetime(2040, 1, 1, tzinfo=UTC)

    async def now(self: object) -> datetime:
        return server

    monkeypatch.setattr("simplequeue.collection.CollectionJobs.now", now)
    (swept,) = documents(shell("sweep", "--older-than", "1d", "--json"))
    assert swept == {"before": "2039-12-31T00:00:00.000Z", "deleted": 0}


@pytest.mark.parametrize("words", [["--older-than", "7"], ["--before", "2026-01-31"], ["--before", "now"]])
def test_wrong_usage_is_told(shell: Shell, words: list[str]) -> None:
    result = shell("sweep", *words)
    assert (result.exit_code, result.stdout) == (2, "")


def test_what_was_deleted_before_an_error_is_told(shell: Shell, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    db.job.insert_many(ended_jobs(SWEEP_BATCH + 1, "failed", datetime(2026, 1, 1, tzinfo=UTC)))
    sweep, calls = Queue.sweep, []

    def once(self: Queue, *arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return sweep(self, *arguments, **options)

    monkeypatch.setattr(Queue, "sweep", once)
    result = shell("sweep", "--older-than", "0s")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"deleted {SWEEP_BATCH:,} jobs ")
    assert "Aborted!" in result.stderr


def test_batches_end_where_the_jobs_end(queue: Queue, db: Db) -> None:
    cutoff = datetime.now(UTC)
    for count, expected in ((0, [0]), (SWEEP_BATCH, [SWEEP_BATCH, 0]), (SWEEP_BATCH + 1, [SWEEP_BATCH, 1])):
        if count:
            db.job.insert_many(ended_jobs(count, "failed", datetime(2026, 1, 1, tzinfo=UTC)))
        assert list(batches(queue, cutoff)) == expected


def test_100_000_jobs_go_in_batches_by_index_while_others_are_claimed(
    queue: Queue, db: Db, environment: dict[str, str]
) -> None:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    for n in range(10):
        db.job.insert_many(ended_jobs(10_000, random.choice(ENDED).value, day + timedelta(minutes=n)), ordered=False)
    recorder, ids = Recorder(), []
    with profiled(db) as profile, queue.listen(recorder, concurrency=2):
        with running("sweep", "--older-than", "1d", environment=environment) as sweep:
            while sweep.process.poll() is None:
                ids.append(queue.add("mail").id)
                recorder.wait_for(len(ids))
            assert sweep.end() == 0, sweep.stderr
        recorder.wait_for_ends(len(ids))
        looks = profile(op="query", ns=f"{db.name}.job", **{"command.filter.finished_at": {"$exists": True}})
        deletes = profile(op="remove", ns=f"{db.name}.job")
        claims = profile(
            ns=f"{db.name}.job",
            ts={"$gt": deletes[0]["ts"], "$lt": deletes[-1]["ts"]},
            **{"command.findAndModify": "job"},
        )
    assert sweep.stdout.startswith("deleted 100,000 jobs ")
    assert sweep.stderr == ""  # no bar where nobody watches
    index = {"IXSCAN { status: 1", "finished_at: 1", "action: 1 }"}
    assert all(set(look["planSummary"].split(", ")) == index for look in looks)
    assert max(look["docsExamined"] for look in looks) <= SWEEP_BATCH
    assert not any("hasSortStage" in look for look in looks)
    assert [delete["ndeleted"] for delete in deletes] == [SWEEP_BATCH] * 100
    assert all(delete["planSummary"].startswith("IXSCAN") for delete in deletes)
    assert sum(delete["docsExamined"] for delete in deletes) <= 100_000
    # Jobs were claimed all along. A delete of everything in one go would let hardly any through.
    assert len(claims) >= 10
    assert db.job.count_documents({"status": {"$ne": Status.COMPLETED.value}}) == 0
