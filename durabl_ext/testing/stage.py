"""Where the bodies under test run: one loop and one set of threads in a process.

One loop for all runs, so that what a body keeps between them, such as a client, finds the loop it was first used on.
It is no loop of the caller's, who may be on one already and only waits.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from durabl_ext.runtime.registry import PerProcess
from simplequeue.threads import LoopThread, Threads

T = TypeVar("T")

_loops = PerProcess(lambda: LoopThread("durabl-testing"))
steps = PerProcess(lambda: Threads("durabl-testing-step"))
"""For the functions of steps."""

calls = PerProcess(lambda: Threads("durabl-testing-call"))
"""For calls on the store: apart, as a step that was left behind may hold a thread."""


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs something on that loop and gives what it returns or raises.

    Raises:
        RuntimeError: This is that loop, which must not wait for itself.
    """
    loop = _loops.here()
    if loop.is_current():
        coroutine.close()
        raise RuntimeError(
            "a harness waits for its body, and this is the loop that bodies under test run on: use it outside of them"
        )
    return loop.call(coroutine)
