"""How a worker is told to stop.

A signal handler may interrupt any line, also one that holds a lock, so all it does here is to set a plain attribute.
The main line looks at it from time to time.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Takes note of SIGTERM and SIGINT, as long as its block runs, in the place of what they did before.

    Attributes:
        received: The newest one, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._earlier: dict[int, Any] = {}
        self._restore = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as installed:
            for number in SIGNALS:
                earlier = signal.signal(number, self._note)
                # None: not installed from Python, so nothing that Python could put back.
                installed.callback(signal.signal, number, signal.SIG_DFL if earlier is None else earlier)
                self._earlier[number] = earlier
            self._restore = installed.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore.close()

    def pass_on(self) -> None:
        """Calls what the received signal called before, from the main line, where it may lock, log and raise.

        An application's own handler learns of the signal so. The one that makes a KeyboardInterrupt is not called.
        """
        earlier: Callable[[int, FrameType | None], object] | Any = self._earlier.get(self.received or 0)
        if callable(earlier) and earlier is not signal.default_int_handler:
            earlier(int(self.received or 0), None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
