"""What steps may return: in the first run and in every later one the same value of the same type, or it is refused."""

from __future__ import annotations

import dataclasses
import enum
import math
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from tests.orchestrator.conftest import Bench, Crash


class Level(enum.IntEnum):
    HIGH = 2


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Text(str):
    pass


KEPT: dict[str, Any] = {
    "none": None,
    "a bool": True,
    "an int": 7,
    "a float": 1.5,
    "infinity": -math.inf,
    "not a number": math.nan,
    "a text": "ä \0 \U0001f600",
    "bytes": b"\x00\xff",
    "a list": [1, [2, []]],
    "a dict": {"a": {"b": {}}, "": 1, "$c.d": 2},
    "a time": datetime(2026, 1, 1, 12, 0, 0, 5_000, tzinfo=UTC),
    "an id": ObjectId("65a000000000000000000001"),
    "an Int64": Int64(5),
    "a Decimal128": Decimal128("1.10"),
    "a Regex": Regex("a+", "i"),
    "code": Code("f()", {"x": 1}),
    "a Timestamp": Timestamp(5, 1),
    "a Binary": Binary(b"x", 128),
    "a DBRef": DBRef("c", 1),
    "MinKey": MinKey(),
    "MaxKey": MaxKey(),
}
CHANGED: dict[str, tuple[Any, Any]] = {
    "microseconds": (
        datetime(2026, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC),
        datetime(2026, 1, 1, 12, 0, 0, 999_000, tzinfo=UTC),
    ),
    "another zone": (
        datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=9))),
        datetime(2026, 1, 1, 3, tzinfo=UTC),
    ),
    "a long": (2**40, Int64(2**40)),
    "an IntEnum": (Level.HIGH, 2),
    "a StrEnum": (Colour.RED, "red"),
    "a text of another class": (Text("x"), "x"),
}
"""What comes back as the database gives it: in the first run as well."""
REFUSED: dict[str, Any] = {
    "a tuple": (1, 2),
    "a tuple inside": {"x": [(1, 2)]},
    "int keys": {1: "a"},
    "a key with a NUL": {"a\0": 1},
    "a lone surrogate": "\ud800",
    "a naive time": datetime(2026, 1, 1),  # noqa: DTZ001  # it is to be refused
    "a date": date(2026, 1, 1),
    "a Decimal": Decimal("1.1"),
    "a UUID": uuid.UUID(int=5),
    "a set": {1},
    "a frozenset": frozenset({1}),
    "a dataclass": Point(1),
    "an int of more than 64 bits": 2**63,
    "a bytearray": bytearray(b"x"),
    "a function": print,
    "an exception": ValueError("x"),
    "nested too deep": [[]],
}
deep: Any = REFUSED["nested too deep"]
for _ in range(200):
    deep = [deep]
REFUSED["nested too deep"] = deep


def typed(value: Any) -> Any:
    """A value with the types of all its parts; also of a number that is not equal to itself."""
    if isinstance(value, dict):
        return type(value), {name: typed(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [typed(part) for part in value]
    return type(value), "nan" if isinstance(value, float) and math.isnan(value) else value


def test_the_first_run_and_a_resume_see_the_same_values_of_the_same_types(bench: Bench) -> None:
    values = {**{name: (value, value) for name, value in KEPT.items()}, **CHANGED}
    seen: list[dict[str, Any]] = []

    async def body(job: Any, octx: Any) -> None:
        seen.append({name: await octx.step(name, bench.does(name, given)) for name, (given, _) in values.items()})
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    assert (job.status, job.attempt, bench.ran) == ("completed", 2, list(values))
    first, second = seen
    for name, (_, stored) in values.items():
        assert typed(first[name]) == typed(second[name]) == typed(stored), name


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_what_would_come_back_as_something_else_is_refused_before_it_is_journaled(def_bench: Bench, given: Any) -> None:
    bench = def_bench

    async def body(job: Any, octx: Any) -> None:
        try:
            await octx.step("gives", bench.does("gives", given))
        except Exception:
            await octx.step("later", bench.does("later"))

    job = bench.done(body)
    assert (job.status, job.failure_kind) == ("failed", "fatal")
    assert job.error is not None
    assert job.error["name"] == "NonSerializableStepResult"
    assert "step 'gives'" in job.error["message"]
    assert (bench.ran, bench.steps(job.id)) == (["gives"], [])


def test_what_is_refused_is_refused_in_every_kind_of_body_and_names_its_place(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        await octx.step("gives", bench.does("gives", {"items": [1, {"price": Decimal(1)}]}))

    job = bench.done(body)
    assert job.error is not None
    assert "step.result.items[1].price" in job.error["message"]
    assert bench.steps(job.id) == []


@pytest.mark.parametrize("transactional", [False, True])
def test_a_result_that_the_function_or_the_body_changes_later_is_as_it_was_stored(
    bench: Bench, transactional: bool
) -> None:
    kept: dict[str, Any] = {"items": [1]}
    seen: list[Any] = []

    async def body(job: Any, octx: Any) -> None:
        result = await octx.step("gives", bench.does("gives", kept), transactional=transactional)
        seen.append(bson.decode(bson.encode(result)))
        kept["items"].append("by the function")
        result["items"].append("by the body")
        assert (await octx.step("next", bench.does("next", 1))) == 1
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    assert job.status == "completed"
    assert seen == [{"items": [1]}] * 2
    assert bench.steps(job.id)[0]["result"] == {"items": [1]}


def test_a_result_larger_than_any_document_is_too_large_and_not_unserializable(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        await octx.step("gives", bench.does("gives", "x" * 17_000_000))

    job = bench.done(body)
    assert (job.status, job.failure_kind) == ("failed", "fatal")
    assert job.error is not None
    assert job.error["name"] == "JournalTooLarge"
