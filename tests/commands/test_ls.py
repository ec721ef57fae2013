"""``simplequeue ls``."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Job, Queue
from tests.commands.conftest import Shell, added, begun, documents, failure
from tests.commands.processes import SIMPLEQUEUE, shown_at_a_terminal
from tests.commands.profile import profiled, stages
from tests.watching import DEADLINE

Db = Database[dict[str, Any]]


def aged(db: Db, job: Job, status: str, **ages: timedelta) -> str:
    """Rewrites a job's status and how long ago its times were."""
    now: datetime = db.command("hello")["localTime"]
    times = {name: now - age for name, age in ages.items()}
    db.job.update_one({"_id": job.id}, {"$set": {"status": status, **times}})
    return job.id


def listed(shell: Shell, *words: str) -> list[str]:
    result = shell("--json", "ls", *words)
    assert result.exit_code == 0, result.output
    return [document["id"] for document in documents(result)]


def test_the_newest_come_first_and_it_says_when_there_are_more(shell: Shell, queue: Queue) -> None:
    ids = [job.id for job in queue.add_many([("greet", {"n": n}) for n in range(25)])]
    result = shell("--json", "ls")
    assert [document["id"] for document in documents(result)] == ids[:4:-1]
    assert result.stderr == "there are more than these 20; --limit shows more\n"
    assert shell("ls", "--limit", "25").stderr == ""
    assert listed(shell, "--limit", "3") == ids[:-4:-1]


def test_the_table_shows_what_an_operator_looks_for(shell: Shell, queue: Queue, db: Db) -> None:
    error = {"name": "ValueError", "message": "no name " * 20 + "\nsecond line", "stack": "long"}
    failed = aged(
        db,
        queue.add("send-a-mail-with-a-very-long-name-indeed", {"secret": "x"}),
        "failed",
        created_at=timedelta(days=2),
        started_at=timedelta(hours=3, seconds=90),
        finished_at=timedelta(hours=3),
    )
    db.job.update_one({"_id": failed}, {"$set": {"error": error}})
    running = aged(db, queue.add("greet"), "running", created_at=timedelta(days=1), started_at=timedelta(minutes=5))
    titles, first, second = shell("ls").stdout.splitlines()
    assert titles.split() == ["ID", "STATUS", "ACTION", "CREATED", "AGE", "TOOK", "ERROR"]
    assert first.split()[:3] == [running, "running", "greet"]
    assert first.split()[4].startswith("5m")
    assert first.split()[5] == "-"
    words = second.split()
    assert words[:3] == [failed, "failed", "send-a-mail-with-a-very-long-…"]
    assert words[4].startswith("3h")
    assert words[5:7] == ["1m30s", "ValueError:"]
    assert second.endswith("…")
    assert "secret" not in second
    assert "second line" not in second


def test_attempts_and_due_times_are_shown_where_there_are_durable_jobs(
    shell: Shell, queue: Queue, durable: JobQueue, db: Db
) -> None:
    plain = queue.add("greet").id
    assert "ATTEMPT" not in shell("ls").stdout
    later, due, running = added(durable, delay=3_600 + 90, max_attempts=5), added(durable), begun(durable).job.id
    spoiled = queue.add("greet").id
    db.job.update_one({"_id": spoiled}, {"$set": {"durable": {"run_at": "soon"}}})
    titles, *rows = [line.split() for line in shell("ls").stdout.splitlines()]
    assert titles == ["ID", "STATUS", "ACTION", "CREATED", "AGE", "TOOK", "ATTEMPT", "DUE", "ERROR"]
    assert [row[0] for row in rows] == [spoiled, running, due, later, plain]
    assert [row[6] for row in rows] == ["?/?", "1/3", "0/3", "0/5", "-"]
    assert [row[7] for row in rows] == ["-", "-", "now", "in", "-"]
    assert rows[3][8] in ("1h1m", "1h")
    assert documents(shell("--json", "ls"))[3]["durable"]["max_attempts"] == 5


def test_a_terminal_of_80_columns_gets_two_lines_a_job(durable: JobQueue, db: Db, environment: dict[str, str]) -> None:
    id = failure(durable, "a-rather-long-action-of-somebody", error="no " * 50)
    lines = shown_at_a_terminal("ls", columns=80, environment=environment)
    assert [len(line) <= 80 for line in lines] == [True] * 4
    assert lines[2] == f"{id}  failed  a-rather-long-action-of-someb…"
    assert lines[1].split() == ["CREATED", "AGE", "TOOK", "ATTEMPT", "DUE", "ERROR"]
    assert lines[3].startswith("  20")
    assert lines[3].endswith("…")
    assert len(shown_at_a_terminal("ls", columns=200, environment=environment)) == 2


def test_filters_join(shell: Shell, queue: Queue, db: Db) -> None:
    mails = [queue.add("mail") for _ in range(2)]
    greet, other = queue.add("greet"), queue.add("other")
    aged(db, mails[0], "failed", finished_at=timedelta(0))
    assert listed(shell, "--action", "mail") == [mails[1].id, mails[0].id]
    assert listed(shell, "--action", "mail", "--action", "greet") == [greet.id, mails[1].id, mails[0].id]
    assert listed(shell, "--status", "failed") == [mails[0].id]
    assert listed(shell, "--status", "failed", "--status", "queued", "--action", "mail") == [mails[1].id, mails[0].id]
    assert listed(shell, "--status", "completed") == []
    assert listed(shell) == [other.id, greet.id, mails[1].id, mails[0].id]


def test_age_counts_from_when_a_job_came_into_its_status(shell: Shell, queue: Queue, db: Db) -> None:
    long, short = timedelta(hours=5), timedelta(minutes=5)
    waits = aged(db, queue.add("a"), "queued", created_at=long)
    stuck = aged(db, queue.add("a"), "running", created_at=long, started_at=long)
    started_just_now = aged(db, queue.add("a"), "running", created_at=long, started_at=short)
    ended_just_now = aged(db, queue.add("a"), "completed", created_at=long, started_at=long, finished_at=short)
    ended_long_ago = aged(db, queue.add("a"), "superseded", created_at=long, started_at=long, finished_at=long)
    assert listed(shell, "--older-than", "1h") == [ended_long_ago, stuck, waits]
    assert listed(shell, "--newer-than", "1h") == [ended_just_now, started_just_now]
    assert listed(shell, "--status", "running", "--older-than", "1h") == [stuck]
    assert listed(shell, "--older-than", "1m", "--newer-than", "1h") == [ended_just_now, started_just_now]
    assert listed(shell, "--older-than", "36500d") == []


def test_no_jobs_is_told_on_stderr(shell: Shell) -> None:
    result = shell("ls")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no jobs\n")
    result = shell("--json", "ls")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "words",
    [
        ["--status", "done"],
        ["--limit", "0"],
        ["--limit", "99999999999999999999"],
        ["--older-than", "1"],
        ["--action", "\udcff"],
        ["--status", "\udcff"],
        ["superfluous"],
    ],
)
def test_wrong_usage_is_told(shell: Shell, words: list[str]) -> None:
    result = shell("ls", *words)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ([], 21),
        (["--status", "failed"], 21),
        (["--status", "failed", "--older-than", "0s"], 21),
        (["--status", "running"], 3_000),
        (["--action", "other"], 3_000),
        (["--action", "mail", "--status", "queued"], 3_000),
    ],
)
def test_it_walks_along_the_ids_and_never_sorts(
    shell: Shell, queue: Queue, db: Db, words: list[str], most: int
) -> None:
    queue.add_many([("mail", {})] * 3_000)
    db.job.update_many({}, [{"$set": {"status": "failed", "finished_at": "$created_at"}}])
    queue.sweep(datetime.fromisoformat("2000-01-01T00:00:00Z"))  # makes the index on the time of the end
    with profiled(db) as profile:
        shell("ls", *words)
        (find,) = profile(op="query", ns=f"{db.name}.job")
    assert find["planSummary"] == "IXSCAN { _id: 1 }"
    assert stages(find["execStats"]) <= {"IXSCAN", "FETCH", "LIMIT", "PROJECTION_DEFAULT", "PROJECTION_SIMPLE"}
    assert find["keysExamined"] <= most


def test_it_does_not_sort_where_an_index_would_tempt_the_server_to(shell: Shell, queue: Queue, db: Db) -> None:
    queue.add_many([("mail", {})] * 10 + [("greet", {})] * 1_000)
    # As the extension's: it gives the ten at once, but not in the order of their ids.
    db.job.create_index([("action", 1), ("durable.priority", 1)], partialFilterExpression={"status": "queued"})
    with profiled(db) as profile:
        assert len(listed(shell, "--status", "queued", "--action", "mail")) == 10
        (find,) = profile(op="query", ns=f"{db.name}.job")
    assert "SORT" not in stages(find["execStats"])


def test_a_pipe_that_closes_early_is_no_traceback(queue: Queue, environment: dict[str, str]) -> None:
    queue.add_many([("greet", {"text": "x" * 1_000})] * 1_000)
    with subprocess.Popen(
        [*SIMPLEQUEUE, "--json", "ls", "--limit", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"id": ')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) == 1
