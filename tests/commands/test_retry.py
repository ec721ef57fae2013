"""``simplequeue retry``."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Queue
from tests.commands.conftest import Shell, added, begun, documents, failure, minutes_apart
from tests.commands.processes import answered, at_a_terminal

Db = Database[dict[str, Any]]
UNKNOWN = "0198e15c-8200-7000-8000-000000000001"


def status(db: Db, id: str) -> str:
    document = db.job.find_one({"_id": id})
    assert document is not None
    return str(document["status"])


def test_a_failed_job_is_queued_again_with_all_its_attempts(shell: Shell, durable: JobQueue) -> None:
    id = failure(durable, max_attempts=5)
    result = shell("retry", id)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{id} retried\n", "")
    now = durable.get(id)
    assert now is not None
    assert (now.status, now.attempt, now.max_attempts, now.failure_kind) == ("queued", 0, 5, None)


def test_it_says_of_each_id_what_became_of_it(shell: Shell, durable: JobQueue, db: Db) -> None:
    failed, busy = failure(durable), failure(durable, dedupe_key="k")
    holder = added(durable, dedupe_key="k")
    running = begun(durable).job.id
    ids = (failed, busy, running, UNKNOWN, "no-uuid\x1b[2J", "\udcff")
    result = shell("retry", "--yes", *ids, failed)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.splitlines() == [
        f"{failed} retried",
        f"{busy} key busy (holder {holder})",
        f"{running} not failed (status running)",
        f"{UNKNOWN} not found",
        "no-uuid\\x1b[2J not found",
        "\\udcff not found",
    ]
    assert (status(db, failed), status(db, busy)) == ("queued", "failed")


def test_with_json_each_outcome_is_a_word(shell: Shell, durable: JobQueue) -> None:
    failed, busy = failure(durable), failure(durable, dedupe_key="k")
    holder = added(durable, dedupe_key="k")
    result = shell("--json", "retry", "--yes", failed, busy, holder, UNKNOWN)
    assert result.exit_code == 1
    assert documents(result) == [
        {"id": failed, "outcome": "retried"},
        {"id": busy, "outcome": "key-busy", "holder": holder},
        {"id": holder, "outcome": "not-failed", "status": "queued"},
        {"id": UNKNOWN, "outcome": "not-found"},
    ]


def test_a_job_that_the_server_refuses_to_change_is_not_called_anything_but_failed(
    shell: Shell, durable: JobQueue, db: Db
) -> None:
    id = failure(durable)
    db.command("collMod", "job", validator={"status": "failed"})
    result = shell("retry", id)
    assert (result.exit_code, result.stdout) == (1, f"{id} not retried (status failed)\n")


def test_a_plain_job_becomes_a_durable_one(shell: Shell, queue: Queue, durable: JobQueue, db: Db) -> None:
    id = queue.add("greet").id
    db.job.update_one({"_id": id}, {"$set": {"status": "failed"}})
    assert shell("retry", id).stdout == f"{id} retried\n"
    assert shell("--json", "stats", "greet").exit_code == 0
    assert [claim.job.id for claim in durable.backend.claim(["greet"], 1, lease=60)] == [id]


def test_a_filter_takes_the_latest_up_to_the_limit(shell: Shell, durable: JobQueue, db: Db) -> None:
    ids = [failure(durable) for _ in range(3)]
    other = failure(durable, "sync")
    minutes_apart(db, *ids, other)
    result = shell("retry", "--action", "mail", "--limit", "2", "--yes")
    assert (result.exit_code, result.stderr) == (0, "there are more than these 2\n")
    assert result.stdout.splitlines() == [f"{ids[2]} retried", f"{ids[1]} retried"]
    assert (status(db, ids[0]), status(db, other)) == ("failed", "failed")
    result = shell("retry", "--kind", "fatal", "--action", "mail", "--limit", "2")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{ids[0]} retried\n", "")
    result = shell("retry", "--kind", "stalled", "--limit", "2")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no failed jobs\n")
    assert shell("retry", "--kind", "fatal", "--limit", "2", "--json").exit_code == 0
    assert status(db, other) == "queued"


def test_of_two_failed_jobs_of_a_key_the_later_is_retried(shell: Shell, durable: JobQueue, db: Db) -> None:
    earlier, later = failure(durable, dedupe_key="k"), failure(durable, dedupe_key="k")
    minutes_apart(db, earlier, later)
    result = shell("retry", "--kind", "fatal", "--limit", "5", "--yes")
    assert (result.exit_code, result.stdout.splitlines()) == (
        1,
        [f"{later} retried", f"{earlier} key busy (holder {later})"],
    )


def test_a_dry_run_only_says_what_would_be_tried(shell: Shell, durable: JobQueue, db: Db) -> None:
    failed, waiting = failure(durable), added(durable)
    result = shell("retry", "--dry-run", failed, waiting, UNKNOWN, "no-uuid")
    assert (result.exit_code, result.stdout.splitlines()) == (
        1,
        [
            f"{failed} would be retried",
            f"{waiting} not failed (status queued)",
            f"{UNKNOWN} not found",
            "no-uuid not found",
        ],
    )
    result = shell("--json", "retry", "--dry-run", "--kind", "fatal", "--limit", "9")
    assert (result.exit_code, documents(result)) == (0, [{"id": failed, "outcome": "would-be-retried"}])
    assert status(db, failed) == "failed"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "name the jobs to retry: by their ids, or by --kind and --action, not both"),
        (["--limit", "5"], "name the jobs to retry"),
        ([UNKNOWN, "--kind", "fatal", "--limit", "5"], "not both"),
        (["--kind", "fatal"], "say how many to retry at most: --limit 100"),
        (["--action", "mail", "--yes"], "say how many to retry at most: --limit 100"),
        ([UNKNOWN, "--limit", "5"], "--limit is for --kind and --action"),
        (["--kind", "other", "--limit", "5"], "'retries-exhausted', 'fatal', 'stalled'"),
        (["--kind", "fatal", "--limit", "0"], "1<=x<="),
        (["--action", "", "--limit", "5"], "--action"),
    ],
)
def test_wrong_usage_is_told_with_what_to_pass(shell: Shell, words: list[str], reason: str) -> None:
    result = shell("retry", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


@pytest.mark.parametrize("words", [["--kind", "fatal", "--limit", "9"], []])
def test_without_a_terminal_it_refuses_to_retry_many(shell: Shell, durable: JobQueue, db: Db, words: list[str]) -> None:
    ids = [failure(durable) for _ in range(2)]
    result = shell("retry", *(words or ids))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "this would retry 2 jobs and there is no terminal to ask at: pass --yes" in result.stderr
    assert db.job.count_documents({"status": "failed"}) == 2


def test_at_a_terminal_it_asks_first(durable: JobQueue, db: Db, environment: dict[str, str]) -> None:
    ids = [failure(durable) for _ in range(2)]
    with at_a_terminal(environment, "retry", "--kind", "fatal", "--limit", "9") as (process, terminal):
        assert answered(process, terminal, b"Retry 2 failed jobs?", b"n\n") == b""
    assert process.returncode == 1
    assert db.job.count_documents({"status": "failed"}) == 2
    with at_a_terminal(environment, "retry", *ids) as (process, terminal):
        printed = answered(process, terminal, b"Retry 2 failed jobs?", b"y\n")
    assert (process.returncode, printed.decode().splitlines()) == (0, [f"{id} retried" for id in ids])
