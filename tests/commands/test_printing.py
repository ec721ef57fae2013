"""How jobs look, whatever somebody has put into them."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from simplequeue_scripts._as_json import plain
from simplequeue_scripts._as_text import clipped, counted, printable, span


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße, 世界 🎉", "Grüße, 世界 🎉"),
        ("\x1b[2J\x07\r\n", "\\x1b[2J\\x07\\r\\n"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_what_is_printed_encodes_and_has_no_control_characters(text: str) -> None:
    shown = clipped(text, 20)
    assert len(shown) <= 20
    assert shown.isprintable()
    shown.encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC), "2026-01-02T03:04:05.678Z"),
        ({"a": [1, 2.5, True, None, "x", {"b": bson.Int64(7)}]}, {"a": [1, 2.5, True, None, "x", {"b": 7}]}),
        (bson.Decimal128("1.10"), {"$numberDecimal": "1.10"}),
        (bson.ObjectId("6b0dadaa09b63906e2375805"), {"$oid": "6b0dadaa09b63906e2375805"}),
        (b"\x00\xff", {"$binary": {"base64": "AP8=", "subType": "00"}}),
        (float("nan"), {"$numberDouble": "NaN"}),
        (float("-inf"), {"$numberDouble": "-Infinity"}),
        (DatetimeMS(10**17), {"$date": {"$numberLong": "100000000000000000"}}),
        (uuid.UUID(int=1), {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAQ==", "subType": "04"}}),
        (bson.Timestamp(1, 2), {"$timestamp": {"t": 1, "i": 2}}),
    ],
)
def test_every_type_has_a_form_in_json(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0.000s"),
        (0.0004, "0.000s"),
        (1.5, "1.500s"),
        (10, "10s"),
        (61, "1m1s"),
        (3_600, "1h"),
        (3_661, "1h1m"),
        (90_000, "1d1h"),
        (86_400 * 400, "400d"),
    ],
)
def test_durations_are_short(seconds: float, shown: str) -> None:
    assert span(timedelta(seconds=seconds)) == shown


def test_numbers_of_jobs_read_well() -> None:
    assert [counted(count) for count in (0, 1, 1_234)] == ["0 jobs", "1 job", "1,234 jobs"]
