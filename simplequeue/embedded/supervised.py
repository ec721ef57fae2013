"""The program's end of the conversation with its supervisor."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from simplequeue.embedded.binary import MongodUnavailable

# Longer than it takes the supervisor to kill a mongod that does not end by itself.
_END = 30.0


class Supervisor:
    """Starts the process that holds a folder and runs mongod for this program; `supervisor` has what is said.

    With `temporary`, the folder is made first and removed last.
    """

    def __init__(self, lock: Path, log: Path, temporary: Path | None) -> None:
        script = Path(__file__).with_name("supervisor.py")
        self._process = subprocess.Popen(
            # Isolated and without site-packages it starts in 20 ms, whatever is installed.
            [sys.executable, "-I", "-S", script, str(os.getpid()), lock, log, temporary or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd="/",  # so that it keeps no file system busy
            start_new_session=True,  # Ctrl-C reaches every process of the terminal's foreground group
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._text = b""
        self._words = b""

    def order(self, command: list[str]) -> None:
        """Has `command` run; how that went is a report."""
        self._say(json.dumps(command))

    def report(self, timeout: float) -> dict[str, Any]:
        """Returns the next report, or {} if there is none within `timeout` seconds.

        Raises:
            MongodUnavailable: The supervisor could not do its work, or is gone.
        """
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while True:
                while b"\n" not in self._text:
                    if not selector.select(max(0.0, deadline - time.monotonic())):
                        return {}
                    text = self._stdout.read(65536)
                    if not text:
                        raise self._gone()
                    self._text += text
                line, _, self._text = self._text.partition(b"\n")
                if not line.startswith(b"{"):  # a warning or a traceback of Python's
                    self._words += line + b"\n"
                    continue
                report: dict[str, Any] = json.loads(line)
                if "failed" in report:
                    raise MongodUnavailable(f"mongod cannot be run: {report['failed']}")
                return report

    def end(self) -> bool:
        """Has mongod ended and waits until it is; returns False if the supervisor did not live to do it. Idempotent."""
        if not self._stdout.closed:
            self._say("")  # the pipe is closed too late if a child that the program forked has it as well
            self._stdin.close()
            try:
                self._process.wait(_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._stdout.close()
        return self._process.returncode == 0

    def _say(self, line: str) -> None:
        # A supervisor that is gone shows in its reports and exit code; the pipe is closed after an interrupted end().
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._stdin.write(line.encode() + b"\n")

    def _gone(self) -> MongodUnavailable:
        words = (self._words + self._text).decode(errors="replace") or "(none)"
        return MongodUnavailable(f"the process that runs mongod for this program is gone. Its last words:\n{words}")
