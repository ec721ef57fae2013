"""What an enqueue may ask for, and how long a failed job waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from durabl_ext.core.backoff import due_again, wait
from durabl_ext.many import checked_all
from durabl_ext.options import MAX_DELAY, MAX_INT, Backoff, Dedupe, Enqueue, Request, checked
from simplequeue.collection import codec_of
from simplequeue.payload import PayloadError

CODEC = codec_of(None)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
AWARE = datetime(2026, 6, 1, 12, 0, 0, 123_456, tzinfo=UTC)
NAN, INF = float("nan"), float("inf")


class Rude:
    """Neither compares nor shows itself, as an array of a numerical library does not compare."""

    __hash__ = None  # type: ignore[assignment]  # what an unhashable object looks like

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Word(str, Enum):  # noqa: UP042  # the kind that is meant: str() of a StrEnum is its value
    """Words as older programs keep them; ``str`` of one is its name."""

    KEY = "calendar:u_1"
    SCOPE = "queued"
    LATEST = "latest"
    BACKOFF = "fixed"


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("action", ["", None, 7, "\ud800"]),
        ("data", [[], "x", 7, {1: 2}]),
        ("priority", [0.5, "1", None, True, 2**31, -(2**31), 10**5_000, Rude()]),
        (
            "delay",
            [
                -1,
                NAN,
                INF,
                "1",
                True,
                timedelta(seconds=-1),
                MAX_DELAY + timedelta(seconds=1),
                1e300,
                10**400,
                [1],
                Rude(),
            ],
        ),
        ("run_at", [AWARE.replace(tzinfo=None), "now", 7, timedelta(1)]),
        ("max_attempts", [0, -1, 1.5, "3", None, True, 2**31]),
        ("dedupe_key", ["", 0, b"x", 7, ["k"], "k" * 4_097, "\ud800"]),
        ("dedupe_scope", ["", "pending", None, "running", ["queued"], Rude()]),
        ("coalesce", ["", "first", 1, Rude()]),
        ("backoff", ["", "linear", None, 1, Rude()]),
        ("backoff_delay", [-1, NAN, INF, "1", None, True]),
        ("backoff_max_delay", [-1, NAN, INF, "1", None, True]),
    ],
)
def test_nonsense_in_an_option_is_an_error_that_names_it(option: str, values: list[Any]) -> None:
    for value in values:
        asked = Enqueue(**{"action": "a", option: value})
        with pytest.raises(PayloadError) as refused:
            checked(asked, CODEC, "jobs[2].")
        assert refused.value.path.startswith(f"jobs[2].{option}"), value


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"delay": 1, "run_at": AWARE}, "delay"),
        ({"coalesce": "latest"}, "coalesce"),
        ({"coalesce": "latest", "dedupe_key": "k"}, "coalesce"),
        ({"coalesce": "first", "dedupe_key": "k", "dedupe_scope": "queued"}, "coalesce"),
    ],
)
def test_options_that_contradict_each_other_are_an_error(options: dict[str, Any], path: str) -> None:
    with pytest.raises(PayloadError) as refused:
        checked(Enqueue("a", **options), CODEC)
    assert refused.value.path == path


def test_what_is_left_out_has_the_documented_defaults() -> None:
    request = checked(Enqueue("a"), CODEC)
    assert (request.data, request.priority, request.max_attempts) == ({}, 0, 3)
    assert request.backoff == Backoff("exponential", 1.0, 60.0)
    assert request.dedupe is None
    assert request.due(NOW) == NOW


def test_a_key_of_two_kilobytes_and_both_scopes_are_accepted() -> None:
    key = "k" * 2_048
    assert checked(Enqueue("a", dedupe_key=key), CODEC).dedupe == Dedupe(key, "queued+running")
    asked = Enqueue("a", dedupe_key=key, dedupe_scope="queued", coalesce="latest")
    assert checked(asked, CODEC).dedupe == Dedupe(key, "queued", latest=True)


def test_a_word_of_an_enum_is_the_word_it_stands_for() -> None:
    words: Any = {"dedupe_key": Word.KEY, "dedupe_scope": Word.SCOPE, "coalesce": Word.LATEST, "backoff": Word.BACKOFF}
    request = checked(Enqueue(Word.KEY, **words), CODEC)
    assert request.dedupe == Dedupe("calendar:u_1", "queued", latest=True)
    assert request.dedupe is not None
    for text in (request.action, request.dedupe.key, request.dedupe.scope, request.backoff.kind):
        assert type(text) is str


@pytest.mark.parametrize("wrong", [("a", {}), "a", None, {"action": "a"}])
def test_what_is_no_enqueue_is_an_error_that_names_its_place(wrong: Any) -> None:
    for path, place in (("jobs[2].", "jobs[2]"), ("", "jobs[0]")):
        with pytest.raises(PayloadError) as refused:
            checked(wrong, CODEC, path)
        assert refused.value.path == place


def outcome(check: Callable[[], list[Request]]) -> list[Request] | str:
    try:
        return check()
    except PayloadError as refused:
        return str(refused)


def one_by_one(asked: list[Any]) -> list[Request]:
    return [checked(one, CODEC, f"jobs[{n}].") for n, one in enumerate(asked)]


class Asked(Enqueue):
    """An Enqueue of somebody's own."""


WORDS: Any = {"dedupe_key": Word.KEY, "dedupe_scope": Word.SCOPE, "coalesce": Word.LATEST, "backoff": Word.BACKOFF}
ASKED: list[Any] = [
    Enqueue("a"),
    Enqueue("a", {"n": 1}),
    Enqueue("b", {"deep": [{"n": 1}], "at": AWARE}),
    Enqueue(Word.KEY, {"n": Word.KEY}),
    Enqueue("a", priority=1),
    Enqueue("a", priority=True),
    Enqueue("a", priority=1),
    Enqueue("a", delay=1),
    Enqueue("a", delay=True),
    Enqueue("a", delay=timedelta(1)),
    Enqueue("a", run_at=AWARE),
    Enqueue("a", run_at=AWARE.replace(tzinfo=None)),
    Enqueue("a", delay=1, run_at=AWARE),
    Enqueue("a", max_attempts=5, backoff="fixed", backoff_delay=2, backoff_max_delay=timedelta(3)),
    Enqueue("a", backoff_delay=NAN),
    Enqueue("a", dedupe_key="k"),
    Enqueue("a", dedupe_key="other", dedupe_scope="queued", coalesce="latest"),
    Enqueue("a", dedupe_key="k", coalesce="latest"),
    Enqueue("a", **WORDS),
    Enqueue("a", {"n": {1}}),
    Enqueue("a", {"n": 2**64}),
    Enqueue("a", {1: 2}),  # type: ignore[dict-item]  # that it is refused is the point
    Enqueue("a", {"$ref": "c", "$id": 1}),
    Enqueue("", {"n": 1}),
    Enqueue("a", priority=Rude()),  # type: ignore[arg-type]  # so here
    Asked("a"),
    "a",
]


@example(ASKED[:5])
@example(ASKED[4:6])
@example([Enqueue("a", {"n": {1}}), Enqueue("")])
@given(st.lists(st.sampled_from(ASKED), min_size=2, max_size=6))
def test_many_are_checked_as_each_is_alone_and_the_first_that_is_wrong_is_named(asked: list[Any]) -> None:
    together, alone = outcome(lambda: checked_all(asked, CODEC)), outcome(lambda: one_by_one(asked))
    assert together == alone
    assert repr(together) == repr(alone)  # True is 1, and is not


def test_what_many_are_given_is_copied() -> None:
    data = {"n": 1}
    requests = checked_all([Enqueue("a", data), Enqueue("a", data)], CODEC)
    data["n"] = 2
    assert [request.data for request in requests] == [{"n": 1}] * 2


def test_one_of_one_is_named_without_a_number() -> None:
    with pytest.raises(PayloadError) as refused:
        checked_all([Enqueue("a", priority=0.5)], CODEC)  # type: ignore[arg-type]  # that it is refused is the point
    assert refused.value.path == "priority"


def test_a_delay_is_seconds_or_a_timedelta_and_a_past_time_is_now() -> None:
    assert checked(Enqueue("a", delay=1.5), CODEC).due(NOW) == NOW + timedelta(seconds=1.5)
    assert checked(Enqueue("a", delay=timedelta(hours=1)), CODEC).due(NOW) == NOW + timedelta(hours=1)
    assert checked(Enqueue("a", delay=0), CODEC).due(NOW) == NOW
    assert checked(Enqueue("a", run_at=AWARE), CODEC).due(NOW) == AWARE.replace(microsecond=123_000)
    assert checked(Enqueue("a", run_at=AWARE), CODEC).due(AWARE + timedelta(days=1)) == AWARE + timedelta(days=1)


def test_a_fixed_wait_is_the_same_each_time() -> None:
    backoff = Backoff("fixed", 5.0, 60.0)
    assert {wait(backoff, attempt, random.uniform) for attempt in (1, 2, 50)} == {timedelta(seconds=5)}
    assert wait(Backoff("fixed", 5.0, 2.0), 1, random.uniform) == timedelta(seconds=2)


def test_an_exponential_wait_doubles_its_most_and_never_falls_below_its_base() -> None:
    backoff = Backoff("exponential", 1.0, 60.0)
    most = [wait(backoff, attempt, lambda low, high: high).total_seconds() for attempt in range(1, 9)]
    least = {wait(backoff, attempt, lambda low, high: low) for attempt in range(1, 9)}
    assert most == [1, 2, 4, 8, 16, 32, 60, 60]
    assert least == {timedelta(seconds=1)}


@given(
    kind=st.sampled_from(["exponential", "fixed"]),
    delay=st.floats(0, MAX_DELAY.total_seconds()),
    max_delay=st.floats(0, MAX_DELAY.total_seconds()),
    attempt=st.sampled_from([0, 1, 2, 47, 1_023, 1_024, 10**6, MAX_INT]),
    seed=st.integers(),
)
def test_no_wait_raises_or_exceeds_its_cap(kind: Any, delay: float, max_delay: float, attempt: int, seed: int) -> None:
    backoff = Backoff(kind, delay, max_delay)
    uniform = random.Random(seed).uniform
    waited = wait(backoff, attempt, uniform)
    assert timedelta(0) <= waited <= timedelta(seconds=max_delay) + timedelta(microseconds=1)
    assert waited >= timedelta(seconds=min(delay, max_delay)) - timedelta(microseconds=1)
    assert due_again(backoff, attempt, NOW, uniform).microsecond % 1000 == 0
