"""Which server, which database: where it may be said, and what is said when it does not work."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from pymongo.database import Database

from simplequeue import Queue, collection, create_queue
from simplequeue.commands import ENDED_BEFORE
from simplequeue_scripts.main import main
from tests.commands.conftest import Shell


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URI of a port that is taken, but nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"mongodb://127.0.0.1:{taken.getsockname()[1]}/app"


def test_options_work_before_the_command_and_after_it(mongo_url: str, db: Database[dict[str, Any]]) -> None:
    create_queue(db, collection="jobs").add("greet")
    shared = ["--uri", mongo_url, "--db", db.name, "--collection", "jobs", "--json"]
    runner = CliRunner(env={"MONGO_URL": None, "SIMPLEQUEUE_DB": None})
    for place in range(0, len(shared), 2):
        result = runner.invoke(main, [*shared[:place], "ls", *shared[place:]])
        assert result.stdout.startswith('{"id": "'), result.output


def test_what_stands_after_the_command_wins_and_both_win_over_the_environment(
    shell: Shell, db: Database[dict[str, Any]], nobody: str, mongo_url: str
) -> None:
    create_queue(db).add("greet")
    assert "greet" in shell("--db", "elsewhere", "ls", "--db", db.name).stdout
    assert "greet" in shell("--uri", mongo_url, "ls", MONGO_URL=nobody).stdout
    assert "greet" in shell("--db", db.name, "ls", SIMPLEQUEUE_DB="elsewhere").stdout
    assert "greet" in shell("--collection", "elsewhere", "ls", "--collection", "job").stdout
    assert "greet" not in shell("--collection", "elsewhere", "ls").stdout


def test_the_database_of_the_uri_is_the_last_resort(
    shell: Shell, queue: Queue, mongo_url: str, db: Database[dict[str, Any]]
) -> None:
    queue.add("greet")
    named = mongo_url.replace("/?", f"/{db.name}?")
    assert named != mongo_url
    assert "greet" in shell("ls", MONGO_URL=named, SIMPLEQUEUE_DB=None).stdout


@pytest.mark.parametrize("missing", [None, ""])
def test_without_a_server_or_a_database_it_says_how_to_name_one(shell: Shell, missing: str | None) -> None:
    result = shell("ls", MONGO_URL=missing)
    assert result.exit_code == 2
    assert "pass --uri mongodb://HOST/NAME, or set MONGO_URL" in result.stderr
    result = shell("ls", SIMPLEQUEUE_DB=missing)
    assert result.exit_code == 2
    assert "pass --db NAME, or set SIMPLEQUEUE_DB, or name it in the URI" in result.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--uri", "http://here"], "URI must begin with"),
        (["--uri", "mongodb://here:99999"], "Port must be"),
        (["--uri", "mongodb://a:b:c@here"], "must be escaped"),
        (["--uri", "mongodb://here/?tls=true&tlsCAFile=/missing"], "[Errno 2]"),
        (["--uri", "\udcff"], "expected UTF-8"),
        (["--db", "a b"], "database names cannot contain"),
        (["--db", ""], "cannot be the empty string"),
        (["--db", "\udcff"], "expected UTF-8"),
        (["--collection", "a$b"], "must not contain '$'"),
        (["--collection", ""], "cannot be empty"),
        (["--collection", "\udcff"], "expected UTF-8"),
    ],
)
def test_a_wrong_option_is_wrong_usage(shell: Shell, words: list[str], reason: str) -> None:
    for line in (["ls", *words], [*words, "ls"]):
        result = shell(*line)
        assert (result.exit_code, result.stdout) == (2, "")
        assert reason in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["add", "greet"],
        ["get", "0198e15c-8200-7000-8000-000000000001"],
        ["ls"],
        ["cancel", "0198e15c-8200-7000-8000-000000000001"],
        ["cancel", "--action", "greet"],
        ["sweep", "--older-than", "7d"],
        ["sweep", "--before", "2026-01-31T12:00:00Z"],
        ["worker", "builtins:print"],
        ["stats"],
        ["stats", "mail"],
        ["failed"],
        ["retry", "0198e15c-8200-7000-8000-000000000001"],
        ["retry", "--kind", "fatal", "--limit", "5"],
        ["reap"],
        ["inspect", "0198e15c-8200-7000-8000-000000000001"],
    ],
)
def test_without_a_server_every_command_ends_with_3_and_one_line(shell: Shell, nobody: str, words: list[str]) -> None:
    result = shell("--uri", f"{nobody}?serverSelectionTimeoutMS=50", *words)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.count("\n") == 1
    assert "no MongoDB answers: 127.0.0.1:" in result.stderr
    assert "is --uri or MONGO_URL right?" in result.stderr


def test_a_name_that_the_dns_does_not_know_is_no_server(shell: Shell) -> None:
    result = shell("--uri", "mongodb+srv://cluster.invalid/app", "ls")
    assert result.exit_code == 3


def test_a_password_that_is_not_taken_is_no_server(shell: Shell, mongo_url: str) -> None:
    result = shell("--uri", mongo_url.replace("//", "//ada:secret@"), "ls")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "does not let us in: Authentication failed. Look at user, password" in result.stderr
    assert "secret" not in result.stderr


def test_an_index_that_cannot_be_made_is_told_with_its_remedy(shell: Shell, db: Database[dict[str, Any]]) -> None:
    db.job.create_index("other", name=ENDED_BEFORE.name)
    result = shell("failed")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "drop that one (db.job.dropIndex(...)) and try again" in result.stderr


def test_a_server_that_is_too_old_is_told_in_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "OLDEST_WIRE_VERSION", 1_000)
    result = shell("stats")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "MongoDB 6.0 or newer is needed" in result.stderr


def test_what_the_server_refuses_is_told_in_one_line(shell: Shell, db: Database[dict[str, Any]]) -> None:
    db.create_collection("job", validator={"data.user": {"$exists": True}})
    result = shell("add", "greet")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "MongoDB refused: Document failed validation" in result.stderr
