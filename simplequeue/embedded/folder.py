"""The folder of an embedded MongoDB: what lies in it, whether it is ours to use, and its port."""

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import socket
import tempfile
import time
import uuid
from pathlib import Path

from simplequeue.embedded.binary import MongodUnavailable

# Below what Linux and macOS give to outgoing connections, so that a kept port is not taken by chance.
_PORTS = range(20000, 32000)


class Folder:
    """A folder that is kept, or with None for its path a temporary one, which the supervisor makes and removes."""

    def __init__(self, path: Path | None) -> None:
        self.temporary = path is None
        self.path = path or Path(tempfile.gettempdir()).absolute() / f"simplequeue-{uuid.uuid4().hex}"
        self.lock = self.path / "simplequeue.lock"
        self.log = self.path / "mongod.log"
        self.data = self.path / "data"
        self.port_file = self.path / "port"

    def prepare(self) -> None:
        """Makes a kept folder that is missing, and refuses one with something else in it: a home, another's data.

        Raises:
            MongodUnavailable: Name another folder.
            OSError: The folder cannot be made or read.
        """
        if self.temporary:
            return
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {entry.name for entry in self.path.iterdir()}
        if names and self.lock.name not in names:
            raise MongodUnavailable(
                f"{self.path} is not empty and holds no data of an embedded MongoDB ({min(names)} is in it): "
                "name a new or an empty folder"
            )

    def kept_port(self) -> int | None:
        """Returns the port of the last start, or None if there was none.

        Raises:
            MongodUnavailable: The file is damaged; the message has the remedy.
        """
        try:
            text = self.port_file.read_text()
        except FileNotFoundError:
            return None
        try:
            return int(text)
        except ValueError:
            raise MongodUnavailable(
                f"{self.port_file} holds no port but {text!r}: delete it, and the database gets a new one"
            ) from None

    def keep_port(self, port: int) -> None:
        """Stores `port` for the next start, whole or not at all."""
        if not self.temporary:
            new = self.port_file.with_suffix(".new")
            new.write_text(f"{port}\n")
            new.replace(self.port_file)

    def port_taken(self, port: int) -> MongodUnavailable:
        """Returns the error for a kept `port` that something else listens on."""
        return MongodUnavailable(
            f"port {port} of the database in {self.path} is used by another program: stop that one, "
            f"or delete {self.port_file} to move the database to another port"
        )

    def reclaim(self, mongod: int) -> None:
        """Waits until the process `mongod` of a killed supervisor is gone, and removes a temporary folder.

        On Linux the kernel has killed it. Elsewhere nothing has, so it is killed here, after two seconds.
        """
        for turn in range(600):
            if not self._is_held_by(mongod):
                break
            if turn == 100:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(mongod, signal.SIGKILL)
            time.sleep(0.02)
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    def _is_held_by(self, mongod: int) -> bool:
        import fcntl  # here, since Windows has none and is to be told so in other words

        with contextlib.suppress(FileNotFoundError, ValueError), self.lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return bool(json.load(lock).get("mongod") == mongod)
        return False


def free_port() -> int:
    """Returns a port on which nothing listens now; by the time it is used, something may."""
    choose = random.SystemRandom()  # after a fork, or under a test's seed, the shared generator repeats itself
    while not _is_free(port := choose.choice(_PORTS)):
        pass
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As mongod does: connections that ended a moment ago are no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True
