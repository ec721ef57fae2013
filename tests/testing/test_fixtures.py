"""The fixtures, as a project finds them that has this package installed: in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import time

SEEN = []


def test_the_client_has_transactions(mongo_replica_set):
    with mongo_replica_set.start_session() as session, session.start_transaction():
        mongo_replica_set.mine.things.insert_one({"a": 1}, session=session)
    assert mongo_replica_set.mine.things.count_documents({}) == 1


def test_the_queue_works(durable_queue, mongo_replica_set):
    done = []
    durable_queue.process("greet", lambda job, ctx: done.append(job.data["name"]))
    durable_queue.start()
    id = durable_queue.enqueue("greet", {"name": "ada"})
    until = time.monotonic() + 30
    while durable_queue.get(id).status != "completed" and time.monotonic() < until:
        time.sleep(0.01)
    assert done == ["ada"]
    SEEN.extend(set(mongo_replica_set.list_database_names()) - {"admin", "config", "local", "mine"})
    assert len(SEEN) == 1


def test_the_queue_of_another_test_is_another(durable_queue, mongo_replica_set):
    assert durable_queue.get_stats().completed == 0
    assert SEEN[0] not in mongo_replica_set.list_database_names(), "it was not dropped"
    assert not durable_queue.draining


def test_a_queue_that_is_shut_down_already_is_no_problem(durable_queue):
    durable_queue.start()
    durable_queue.shutdown(5)
"""


def run_pytest(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        check=False,
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_mine.py").write_text(TESTS)
    return tmp_path


def test_they_work_where_nothing_is_configured_and_warnings_are_errors(folder: Path) -> None:
    ended = run_pytest(folder, "-W", "error", "--strict-markers", "--strict-config")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout


def test_they_can_be_left_out(folder: Path) -> None:
    ended = run_pytest(folder, "-p", "no:durabl")
    assert ended.returncode == 1
    assert "fixture 'mongo_replica_set' not found" in ended.stdout


def test_where_there_is_no_mongod_the_error_says_what_to_do(folder: Path) -> None:
    ended = run_pytest(folder, "-x", MONGOD="/nowhere/mongod")
    assert ended.returncode == 1
    assert "MONGOD=/nowhere/mongod is not an executable file: correct it, or unset it" in ended.stdout


def test_a_project_that_asks_for_none_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\n"
        "def test_plain():\n"
        "    heavy = {'pymongo', 'bson', 'mongomock', 'durabl_ext', 'simplequeue', 'uuid6'}\n"
        "    assert 'durabl_pytest' in sys.modules\n"
        "    assert not heavy.intersection(sys.modules)\n"
    )
    ended = run_pytest(tmp_path, "-W", "error")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_they_are_listed_with_what_they_are(folder: Path) -> None:
    listed = run_pytest(folder, "--fixtures").stdout
    assert "mongo_replica_set [session scope]" in listed
    assert "durable_queue" in listed


def test_nothing_of_the_product_imports_what_is_for_tests() -> None:
    root = Path(__file__).parent.parent.parent
    product = [*root.glob("simplequeue/**/*.py"), *root.glob("durabl_ext/**/*.py"), *root.glob("scripts/**/*.py")]
    importing = [path for path in product if path.parent.name != "testing" and "durabl_ext.testing" in path.read_text()]
    assert importing == []
    loaded = "import durabl_ext, simplequeue, sys; print([name for name in sys.modules if 'testing' in name])"
    program = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)
    assert "durabl_ext.testing" not in program.stdout
