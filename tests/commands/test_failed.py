"""``simplequeue failed``."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Queue
from tests.commands.conftest import Shell, begun, documents, failure, minutes_apart
from tests.commands.processes import shown_at_a_terminal
from tests.commands.profile import profiled, stages

Db = Database[dict[str, Any]]


def listed(shell: Shell, *words: str) -> list[str]:
    result = shell("--json", "failed", *words)
    assert result.exit_code == 0, result.output
    return [document["id"] for document in documents(result)]


def exhausted(durable: JobQueue, action: str = "mail") -> str:
    handle = begun(durable, action, max_attempts=1)
    handle.fail("no")
    return handle.job.id


def test_the_latest_failure_comes_first_with_its_kind_attempts_and_error(
    shell: Shell, durable: JobQueue, queue: Queue, db: Db
) -> None:
    fatal = begun(durable, "a-rather-long-action-of-somebody", max_attempts=5)
    fatal.fail_fatal(ValueError("no such user\x1b[2J\nsecond line"))
    last, plain = exhausted(durable), queue.add("greet").id
    error = {"name": "KeyError", "message": "x", "stack": ""}
    db.job.update_one({"_id": plain}, {"$set": {"status": "failed", "error": error}})
    minutes_apart(db, fatal.job.id, last)
    result = shell("failed")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[:5] for line in result.stdout.splitlines()] == [
        ["ID", "KIND", "ACTION", "FINISHED", "ATTEMPTS"],
        [last, "retries-exhausted", "mail", "2026-01-31T12:01:00.000Z", "1/1"],
        [fatal.job.id, "fatal", "a-rather-long-action-of-someb…", "2026-01-31T12:00:00.000Z", "1/5"],
        [plain, "-", "greet", "-", "-"],
    ]
    assert [line.partition("/")[2][1:].strip() for line in result.stdout.splitlines()[1:3]] == [
        "Failed: no",
        "ValueError: no such user\\x1b[2J",
    ]
    assert result.stdout.endswith("KeyError: x\n")


def test_with_json_the_error_is_whole(shell: Shell, durable: JobQueue) -> None:
    long = "no such user " * 100 + "\nsecond line"
    id = failure(durable, error=long)
    assert long not in shell("failed").stdout
    (document,) = documents(shell("failed", "--json"))
    assert (document["id"], document["error"]["message"]) == (id, long)
    assert document["durable"]["failure_kind"] == "fatal"


def test_filters_join(shell: Shell, durable: JobQueue, db: Db) -> None:
    fatal, other, gone, stalled = failure(durable), failure(durable, "sync"), exhausted(durable), exhausted(durable)
    minutes_apart(db, fatal, other, gone, stalled)
    db.job.update_one({"_id": stalled}, {"$set": {"durable.failure_kind": "stalled"}})
    begun(durable).complete()
    assert listed(shell) == [stalled, gone, other, fatal]
    assert listed(shell, "--kind", "fatal") == [other, fatal]
    assert listed(shell, "--kind", "retries-exhausted") == [gone]
    assert listed(shell, "--kind", "stalled") == [stalled]
    assert listed(shell, "--action", "mail") == [stalled, gone, fatal]
    assert listed(shell, "--action", "sync", "--kind", "fatal") == [other]


def test_it_says_when_there_are_more_and_when_there_is_none(shell: Shell, durable: JobQueue, db: Db) -> None:
    result = shell("failed")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no failed jobs\n")
    assert shell("failed", "--json").output == ""
    ids = [failure(durable) for _ in range(3)]
    minutes_apart(db, *ids)
    result = shell("failed", "--limit", "2", "--json")
    assert [document["id"] for document in documents(result)] == ids[:0:-1]
    assert result.stderr == "there are more than these 2; --limit shows more\n"
    assert shell("failed", "--limit", "3").stderr == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--kind", "other"], "'retries-exhausted', 'fatal', 'stalled'"),
        (["--limit", "0"], "1<=x<=100000"),
        (["--action", ""], "--action"),
        (["superfluous"], "superfluous"),
    ],
)
def test_wrong_usage_is_told_with_what_to_pass(shell: Shell, words: list[str], reason: str) -> None:
    result = shell("failed", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


@pytest.mark.parametrize(
    "words", [[], ["--action", "mail"], ["--kind", "fatal"], ["--kind", "fatal", "--action", "mail"]]
)
def test_it_walks_along_an_index_in_order_and_leaves_out_the_data(
    shell: Shell, durable: JobQueue, db: Db, words: list[str]
) -> None:
    for action in ("mail", "sync"):
        failure(durable, action, data={"secret": "x"})
        for _ in range(20):
            begun(durable, action).complete()
            exhausted(durable, action)
    with profiled(db) as profile:
        assert "secret" not in shell("failed", *words).stdout
        (find,) = profile(op="query", ns=f"{db.name}.job")
    assert "data" not in find["command"]["projection"]
    assert "SORT" not in stages(find["execStats"])
    assert find["docsExamined"] == find["nreturned"] > 0


def test_a_terminal_of_80_columns_gets_two_lines_a_job(durable: JobQueue, environment: dict[str, str]) -> None:
    handle = begun(durable, "send-mail", max_attempts=1)
    handle.fail(ValueError("no such user " * 20))
    lines = shown_at_a_terminal("failed", columns=80, environment=environment)
    assert lines[0].split() == ["ID", "KIND", "ACTION"]
    assert lines[1].split() == ["FINISHED", "ATTEMPTS", "ERROR"]
    assert lines[2] == f"{handle.job.id}  retries-exhausted  send-mail"
    assert lines[3].split()[1:5] == ["1/1", "ValueError:", "no", "such"]
    assert (len(lines), len(lines[3]), lines[3][-1]) == (4, 80, "…")
