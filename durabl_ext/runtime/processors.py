"""What is registered to be worked on. Registering starts nothing, so that producers can import it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from durabl_ext.options import Seconds, checked_seconds, checked_whole
from durabl_ext.runtime.context import Handler
from simplequeue.handlers import checked_handler
from simplequeue.payload import PayloadError, checked_action, checked_count


class HeartbeatConfigConflict(ValueError):  # noqa: N818  # the name users know it by
    """Says that heartbeats would come too rarely to keep a lease: their interval must be below the visibility timeout.

    Attributes:
        interval: Seconds between heartbeats, as asked.
        visibility_timeout: The queue's, in seconds.
    """

    def __init__(self, interval: float, visibility_timeout: float) -> None:
        super().__init__(interval, visibility_timeout)
        self.interval, self.visibility_timeout = interval, visibility_timeout

    def __str__(self) -> str:
        return (
            f"heartbeat_interval is {self.interval:g} s and the visibility timeout {self.visibility_timeout:g} s: a "
            "run would count as dead between two heartbeats. A third of the timeout is a good interval"
        )


@dataclass(frozen=True, slots=True)
class Processor:
    """How jobs of one action are worked on; intervals in seconds.

    Attributes:
        action: The action.
        handler: What is called with each job and its context.
        concurrency: How many run here at once.
        poll_interval: Between looks without a signal; None means the worker's.
        heartbeat_interval: Between heartbeats; None means a third of the visibility timeout.
        adopt_max_attempts: How many attempts a plain job gets when it is adopted.
    """

    action: str
    handler: Handler
    concurrency: int
    poll_interval: float | None
    heartbeat_interval: float | None
    adopt_max_attempts: int


def checked_processor(
    action: object,
    handler: object,
    *,
    concurrency: object,
    poll_interval: Seconds | None,
    heartbeat_interval: Seconds | None,
    adopt_max_attempts: object,
    visibility_timeout: float,
) -> Processor:
    """Gives back a processor whose every option has been checked.

    Raises:
        TypeError: The handler is none.
        PayloadError: An option is out of its range.
        HeartbeatConfigConflict: The heartbeat interval is not below the visibility timeout.
    """
    beat = None if heartbeat_interval is None else _checked_interval(heartbeat_interval, "heartbeat_interval")
    if beat is not None and beat >= visibility_timeout:
        raise HeartbeatConfigConflict(beat, visibility_timeout)
    return Processor(
        checked_action(action),
        checked_handler(handler, "a job and its context", 2),
        checked_count(concurrency, "concurrency"),
        None if poll_interval is None else _checked_interval(poll_interval, "poll_interval"),
        beat,
        checked_whole(adopt_max_attempts, "adopt_max_attempts", 1),
    )


def _checked_interval(value: Any, path: str) -> float:
    seconds = checked_seconds(value, path)
    if seconds <= 0:
        raise PayloadError(path, f"expected more than 0 seconds, found {value!r}")
    return seconds
