"""Every command is a file that works on its own, too."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import simplequeue_scripts
from simplequeue import Queue
from simplequeue_scripts.main import main
from tests.commands.processes import finished

FOLDER = Path(simplequeue_scripts.__file__).parent
FILES = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_has_help_of_its_own(path: Path) -> None:
    result = finished(sys.executable, path, "--help", environment={})
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: {path.name} [OPTIONS]")


def test_each_file_is_a_command() -> None:
    modules = {command.callback.__module__ for command in main.commands.values() if command.callback}
    assert modules == {f"simplequeue_scripts.{path.stem}" for path in FILES} - {"simplequeue_scripts.main"}


def test_no_file_stands_before_a_module_of_python() -> None:
    # A file that runs on its own puts its folder first on the path.
    assert not {path.stem for path in FOLDER.glob("*.py")} & sys.stdlib_module_names - {"__init__"}


def test_a_file_works_on_its_own_with_the_shared_options(queue: Queue, environment: dict[str, str]) -> None:
    job = queue.add("greet")
    result = finished(
        *(sys.executable, FOLDER / "ls.py", "--json"),
        *("--uri", environment["MONGO_URL"], "--db", environment["SIMPLEQUEUE_DB"], "--status", "queued"),
        environment={},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert f'"id": "{job.id}"' in result.stdout


def test_the_installed_command_is_this_one() -> None:
    (installed,) = entry_points(group="console_scripts", name="simplequeue")
    assert installed.load() is main


@pytest.mark.parametrize("name", sorted(main.commands))
def test_each_command_says_what_it_does_in_a_line(name: str) -> None:
    command = main.commands[name]
    assert command.help
    assert "..." not in command.get_short_help_str(limit=70)
