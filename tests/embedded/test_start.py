"""What the block gives, and what is left of it."""

import gc
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pymongo
import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.errors import ConnectionFailure

from simplequeue.embedded import Mongod, mongod
from simplequeue.embedded.folder import free_port
from tests.embedded.processes import watch
from tests.watching import until


def test_the_client_writes_with_majority_at_once() -> None:
    with mongod() as client:
        majority = client.test.things.with_options(write_concern=WriteConcern("majority"))
        assert majority.insert_one({"_id": 1}).acknowledged
        with client.start_session() as session, session.start_transaction():
            majority.insert_one({"_id": 2}, session=session)
        assert client.test.things.count_documents({}) == 2


def test_other_processes_connect_by_the_uri() -> None:
    code = "import pymongo, sys; pymongo.MongoClient(sys.argv[1]).test.things.insert_one({'_id': 'theirs'})"
    server = mongod()
    with server as client:
        subprocess.run([sys.executable, "-c", code, server.uri], check=True)
        assert client.test.things.find_one() == {"_id": "theirs"}


def test_the_uri_names_the_replica_set() -> None:
    server = mongod()
    with server as client:
        name = client.admin.command("hello")["setName"]
        assert server.uri.endswith(f"/?replicaSet={name}")
        assert client.admin.command("hello")["hosts"] == [f"127.0.0.1:{_port(server)}"]


def test_it_listens_on_loopback_only_and_leaves_no_socket_file() -> None:
    server = mongod()
    with server as client:
        options = client.admin.command("getCmdLineOpts")["parsed"]["net"]
        assert options["bindIp"] == "127.0.0.1"
        assert not Path(tempfile.gettempdir(), f"mongodb-{_port(server)}.sock").exists()


def test_further_arguments_reach_mongod() -> None:
    with Mongod(arguments=["--setParameter", "enableTestCommands=1"]) as client:
        assert client.admin.command("getParameter", enableTestCommands=1)["enableTestCommands"]


def test_nothing_happens_before_the_block_is_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGOD", "/nowhere/mongod")
    server = mongod(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    with pytest.raises(RuntimeError, match="enter the block first"):
        _ = server.uri
    with pytest.raises(RuntimeError, match="enter the block first"):
        _ = server.pid
    server.__exit__(None, None, None)


def test_at_the_end_client_server_and_folder_are_gone() -> None:
    server = mongod()
    with server as client:
        folder = _folder(client)
        assert folder.exists()
        with watch(server.pid) as process:
            server.__exit__(None, None, None)
            assert not process.is_running()
            assert not folder.exists()
            server.__exit__(None, None, None)


def test_an_error_in_the_block_passes_through() -> None:
    server = mongod()
    with pytest.raises(ZeroDivisionError), server:
        raise ZeroDivisionError
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_a_server_starts_only_once() -> None:
    server = mongod()
    with server, pytest.raises(RuntimeError, match=r"starts only once: make a new one with mongod\(\)"):
        server.__enter__()
    with pytest.raises(RuntimeError, match="starts only once"):
        server.__enter__()


def test_two_temporary_servers_are_strangers() -> None:
    with mongod() as one, mongod() as other:
        one.test.things.insert_one({})
        assert other.test.things.count_documents({}) == 0


def test_a_port_that_a_silent_program_takes_first_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        _choose_first(monkeypatch, taken)
        server = mongod()
        with server as client:
            assert _port(server) != taken
            client.test.things.insert_one({})


def test_a_mongod_that_took_the_port_first_is_not_mistaken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    first = mongod()
    with first as theirs:
        _choose_first(monkeypatch, _port(first))
        with mongod() as ours:
            ours.test.things.insert_one({})
            assert theirs.test.things.count_documents({}) == 0


def test_a_server_that_crashed_is_no_trouble_at_the_end() -> None:
    server = mongod()
    with server as client:
        client.test.things.insert_one({})
        folder = _folder(client)
        with watch(server.pid) as process:
            process.kill()
            process.wait()
        with pymongo.timeout(0.1), pytest.raises(ConnectionFailure):
            client.test.things.insert_one({})
    assert not folder.exists()


def test_nothing_is_left_open() -> None:
    gc.collect()
    before = _open_files()
    with mongod() as client:
        client.test.things.insert_one({})
    gc.collect()
    until(lambda: _open_files() <= before)  # a connection of another client may be open for a moment


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _port(server: Mongod) -> int:
    return int(server.uri.partition("127.0.0.1:")[2].partition("/")[0])


def _folder(client: MongoClient[dict[str, object]]) -> Path:
    return Path(client.admin.command("getCmdLineOpts")["parsed"]["storage"]["dbPath"]).parent


def _choose_first(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    ports = iter([taken])
    monkeypatch.setattr("simplequeue.embedded.free_port", lambda: next(ports, None) or free_port())
