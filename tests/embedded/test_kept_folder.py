"""A folder keeps data and port, and has one program at a time."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from simplequeue.embedded import MongodUnavailable, mongod
from tests.embedded.processes import parent_of, run, watch


def test_the_next_start_finds_data_and_port(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    first = mongod(folder)
    with first as client:
        client.test.things.insert_one({"_id": "kept"})
    second = mongod(os.fspath(folder))
    with second as client:
        assert client.test.things.find_one() == {"_id": "kept"}
        client.test.things.insert_one({"_id": "more"})
    assert second.uri == first.uri


def test_two_servers_of_one_program_cannot_share_a_folder(tmp_path: Path) -> None:
    first = mongod(tmp_path)
    with first as client:
        with pytest.raises(MongodUnavailable) as caught, mongod(tmp_path):
            pass
        assert f"{tmp_path} is in use by this program" in str(caught.value)
        assert f"connect to {first.uri}" in str(caught.value)
        assert client.test.things.insert_one({}).acknowledged


def test_two_programs_cannot_share_a_folder(tmp_path: Path) -> None:
    with run("wait", tmp_path) as program:
        with pytest.raises(MongodUnavailable) as caught, mongod(tmp_path):
            pass
        assert f"{tmp_path} is in use by the program with pid {program.process.pid}" in str(caught.value)
        assert f"(its mongod has pid {program.mongod.pid})" in str(caught.value)
        assert program.mongod.is_running()
        program.kill()
        program.wait_for_the_rest()


def test_of_eight_that_start_at_once_in_a_new_folder_one_wins(tmp_path: Path) -> None:
    start, end = Barrier(8), Barrier(8)

    def attempt(_: int) -> str:
        start.wait()
        try:
            with mongod(tmp_path / "new") as client:
                client.test.things.insert_one({})
                end.wait()
                return "won"
        except MongodUnavailable as error:
            end.wait()
            return str(error)

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(attempt, range(8)))
    assert outcomes.count("won") == 1
    assert all("is in use by this program" in text for text in outcomes if text != "won")


def test_a_folder_is_free_again_after_kill_9_of_its_program(tmp_path: Path) -> None:
    with run("wait", tmp_path) as program:
        program.kill()
        server = mongod(tmp_path)
        with server as client:
            assert client.test.things.insert_one({}).acknowledged
        assert server.uri == program.uri
        program.wait_for_the_rest()


def test_a_folder_is_not_free_before_mongod_is_gone(tmp_path: Path) -> None:
    server = mongod(tmp_path)
    with server:
        open_files = {path.resolve() for path in Path(f"/proc/{server.pid}/fd").iterdir()}
        assert tmp_path / "simplequeue.lock" in open_files


def test_what_was_acknowledged_survives_a_killed_supervisor(tmp_path: Path) -> None:
    server = mongod(tmp_path)
    with server as client:
        client.test.things.insert_one({"_id": "acknowledged"})
        with watch(parent_of(server.pid)) as supervisor:
            supervisor.kill()
    with mongod(tmp_path) as client:
        assert client.test.things.find_one() == {"_id": "acknowledged"}


def test_a_kept_port_that_another_program_uses_is_named_and_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mongod(tmp_path)
    with first as client:
        client.test.things.insert_one({"_id": "kept"})
    port = int((tmp_path / "port").read_text())
    with monkeypatch.context() as patch:
        patch.setattr("simplequeue.embedded.free_port", lambda: port)
        stranger = mongod()
        stranger.__enter__()
    try:
        with pytest.raises(MongodUnavailable) as caught, mongod(tmp_path):
            pass
        assert f"port {port} of the database in {tmp_path} is used by another program" in str(caught.value)
        assert f"delete {tmp_path / 'port'}" in str(caught.value)

        (tmp_path / "port").unlink()
        second = mongod(tmp_path)
        with second as client:
            assert client.test.things.find_one() == {"_id": "kept"}
            client.test.things.insert_one({})
        assert second.uri != first.uri == stranger.uri
    finally:
        stranger.__exit__(None, None, None)


def test_a_damaged_port_file_is_named(tmp_path: Path) -> None:
    with mongod(tmp_path):
        pass
    (tmp_path / "port").write_text("here")
    with pytest.raises(MongodUnavailable, match=r"port holds no port but 'here': delete it"), mongod(tmp_path):
        pass


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(MongodUnavailable) as caught, mongod(tmp_path):
        pass
    assert str(tmp_path) in str(caught.value)
    assert "letters is in it" in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["letters"]


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="file"), mongod(tmp_path / "file"):
        pass


def test_a_start_that_failed_leaves_the_folder_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("MONGOD", "/bin/false")
        with pytest.raises(MongodUnavailable, match="exit code 1"), mongod(tmp_path):
            pass
    with mongod(tmp_path) as client:
        assert client.test.things.insert_one({}).acknowledged


def test_only_the_logs_of_the_last_two_starts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "mongod"
    monkeypatch.setenv("MONGOD", str(binary))
    for start in "123":
        binary.write_text(f"#!/bin/sh\necho start {start}; exit 1")
        binary.chmod(0o755)
        with pytest.raises(MongodUnavailable, match=f"start {start}"), mongod(tmp_path / "kept"):
            pass
    logs = {path.name: path.read_text() for path in (tmp_path / "kept").glob("mongod.log*")}
    assert logs == {"mongod.log": "start 3\n", "mongod.log.1": "start 2\n"}
