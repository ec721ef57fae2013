"""Handlers that a test holds, and how long a drain may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

BOUND = 12.0
"""Seconds that a drain may take beyond its timeout: one for telling, one for giving back, and a busy machine. What it
must not wait for, a handler or a server that hangs, lasts for many times as long."""


class Held:
    """A handler that says when it runs and ends when it is let."""

    def __init__(self, after: Callable[[Any, Any], object] | None = None) -> None:
        self.running = threading.Event()
        self.release = threading.Event()
        self.over = threading.Event()
        self._after = after

    def __call__(self, job: Any, ctx: Any) -> None:
        self.running.set()
        try:
            if self._after is not None:
                self._after(job, ctx)
            else:
                self.release.wait(60)
        finally:
            self.over.set()


def raise_if_set(job: Any, ctx: Any) -> None:
    assert ctx.signal.wait(60)
    assert ctx.signal.reason == "shutdown"
    ctx.signal.raise_if_set()


def fail(job: Any, ctx: Any) -> None:
    ctx.signal.wait(60)
    raise ValueError("interrupted")
