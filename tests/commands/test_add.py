"""``simplequeue add``."""

from __future__ import annotations

import pytest

from simplequeue import Queue
from tests.commands.conftest import Shell, documents
from tests.commands.processes import SIMPLEQUEUE, finished


def test_it_adds_a_job_and_prints_its_id(shell: Shell, queue: Queue) -> None:
    result = shell("add", "greet", '{"name": "Ada", "at": [1, null, 2.5]}')
    assert (result.exit_code, result.stderr) == (0, "")
    job = queue.get(result.stdout.strip())
    assert job is not None
    assert (job.action, job.status, job.data) == ("greet", "queued", {"name": "Ada", "at": [1, None, 2.5]})


def test_data_may_be_left_out_or_come_from_stdin(shell: Shell) -> None:
    assert documents(shell("--json", "add", "greet"))[0]["data"] == {}
    assert documents(shell("--json", "add", "greet", "-", input='{"name": "世界"}'))[0]["data"] == {"name": "世界"}


def test_with_json_it_prints_the_job_as_stored(shell: Shell, queue: Queue) -> None:
    (printed,) = documents(shell("add", "greet", "--json"))
    job = queue.get(printed["id"])
    assert job is not None
    assert list(printed) == ["id", *list(job.document)[1:]]
    assert printed["created_at"] == job.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["greet", "{"], "DATA: is not JSON"),
        (["greet", "[1]"], "expected a JSON object such as '{\"user\": 1}', found list"),
        (["greet", "null"], "expected a JSON object"),
        (["greet", '{"a": NaN}'], "NaN is no JSON number"),
        (["greet", '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}"], "is not JSON"),
        (["greet", '{"a": ' + "[" * 150 + "]" * 150 + "}"], "nested deeper than 100 levels"),
        (["greet", '{"a": {"b": 18446744073709551616}}'], "data.a.b: is an integer of more than 64 bits"),
        (["greet", '{"a": ' + "9" * 5_000 + "}"], "is not JSON"),
        (["greet", '{"a": "\\ud800"}'], "data.a: holds a lone surrogate"),
        (["greet", '{"a": "\udcff"}'], "data.a: holds a lone surrogate"),
        (["\udcff"], "action: holds a lone surrogate"),
        ([""], "action: is empty"),
        (["x" * 1_001], "action: takes 1,001 bytes"),
        ([], "Missing argument 'ACTION'"),
    ],
)
def test_what_cannot_be_stored_is_wrong_usage_and_says_where(
    shell: Shell, queue: Queue, words: list[str], reason: str
) -> None:
    result = shell("add", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr
    assert documents(shell("ls", "--json")) == []


@pytest.mark.parametrize("bytes", [b'{"a": "\xff"}', b"\xff\xfe\x00", b""])
def test_stdin_that_is_no_json_is_wrong_usage(shell: Shell, bytes: bytes) -> None:
    assert shell("add", "greet", "-", input=bytes).exit_code == 2


def test_a_closed_stdin_is_wrong_usage(environment: dict[str, str]) -> None:
    line = " ".join(SIMPLEQUEUE) + " add greet - <&-"
    result = finished("/bin/sh", "-c", line, environment=environment)
    assert result.returncode == 2
    assert "stdin is closed" in result.stderr


def test_bytes_that_are_no_utf_8_are_wrong_usage_in_a_real_shell(environment: dict[str, str]) -> None:
    for words in ((b"\xff",), (b"greet", b'{"a": "\xff"}')):
        result = finished(*SIMPLEQUEUE, "add", *words, environment=environment)
        assert result.returncode == 2
        assert "holds a lone surrogate" in result.stderr
