"""Other processes, watched until they are gone."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Only a test that hangs comes near it.
DEADLINE = 60.0


class Watched:
    """A process that need not be our child; its end is an event."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def is_running(self) -> bool:
        return not select.select([self._handle], [], [], 0)[0]

    def wait(self) -> None:
        """Waits until the process is gone."""
        assert select.select([self._handle], [], [], DEADLINE)[0], f"process {self.pid} is still there"

    def kill(self) -> None:
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def freeze(self) -> None:
        signal.pidfd_send_signal(self._handle, signal.SIGSTOP)

    def close(self) -> None:
        os.close(self._handle)


@contextmanager
def watch(pid: int) -> Iterator[Watched]:
    watched = Watched(pid)
    try:
        yield watched
    finally:
        watched.close()


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


@dataclass
class Program:
    """A running `tests.embedded.program` and what belongs to it."""

    process: subprocess.Popen[str]
    told: dict[str, Any]
    mongod: Watched
    supervisor: Watched

    @property
    def uri(self) -> str:
        return str(self.told["uri"])

    @property
    def folder(self) -> Path:
        return Path(self.told["folder"])

    def kill(self) -> None:
        """Kills the program, and only that."""
        self.process.kill()
        self.process.wait(DEADLINE)

    def wait_for_the_rest(self) -> None:
        """Waits until mongod and the supervisor are gone."""
        self.mongod.wait()
        self.supervisor.wait()


@contextmanager
def run(how: str, path: Path | None = None) -> Iterator[Program]:
    """Runs the program until its server is up; kills it at the end of the block, if nothing else has."""
    command = [sys.executable, "-m", "tests.embedded.program", how, *([str(path)] if path else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            with watch(told["mongod"]) as mongod, watch(parent_of(told["mongod"])) as supervisor:
                yield Program(process, told, mongod, supervisor)
        finally:
            process.kill()
