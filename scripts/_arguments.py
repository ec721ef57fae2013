"""What may stand on the command line, beyond what click knows: text that can be stored, actions, durations, moments.

Each kind refuses what would fail later, in words that say how to write it. Nothing here knows of a server.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from simplequeue.payload import PayloadError, checked_action

LONGEST = timedelta(days=36_500)
"""Far more than any job's age, and so little that no time that is counted back from now overflows."""

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile("".join(f"(?:([0-9]{{1,12}}){unit})?" for unit in _UNITS))


class _Kind(click.ParamType):  # type: ignore[type-arg]  # click's older releases have no type parameters here
    def __init__(self, name: str) -> None:
        self.name = name


class Text(_Kind):
    """Takes text that can be sent to a server: the shell may pass bytes that are no UTF-8."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(f"expected UTF-8, found {value!r:.100}", param, ctx)
        return value


class Action(_Kind):
    """Takes what can be the action of a job."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_action(value)
        except PayloadError as error:
            self.fail(f"{value!r:.100} {error.problem}", param, ctx)


class Duration(_Kind):
    """Takes durations such as 30s, 15m, 2h, 7d, 1w and combinations such as 1d12h."""

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _DURATION.fullmatch(value)
        seconds = sum(int(n) * unit for n, unit in zip(match.groups("0"), _UNITS.values(), strict=True)) if match else 0
        if not value or not match or seconds > LONGEST.total_seconds():
            self.fail(
                f"expected a duration such as 30s, 15m, 2h, 7d, 1w or 1d12h, at most 100 years, found {value!r:.100}",
                param,
                ctx,
            )
        return timedelta(seconds=seconds)


class Moment(_Kind):
    """Takes a point in time in ISO 8601, with its zone."""

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            if time.utcoffset() is None:
                self.fail(
                    f"{value!r} has no time zone, so it is another moment on every machine: add Z for UTC, or an "
                    "offset as in 2026-01-31T12:00:00+09:00",
                    param,
                    ctx,
                )
            return time.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"expected a time such as 2026-01-31T12:00:00Z, found {value!r:.100}", param, ctx)


class Seconds(click.FloatRange):
    """Takes a number of seconds up to a day."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, max=86_400)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):  # which is neither below a minimum nor above a maximum
            self.fail(f"expected a number of seconds, found {value!r:.100}", param, ctx)
        return seconds
