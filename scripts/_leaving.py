"""How a worker's process ends: with its work done, or beside handlers that hang."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from simplequeue_scripts._signals import SIGNALS

LAST_WORDS = 1.0
"""Seconds to write out what handlers have printed, which a handler that hangs in a print may hold up for ever."""


def leave_in_order() -> None:
    """Makes a signal that comes while Python winds up end the process at once, as done.

    That takes some tenths of a second, in which the driver waits for its threads. An impatient second Ctrl-C in them
    would end in a traceback, a second SIGTERM in an exit code of a failure.
    """
    atexit.register(_end_at_signals)


def leave_now() -> NoReturn:
    """Ends the process with 1, beside handlers that hang.

    Their threads are daemons, but those that they have started themselves may not be, such as the threads of an
    executor: Python waits for them when it winds up.
    """
    printing = threading.Thread(target=_flush, daemon=True)
    printing.start()
    printing.join(LAST_WORDS)
    os._exit(1)


def _end_at_signals() -> None:
    _flush()
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: os._exit(0))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # nobody reads on; closed meanwhile; closed from the start
            stream.flush()
