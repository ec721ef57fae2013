"""Signal handlers that ask for a drain and do nothing else.

A handler runs between two instructions of the main thread, which may hold any lock at that moment: so it takes none,
logs nothing and calls no driver. It never ends the process; that is for the program, once it is drained.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

Uninstall = Callable[[], None]


def install(signals: Iterable[int], ask: Callable[[], object]) -> Uninstall:
    """Has signals ask for a drain, after what an application had installed for them before.

    Args:
        signals: Which.
        ask: What to call in the handler; it may take no lock.

    Returns:
        What puts the earlier handlers back, where nobody has installed another since.

    Raises:
        RuntimeError: Called in another thread than the main one, where Python installs no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "signal handlers can be installed in the main thread only; call install_signal_handlers() there, or "
            "shutdown() from wherever the signal is handled"
        )
    earlier: dict[int, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        ask()
        before = earlier[number]
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)

    for number in signals:
        earlier[number] = signal.getsignal(number)
        signal.signal(number, handle)

    def uninstall() -> None:
        for number, before in earlier.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, signal.SIG_DFL if before is None else before)

    return uninstall
