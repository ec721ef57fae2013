"""MODULE:NAME: how a worker finds what it is to run, and what it says when it does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from simplequeue import Queue
from simplequeue_scripts._handler import load
from tests.commands.conftest import Shell

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules into the current directory, and has them forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def module(name: str, text: str) -> str:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    yield module
    for name in set(sys.modules) - before:
        del sys.modules[name]


def problem(target: str) -> str:
    with pytest.raises(click.UsageError) as refusal:
        load(target)
    return refusal.value.message


def test_modules_of_the_current_directory_are_found(write: Write) -> None:
    write("handler_a", "def handle(job): return 'a'")
    write("handler_folder.b", "class Mail:\n    @staticmethod\n    def send(job): return 'b'")
    handlers: list[Any] = [load("handler_a:handle"), load("handler_folder.b:Mail.send")]
    assert [handler(None) for handler in handlers] == ["a", "b"]


@pytest.mark.parametrize(
    "target",
    ["", "app", "app.jobs", ":handle", "app:", "app.py/x:handle", ".app:handle", "app..b:handle", "a b:c", "\udcff:x"],
)
def test_what_is_no_module_and_handler_is_refused_with_an_example(target: str) -> None:
    assert "such as app.jobs:handle" in problem(target)


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("handler_file.py:handle", "handler_file:handle"),
        ("./handler_file.py:handle", "handler_file:handle"),
        ("handler_folder/b.py:Mail.send", "handler_folder.b:Mail.send"),
        ("/srv/handler_file.py:handle", "handler_file:handle"),
        ("../handler_file.py:handle", "handler_file:handle"),
        ("handler_file.py", "handler_file:NAME"),
    ],
)
def test_who_names_a_file_is_told_its_module(write: Write, target: str, hint: str) -> None:
    write("handler_file", "def handle(job): pass")
    assert problem(target).endswith(f"; name the module, not its file: {hint}")


def test_a_module_that_is_called_py_can_be_named(write: Write) -> None:
    write("handler_folder.py", "def handle(job): return 'py'")
    handler: Any = load("handler_folder.py:handle")
    assert handler(None) == "py"


def test_a_module_that_is_not_there_is_named(write: Write) -> None:
    write("handler_folder.present", "")
    assert "there is no module 'handler_missing'" in problem("handler_missing:handle")
    assert "there is no module 'handler_missing'" in problem("handler_missing.jobs:handle")
    assert "there is no module 'handler_folder.missing'" in problem("handler_folder.missing:handle")
    assert "`python -m handler_missing`" in problem("handler_missing:handle")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import handler_not_installed", "ModuleNotFoundError: No module named 'handler_not_installed'"),
        ("from os import nothing_like_it", "ImportError: cannot import name 'nothing_like_it'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_an_error_in_the_module_is_shown_as_a_traceback_of_the_module(
    write: Write, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    write("handler_broken", text)
    assert "'handler_broken' cannot be imported: the traceback above is its own" in problem("handler_broken:handle")
    trace = capsys.readouterr().err
    assert reason in trace
    assert "handler_broken.py" in trace
    assert "_handler.py" not in trace
    assert "importlib" not in trace


def test_a_missing_attribute_is_named(write: Write) -> None:
    write("handler_empty", "class Mail: pass")
    for name in ("handle", "Mail.send"):
        assert f"module 'handler_empty' has no '{name}'; it is from " in problem(f"handler_empty:{name}")


@pytest.mark.parametrize(
    ("text", "reason"), [("handle = 7", "found 7"), ("def handle(job):\n    yield", "contains yield")]
)
def test_what_cannot_be_a_handler_is_refused(write: Write, text: str, reason: str) -> None:
    write("handler_wrong", text)
    assert reason in problem("handler_wrong:handle")


@pytest.mark.usefixtures("write")
def test_the_worker_takes_no_job_without_a_handler(shell: Shell, queue: Queue) -> None:
    job = queue.add("greet")
    result = shell("worker", "handler_missing:handle")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Invalid value for MODULE:NAME: there is no module" in result.stderr
    now = queue.get(job.id)
    assert now is not None
    assert now.status == "queued"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["os:getpid", "--concurrency", "0"],
        ["os:getpid", "--timeout", "-1"],
        ["os:getpid", "--timeout", "nan"],
        ["os:getpid", "--action", ""],
        ["os:getpid", "--action", "\udcff"],
    ],
)
def test_wrong_usage_is_told(shell: Shell, words: list[str]) -> None:
    result = shell("worker", *words)
    assert (result.exit_code, result.stdout) == (2, "")
