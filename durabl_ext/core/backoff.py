"""How long a failed job waits for its next attempt."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from durabl_ext.options import Backoff
from simplequeue.payload import cut

DOUBLINGS = 62
"""More would overflow a float after a thousand attempts, and any cap is reached long before."""

Uniform = Callable[[float, float], float]


def wait(backoff: Backoff, attempt: int, uniform: Uniform) -> timedelta:
    """Gives the wait after an attempt that failed.

    Fixed: always ``delay``. Exponential: full jitter (Brooker, "Exponential Backoff and Jitter", 2015) with the base as
    its floor, so that retries of jobs that failed together spread out and none comes back at once.

    Args:
        backoff: The job's own rule.
        attempt: Which attempt failed, from 1.
        uniform: Draws a number between two, as ``random.uniform`` does.
    """
    base = min(backoff.delay, backoff.max_delay)
    if backoff.kind == "fixed":
        return timedelta(seconds=base)
    highest = min(backoff.max_delay, base * 2.0 ** min(max(attempt - 1, 0), DOUBLINGS))
    return timedelta(seconds=min(max(uniform(base, highest), base), backoff.max_delay))


def due_again(backoff: Backoff, attempt: int, now: datetime, uniform: Uniform) -> datetime:
    """Gives when a job whose attempt failed now may start again, cut to milliseconds."""
    return cut(now + wait(backoff, attempt, uniform))
