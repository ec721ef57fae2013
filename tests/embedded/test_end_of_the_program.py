"""No mongod outlives its program, however that goes."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pymongo import MongoClient

from simplequeue.embedded import mongod
from tests.embedded.processes import parent_of, run, watch
from tests.watching import until


def test_kill_9_of_the_program_takes_mongod_and_the_temporary_folder_with_it() -> None:
    with run("wait") as program:
        assert program.folder.exists()
        program.kill()
        program.wait_for_the_rest()
        assert not program.folder.exists()


def test_kill_9_takes_a_frozen_mongod_too() -> None:
    with run("wait") as program:
        program.mongod.freeze()
        program.kill()
        program.wait_for_the_rest()
        assert not program.folder.exists()


def test_kill_9_takes_a_frozen_mongod_of_a_kept_folder_too(tmp_path: Path) -> None:
    with run("wait", tmp_path / "kept") as program:
        program.mongod.freeze()
        program.kill()
        program.wait_for_the_rest()


@pytest.mark.parametrize("name", ["simplequeue.lock", "mongod.log", "mongod.lock", "WiredTiger"])
def test_kill_9_while_the_server_starts_leaves_nothing(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.embedded.program", "wait"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path)}) as program:
        until(lambda: any(tmp_path.rglob(name)))
        program.kill()
    until(lambda: not any(tmp_path.iterdir()))


def test_a_server_outlives_the_thread_that_started_it_and_not_the_program() -> None:
    with run("thread") as program:
        with MongoClient[dict[str, object]](program.uri) as client:
            client.test.things.insert_one({})
        program.kill()
        program.wait_for_the_rest()
        assert not program.folder.exists()


def test_a_forked_child_that_lives_on_keeps_nothing_running() -> None:
    with run("fork") as program, watch(program.told["child"]) as child:
        try:
            program.kill()
            program.wait_for_the_rest()
            assert child.is_running()
            assert not program.folder.exists()
        finally:
            child.kill()


def test_a_forked_child_that_leaves_the_block_ends_nothing() -> None:
    with run("fork") as program, watch(program.told["child"]) as child:
        try:
            with MongoClient[dict[str, object]](program.uri) as client:
                assert client.test.things.count_documents({}) == 1
        finally:
            child.kill()


def test_a_forked_child_that_lives_on_is_no_obstacle_to_a_clean_end(tmp_path: Path) -> None:
    with run("part", tmp_path) as program, watch(program.told["child"]) as child:
        try:
            assert program.process.wait() == 0
            assert child.is_running()
            assert '"exitCode":0' in (tmp_path / "mongod.log").read_text()
        finally:
            child.kill()


def test_kill_9_of_the_supervisor_takes_mongod_with_it() -> None:
    with run("wait") as program:
        program.supervisor.kill()
        program.mongod.wait()
        shutil.rmtree(program.folder)  # nobody is left to do it


def test_kill_9_of_supervisor_and_program_takes_mongod_with_it() -> None:
    with run("wait") as program:
        program.supervisor.kill()
        program.kill()
        program.mongod.wait()
        shutil.rmtree(program.folder)  # nobody is left to do it


def test_the_block_clears_up_after_a_killed_supervisor() -> None:
    server = mongod()
    with server as client:
        folder = Path(client.admin.command("getCmdLineOpts")["parsed"]["storage"]["dbPath"]).parent
        with watch(parent_of(server.pid)) as supervisor, watch(server.pid) as process:
            supervisor.kill()
            process.wait()
    assert not folder.exists()


def test_the_end_of_the_program_needs_no_end_of_the_block() -> None:
    with run("leave") as program:
        assert program.process.wait() == 0
        program.wait_for_the_rest()
        assert not program.folder.exists()


def test_ctrl_c_leaves_the_program_its_database_until_it_is_done() -> None:
    with run("interrupt") as program:
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == "1\n"
        assert program.process.wait() == 0
        assert not program.mongod.is_running()
        assert not program.folder.exists()


@pytest.mark.parametrize("kept", [False, True])
def test_the_block_ends_a_frozen_mongod(kept: bool, tmp_path: Path) -> None:
    server = mongod(tmp_path if kept else None)
    with server as client:
        client.test.things.insert_one({})
        with watch(server.pid) as process:
            process.freeze()
            server.__exit__(None, None, None)
            assert not process.is_running()


def test_sigterm_to_the_supervisor_ends_its_mongod() -> None:
    server = mongod()
    with server, watch(server.pid) as process:
        os.kill(parent_of(server.pid), signal.SIGTERM)
        process.wait()
