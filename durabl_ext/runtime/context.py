"""What a handler is given beside its job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from durabl_ext.job import DurableJob
from durabl_ext.runtime.signal import AsyncSignal, Signal


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a sync handler may ask and say while it runs.

    Attributes:
        signal: Tells it when it should end early.
        log: Adds a line to the job's own log, stored soon and before the run ends; never raises and never waits.
    """

    signal: Signal
    log: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AsyncJobContext:
    """What an ``async def`` handler may ask and say while it runs; as ``JobContext``."""

    signal: AsyncSignal
    log: Callable[[str], None]


Handler = Callable[[DurableJob, Any], object]
AsyncHandler = Callable[[DurableJob, AsyncJobContext], Awaitable[object]]
