"""Payloads and the ends of jobs, on every store: what goes in comes back, and what has begun can be ended."""

from __future__ import annotations

import collections
import logging
import threading
import types
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

import bson
import pytest
from bson import Decimal128, ObjectId
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, TypeCodec, TypeRegistry
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from hypothesis import HealthCheck, given, settings
from pymongo.database import Database

from simplequeue import Job, PayloadError, Status, create_queue
from simplequeue.failure import MESSAGE_BYTES, NAME_BYTES, STACK_BYTES
from simplequeue.payload import MAX_DATA_BYTES, MAX_DEPTH
from tests.cells import CELLS, Cell, blocking_on_mongod
from tests.conformance.test_times import ON_MONGOD, Open, with_codec
from tests.unit.test_payload import BAD, BAD_KEYS, GOOD, PAYLOADS, REFUSED, Case, DecimalCodec, MixedText, same
from tests.watching import Recorder, ended, until

POLL = 0.05
DOCUMENT_BYTES = 16_777_216
REAL = tuple(open_cell for open_cell in CELLS if open_cell.__name__.endswith("mongod"))


def on(*cells: Callable[..., Any]) -> pytest.MarkDecorator:
    """Runs a test in these cells only, for what the others cannot show: mongomock knows no limit of a document."""
    return pytest.mark.parametrize("cell", cells, indirect=True, ids=lambda open_cell: open_cell.__name__)


def outcome(call: Callable[[], object]) -> str:
    """Where a PayloadError says that the trouble is; what else a call does, in words that can always be shown."""
    try:
        call()
    except PayloadError as refused:
        return refused.path
    except BaseException as error:
        return f"raised {type(error).__qualname__}"
    return "accepted"


def snapshot(cell: Cell) -> list[Any]:
    return list(cell.collection.find(sort=[("_id", 1)]))


# What is refused.


def test_what_would_not_come_back_equal_is_refused_at_every_door_and_nothing_is_stored(cell: Cell) -> None:
    job = cell.queue.add("a", {"x": "untouched"})
    before = snapshot(cell)
    doors: dict[str, Callable[[Any], object]] = {
        "data.items[3].price": lambda bad: cell.queue.add("a", {"items": [0, 1, 2, {"price": bad}]}),
        "data.x": lambda bad: cell.queue.add("a", {"x": bad}),
        "jobs[1].data.x[0]": lambda bad: cell.queue.add_many([("a", None), ("b", {"x": [bad]}), ("c", None)]),
        "data.x.y": lambda bad: cell.queue.update(job.id, {"good": 1, "x": {"y": bad}}),
    }
    for path, door in doors.items():
        assert {name: outcome(lambda: door(make())) for name, make in BAD.items()} == dict.fromkeys(BAD, path)  # noqa: B023  # called at once
    assert snapshot(cell) == before


def test_a_key_that_cannot_be_one_is_refused_at_every_door_and_nothing_is_stored(cell: Cell) -> None:
    job = cell.queue.add("a", {"x": "untouched"})
    before = snapshot(cell)
    doors: dict[str, Callable[[Any], object]] = {
        "data": lambda key: cell.queue.add("a", {key: 1}),
        "data.x": lambda key: cell.queue.add("a", {"x": {key: 1}}),
        "jobs[0].data.x[0]": lambda key: cell.queue.add_many([("a", {"x": [{key: 1}]})]),
        "data.y": lambda key: cell.queue.update(job.id, {"y": {"good": 1, key: 1}}),
    }
    for path, door in doors.items():
        found = {name: outcome(lambda: door(key)) for name, key in BAD_KEYS.items()}  # noqa: B023  # called at once
        assert found == dict.fromkeys(BAD_KEYS, path)
    assert {name: outcome(lambda: cell.queue.update(job.id, {key: 1})) for name, key in BAD_KEYS.items()} == (  # noqa: B023  # as above
        dict.fromkeys(BAD_KEYS, "data")
    )
    assert snapshot(cell) == before


def test_a_payload_that_would_be_read_as_a_reference_is_refused(cell: Cell) -> None:
    assert outcome(lambda: cell.queue.add("a", {"$ref": "c", "$id": 1})) == "data"
    assert outcome(lambda: cell.queue.add_many([("a", {"$ref": "c", "$id": 1})])) == "jobs[0].data"
    assert snapshot(cell) == []


def test_what_contains_itself_is_refused_and_nothing_is_stored(cell: Cell) -> None:
    ring: dict[str, Any] = {"a": 1}
    ring["me"] = [ring]
    job = cell.queue.add("a")
    before = snapshot(cell)
    calls: tuple[Callable[[], object], ...] = (
        lambda: cell.queue.add("a", ring),
        lambda: cell.queue.add_many([("a", None), ("a", ring)]),
        lambda: cell.queue.update(job.id, ring),
    )
    for call in calls:
        with pytest.raises(PayloadError, match="contains itself"):
            call()
    assert snapshot(cell) == before


@pytest.mark.parametrize("pair", [None, 7, "ab", ("a",), ("a", {}, 1), {"action": "a", "data": 1}, {1, 2}], ids=repr)
def test_what_is_no_pair_of_action_and_data_is_refused_by_its_number(cell: Cell, pair: object) -> None:
    assert outcome(lambda: cell.queue.add_many([("a", None), pair])) == "jobs[1]"
    assert snapshot(cell) == []


def test_an_error_of_the_callers_own_generator_is_the_callers_and_nothing_is_stored(cell: Cell) -> None:
    def pairs() -> Iterator[tuple[str, None]]:
        yield "a", None
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        cell.queue.add_many(pairs())
    assert snapshot(cell) == []


# What is accepted.


def test_what_the_codec_gives_back_equal_is_accepted_at_every_door_and_reaches_the_handler(cell: Cell) -> None:
    names = list(GOOD)
    added = [cell.queue.add("a", {"x": GOOD[name], "list": [{"y": GOOD[name]}]}) for name in names]
    added += cell.queue.add_many([("a", {"x": GOOD[name], "list": [{"y": GOOD[name]}]}) for name in names])
    updated = [cell.queue.add("a") for _ in names]
    for name, job in zip(names, updated, strict=True):
        cell.queue.update(job.id, {"x": GOOD[name], "list": [{"y": GOOD[name]}]})
    for name, job in zip(names * 2, added, strict=True):
        assert job.data == {"x": GOOD[name], "list": [{"y": GOOD[name]}]}, name
    seen = Recorder()
    with cell.queue.listen(seen, poll_interval=POLL):
        until(ended(cell.collection, [job.id for job in added + updated]))
    during = {job.id: job.data for job in seen.jobs}
    for name, job in zip(names * 3, added + updated, strict=True):
        expected = {"x": GOOD[name], "list": [{"y": GOOD[name]}]}
        assert during[job.id] == expected, name
        assert cell.queue.get(job.id).data == expected, name
        assert cell.queue.get(job.id).status is Status.COMPLETED


def test_nan_and_the_sign_of_zero_come_back(cell: Cell) -> None:
    job = cell.queue.add("a", {"nan": float("nan"), "zero": -0.0})
    cell.queue.update(job.id, {"again": [float("nan"), -0.0]})
    data = cell.queue.get(job.id).data
    assert same(data, {"nan": float("nan"), "zero": -0.0, "again": [float("nan"), -0.0]})
    assert str(data["zero"]) == str(data["again"][1]) == "-0.0"


def test_the_order_of_the_fields_comes_back(cell: Cell) -> None:
    names = ["z", "_id", "b", "a"]
    job = cell.queue.add("a", {**dict.fromkeys(names, 1), "deep": dict.fromkeys(names, 1)})
    for data in (job.data, cell.queue.get(job.id).data):
        assert list(data) == [*names, "deep"]
        assert list(data["deep"]) == names


def test_an_action_of_an_enumeration_is_its_text(cell: Cell) -> None:
    jobs = [cell.queue.add(MixedText.A), *cell.queue.add_many([(MixedText.A, None)])]
    assert {document["action"] for document in snapshot(cell)} == {"send-mail"}
    seen = Recorder()
    with cell.queue.listen(seen, actions=[MixedText.A], poll_interval=POLL):
        seen.wait_for(2)
    assert sorted(seen.ids) == sorted(job.id for job in jobs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: collections.OrderedDict(a=1, b=[{"c": 2}]),
        lambda: collections.defaultdict(list, a=1, b=[{"c": 2}]),
        lambda: collections.UserDict(a=1, b=[{"c": 2}]),
        lambda: types.MappingProxyType({"a": 1, "b": [{"c": 2}]}),
        lambda: SON([("a", 1), ("b", [SON([("c", 2)])])]),
        lambda: RawBSONDocument(bson.encode({"a": 1, "b": [{"c": 2}]})),
    ],
    ids=["OrderedDict", "defaultdict", "UserDict", "MappingProxyType", "SON", "RawBSONDocument"],
)
def test_a_mapping_of_any_kind_is_a_payload_and_a_set_of_values(cell: Cell, make: Callable[[], Any]) -> None:
    plain = {"a": 1, "b": [{"c": 2}]}
    job = cell.queue.add("a", make())
    (other,) = cell.queue.add_many([("a", {"x": make()})])
    assert job == cell.queue.get(job.id)
    assert other == cell.queue.get(other.id)
    assert job.data == plain
    assert other.data == {"x": plain}
    assert cell.queue.update(other.id, make()).matched_count == 1
    assert cell.queue.get(other.id).data == {"x": plain, **plain}
    assert type(cell.queue.get(job.id).data["b"][0]) is dict


def test_what_is_done_to_a_returned_job_is_not_done_to_the_stored_one(cell: Cell) -> None:
    job = cell.queue.add("a", {"list": [1], "dict": {"b": 1}})
    values = {"more": [1]}
    cell.queue.update(job.id, values)
    values["more"].append(2)
    for copy in (job, cell.queue.get(job.id)):
        copy.data["list"].append(2)
        copy.data["dict"]["b"] = 2
    assert cell.queue.get(job.id).data == {"list": [1], "dict": {"b": 1}, "more": [1]}


ODD_KEYS = ["0", "1", "a$b", "a$", " ", "a b", "é漢🎈", "'", '"', "\\", "\n", "\x01", "data", "_id", "k" * 1_000, "__v"]


def test_a_field_of_any_other_name_can_be_set_and_replaced_by_an_update(cell: Cell) -> None:
    job = cell.queue.add("a", {"kept": 1})
    for value in (1, {"longer": "text"}, None):
        for key in ODD_KEYS:
            assert cell.queue.update(job.id, {key: value}).matched_count == 1
        assert cell.queue.get(job.id).data == {"kept": 1, **dict.fromkeys(ODD_KEYS, value)}
        all_at_once = {key: [value] for key in ODD_KEYS}
        assert cell.queue.update(job.id, all_at_once).matched_count == 1
        assert cell.queue.get(job.id).data == {"kept": 1, **all_at_once}


def test_a_field_of_data_that_has_a_dot_or_dollar_in_its_name_survives_updates_of_others(cell: Cell) -> None:
    job = cell.queue.add("a", {"a.b": 1, "$inc": 2, "": 3, "a": {"b": 4}})
    cell.queue.update(job.id, {"a": {"b": 5}, "c": 6})
    assert cell.queue.get(job.id).data == {"a.b": 1, "$inc": 2, "": 3, "a": {"b": 5}, "c": 6}


@settings(
    max_examples=40,
    # Each example looks only at what it added itself; a server may take its time.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(PAYLOADS)
def test_a_payload_is_stored_as_given_up_to_milliseconds_or_refused_and_not_stored(cell: Cell, case: Case) -> None:
    data, expected = case
    before = cell.collection.count_documents({})
    if expected is REFUSED:
        assert outcome(lambda: cell.queue.add("a", data)).startswith("data")
        assert outcome(lambda: cell.queue.add_many([("a", None), ("a", data)])).startswith("jobs[1].data")
        assert cell.collection.count_documents({}) == before
    else:
        one, (other,) = cell.queue.add("a", data), cell.queue.add_many([("a", {"x": data})])
        assert same(one.data, expected)
        assert same(cell.queue.get(one.id).data, one.data)
        assert same(cell.queue.get(other.id).data, {"x": expected})
        assert cell.queue.update(other.id, {"y": data}).matched_count == 1
        assert same(cell.queue.get(other.id).data, {"x": expected, "y": expected})
        assert cell.collection.count_documents({}) == before + 2


# The codec of the collection decides.


SOME_UUID = UUID("0198e15c-8200-7000-8000-000000000001")
PRICE = Decimal("12.50")


class UnreadableCodec(TypeCodec):
    """Writes what it cannot read: a slip in an application's own codec."""

    python_type = Decimal
    bson_type = Decimal128

    def transform_python(self, value: Decimal) -> Decimal128:
        return Decimal128(value)

    def transform_bson(self, value: Decimal128) -> NoReturn:
        raise LookupError("a slip of the codec")


@pytest.mark.parametrize("open_cell", ON_MONGOD, ids=lambda open_cell: open_cell.__name__)
@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (CodecOptions(uuid_representation=UuidRepresentation.STANDARD), SOME_UUID),
        (CodecOptions(uuid_representation=UuidRepresentation.JAVA_LEGACY), SOME_UUID),
        (CodecOptions(type_registry=TypeRegistry([DecimalCodec()])), PRICE),
    ],
    ids=["standard UUIDs", "legacy UUIDs", "a type of one's own"],
)
def test_what_the_collections_codec_knows_is_accepted_and_comes_back_equal_everywhere(
    open_cell: Open, codec: CodecOptions[Any], value: Any, db: Database[Any], mongo_url: str
) -> None:
    with with_codec(open_cell, db, mongo_url, codec) as cell:
        job = cell.queue.add("a", {"x": value, "deep": [{"y": value}]})
        assert job.data == {"x": value, "deep": [{"y": value}]}
        assert job == cell.queue.get(job.id)
        assert cell.queue.update(job.id, {"z": value}).matched_count == 1
        seen = Recorder()
        with cell.queue.listen(seen, poll_interval=POLL):
            until(ended(cell.collection, [job.id]))
        assert seen.jobs[0].data == {"x": value, "deep": [{"y": value}], "z": value}
        assert type(seen.jobs[0].data["deep"][0]["y"]) is type(value)


@pytest.mark.parametrize("open_cell", ON_MONGOD, ids=lambda open_cell: open_cell.__name__)
def test_what_the_collections_codec_cannot_write_or_read_is_refused_with_its_place(
    open_cell: Open, db: Database[Any], mongo_url: str
) -> None:
    decimals = CodecOptions[Any](type_registry=TypeRegistry([DecimalCodec()]))
    with with_codec(open_cell, db, mongo_url, decimals) as cell:
        assert outcome(lambda: cell.queue.add("a", {"x": [Decimal("1" * 40)]})) == "data.x[0]"
        assert outcome(lambda: cell.queue.add("a", {"x": SOME_UUID})) == "data.x"
    slips = CodecOptions[Any](type_registry=TypeRegistry([UnreadableCodec()]))
    with with_codec(open_cell, db, mongo_url, slips) as cell:
        assert outcome(lambda: cell.queue.add("a", {"x": [1, PRICE]})) == "data.x[1]"
    assert db.job.count_documents({}) == 0


# The limits.


def of_size(size: int, field: str = "x") -> dict[str, Any]:
    """A payload that takes so many bytes."""
    return {field: "x" * (size - len(bson.encode({field: ""})))}


def deep(levels: int) -> dict[str, Any]:
    """Mappings and lists within each other, so many levels with the payload itself."""
    inner: Any = []
    for level in range(levels - 1, 0, -1):
        inner = {"x": inner} if level == 1 or level % 2 else [inner]
    assert type(inner) is dict
    return inner


def test_sixteen_million_bytes_are_accepted_and_one_more_is_refused(cell: Cell) -> None:
    largest, larger = of_size(MAX_DATA_BYTES), of_size(MAX_DATA_BYTES + 1)
    assert outcome(lambda: cell.queue.add("a", larger)) == "data"
    assert outcome(lambda: cell.queue.add_many([("a", {}), ("a", larger)])) == "jobs[1].data"
    assert snapshot(cell) == []
    job = cell.queue.add("a", largest)
    assert len(job.data["x"]) == len(cell.queue.get(job.id).data["x"]) == len(largest["x"])
    assert outcome(lambda: cell.queue.update(job.id, {"y": 1})) == "data"
    assert outcome(lambda: cell.queue.update(job.id, larger)) == "data"
    assert cell.queue.get(job.id).data.keys() == {"x"}


def test_an_update_may_fill_the_payload_to_the_last_byte_and_no_further(cell: Cell) -> None:
    job = cell.queue.add("a", {"a": "x" * 100, "b": [1, 2, 3]})
    rest = len(bson.encode({"a": "x" * 100, "b": [1, 2, 3]})) - len(bson.encode({}))
    exact = of_size(MAX_DATA_BYTES - rest, "c")
    assert outcome(lambda: cell.queue.update(job.id, {"c": exact["c"] + "x"})) == "data"
    assert cell.queue.get(job.id) == job
    assert cell.queue.update(job.id, exact).matched_count == 1
    assert len(bson.encode(cell.queue.get(job.id).data)) == MAX_DATA_BYTES
    assert outcome(lambda: cell.queue.update(job.id, {"a": "x" * 101})) == "data"
    assert outcome(lambda: cell.queue.update(job.id, {"d": None})) == "data"
    assert outcome(lambda: cell.queue.update(job.id, {"a": "", "b": [0], "c": exact["c"] + "x" * 115})) == "data"
    assert cell.queue.update(job.id, {"a": "", "b": [0], "c": exact["c"] + "x" * 114}).matched_count == 1
    assert len(bson.encode(cell.queue.get(job.id).data)) == MAX_DATA_BYTES
    assert cell.queue.update(job.id, {"c": 0}).matched_count == 1
    new: dict[str, Any] = {"c": exact["c"], "d": "x" * (114 - 18), "e": 1, "f": None}
    assert outcome(lambda: cell.queue.update(job.id, {**new, "d": new["d"] + "x"})) == "data"
    assert cell.queue.update(job.id, new).matched_count == 1
    assert len(bson.encode(cell.queue.get(job.id).data)) == MAX_DATA_BYTES


def test_a_hundred_levels_can_be_added_updated_and_run_and_one_more_is_refused(cell: Cell) -> None:
    deepest, deeper = deep(MAX_DEPTH), deep(MAX_DEPTH + 1)
    jobs = [cell.queue.add("a", deepest), *cell.queue.add_many([("a", deepest)]), cell.queue.add("a")]
    assert cell.queue.update(jobs[2].id, deepest).matched_count == 1
    calls: tuple[Callable[[], object], ...] = (
        lambda: cell.queue.add("a", deeper),
        lambda: cell.queue.add_many([("a", deeper)]),
        lambda: cell.queue.update(jobs[0].id, deeper),
    )
    for call in calls:
        with pytest.raises(PayloadError, match="100"):
            call()
    assert cell.collection.count_documents({}) == 3
    seen = Recorder()
    with cell.queue.listen(seen, poll_interval=POLL):
        until(ended(cell.collection, [job.id for job in jobs]))
    assert [job.data for job in seen.jobs] == [deepest] * 3
    assert cell.collection.count_documents({"status": "completed"}) == 3


# The end of a job always fits and always encodes.


class SilentError(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise self.args[0]


class Mute:
    def __repr__(self) -> NoReturn:
        raise SystemExit


def chained(length: int) -> Exception:
    error: Exception = ValueError("the root cause")
    for number in range(length):
        outer = RuntimeError(f"effect {number}")
        outer.__cause__ = error
        error = outer
    return error


def nested(depth: int) -> Exception:
    error: Exception = ValueError("the innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


def with_notes(notes: object) -> Exception:
    error = ValueError("with notes")
    error.__notes__ = notes  # type: ignore[assignment]  # anybody may put anything there
    return error


def nameless() -> Exception:
    class Shy(type):
        @property
        def __name__(cls) -> NoReturn:  # type: ignore[override]  # that it raises is the point
            raise ZeroDivisionError

    class HiddenError(Exception, metaclass=Shy):
        pass

    return HiddenError("hello")


def endless(depth: int = 0) -> Exception:
    return endless(depth + 1)


ERRORS: dict[str, tuple[Callable[[], BaseException], str, str]] = {
    "20 MB of text": (lambda: ValueError("begin" + "x" * 20_000_000 + "end"), "ValueError", "begin"),
    "20 MB of wide text": (lambda: ValueError("begin" + "漢" * 7_000_000 + "end"), "ValueError", "begin"),
    "surrogate and NUL": (lambda: ValueError("a \ud800 and a \0."), "ValueError", "a \\ud800 and a \\x00."),
    "no text": (lambda: SilentError(ValueError()), "SilentError", "<the text of this SilentError"),
    "text that exits": (lambda: SilentError(SystemExit(1)), "SilentError", "<the text of this SilentError"),
    "text that interrupts": (lambda: SilentError(KeyboardInterrupt()), "SilentError", "<the text of this SilentError"),
    "5,000 causes": (lambda: chained(5_000), "RuntimeError", "effect 4999"),
    "group of causes": (lambda: ExceptionGroup("many", [chained(5_000)] * 2), "ExceptionGroup", "many"),
    "5,000 groups": (lambda: nested(5_000), "ExceptionGroup", "group"),
    "1 MB of name": (lambda: type("N" * 1_000_000, (Exception,), {})("hello"), "NNNN", "hello"),
    "no name": (nameless, "", "hello"),
    "notes that are none": (lambda: with_notes(7), "ValueError", "with notes"),
    "notes of anything": (lambda: with_notes([1, None, Mute(), "\ud800"]), "ValueError", "with notes"),
    "endless recursion": (endless, "RecursionError", "maximum recursion depth"),
}


def check_error(job: Job, name: str, message: str) -> None:
    assert job.status is Status.FAILED, job.action
    assert job.error is not None, job.action
    assert list(job.error) == ["name", "message", "stack"]
    for text, budget in zip(job.error.values(), (NAME_BYTES, MESSAGE_BYTES, STACK_BYTES), strict=True):
        assert type(text) is str
        assert len(text.encode()) <= budget
        assert "\0" not in text
    assert job.error["name"].startswith(name), job.action
    assert job.error["message"].startswith(message), job.action


def test_a_handlers_error_of_any_kind_is_stored_with_its_job_on_that_attempt(cell: Cell) -> None:
    def fail(job: Job) -> None:
        raise ERRORS[job.action][0]()

    jobs = cell.queue.add_many([(action, {"n": n}) for n, action in enumerate(ERRORS)])
    seen = Recorder(fail)
    with cell.queue.listen(seen, concurrency=4, poll_interval=POLL):
        until(ended(cell.collection, [job.id for job in jobs]))
    assert sorted(seen.ids) == sorted(job.id for job in jobs)
    for job in jobs:
        _, name, message = ERRORS[job.action]
        after = cell.queue.get(job.id)
        check_error(after, name, message)
        assert after.data == job.data
        assert after.finished_at >= after.started_at


def test_the_full_error_is_stored_beside_the_largest_payload(cell: Cell) -> None:
    def fail(job: Job) -> None:
        raise type("N" * 1_000_000, (Exception,), {})("x" * 20_000_000)

    sizes = (15_900_000, MAX_DATA_BYTES)
    jobs = [cell.queue.add("a" * 1_000, of_size(size)) for size in sizes]
    seen = Recorder(fail)
    with cell.queue.listen(seen, concurrency=1, poll_interval=POLL):
        until(ended(cell.collection, [job.id for job in jobs]))
    assert seen.ids == [job.id for job in jobs]
    for job, size in zip(jobs, sizes, strict=True):
        after = cell.queue.get(job.id)
        check_error(after, "NNNN", "xxxx")
        assert [
            len(text.encode()) > budget - 10
            for text, budget in zip(after.error.values(), (NAME_BYTES, MESSAGE_BYTES, STACK_BYTES), strict=True)
        ] == [True] * 3
        assert len(bson.encode(after.data)) == size


def test_a_largest_payload_whose_handler_returns_completes(cell: Cell) -> None:
    job = cell.queue.add("a" * 1_000, of_size(MAX_DATA_BYTES))
    with cell.queue.listen(Recorder(), poll_interval=POLL):
        until(ended(cell.collection, [job.id]))
    assert cell.queue.get(job.id).status is Status.COMPLETED


def fill(cell: Cell, id: str, room: int) -> None:
    """Lets a document grow past the package, until it lacks so many bytes of the largest."""
    document = cell.collection.find_one({"_id": id})
    size = len(bson.encode({**document, "beyond": ""}))
    cell.collection.update_one({"_id": id}, {"$set": {"beyond": "x" * (DOCUMENT_BYTES - size - room)}})


class Filler:
    """Fills the document of a job that runs, then raises; other jobs do nothing."""

    def __init__(self, cell: Cell, room: int) -> None:
        self._cell = cell
        self._room = room

    def __call__(self, job: Job) -> None:
        if job.action == "fill":
            fill(self._cell, job.id, self._room)
            raise ValueError("x" * 1_000)


def run_filler(cell: Cell, room: int) -> tuple[Job, Job]:
    """Runs a job that fills its document, and one after it, and gives both as they are then."""
    filled, other = cell.queue.add_many([("fill", None), ("other", None)])
    with cell.queue.listen(Filler(cell, room), concurrency=1, poll_interval=POLL):
        until(ended(cell.collection, [other.id]))
    return cell.queue.get(filled.id), cell.queue.get(other.id)


@on(*REAL)
def test_an_error_that_a_document_past_its_limit_has_no_room_for_is_cut_down(cell: Cell) -> None:
    filled, other = run_filler(cell, room=300)
    check_error(filled, "ValueError", "xxxx")
    assert filled.error is not None
    assert len(bson.encode(filled.error)) < 300
    assert other.status is Status.COMPLETED


@on(blocking_on_mongod)
@pytest.mark.parametrize("room", [10, 20, 60, 150])
def test_a_failed_job_that_has_hardly_any_room_is_ended_all_the_same(cell: Cell, room: int) -> None:
    filled, other = run_filler(cell, room)
    assert filled.status is Status.FAILED
    assert filled.finished_at is not None
    assert other.status is Status.COMPLETED


@on(*REAL)
def test_a_job_whose_end_has_no_room_at_all_stays_running_and_the_next_one_runs(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    filled, other = run_filler(cell, room=0)
    assert filled.status is Status.RUNNING
    assert other.status is Status.COMPLETED
    assert any(filled.id in record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)


@on(*REAL)
def test_queued_jobs_that_have_no_room_to_be_claimed_do_not_keep_later_ones_from_running(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    full = cell.queue.add_many([("full", None)] * 2)
    for job in full:
        fill(cell, job.id, room=0)
    seen = Recorder()
    with cell.queue.listen(seen, concurrency=1, poll_interval=POLL):
        later = [cell.queue.add("later", {"n": n}) for n in range(3)]
        until(ended(cell.collection, [job.id for job in later]))
        assert seen.ids == [job.id for job in later]
    for job in full:
        assert cell.collection.find_one({"_id": job.id}, {"status": 1})["status"] == "queued"
        assert sum(job.id in record.getMessage() for record in caplog.records) == 1


# Documents that other programs have put there.


def queued(**fields: Any) -> dict[str, Any]:
    return {"_id": ObjectId(), "action": "foreign", "status": "queued", "data": {}, **fields}


RUN: dict[str, dict[str, Any]] = {
    "an ObjectId and few fields": queued(),
    "unknown fields": queued(priority=1, nested={"a": [1]}, progress=None),
    "no action": {"_id": ObjectId(), "status": "queued", "data": {"n": 1}},
    "a null action": queued(action=None),
    "a number for an action": queued(action=7),
    "a document for an action": queued(action={"name": "x"}),
    "times that are none": queued(created_at="yesterday", updated_at=7, started_at=[1], finished_at={}),
    "an error before its time": queued(error=[1]),
    "a null extension": queued(durable=None),
}
FAIL: dict[str, dict[str, Any]] = {
    "no data": {"_id": ObjectId(), "action": "foreign", "status": "queued"},
    "nothing but a status": {"_id": ObjectId(), "status": "queued"},
    "null data": queued(data=None),
    "a list for data": queued(data=[1, {"a": 2}]),
    "a string for data": queued(data="x"),
    "a number for data": queued(data=7),
}


def run_foreign(cell: Cell, documents: list[dict[str, Any]]) -> tuple[Recorder, list[dict[str, Any]]]:
    """Lets a listener run foreign documents and, after them, an ordinary job; gives the documents as they are then."""
    cell.collection.insert_many([dict(document) for document in documents])
    seen = Recorder()
    with cell.queue.listen(seen, concurrency=2, poll_interval=POLL):
        ordinary = cell.queue.add("ordinary")
        until(ended(cell.collection, [*(document["_id"] for document in documents), ordinary.id]))
    assert cell.queue.get(ordinary.id).status is Status.COMPLETED
    return seen, [cell.collection.find_one({"_id": document["_id"]}) for document in documents]


def test_foreign_documents_are_run_or_failed_one_by_one_and_the_listener_goes_on(cell: Cell) -> None:
    documents = [*RUN.values(), *FAIL.values()]
    seen, after = run_foreign(cell, documents)
    assert [document["status"] for document in after] == ["completed"] * len(RUN) + ["failed"] * len(FAIL)
    assert len(seen.jobs) == len(RUN) + 1
    for before, document in zip(documents, after, strict=True):
        assert document["started_at"] <= document["finished_at"] == document["updated_at"]
        kept = set(before) - {"status", "started_at", "finished_at", "updated_at", "error"}
        assert {name: document[name] for name in kept} == {name: before[name] for name in kept}
    assert all("data" in document["error"]["message"] for document in after[len(RUN) :])


@pytest.mark.parametrize(
    "id", [7, 1.5, "", "no UUID", b"bytes", True, {"a": 1, "b": [2]}, SON([("z", 1), ("a", 2)])], ids=repr
)
def test_a_foreign_document_of_any_id_is_run(cell: Cell, id: Any) -> None:
    seen, (after,) = run_foreign(cell, [queued(_id=id)])
    assert after["status"] == "completed"
    assert sum(job.action == "foreign" for job in seen.jobs) == 1


@on(*REAL)
def test_a_foreign_document_whose_id_is_null_is_run(cell: Cell) -> None:
    _, (after,) = run_foreign(cell, [queued(_id=None)])
    assert after["status"] == "completed"


@on(*REAL)
@pytest.mark.parametrize("field", ["action", "data"])
def test_a_foreign_document_that_cannot_be_read_is_ended_and_the_listener_goes_on(cell: Cell, field: str) -> None:
    document = queued(**{field: "WXYZ" if field == "action" else {"name": "WXYZ"}})
    broken = RawBSONDocument(bson.encode(document).replace(b"WXYZ", b"W\xff\xfeZ"))
    cell.collection.insert_one(broken)
    seen = Recorder()
    with cell.queue.listen(seen, concurrency=1, poll_interval=POLL):
        ordinary = cell.queue.add("ordinary")
        until(ended(cell.collection, [ordinary.id, document["_id"]]))
    assert cell.queue.get(ordinary.id).status is Status.COMPLETED


@pytest.mark.parametrize("open_cell", ON_MONGOD, ids=lambda open_cell: open_cell.__name__)
def test_a_job_that_this_collections_codec_cannot_read_is_failed_and_says_why(
    open_cell: Open, db: Database[Any], mongo_url: str
) -> None:
    db.job.insert_one(queued(data={"price": Decimal128("1.5")}))
    slips = CodecOptions[Any](type_registry=TypeRegistry([UnreadableCodec()]))
    with with_codec(open_cell, db, mongo_url, slips) as cell, cell.queue.listen(Recorder(), poll_interval=POLL):
        ordinary = cell.queue.add("ordinary")
        until(ended(db.job, [ordinary.id]))
        until(lambda: db.job.count_documents({"status": {"$in": ["queued", "running"]}}) == 0)
    failed = db.job.find_one({"action": "foreign"})
    assert failed is not None
    assert failed["status"] == "failed"
    assert "a slip of the codec" in failed["error"]["message"]
    assert failed["started_at"] <= failed["finished_at"]


def test_a_job_is_run_with_the_payload_of_the_last_update_before_its_claim(cell: Cell) -> None:
    release = threading.Event()
    first, second = cell.queue.add_many([("a", {"n": 0}), ("a", {"n": 0})])
    seen = Recorder(lambda job: release.wait(60))
    with cell.queue.listen(seen, concurrency=1, poll_interval=POLL):
        seen.wait_for(1)
        cell.queue.update(first.id, {"n": 1})
        cell.queue.update(second.id, {"n": 2})
        release.set()
        until(ended(cell.collection, [first.id, second.id]))
    assert [job.data for job in seen.jobs] == [{"n": 0}, {"n": 2}]
    assert cell.queue.get(first.id).data == {"n": 1}


def test_ids_and_texts_that_are_not_utf8_do_not_stop_a_listener(db: Any) -> None:
    queue = create_queue(db)
    text = b"\x07\x00\x00\x00spoil\xff\x00"
    for field in (b"_id", b"extra"):
        fields = b"".join((b"\x02", field, b"\x00", text, b"\x02status\x00\x07\x00\x00\x00queued\x00"))
        db.job.insert_one(RawBSONDocument((len(fields) + 5).to_bytes(4, "little") + fields + b"\x00"))
    seen = Recorder()
    with queue.listen(seen, poll_interval=0.05):
        job = queue.add("a")
        until(ended(db.job, [job.id]))
    assert job.id in seen.ids
