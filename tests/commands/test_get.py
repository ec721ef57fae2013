"""``simplequeue get``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
from pymongo.database import Database

from simplequeue import Queue
from tests.commands.conftest import Shell, documents
from tests.commands.processes import SIMPLEQUEUE, finished

UNKNOWN = "0198e15c-8200-7000-8000-000000000001"


def test_it_prints_jobs_whole(shell: Shell, queue: Queue, db: Database[dict[str, Any]]) -> None:
    job = queue.add("greet", {"name": "Ada", "deep": {"list": [1, 2]}})
    error = {"name": "ValueError", "message": "no\nname", "stack": "Traceback:\n  line 1\nValueError: no\nname\n"}
    db.job.update_one({"_id": job.id}, {"$set": {"status": "failed", "error": error}})
    result = shell("get", job.id)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert f"id           {job.id}" in lines
    assert "status       failed" in lines
    assert "finished_at  -" in lines
    assert "error        ValueError: no" in lines
    assert "             name" in lines
    assert "               line 1" in lines
    assert '               "name": "Ada",' in lines


def test_with_json_it_prints_one_job_a_line_and_every_type(shell: Shell, queue: Queue) -> None:
    data = {"at": datetime(2026, 1, 2, tzinfo=UTC), "price": bson.Decimal128("1.10"), "text": "\x1b[2J\x7f\n世"}
    jobs = [queue.add("greet", data), queue.add("greet")]
    result = shell("--json", "get", *(job.id for job in jobs))
    assert result.stdout.isascii()
    first, second = documents(result)
    assert (first["id"], second["id"]) == (jobs[0].id, jobs[1].id)
    assert first["data"] == {**data, "at": "2026-01-02T00:00:00.000Z", "price": {"$numberDecimal": "1.10"}}


def test_missing_ones_are_named_and_the_others_printed(shell: Shell, queue: Queue) -> None:
    job = queue.add("greet")
    result = shell("get", UNKNOWN, job.id, "nonsense\x1b[2J", "\udcff")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"id           {job.id}")
    assert result.stderr.splitlines() == [f"no job {UNKNOWN}", "no job nonsense\\x1b[2J", "no job \\udcff"]


def test_control_characters_in_a_job_do_not_reach_the_terminal(
    shell: Shell, queue: Queue, db: Database[dict[str, Any]]
) -> None:
    bad = "\x1b]0;owned\x07\x9b2J\r\u202e"
    job = queue.add(bad, {bad: bad})
    error = {"name": bad, "message": bad, "stack": f"{bad}\n{bad}"}
    db.job.update_one({"_id": job.id}, {"$set": {"error": error, bad: bad}})
    for words in (["get", job.id], ["ls"]):
        assert all(line.isprintable() for line in shell(*words).stdout.splitlines())


def test_what_the_terminal_cannot_show_is_written_out(queue: Queue, environment: dict[str, str]) -> None:
    job = queue.add("世界", {"name": "Grüße, 世界"})
    for words in (("get", job.id), ("ls",)):
        result = finished(*SIMPLEQUEUE, *words, environment={**environment, "PYTHONIOENCODING": "latin-1"})
        assert (result.returncode, result.stderr) == (0, "")
        assert "\\u4e16\\u754c" in result.stdout


def test_a_full_disk_is_told_in_one_line(queue: Queue, environment: dict[str, str]) -> None:
    line = " ".join(SIMPLEQUEUE) + f" get {queue.add('greet').id} > /dev/full"
    result = finished("/bin/sh", "-c", line, environment=environment)
    assert (result.returncode, result.stderr) == (1, "Error: [Errno 28] No space left on device\n")


def test_a_spoiled_job_is_shown_as_it_is(shell: Shell, db: Database[dict[str, Any]]) -> None:
    db.job.insert_one({"_id": UNKNOWN, "status": "lost", "error": "text", "created_at": 5, "data": [1]})
    assert documents(shell("--json", "get", UNKNOWN)) == [
        {"id": UNKNOWN, "status": "lost", "error": "text", "created_at": 5, "data": [1]}
    ]
    assert "status       lost" in shell("get", UNKNOWN).stdout
    assert f"{UNKNOWN}  lost    None    -        -    -" in shell("ls").stdout


def test_ids_that_are_no_utf_8_are_just_not_there(environment: dict[str, str]) -> None:
    result = finished(*SIMPLEQUEUE, "get", b"\xff", environment=environment)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "no job \\udcff\n")
