"""``simplequeue inspect``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

import simplequeue_scripts
from durabl_ext import JobHandle, JobQueue, Step
from simplequeue import Queue
from tests.commands.conftest import Shell, added, begun, documents
from tests.commands.processes import finished

Db = Database[dict[str, Any]]
UNKNOWN = "0198e15c-8200-7000-8000-000000000001"
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
TIME = "2026-01-31T12:00:00.000Z"


@pytest.fixture
def working(durable: JobQueue) -> JobHandle:
    """A run that has logged and has finished two steps."""
    handle = begun(durable, "sync", data={"user": 1}, dedupe_key="user:1", priority=7, max_attempts=5)
    handle.log("page 1")
    handle.log("page 2\x1b[2J")
    for seq, name in enumerate(("fetch", "store")):
        durable.backend.append_step(handle.claim, Step(str(seq), name, {"at": AT, "result": {"secret": name}}))
    return handle


def shown(shell: Shell, *words: str) -> dict[str, list[str]]:
    """The lines of each field."""
    result = shell("inspect", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    fields: dict[str, list[str]] = {}
    name = ""
    for line in result.stdout.splitlines():
        name = line.partition(" ")[0] or name
        fields.setdefault(name, []).append(line.removeprefix(name).strip())
    return fields


def test_a_run_is_shown_with_all_that_the_extension_keeps_of_it(shell: Shell, working: JobHandle) -> None:
    fields = shown(shell, working.job.id)
    assert fields["id"] == [working.job.id]
    assert (fields["action"], fields["status"], fields["priority"]) == (["sync"], ["running"], ["7"])
    assert fields["attempt"] == ["1 of 5"]
    assert fields["backoff"] == ["exponential, 1 s up to 60 s"]
    assert fields["dedupe"] == ["user:1 (scope queued+running)"]
    assert fields["lease"][0].partition("Z ")[2].startswith("(ends in 4m5")
    assert [line.partition("  ")[2] for line in fields["logs"]] == ["page 1", "page 2\\x1b[2J"]
    assert fields["steps"] == [f"0  fetch  {TIME}", f"1  store  {TIME}"]
    assert fields["data"] == ["{", '"user": 1', "}"]
    assert fields["error"] == ["-"]


def test_results_of_steps_are_shown_when_asked_for(shell: Shell, working: JobHandle) -> None:
    assert "secret" not in shell("inspect", working.job.id).stdout
    assert "secret" not in shell("inspect", working.job.id, "--json").stdout
    (first, _) = shown(shell, working.job.id, "--results")["steps"]
    assert first == f'0  fetch  {TIME}  {{"result": {{"secret": "fetch"}}}}'
    (document,) = documents(shell("inspect", working.job.id, "--json", "--results"))
    assert document["durable"]["steps"][1]["result"] == {"secret": "store"}


def test_a_result_that_is_a_time_is_a_result(shell: Shell, working: JobHandle, durable: JobQueue) -> None:
    durable.backend.append_step(working.claim, Step("2", "now", {"at": AT, "result": AT + timedelta(days=1)}))
    assert shown(shell, working.job.id)["steps"][2] == f"2  now  {TIME}"
    assert shown(shell, working.job.id, "--results")["steps"][2].endswith('{"result": "2026-02-01T12:00:00.000Z"}')


def test_no_token_is_shown_whole(shell: Shell, working: JobHandle, durable: JobQueue) -> None:
    token = working.claim.token
    assert shown(shell, working.job.id)["token"] == [f"{token[:4]}…"]
    working.release()
    (again,) = durable.backend.claim(["sync"], 1, lease=60)
    for words in ([], ["--json"], ["--results"], ["--json", "--results"]):
        printed = shell("inspect", working.job.id, *words).stdout
        assert token[:4] in printed  # in the receipt of the release
        assert token[:8] not in printed
        assert again.token[:8] not in printed


def test_with_json_it_is_as_it_is_stored(shell: Shell, working: JobHandle, db: Db) -> None:
    stored = db.job.find_one({"_id": working.job.id})
    assert stored is not None
    (document,) = documents(shell("--json", "inspect", working.job.id))
    assert document.keys() == {"id", *stored} - {"_id"}
    assert document["durable"].keys() == stored["durable"].keys()
    assert document["durable"]["dedupe"] == {"key": "user:1", "scope": "queued+running"}
    assert document["durable"]["steps"][0] == {"seq": "0", "name": "fetch", "at": TIME}


def test_a_failed_job_has_its_kind_and_the_stack(shell: Shell, working: JobHandle) -> None:
    try:
        raise ValueError("no such user")  # it needs a stack
    except ValueError as error:
        working.fail_fatal(error)
    fields = shown(shell, working.job.id)
    assert (fields["failure_kind"], fields["lease"]) == (["fatal"], ["-"])
    assert fields["error"][0] == "ValueError: no such user"
    assert fields["error"][-1] == "ValueError: no such user"
    assert any('raise ValueError("no such user")' in line for line in fields["error"])


def test_it_says_when_a_waiting_job_is_due_and_that_a_lease_has_ended(shell: Shell, durable: JobQueue, db: Db) -> None:
    later = shown(shell, added(durable, delay=3_600 * 5))
    assert later["run_at"][0].partition("Z ")[2] in ("(due in 4h59m)", "(due in 5h)")
    assert later["attempt"] == ["0 of 3"]
    fixed = shown(shell, added(durable, backoff="fixed", backoff_delay=2.5))
    assert fixed["run_at"][0].endswith("(due now)")
    assert fixed["backoff"] == ["fixed, 2.5 s"]
    dead = begun(durable).job.id
    db.job.update_one({"_id": dead}, {"$set": {"durable.lease_expires_at": AT}})
    (lease,) = shown(shell, dead)["lease"]
    assert lease.startswith(f"{TIME} (ended ")
    assert lease.endswith(" ago: to be recovered)")


def test_a_plain_job_has_nothing_of_the_extension(shell: Shell, queue: Queue) -> None:
    fields = shown(shell, queue.add("greet").id)
    assert fields["durable"] == ["-"]
    assert "attempt" not in fields
    (document,) = documents(shell("inspect", "--json", fields["id"][0]))
    assert "durable" not in document


@pytest.mark.parametrize("id", [UNKNOWN, "no-uuid", "\udcff", "\x1b[2J", ""])
def test_what_is_not_there_is_told(shell: Shell, id: str) -> None:
    for words in (["inspect", id], ["--json", "inspect", id]):
        result = shell(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("no job ")
        assert result.stderr.removesuffix("\n").isprintable()


@pytest.mark.parametrize("words", [[], [UNKNOWN, UNKNOWN], [UNKNOWN, "--all"]])
def test_wrong_usage_is_told(shell: Shell, words: list[str]) -> None:
    result = shell("inspect", *words)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "durable",
    [
        5,
        {},
        {
            "backoff": 1,
            "dedupe": "x",
            "lease_expires_at": "soon",
            "token": 7,
            "logs": [1, {}],
            "steps": [1, {"seq": 2}],
        },
        {"logs": 5, "steps": {"a": 1}, "receipts": [1, {"token": "abcdefghij"}], "more": {"\x1b[2J": "\x1b[2J"}},
    ],
)
def test_a_spoiled_job_is_shown_as_it_is(shell: Shell, queue: Queue, db: Db, durable: Any) -> None:
    id = queue.add("greet").id
    db.job.update_one({"_id": id}, {"$set": {"durable": durable, "status": "running"}})
    for words in ([], ["--results"], ["--json"]):
        result = shell("inspect", id, *words)
        assert result.exit_code == 0
        assert all(line.isprintable() for line in result.stdout.splitlines())


def test_its_file_runs_on_its_own(working: JobHandle, environment: dict[str, str]) -> None:
    # Were it called inspect.py, it would stand in the place of the module that click and the dataclasses import.
    path = Path(simplequeue_scripts.__file__).parent / "inspect_job.py"
    result = finished(sys.executable, path, working.job.id, environment=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "user:1 (scope queued+running)" in result.stdout
