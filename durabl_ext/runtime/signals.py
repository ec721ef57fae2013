"""Signal handlers that ask for a drain and do nothing else.

A handler runs between two instructions of the main thread, which may hold any lock at that moment: so it takes none,
logs nothing and calls no driver. It never ends the process; that is for the program, once it is drained.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any

Uninstall = Callable[[], None]


def install(signals: Iterable[int], ask: Callable[[], object]) -> Uninstall:
    """Has signals ask for a drain, before what an application had installed for them.

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
    asking = _Asking(ask)
    try:
        for number in dict.fromkeys(signals):
            asking.install(number)
    except BaseException:
        asking.uninstall()
        raise
    return asking.uninstall


class _Asking:
    """One installation: what it asks, and what it found in its place."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._process = os.getpid()
        self._installed = True
        self._earlier: dict[int, Any] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        earlier = self._earlier[number]
        if self._is_here():
            self._ask()
        elif self._is_installed_for(number):
            # As if it had never been there: a child that its parent terminates must not swallow that.
            signal.signal(number, self._before(number))
            signal.raise_signal(number)
            return
        if callable(earlier) and not _interrupts(earlier):
            earlier(number, frame)

    def install(self, number: int) -> None:
        earlier = signal.getsignal(number)
        self._earlier[number] = earlier  # before it can be called
        try:
            signal.signal(number, self)
        except BaseException:
            del self._earlier[number]
            raise

    def uninstall(self) -> None:
        self._installed = False
        if threading.current_thread() is not threading.main_thread():
            return  # it puts the earlier one back itself, when the next signal comes
        for number in self._earlier:
            if self._is_installed_for(number):
                signal.signal(number, self._before(number))

    def _is_installed_for(self, number: int) -> bool:
        current: Any = signal.getsignal(number)
        return current is self

    def _is_here(self) -> bool:
        return self._installed and os.getpid() == self._process

    def _before(self, number: int) -> Any:
        """What is to be in its place; an installation that has ended meanwhile is passed over."""
        before = self._earlier[number]
        while isinstance(before, _Asking) and not before._is_here():
            before = before._earlier[number]
        return signal.SIG_DFL if before is None else before


def _interrupts(handler: Any) -> bool:
    """Whether it is what Python, or a running ``asyncio.run``, has for Ctrl-C by itself: it would cut the drain off."""
    if isinstance(handler, partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler is signal.default_int_handler
