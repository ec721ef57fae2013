"""What the commands take, and what they say of the rest."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simplequeue_scripts._arguments import LONGEST, Action, Duration, Moment, Seconds, Text


def converted(kind: Any, value: str) -> Any:
    return kind.convert(value, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("1w", timedelta(weeks=1)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("1w2d3h4m5s", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
        ("90m", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        ("36500d", LONGEST),
    ],
)
def test_a_duration_is_read(text: str, expected: timedelta) -> None:
    assert converted(Duration("duration"), text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "d", "7 d", "-7d", "1.5h", "7D", "12h1d", "1d1d", "7days", "inf", "nan", "٣d", "7d\n"),
        *("36501d", "999999999999w", "9" * 30 + "d", "9" * 10_000 + "s", "\udcff"),
    ],
)
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"30s, 15m, 2h, 7d, 1w or 1d12h, at most 100 years") as refusal:
        converted(Duration("duration"), text)
    assert len(refusal.value.message) < 300


@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with suppress(click.BadParameter):
        assert timedelta(0) <= converted(Duration("duration"), text) <= LONGEST


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00+09:00", datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=9)))),
        ("2026-01-31 12:00:00.123-03:30", datetime(2026, 1, 31, 15, 30, 0, 123_000, tzinfo=UTC)),
    ],
)
def test_a_moment_is_read(text: str, expected: datetime) -> None:
    assert converted(Moment("time"), text) == expected


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T12:00:00"])
def test_a_moment_without_a_zone_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"no time zone.*add Z for UTC, or an offset"):
        converted(Moment("time"), text)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "31.1.2026", "1769860800", "0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-14:00", "\udcff"],
)
def test_what_is_no_moment_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="2026-01-31T12:00:00Z"):
        converted(Moment("time"), text)


@pytest.mark.parametrize("text", ["nan", "-1", "86401", "inf", "x", ""])
def test_seconds_are_a_number_up_to_a_day(text: str) -> None:
    assert converted(Seconds(), "0.5") == 0.5
    with pytest.raises(click.BadParameter):
        converted(Seconds(), text)


@pytest.mark.parametrize("text", ["", "\udcff", "x" * 1_001])
def test_an_action_that_no_job_can_have_is_refused(text: str) -> None:
    assert converted(Action("action"), "send-mail") == "send-mail"
    with pytest.raises(click.BadParameter):
        converted(Action("action"), text)


def test_bytes_that_are_no_utf_8_are_refused() -> None:
    assert converted(Text("name"), "jobs") == "jobs"
    with pytest.raises(click.BadParameter, match="expected UTF-8"):
        converted(Text("name"), "\udcff")
