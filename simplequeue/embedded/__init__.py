"""A private MongoDB for one program: a replica set of one, on loopback, for demos, tests and small installations.

What must hold: no mongod outlives its program, and no two programs use one folder. A process between program and mongod
sees to both (`supervisor`). This file knows what a replica set is, and that process does not.
"""

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymongo
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from simplequeue.embedded.binary import MongodUnavailable, find_mongod, last_words, why_it_ended
from simplequeue.embedded.folder import Folder, free_port
from simplequeue.embedded.supervised import Supervisor

__all__ = ["Mongod", "MongodUnavailable", "mongod"]

_SET = "simplequeue"
_START = 60.0
_ATTEMPTS = 5
_EXIT_PORT_TAKEN = 48
_NOT_YET_INITIALIZED = 94
_ARGUMENTS = (
    "--bind_ip=127.0.0.1",
    "--nounixsocket",  # its file in /tmp survives a kill
    f"--replSet={_SET}",
    "--quiet",  # a line per connection fills the log
    # Where the machine is small or runs a dozen of these: the defaults are 5 % of the disk and half of the memory.
    "--oplogSize=256",
    "--wiredTigerCacheSizeGB=0.5",
    "--setParameter=diagnosticDataCollectionEnabled=false",
)
# 100 MB of journal in place of 300, for /tmp is often in memory.
_TEMPORARY_ARGUMENTS = ("--wiredTigerEngineConfigString=log=(prealloc=false)",)


def mongod(path: str | os.PathLike[str] | None = None) -> "Mongod":
    """Returns a context manager that runs a MongoDB server as long as its block, and gives a connected client.

        with mongod() as client:
            queue = create_queue(client.app)

    The server ends with the program, even one that is killed. It listens on 127.0.0.1 only and asks for no password:
    every user of this machine can connect. Nothing happens before the block is entered.

    Args:
        path: The folder that keeps the data. It is made if it is missing; the next start finds data and port again. One
            program at a time can use it. None: a temporary folder, which is removed at the end.

    Returns:
        A `Mongod`; its `uri` is for other processes.
    """
    return Mongod(path)


class Mongod:
    """Runs one MongoDB server while its `with` block runs; `mongod()` makes it.

    The block gets a client that is connected to a primary. It is closed at the end of the block, then the server is
    stopped: with a kept folder cleanly, which takes a second. A child forked inside the block ends neither.

    Args:
        path: As for `mongod()`.
        arguments: Further arguments of the mongod command.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, arguments: Sequence[str] = ()) -> None:
        self._path = None if path is None else Path(path).absolute()
        self._folder: Folder
        self._arguments = tuple(arguments)
        self._supervisor: Supervisor | None = None
        self._client: MongoClient[dict[str, Any]] | None = None
        self._program = 0
        self._port = 0
        self._pid = 0

    @property
    def uri(self) -> str:
        """Returns the connection string, for this and for other processes of the machine.

        Raises:
            RuntimeError: The block has not been entered, so there is no server yet.
        """
        self._check_started()
        return _uri(self._port)

    @property
    def pid(self) -> int:
        """Returns the process id of mongod.

        Raises:
            RuntimeError: The block has not been entered, so there is no server yet.
        """
        self._check_started()
        return self._pid

    def __enter__(self) -> MongoClient[dict[str, Any]]:
        """Starts the server, in less than a second as a rule, and returns a client that can write.

        The wait for it ends after 60 s. A folder whose program was killed a moment ago is waited for too, up to 15 s.

        Raises:
            MongodUnavailable: There is no mongod, it does not start, or the folder or its port is in use. Do what the
                message says.
            RuntimeError: This object was entered before: `mongod()` makes another one.
            OSError: The folder cannot be made or read.
        """
        if self._program:
            raise RuntimeError("a Mongod starts only once: make a new one with mongod()")
        self._program = os.getpid()
        if os.name != "posix":
            raise MongodUnavailable("the embedded MongoDB runs on Linux and macOS only: connect to a server instead")
        binary = find_mongod()
        self._folder = Folder(self._path)
        self._folder.prepare()
        self._supervisor = Supervisor(
            self._folder.lock, self._folder.log, self._folder.path if self._folder.temporary else None
        )
        try:
            self._start(binary, self._supervisor, time.monotonic() + _START)
            self._client = MongoClient(self.uri)
            self._client.admin.command("ping")
        except BaseException:
            self._end()
            raise
        return self._client

    def __exit__(self, *_: object) -> None:
        """Closes the client and stops the server; returns when it is gone. Further calls do nothing."""
        if os.getpid() == self._program:  # a forked child leaves the block too, and must not take its parent's database
            self._end()

    def _check_started(self) -> None:
        if not self._pid:
            raise RuntimeError("there is no server yet: enter the block first, as in `with server as client:`")

    def _start(self, binary: str, supervisor: Supervisor, deadline: float) -> None:
        holder = _expect(supervisor, deadline).get("busy")
        if holder is not None:
            raise self._in_use(holder)
        kept = self._folder.kept_port()
        self._folder.data.mkdir(exist_ok=True)
        for _ in range(_ATTEMPTS):
            self._port = kept or free_port()
            supervisor.order(self._command(binary))
            self._pid = _expect(supervisor, deadline)["started"]
            code = self._until_primary(supervisor, deadline)
            if code is None:
                self._folder.keep_port(self._port)
                return
            if code != _EXIT_PORT_TAKEN:
                raise why_it_ended(binary, code, self._folder.log)
            if kept:
                raise self._folder.port_taken(kept)
        raise why_it_ended(binary, _EXIT_PORT_TAKEN, self._folder.log)

    def _command(self, binary: str) -> list[str]:
        own = [f"--dbpath={self._folder.data}", f"--port={self._port}"]
        lasting = _TEMPORARY_ARGUMENTS if self._folder.temporary else ()
        return [binary, *own, *_ARGUMENTS, *lasting, *self._arguments]

    def _until_primary(self, supervisor: Supervisor, deadline: float) -> int | None:
        """Returns None when the server can write, or the exit code of a mongod that ended before it could."""
        client: MongoClient[dict[str, Any]]
        with MongoClient(
            "127.0.0.1",
            self._port,
            connect=False,
            directConnection=True,
            serverSelectionTimeoutMS=500,  # a stranger on this port may be silent; mongod ends at once then
            socketTimeoutMS=5000,
        ) as client:
            while time.monotonic() < deadline:
                # Asked first, since a driver that has met a closed port waits half a second to try again.
                if _listens(self._port) and self._is_primary(client):
                    return None
                report = supervisor.report(0.01)
                if report:
                    return int(report["ended"])
        raise MongodUnavailable(
            f"mongod (pid {self._pid}) was not writable within {_START:.0f} s. "
            f"Its last words:\n{last_words(self._folder.log)}"
        )

    def _is_primary(self, client: MongoClient[dict[str, Any]]) -> bool:
        host = f"127.0.0.1:{self._port}"
        with contextlib.suppress(PyMongoError):  # it is still starting
            # Another mongod may have taken the port first; ours is about to end for that.
            if client.admin.command("serverStatus")["pid"] != self._pid:
                return False
            hello = client.admin.command("hello")
            if "setName" not in hello:
                _make_member(client, host)
            return bool(hello["isWritablePrimary"])
        return False

    def _in_use(self, holder: dict[str, int]) -> MongodUnavailable:
        program, server = holder.get("program"), holder.get("mongod")
        who = "this program" if program == os.getpid() else f"the program with pid {program or 'unknown'}"
        with contextlib.suppress(OSError, ValueError):
            port = int(self._folder.port_file.read_text())
            return MongodUnavailable(
                f"{self._folder.path} is in use by {who} (its mongod has pid {server or 'unknown'}): "
                f"connect to {_uri(port)}, or stop that program, or name another folder"
            )
        return MongodUnavailable(f"{self._folder.path} is in use by {who}: name another folder, or stop that program")

    def _end(self) -> None:
        if self._client is not None:
            with pymongo.timeout(1.0):  # it says goodbye to a server that may be frozen
                self._client.close()
        if self._supervisor is not None and not self._supervisor.end():
            self._folder.reclaim(self._pid)


def _uri(port: int) -> str:
    return f"mongodb://127.0.0.1:{port}/?replicaSet={_SET}"


def _expect(supervisor: Supervisor, deadline: float) -> dict[str, Any]:
    report = supervisor.report(deadline - time.monotonic())
    if not report:
        raise MongodUnavailable(f"the process that runs mongod for this program said nothing for {_START:.0f} s")
    return report


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def _make_member(client: MongoClient[dict[str, Any]], host: str) -> None:
    """Makes the server the only member of its set: a new set, or that of its data, which knew it by another port."""
    try:
        config = client.admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code != _NOT_YET_INITIALIZED:
            raise
        client.admin.command("replSetInitiate", {"_id": _SET, "members": [{"_id": 0, "host": host}]})
        return
    config["members"][0]["host"] = host
    config["version"] += 1
    client.admin.command("replSetReconfig", config, force=True)
