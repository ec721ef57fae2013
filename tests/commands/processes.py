"""Commands as processes of their own, which a test reads from while they run."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.watching import DEADLINE

SIMPLEQUEUE = (sys.executable, "-m", "simplequeue_scripts.main")


class Running:
    """A running command. What it prints is kept, and a test can wait for it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._changed = threading.Condition()
        self._lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True)
            for name, stream in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def stdout(self) -> str:
        return "".join(self._lines["stdout"])

    @property
    def stderr(self) -> str:
        return "".join(self._lines["stderr"])

    def wait_for(self, text: str, stream: str = "stderr", times: int = 1) -> None:
        """Waits until so many lines have the text in them."""

        def seen() -> bool:
            return sum(text in line for line in self._lines[stream]) >= times

        with self._changed:
            assert self._changed.wait_for(seen, DEADLINE), f"{text!r} did not come; stderr:\n{self.stderr}"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, within: float = DEADLINE) -> int:
        """Waits for the end and gives the exit code."""
        code = self.process.wait(within)
        for reader in self._readers:
            reader.join(DEADLINE)
        return code

    def _read(self, name: str, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self._lines[name].append(line)
                    self._changed.notify_all()


@contextmanager
def running(*words: str | bytes | Path, environment: Mapping[str, str], cwd: Path | None = None) -> Iterator[Running]:
    """Runs ``simplequeue`` with the words of a command line; it is killed where a test leaves it running."""
    process = subprocess.Popen(
        [*SIMPLEQUEUE, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    command = Running(process)
    try:
        yield command
    finally:
        process.kill()
        command.end()


def finished(*command: str | bytes | Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a whole command line to its end."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE,
        check=False,
        env={**os.environ, **environment},
    )


@contextmanager
def at_a_terminal(environment: Mapping[str, str], *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Runs a command whose stdin and stderr are a terminal, and gives that terminal's other end."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [*SIMPLEQUEUE, *words],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, **environment},
        ) as process:
            try:
                yield process, ours
            finally:  # a test that has failed may have left it waiting for an answer
                process.kill()
    finally:
        os.close(theirs)
        os.close(ours)


def answered(process: subprocess.Popen[bytes], terminal: int, question: bytes, answer: bytes) -> bytes:
    """Waits for a question, answers it, and gives what the command then prints on stdout."""
    said = b""
    while question not in said:
        said += os.read(terminal, 1_024)
    os.write(terminal, answer)
    return process.communicate(timeout=DEADLINE)[0]


def shown_at_a_terminal(*words: str, columns: int, environment: Mapping[str, str]) -> list[str]:
    """Runs ``simplequeue`` with its output on a terminal of so many columns, and gives the lines there."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*SIMPLEQUEUE, *words],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, "COLUMNS": str(columns)},
        )
        os.close(theirs)
        shown = b"".join(_read_out(ours))
        assert process.wait(DEADLINE) == 0, shown
    finally:
        os.close(ours)
    return shown.decode().splitlines()


def _read_out(terminal: int) -> Iterator[bytes]:
    # The other end of a terminal ends with an error once all have closed it.
    with suppress(OSError):
        while part := os.read(terminal, 4_096):
            yield part
