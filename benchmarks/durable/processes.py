"""Processes that take part in a sample: started, told to begin and to end, and read line by line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from benchmarks.durable.order import Order
from benchmarks.memory import REPOSITORY
from benchmarks.sizes import TIMEOUT, SampleError

ENDS_WITHIN = 10.0
"""Seconds that a process has to end by itself before it is killed."""


class Process:
    """A process that prints one JSON object a line. Gone at the end of a ``with`` block, whatever happens.

    Args:
        command: What to run, from the root of the repository.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._name = " ".join(command[:-1])
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    @classmethod
    def of(cls, program: str, order: Order) -> Self:
        """A program of this package, with its order."""
        return cls([sys.executable, "-m", f"benchmarks.durable.{program}", order.to_argument()])

    def next(self, timeout: float = TIMEOUT) -> dict[str, Any]:
        """The next line.

        Raises:
            SampleError: The process has ended, or says nothing for too long.
        """
        try:
            line = self._lines.get(timeout=timeout)
        except Empty:
            raise SampleError(f"{self._name} said nothing for {timeout:.0f} s") from None
        if line is None:
            raise SampleError(f"{self._name} ended with code {self._process.wait()} before it was to")
        said: dict[str, Any] = json.loads(line)
        return said

    def begin(self) -> None:
        """Has it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Has it end, and gives the last it says."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        last = self.next()
        self._process.wait(TIMEOUT)
        return last

    def kill(self) -> None:
        """Ends it at once, where it has nothing to lose."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put(None)
