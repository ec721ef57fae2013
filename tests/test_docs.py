"""The documentation is true: its code runs, its guarantees are tests, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click import Group
from pymongo.database import Database

from simplequeue.job import new_document
from simplequeue_scripts.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
STUCK = "0198e15c-8200-7000-8000-000000000001"
GUIDES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
LOCAL = "mongodb://localhost:27017/?replicaSet=rs0"


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(document: str, title: str) -> str:
    return (ROOT / document).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_code_of_the_readme_runs_from_top_to_bottom(mongo_url: str, db: Database[dict[str, Any]]) -> None:
    blocks = python_blocks(README)
    assert len(blocks) >= 5
    names: dict[str, Any] = {"__name__": "readme"}
    listeners: list[Any] = []
    began = datetime(2026, 8, 25, 12, tzinfo=UTC)
    stuck = {**new_document("greet", {"name": "stuck"}, began), "_id": STUCK, "status": "running", "started_at": began}
    db.job.insert_one(stuck)
    for block in blocks:
        # Never the database that is named there: on somebody's own replica set it may be in use.
        code = block.replace(LOCAL, mongo_url).replace("client.app", f"client[{db.name!r}]")
        assert LOCAL not in code
        exec(compile(code, "README.md", "exec"), names)
        listeners.append(names["listener"])
    for listener in listeners:
        listener.stop(10)
    names["client"].close()
    actions = {document["action"] for document in db.job.find()}
    assert {"greet", "send-mail", "ship"} <= actions
    ended, again = db.job.find({"data.name": "stuck"}, sort=[("_id", 1)])
    assert (ended["_id"], ended["status"]) == (STUCK, "failed")
    assert ended["finished_at"] == ended["updated_at"]
    assert (again["action"], again["status"]) == ("greet", "queued")


@pytest.mark.parametrize("guide", ["extension", "operating", "orchestration"])
def test_the_code_of_a_guide_runs_from_top_to_bottom(mongo_url: str, db: Database[dict[str, Any]], guide: str) -> None:
    names: dict[str, Any] = {"__name__": guide}
    for block in python_blocks((ROOT / "docs" / f"{guide}.md").read_text()):
        code = block.replace(LOCAL, mongo_url).replace("client.app", f"client[{db.name!r}]")
        assert LOCAL not in code
        exec(compile(code, f"{guide}.md", "exec"), names)
    names["client"].close()
    assert db.job.count_documents({}) > 0


@pytest.mark.parametrize("document", ["README.md", *GUIDES])
def test_the_lint_finds_nothing_in_the_code_of_the_documentation(tmp_path: Path, document: str) -> None:
    code = tmp_path / "guide.py"
    code.write_text("\n".join(python_blocks((ROOT / document).read_text())))
    linted = subprocess.run(
        [sys.executable, "-m", "durabl_ext.lint", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (linted.stdout, linted.returncode) == ("", 0), linted.stderr


def test_the_code_of_the_guide_to_testing_passes_as_tests(tmp_path: Path) -> None:
    tests = tmp_path / "test_guide.py"
    tests.write_text("\n".join(python_blocks((ROOT / "docs" / "testing.md").read_text())))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", tmp_path, tests],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_quickstart_runs_and_shows_how_its_jobs_ended() -> None:
    program = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert program.stdout.splitlines() == [
        "Hello Ada",
        "Hello Grace",
        "completed ",
        "completed ",
        "failed nobody to greet",
    ]


def test_the_example_of_the_extension_shows_a_retry_and_a_failure_for_good() -> None:
    program = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "durable.py")], capture_output=True, text=True, timeout=120, check=True
    )
    assert [line.rstrip() for line in program.stdout.splitlines()] == [
        "the second request of the same key: None",
        "failed send-mail to be tried again",
        "completed send-mail",
        "fail-fatal send-mail",
        "completed in attempt 2 with the log: sent to ada@example.org",
        "poison: nobody",
    ]


@pytest.mark.parametrize("document", ["README.md", "docs/extension.md", "docs/orchestration.md"])
def test_each_guarantee_is_the_name_of_a_test(document: str) -> None:
    sentences = re.findall(r"^\* (.+)\.$", section(document, "Guarantees"), re.MULTILINE)
    assert len(sentences) >= 10
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    missing = [s for s in sentences if f"def test_{re.sub(r'[^a-z0-9]+', '_', s.lower())}(" not in tests]
    assert missing == []


def commands() -> list[str]:
    assert isinstance(main, Group)
    return sorted(main.commands)


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_and_is_in_the_readme(command: str) -> None:
    assert isinstance(main, Group)
    assert len(main.commands[command].help or "") > 20
    assert re.search(rf"^\| `{command}\b", README, re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/benchmarks.md",
        "docs/extension.md",
        "docs/operating.md",
        "docs/names.md",
    ],
)
def test_links_between_the_documents_lead_somewhere(path: str) -> None:
    document = ROOT / path
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
