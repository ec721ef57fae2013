"""What an enqueue may ask for, and what is refused.

Here lives every rule about an option, so that nonsense is an error at the call and can never reach the moment a job
fails. Nothing here knows of a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from simplequeue.payload import Codec, PayloadError, checked_action, checked_data, checked_time, cut, shown

Scope = Literal["queued", "queued+running"]
BackoffKind = Literal["exponential", "fixed"]
Coalesce = Literal["latest"]
Seconds = float | timedelta

_KINDS, _SCOPES, _COALESCE = get_args(BackoffKind), get_args(Scope), get_args(Coalesce)

MAX_INT = 2**31 - 1
MAX_KEY_BYTES = 4_096
MAX_DELAY = timedelta(days=3_660)
"""Ten years. Longer is a mistake in the unit, and could not be added to every date."""


MIN_LEASE = 0.1
"""Seconds. A shorter lease ends before a heartbeat can reach a server that is a little busy."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Describes one job to enqueue; ``enqueue`` takes the same as arguments.

    Attributes:
        action: What is to be done; 1 to 1,000 bytes.
        data: What the handler needs, as for the base layer's ``add``. None means ``{}``.
        priority: A lower number runs first. Use few different ones: a claim reads one index key for each priority of
            which jobs are waiting for their time.
        delay: Seconds, or a timedelta, until it is due; at most ten years. None means no delay.
        run_at: When it is due, as an aware datetime. None means now; a time in the past does too. Not with ``delay``.
        max_attempts: How often it may be started before it has failed for good. A release does not count.
        dedupe_key: Names the one resource the job works on, in 1 to 4,096 bytes. None means no deduplication.
        dedupe_scope: ``"queued+running"``: no second job of the key while one is queued or runs. ``"queued"``: one may
            wait behind one that runs.
        coalesce: ``"latest"``: a job of the same action that waits under the key becomes this request. It gets this
            data instead of its own, begins again at attempt 0 without error, journal and log, and is due no later than
            this request asks; what it was promised for earlier is not put off. Its priority, attempts and backoff stay.
            A waiting job of another action is left alone, and the key is taken. Only in scope ``"queued"``. None means
            that the first one's data stays.
        backoff: How the wait between attempts grows: ``"exponential"`` with jitter, or ``"fixed"``.
        backoff_delay: Seconds, or a timedelta, before the second attempt.
        backoff_max_delay: Seconds, or a timedelta, that no wait exceeds.
    """

    action: str
    data: Mapping[str, Any] | None = None
    priority: int = 0
    delay: Seconds | None = None
    run_at: datetime | None = None
    max_attempts: int = 3
    dedupe_key: str | None = None
    dedupe_scope: Scope = "queued+running"
    coalesce: Coalesce | None = None
    backoff: BackoffKind = "exponential"
    backoff_delay: Seconds = 1.0
    backoff_max_delay: Seconds = 60.0


class Options(TypedDict, total=False):
    """The options of an enqueue as keyword arguments; ``Enqueue`` says what each means and what it is by default."""

    priority: int
    delay: Seconds | None
    run_at: datetime | None
    max_attempts: int
    dedupe_key: str | None
    dedupe_scope: Scope
    coalesce: Coalesce | None
    backoff: BackoffKind
    backoff_delay: Seconds
    backoff_max_delay: Seconds


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed job waits. Times in seconds."""

    kind: BackoffKind = "exponential"
    delay: float = 1.0
    max_delay: float = 60.0


@dataclass(frozen=True, slots=True)
class Dedupe:
    """The resource a job works on, and how exclusively."""

    key: str
    scope: Scope
    latest: bool = False


class Request(NamedTuple):
    """An enqueue whose every option has been checked. ``delay`` and ``run_at`` are as asked; the clock is not here.

    A tuple, since a frozen dataclass takes a call for each field, and an ``enqueue_many`` makes thousands.
    """

    action: str
    data: dict[str, Any]
    priority: int
    delay: timedelta | None
    run_at: datetime | None
    max_attempts: int
    backoff: Backoff
    dedupe: Dedupe | None

    def due(self, now: datetime) -> datetime:
        """When the job is due, if it is enqueued now."""
        if self.run_at is not None:
            return max(self.run_at, now)
        return now if self.delay is None else cut(now + self.delay)


Terms = tuple[int, timedelta | None, datetime | None, int, Backoff]
"""Priority, delay, time, attempts and backoff of a request."""


def checked(asked: Enqueue, codec: Codec, path: str = "") -> Request:
    """Checks every option of an enqueue.

    Args:
        asked: What is asked for.
        codec: The collection's codec options.
        path: What errors put before the name of an option.

    Raises:
        PayloadError: An option is not as ``Enqueue`` describes; ``.path`` names it.
    """
    if not isinstance(asked, Enqueue):
        raise PayloadError(path.rstrip(".") or "jobs[0]", f"expected an Enqueue(...), found {shown(asked):.100}")
    refuse_both_times(asked, path)
    action = checked_action(asked.action, f"{path}action")
    data = checked_data(asked.data, codec, f"{path}data")
    return Request(action, data, *checked_terms(asked, path), checked_dedupe(asked, path))


def refuse_both_times(asked: Enqueue, path: str) -> None:
    """Raises when a delay and a time are given."""
    if asked.delay is not None and asked.run_at is not None:
        raise PayloadError(f"{path}delay", "cannot be given together with run_at: one of them says when")


def checked_terms(asked: Enqueue, path: str) -> Terms:
    """Gives back the options between ``data`` and ``dedupe``."""
    return (
        checked_whole(asked.priority, f"{path}priority", -MAX_INT),
        None if asked.delay is None else timedelta(seconds=checked_seconds(asked.delay, f"{path}delay")),
        None if asked.run_at is None else checked_time(asked.run_at, f"{path}run_at"),
        checked_whole(asked.max_attempts, f"{path}max_attempts", 1),
        _checked_backoff(asked, path),
    )


def checked_dedupe(asked: Enqueue, path: str) -> Dedupe | None:
    """Gives back the resource a job works on, None without a key."""
    scope: Scope = checked_choice(asked.dedupe_scope, _SCOPES, f"{path}dedupe_scope")
    if asked.coalesce is not None:
        checked_choice(asked.coalesce, _COALESCE, f"{path}coalesce")
    if asked.coalesce is not None and (asked.dedupe_key is None or scope != "queued"):
        raise PayloadError(f"{path}coalesce", "needs a dedupe_key and dedupe_scope='queued': only there can a job wait")
    if asked.dedupe_key is None:
        return None
    return Dedupe(checked_key(asked.dedupe_key, f"{path}dedupe_key"), scope, asked.coalesce is not None)


def checked_whole(value: object, path: str, least: int) -> int:
    """Gives back a whole number from ``least`` to 2,147,483,647."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INT:
        raise PayloadError(path, f"expected a whole number from {least:,} to {MAX_INT:,}, found {shown(value)}")
    return int(value)


def checked_choice(value: object, choices: Sequence[str], path: str) -> Any:
    """Gives back one of some words, as a plain string."""
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    raise PayloadError(path, f"expected {' or '.join(map(repr, choices))}, found {shown(value)}")


def checked_seconds(value: object, path: str) -> float:
    """Gives back a duration in seconds, from 0 to ten years."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != seconds:
        raise PayloadError(path, f"expected a number of seconds or a timedelta, found {shown(value)}")
    if not 0 <= seconds <= MAX_DELAY.total_seconds():
        raise PayloadError(path, f"expected 0 to {MAX_DELAY.total_seconds():,.0f} seconds, found {shown(value)}")
    return float(seconds)


def checked_lease(value: object, path: str = "lease") -> timedelta:
    """Gives back how long a run is taken to be alive without a heartbeat: a tenth of a second at least."""
    seconds = checked_seconds(value, path)
    if seconds < MIN_LEASE:
        raise PayloadError(path, f"expected at least {MIN_LEASE:g} s, found {value!r}: heartbeats could not keep up")
    return timedelta(milliseconds=round(seconds * 1_000))  # what is stored of its end, so that both compare equal


def checked_key(value: object, path: str) -> str:
    """Gives back a dedupe key: a non-empty string of at most 4,096 bytes."""
    if not isinstance(value, str) or not value:
        raise PayloadError(
            path, f"expected a non-empty string that names the resource, or None, found {shown(value):.100}"
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise PayloadError(path, "holds a lone surrogate, which is no character UTF-8 can write") from None
    if size > MAX_KEY_BYTES:
        raise PayloadError(path, f"takes {size:,} bytes; at most {MAX_KEY_BYTES:,} are allowed. A hash of it would do")
    return str.__str__(value)  # not str(value): of an Enum that is a string, that is another key


def _checked_backoff(asked: Enqueue, path: str) -> Backoff:
    return Backoff(
        checked_choice(asked.backoff, _KINDS, f"{path}backoff"),
        checked_seconds(asked.backoff_delay, f"{path}backoff_delay"),
        checked_seconds(asked.backoff_max_delay, f"{path}backoff_max_delay"),
    )
