"""What a payload may hold, what comes back, and how a refusal names the place."""

from __future__ import annotations

import array
import collections
import copy
import enum
import pickle
import re
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

import bson
import pytest
from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, TypeCodec, TypeRegistry
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from hypothesis import example, given
from hypothesis import strategies as st

from simplequeue.collection import codec_of
from simplequeue.payload import (
    MAX_ACTION_BYTES,
    MAX_DATA_BYTES,
    MAX_DEPTH,
    Codec,
    PayloadError,
    checked_action,
    checked_count,
    checked_data,
    checked_time,
    checked_values,
    cut,
)

DEFAULT = codec_of(CodecOptions())
STANDARD_UUIDS = codec_of(CodecOptions(uuid_representation=UuidRepresentation.STANDARD))
SOME_UUID = UUID("0198e15c-8200-7000-8000-000000000001")
TOKYO = timezone(timedelta(hours=9))
NAIVE = datetime(2026, 8, 25, 14, 0)  # noqa: DTZ001  # what is refused


class DecimalCodec(TypeCodec):
    """The example of PyMongo's documentation: Decimal, stored as Decimal128."""

    python_type = Decimal
    bson_type = Decimal128

    def transform_python(self, value: Decimal) -> Decimal128:
        return Decimal128(value)

    def transform_bson(self, value: Decimal128) -> Decimal:
        return value.to_decimal()


DECIMALS = codec_of(CodecOptions(type_registry=TypeRegistry([DecimalCodec()])))


def refused(data: object, codec: Codec = DEFAULT, check: Callable[..., object] = checked_data) -> PayloadError:
    """The refusal of a payload; that it is refused in any other way is a failure.

    What escapes is named by its class only: some of these objects cannot be shown in a report.
    """
    found, escaped = None, "nothing"
    try:
        check(data, codec)
    except PayloadError as error:
        found = error
    except BaseException as another:
        escaped = type(another).__qualname__
    assert found is not None, f"raised {escaped} instead of a PayloadError"
    assert isinstance(found, ValueError)
    assert str(found) == f"{found.path}: {found.problem}"
    assert str(found).encode()
    return found


class Plain(enum.Enum):
    A = 1


class Text(enum.StrEnum):
    A = "a"


class MixedText(str, enum.Enum):  # noqa: UP042  # its str() is not its text, unlike a StrEnum's
    A = "send-mail"


class Number(enum.IntEnum):
    A = 3


class Flag(enum.IntFlag):
    A = 4


class Pair(NamedTuple):
    a: int
    b: int


class Arraylike:
    """As arrays do, it compares element by element and has no truth of its own."""

    def __array__(self) -> NoReturn:
        raise AssertionError("asked for")

    def __eq__(self, other: object) -> Any:
        return self

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> NoReturn:
        raise ValueError("the truth value of an array is ambiguous")


class ArraylikeInt(int):
    """A number that compares as arrays do."""

    def __eq__(self, other: object) -> Any:
        return Arraylike()

    def __hash__(self) -> int:
        return 1


class LikeNothing(str):
    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return str.__hash__(self)


class LikeEverything(str):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return str.__hash__(self)


class Incomparable(str):
    def __eq__(self, other: object) -> NoReturn:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        return str.__hash__(self)


class Unhashable(str):
    __hash__ = None  # type: ignore[assignment]  # that it has none is the point


class Mute:
    """An object that cannot even be shown."""

    def __repr__(self) -> NoReturn:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        return 1


class View(Mapping[str, Any]):
    """A mapping of one's own, which may raise when it is read."""

    def __init__(self, inner: dict[str, Any], trouble: BaseException | None = None, at: str = "") -> None:
        self._inner = inner
        self._trouble = trouble
        self._at = at

    def __getitem__(self, key: str) -> Any:
        self._raise("getitem")
        return self._inner[key]

    def __iter__(self) -> Iterator[str]:
        yield from list(self._inner)[:1]
        self._raise("iter")
        yield from list(self._inner)[1:]

    def __len__(self) -> int:
        self._raise("len")
        return len(self._inner)

    def _raise(self, at: str) -> None:
        if self._trouble is not None and at == self._at:
            raise self._trouble


class Nowhere(tzinfo):
    """A zone that does not say how far from UTC it is."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str | None:
        return None


class Broken(Nowhere):
    def utcoffset(self, _: datetime | None) -> NoReturn:
        raise ZeroDivisionError


class TwiceAnHour(Nowhere):
    """A zone in which every hour comes twice: summer time first."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=-3 if at and at.fold else -2)


BAD: dict[str, Callable[[], Any]] = {
    "set": lambda: {1},
    "empty set": set,
    "frozenset": frozenset,
    "Decimal": lambda: Decimal("1.5"),
    "Fraction": lambda: Fraction(1, 3),
    "date": lambda: date(2026, 8, 25),
    "time": lambda: time(14, 0, tzinfo=UTC),
    "timedelta": lambda: timedelta(1),
    "timezone": lambda: UTC,
    "UUID": lambda: SOME_UUID,
    "2**63": lambda: 2**63,
    "-2**63-1": lambda: -(2**63) - 1,
    "10**1000": lambda: 10**1000,
    "Int64 beyond": lambda: Int64(2**63),
    "tuple": lambda: (1, 2),
    "empty tuple": tuple,
    "named tuple": lambda: Pair(1, 2),
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"x"),
    "array": lambda: array.array("i", [1]),
    "complex": lambda: 1j,
    "object": object,
    "class": lambda: int,
    "function": lambda: cut,
    "module": lambda: re,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "re.Pattern": lambda: re.compile("x"),
    "range": lambda: range(3),
    "generator": lambda: (n for n in range(3)),
    "iterator": lambda: iter([1]),
    "deque": lambda: collections.deque([1]),
    "UserList": lambda: collections.UserList([1]),
    "UserString": lambda: collections.UserString("x"),
    "dict view": {}.items,
    "Path": lambda: Path("x"),
    "Enum": lambda: Plain.A,
    "exception": ValueError,
    "array-like": Arraylike,
    "array-like int": lambda: ArraylikeInt(5),
    "mute": Mute,
    "looks like a DBRef": lambda: {"$ref": "c", "$id": 1},
    "looks like a DBRef, with more": lambda: {"a": 1, "$id": 1, "$ref": "c", "$db": "d"},
    "str like nothing": lambda: LikeNothing("x"),
    "incomparable str": lambda: Incomparable("x"),
    "lone surrogate": lambda: "a\ud800b",
    "naive datetime": lambda: NAIVE,
    "naive datetime.min": lambda: datetime.min,  # noqa: DTZ901  # what is refused
    "datetime of no zone": lambda: NAIVE.replace(tzinfo=Nowhere()),
    "datetime of a broken zone": lambda: NAIVE.replace(tzinfo=Broken()),
    "before the year 1 in UTC": lambda: datetime.min.replace(tzinfo=TOKYO),
    "after the year 9999 in UTC": lambda: datetime.max.replace(tzinfo=timezone(-timedelta(hours=9))),
    "DatetimeMS that would be a datetime": lambda: DatetimeMS(0),
    "Binary of subtype 0": lambda: Binary(b"x", 0),
    "Regex with a NUL": lambda: Regex("a\0b"),
    "Regex with a lone surrogate": lambda: Regex("\ud800"),
    "Regex with unknown flags": lambda: Regex("x", 1 << 20),
    "Code with a lone surrogate": lambda: Code("\ud800"),
    "Code with a naive datetime": lambda: Code("x", {"at": NAIVE}),
    "DBRef with a set": lambda: DBRef("c", {1}),
    "DBRef with a naive datetime": lambda: DBRef("c", NAIVE),
    "mapping that raises at once": lambda: View({}, RuntimeError("gone"), "iter"),
    "mapping that raises midway": lambda: View({"a": 1, "b": 2}, LookupError("gone"), "iter"),
    "mapping that raises at a value": lambda: View({"a": 1}, KeyError("gone"), "getitem"),
    "BSON that is not UTF-8": lambda: RawBSONDocument(bson.encode({"a": "ABC"}).replace(b"ABC", b"A\xffC")),
}

CONTAINERS: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "the root": (lambda bad: {"first": 1, "x": bad, "last": 1}, "data.x"),
    "a dict": (lambda bad: {"x": {"first": 1, "price": bad}}, "data.x.price"),
    "a list": (lambda bad: {"items": [0, 1, 2, bad]}, "data.items[3]"),
    "a dict in a list": (lambda bad: {"items": [0, {}, [], {"n": 1, "price": bad}]}, "data.items[3].price"),
    "a list in a list": (lambda bad: {"x": [[], [[1, bad]]]}, "data.x[1][0][1]"),
    "odd keys": (lambda bad: {"a b": {"$x.y": {"": bad}}}, "data['a b']['$x.y']['']"),
    "a SON": (lambda bad: {"x": SON([("a", 1), ("b", bad)])}, "data.x.b"),
    "a mapping of one's own": (lambda bad: {"x": View({"a": 1, "b": bad})}, "data.x.b"),
}


@pytest.mark.parametrize("where", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_what_would_not_come_back_equal_is_refused_with_its_exact_place(
    make: Callable[[], Any], where: tuple[Callable[[Any], dict[str, Any]], str]
) -> None:
    put, path = where
    assert refused(put(make())).path == path


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_the_same_is_refused_as_the_value_of_an_update(make: Callable[[], Any]) -> None:
    assert refused({"a": 1, "x": [make()]}, check=checked_values).path == "data.x[0]"


def test_the_path_begins_with_what_the_caller_calls_the_payload() -> None:
    with pytest.raises(PayloadError) as error:
        checked_data({"x": [{1}]}, DEFAULT, "jobs[3].data")
    assert error.value.path == "jobs[3].data.x[0]"


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({1}, "set"),
        (2**63, "64 bits"),
        ("\ud800", "surrogate"),
        (NAIVE, "naive"),
        (Decimal(1), "decimal.Decimal"),
        ((1,), "list"),
        (re.compile("x"), "Regex"),
        ({"$ref": "c", "$id": 1}, "DBRef"),
        ({1: 2}, "key 1"),
        ({None: 2}, "key None"),
        ({"a\0": 2}, "NUL"),
        ({"\ud800": 2}, "surrogate"),
    ],
    ids=str,
)
def test_a_refusal_says_what_is_wrong(bad: object, word: str) -> None:
    assert word in refused({"x": bad}).problem


@pytest.mark.parametrize("zone", [TOKYO, timezone(-timedelta(hours=9))])
def test_a_time_beyond_the_calendar_is_not_called_an_integer(zone: tzinfo) -> None:
    edge = datetime.min if zone is TOKYO else datetime.max  # noqa: DTZ901  # it gets a zone
    problem = refused({"x": edge.replace(tzinfo=zone)}).problem
    assert "integer" not in problem


BAD_KEYS: dict[str, Any] = {
    "int": 1,
    "zero": 0,
    "bool": True,
    "None": None,
    "float": 1.5,
    "bytes": b"x",
    "tuple": (1, 2),
    "IntEnum": Number.A,
    "ObjectId": ObjectId(),
    "datetime": datetime.now(UTC),
    "NUL": "a\0b",
    "NUL alone": "\0",
    "lone surrogate": "a\ud800",
    "mute": Mute(),
}


@pytest.mark.parametrize("name", BAD_KEYS)
@pytest.mark.parametrize(
    ("put", "path"),
    [
        (lambda inner: inner, "data"),
        (lambda inner: {"x": inner}, "data.x"),
        (lambda inner: {"items": [1, {"y": inner}]}, "data.items[1].y"),
    ],
    ids=["the root", "a dict", "a dict in a list"],
)
def test_a_key_that_cannot_be_one_is_refused_with_the_place_of_its_mapping(
    name: str, put: Callable[[Any], Any], path: str
) -> None:
    problem = refused(put({"good": 1, BAD_KEYS[name]: 2}))
    assert problem.path == path
    assert "key" in problem.problem


@pytest.mark.parametrize("name", BAD_KEYS)
def test_the_same_key_is_refused_in_an_update(name: str) -> None:
    assert refused({"good": 1, BAD_KEYS[name]: 2}, check=checked_values).path == "data"


@pytest.mark.parametrize("key", ["", ".", "a.b", ".a", "a.", "$", "$inc", "$set.x"], ids=repr)
def test_a_key_that_names_no_single_field_is_refused_at_the_top_of_an_update_only(key: str) -> None:
    assert refused({"good": 1, key: 2}, check=checked_values).path == f"data[{key!r}]"
    assert checked_values({"x": {key: 2}}, DEFAULT) == {"x": {key: 2}}


@pytest.mark.parametrize("make", [LikeNothing, Incomparable, Unhashable], ids=lambda kind: kind.__name__)
def test_a_key_that_cannot_be_found_again_is_refused(make: type[str]) -> None:
    class One(Mapping[Any, Any]):
        def __getitem__(self, key: Any) -> int:
            return 1

        def __iter__(self) -> Iterator[Any]:
            return iter([make("x")])

        def __len__(self) -> int:
            return 1

    assert refused({"a": One()}).path.startswith("data")


def test_a_million_keys_that_are_numbers_are_refused_at_the_first() -> None:
    assert refused(dict.fromkeys(range(1_000_000), 1)).path == "data"


@pytest.mark.parametrize("data", [[], ["x"], "x", "", 7, 0, True, False, 1.5, b"x", {1}, (), object(), Plain.A, NAIVE])
def test_a_payload_is_a_mapping_and_nothing_else(data: object) -> None:
    assert refused(data).path == "data"
    assert refused(data, check=checked_values).path == "values"


def test_a_payload_that_looks_like_a_reference_is_refused_since_it_would_be_read_as_one() -> None:
    assert refused({"$ref": "c", "$id": 1}).path == "data"
    assert refused({"x": 1, "$id": None, "$ref": "c", "$db": "d"}).path == "data"


def test_none_is_an_empty_payload_but_no_set_of_values() -> None:
    assert checked_data(None, DEFAULT) == {}
    assert refused(None, check=checked_values).path == "values"
    assert checked_values({}, DEFAULT) == {}


@pytest.mark.parametrize("at", ["iter", "getitem"])
@pytest.mark.parametrize(
    "trouble", [RuntimeError("gone"), ValueError("gone"), KeyError("gone"), OSError("gone")], ids=repr
)
@pytest.mark.parametrize("check", [checked_data, checked_values], ids=["data", "values"])
def test_a_payload_that_raises_when_it_is_read_is_refused(
    at: str, trouble: Exception, check: Callable[..., object]
) -> None:
    assert refused(View({"a": 1, "b": 2}, trouble, at), check=check).path.startswith(("data", "values"))


def test_a_payload_that_a_user_interrupts_while_it_is_read_is_not_called_bad() -> None:
    with pytest.raises(KeyboardInterrupt):
        checked_data(View({"a": 1, "b": 2}, KeyboardInterrupt(), "iter"), DEFAULT)


def test_a_payload_of_foreign_bytes_that_are_no_text_is_refused() -> None:
    broken = RawBSONDocument(bson.encode({"a": "ABC"}).replace(b"ABC", b"A\xffC"))
    assert refused(broken).path.startswith("data")


def test_the_codecs_own_error_of_any_kind_is_a_refusal_with_its_place() -> None:
    too_exact, too_large = Decimal("1" * 40), Decimal("1e9999")
    assert refused({"x": [too_exact]}, DECIMALS).path == "data.x[0]"
    assert refused({"x": {"y": too_large}}, DECIMALS).path == "data.x.y"


def test_what_the_codec_writes_but_cannot_read_is_refused_with_its_place() -> None:
    assert refused({"x": [1, Binary(b"short", 4)]}, STANDARD_UUIDS).path == "data.x[1]"


def test_what_another_codec_would_read_as_something_else_is_refused() -> None:
    assert refused({"x": Binary(SOME_UUID.bytes, 4)}, STANDARD_UUIDS).path == "data.x"
    assert refused({"x": Decimal128("1.5")}, DECIMALS).path == "data.x"


@pytest.mark.parametrize(
    "representation",
    [
        UuidRepresentation.STANDARD,
        UuidRepresentation.PYTHON_LEGACY,
        UuidRepresentation.JAVA_LEGACY,
        UuidRepresentation.CSHARP_LEGACY,
    ],
)
def test_a_uuid_is_accepted_where_the_codec_says_how_to_write_one(representation: int) -> None:
    codec = codec_of(CodecOptions(uuid_representation=representation))
    stored = checked_data({"x": SOME_UUID, "deep": [{"y": SOME_UUID}]}, codec)
    assert stored == {"x": SOME_UUID, "deep": [{"y": SOME_UUID}]}
    assert type(stored["x"]) is UUID


@pytest.mark.parametrize("text", ["1.5", "-0", "1E+3", "Infinity", "0." + "0" * 30 + "1"])
def test_a_type_of_ones_own_is_accepted_where_the_codec_knows_it(text: str) -> None:
    stored = checked_data({"price": Decimal(text), "deep": [{"y": Decimal(text)}]}, DECIMALS)
    assert stored == {"price": Decimal(text), "deep": [{"y": Decimal(text)}]}
    assert type(stored["price"]) is Decimal


GOOD: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "zero": 0,
    "2**31": 2**31,
    "2**63-1": 2**63 - 1,
    "-2**63": -(2**63),
    "float": 1.5,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "smallest float": 5e-324,
    "largest float": 1.7976931348623157e308,
    "str": "漢🎈é",
    "empty str": "",
    "str with a NUL": "a\0b",
    "bytes": b"\0\xff",
    "empty bytes": b"",
    "empty list": [],
    "empty dict": {},
    "StrEnum": Text.A,
    "Enum that is a str": MixedText.A,
    "IntEnum": Number.A,
    "IntFlag": Flag.A,
    "str like everything": LikeEverything("x"),
    "Int64": Int64(5),
    "Decimal128": Decimal128("1.50"),
    "Decimal128 NaN": Decimal128("NaN"),
    "ObjectId": ObjectId(),
    "Regex": Regex("^a", re.IGNORECASE),
    "Binary of subtype 2": Binary(b"x", 2),
    "Binary of subtype 4": Binary(SOME_UUID.bytes, 4),
    "Binary of subtype 5": Binary(b"x" * 16, 5),
    "Binary of a user's subtype": Binary(b"x", 128),
    "Code": Code("x"),
    "Code with a scope": Code("x", {"a": 1}),
    "Timestamp": Timestamp(7, 1),
    "MinKey": MinKey(),
    "MaxKey": MaxKey(),
    "DBRef": DBRef("c", 1, "d", more=[1]),
    "DatetimeMS beyond the calendar": DatetimeMS(2**62),
    "datetime": datetime(2026, 8, 25, 14, 0, 0, 123_000, tzinfo=UTC),
    "datetime.min": datetime.min.replace(tzinfo=UTC),
    "datetime before 1970": datetime(1936, 8, 1, 12, 0, 0, 1_000, tzinfo=TOKYO),
    "keys with dots and dollars": {"a.b": 1, "$inc": 2, ".": 3, "$": 4, "": 5},
    "half of a reference": {"$ref": "c"},
    "the other half": {"$id": 1, "$db": "d"},
    "a reference to no name": {"$ref": 1, "$id": 1},
    "names of ours": {"_id": 1, "status": "x", "durable": None},
}


@pytest.mark.parametrize("name", GOOD)
def test_what_the_codec_gives_back_equal_is_accepted_and_given_back(name: str) -> None:
    good = GOOD[name]
    data = {"x": good, "list": [1, good], "deep": {"y": [{"z": good}]}}
    stored = checked_data(data, DEFAULT)
    assert stored == data
    assert bson.decode(bson.encode(stored), codec_options=DEFAULT) == stored


def test_a_number_that_is_not_one_is_accepted_anywhere() -> None:
    stored = checked_data({"x": float("nan"), "list": [{"y": float("nan")}]}, DEFAULT)
    assert stored["x"] != stored["x"]
    assert stored["list"][0]["y"] != stored["list"][0]["y"]


def test_the_sign_of_zero_and_the_kind_of_a_number_are_kept() -> None:
    stored = checked_data({"zero": -0.0, "one": 1.0, "true": True, "int": 1}, DEFAULT)
    assert str(stored["zero"]) == "-0.0"
    assert [type(stored[key]) for key in ("one", "true", "int")] == [float, bool, int]


@pytest.mark.parametrize(
    "make",
    [
        lambda: View({"a": 1, "b": [{"c": 2}]}),
        lambda: collections.OrderedDict(a=1, b=[{"c": 2}]),
        lambda: collections.defaultdict(list, a=1, b=[{"c": 2}]),
        lambda: collections.ChainMap[str, Any]({"a": 1}, {"b": [{"c": 2}]}),
        lambda: collections.UserDict(a=1, b=[{"c": 2}]),
        lambda: types.MappingProxyType({"a": 1, "b": [{"c": 2}]}),
        lambda: SON([("a", 1), ("b", [SON([("c", 2)])])]),
        lambda: RawBSONDocument(bson.encode({"a": 1, "b": [{"c": 2}]})),
    ],
    ids=["own", "OrderedDict", "defaultdict", "ChainMap", "UserDict", "MappingProxyType", "SON", "RawBSONDocument"],
)
def test_a_mapping_of_any_kind_is_accepted_at_any_depth_and_comes_back_as_a_dict(make: Callable[[], Any]) -> None:
    plain = {"a": 1, "b": [{"c": 2}]}
    for given_, expected in ((make(), plain), ({"x": make()}, {"x": plain}), ({"x": [make()]}, {"x": [plain]})):
        for check in (checked_data, checked_values):
            stored = check(given_, DEFAULT)
            assert stored == expected
            assert type(stored) is dict
            assert types_of_containers(stored) <= {dict, list}


def types_of_containers(value: object) -> set[type]:
    if isinstance(value, Mapping):
        return {type(value)}.union(*(types_of_containers(part) for part in value.values()))
    if isinstance(value, list):
        return {type(value)}.union(*(types_of_containers(part) for part in value))
    return set()


def test_a_default_of_a_defaultdict_is_not_made_up_by_the_check() -> None:
    data = collections.defaultdict[str, Any](list, a=1)
    assert checked_data(data, DEFAULT) == {"a": 1}
    assert list(data) == ["a"]


def test_the_order_of_the_fields_is_kept() -> None:
    names = ["z", "b", "_id", "a", "status"]
    assert list(checked_data(dict.fromkeys(names, 1), DEFAULT)) == names
    assert list(checked_data({"x": dict.fromkeys(names, 1)}, DEFAULT)["x"]) == names


def test_what_is_stored_shares_nothing_with_what_was_given() -> None:
    data: Any = {"list": [{"a": 1}], "dict": {"b": [1]}}
    stored = checked_data(data, DEFAULT)
    before = copy.deepcopy(stored)
    data["list"].append(2)
    data["dict"]["b"].append(2)
    assert stored == before


@pytest.mark.parametrize(
    ("given_", "stored"),
    [
        (datetime(2026, 8, 25, 14, 0, 0, 123_456, tzinfo=UTC), datetime(2026, 8, 25, 14, 0, 0, 123_000, tzinfo=UTC)),
        (datetime(2026, 8, 25, 14, 0, 0, 999, tzinfo=TOKYO), datetime(2026, 8, 25, 5, 0, tzinfo=UTC)),
        (
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        ),
        (datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=TOKYO), datetime(1899, 12, 31, 15, 0, tzinfo=UTC)),
        (datetime.max.replace(tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (datetime(2026, 1, 1, 0, tzinfo=TwiceAnHour(), fold=0), datetime(2026, 1, 1, 2, tzinfo=UTC)),
        (datetime(2026, 1, 1, 0, tzinfo=TwiceAnHour(), fold=1), datetime(2026, 1, 1, 3, tzinfo=UTC)),
        (
            datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=timezone(timedelta(microseconds=999))),
            datetime(1959, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        ),
    ],
    ids=["microseconds", "Tokyo", "before 1970", "1900", "the last", "first of two", "second of two", "odd offset"],
)
def test_a_time_is_stored_in_utc_and_cut_to_milliseconds(given_: datetime, stored: datetime) -> None:
    kept = checked_data({"at": given_, "deep": [{"at": given_}]}, DEFAULT)
    for at in (kept["at"], kept["deep"][0]["at"]):
        assert at == stored
        assert at.utcoffset() == timedelta(0)
        assert at.microsecond == stored.microsecond
    assert checked_data(kept, DEFAULT) == kept


def test_a_datetime_of_a_subclass_is_a_datetime() -> None:
    class Moment(datetime):
        pass

    assert checked_data({"at": Moment(2026, 1, 1, tzinfo=UTC)}, DEFAULT) == {"at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert refused({"at": Moment(2026, 1, 1)}).path == "data.at"


def of_size(size: int) -> dict[str, Any]:
    """A payload that takes so many bytes."""
    data = {"x": "x" * (size - len(bson.encode({"x": ""})))}
    assert len(bson.encode(data)) == size
    return data


@pytest.mark.parametrize("check", [checked_data, checked_values], ids=["data", "values"])
def test_sixteen_million_bytes_are_accepted_and_one_more_is_refused(check: Callable[..., Any]) -> None:
    largest = of_size(MAX_DATA_BYTES)
    assert MAX_DATA_BYTES == 16_000_000
    assert check(largest, DEFAULT) == largest
    problem = refused(of_size(MAX_DATA_BYTES + 1), check=check)
    assert problem.path == "data"
    assert "16,000,001" in problem.problem
    assert "16,000,000" in problem.problem


def test_a_payload_of_far_too_many_bytes_is_refused() -> None:
    assert refused({"x": [b"x" * 20_000_000] * 3}).path == "data"


def dicts(levels: int) -> dict[str, Any]:
    """Mappings within each other, so many with the payload itself."""
    data: dict[str, Any] = {}
    for _ in range(levels - 1):
        data = {"d": data}
    return data


def lists(levels: int) -> dict[str, Any]:
    """Lists within each other, so many levels with the payload itself."""
    inner: list[Any] = []
    for _ in range(levels - 2):
        inner = [inner]
    return {"x": inner}


def mixed(levels: int) -> dict[str, Any]:
    """A value at the end of mappings and lists in turn."""
    inner: Any = [7] if levels % 2 == 0 else {"x": 7}
    for level in range(levels - 1, 0, -1):
        inner = {"x": inner} if level % 2 else [inner]
    assert type(inner) is dict
    return inner


@pytest.mark.parametrize("make", [dicts, lists, mixed])
def test_a_hundred_levels_are_accepted_and_one_more_is_refused(make: Callable[[int], dict[str, Any]]) -> None:
    assert MAX_DEPTH == 100
    deepest = make(MAX_DEPTH)
    assert checked_data(deepest, DEFAULT) == deepest
    problem = refused(make(MAX_DEPTH + 1))
    assert problem.path.startswith("data.")
    assert "100" in problem.problem


@pytest.mark.parametrize("make", [dicts, lists, mixed])
@pytest.mark.parametrize("levels", [150, 900, 1_000, 10_000])
def test_any_depth_beyond_is_refused_with_a_path_of_bounded_length(
    make: Callable[[int], dict[str, Any]], levels: int
) -> None:
    problem = refused(make(levels))
    assert "100" in problem.problem
    assert len(problem.path) <= 250


def test_something_bad_beyond_the_deepest_level_is_refused_as_too_deep() -> None:
    data: Any = {1, 2}
    for _ in range(150):
        data = {"d": data}
    assert "100" in refused(data).problem


def test_bson_that_is_nested_too_deep_is_refused_too() -> None:
    assert refused(RawBSONDocument(bson.encode(dicts(MAX_DEPTH + 1)))).path.startswith("data")
    assert checked_data(RawBSONDocument(bson.encode(dicts(MAX_DEPTH))), DEFAULT) == dicts(MAX_DEPTH)


LOOP: list[Any] = []
LOOP.append(LOOP)
RING: dict[str, Any] = {"a": 1}
RING["me"] = RING
TWICE: dict[str, Any] = {}
TWICE["both"] = [TWICE, TWICE]


@pytest.mark.parametrize(
    "data", [{"x": LOOP}, RING, {"x": [1, {"y": RING}]}, TWICE], ids=["list", "dict", "dict inside", "twice"]
)
@pytest.mark.parametrize("check", [checked_data, checked_values], ids=["data", "values"])
def test_what_contains_itself_is_refused(data: Any, check: Callable[..., Any]) -> None:
    assert "contains itself" in refused(data, check=check).problem


def test_the_same_object_in_two_places_is_no_circle() -> None:
    shared = {"a": [1]}
    assert checked_data({"x": shared, "y": [shared, shared]}, DEFAULT) == {"x": shared, "y": [shared, shared]}


@pytest.mark.parametrize("data", [{"x": {1}}, {"x": [{"\ud800": 1}]}, {1: 2}, [], {"x": NAIVE}], ids=repr)
def test_a_refusal_survives_pickling_and_copying(data: object) -> None:
    problem = refused(data)
    for twin in (pickle.loads(pickle.dumps(problem)), copy.copy(problem), copy.deepcopy(problem)):
        assert type(twin) is PayloadError
        assert (twin.path, twin.problem, str(twin)) == (problem.path, problem.problem, str(problem))


def test_an_action_is_given_back_as_the_plain_string_it_is() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "another name"

    for action, plain in (("mail", "mail"), (Text.A, "a"), (MixedText.A, "send-mail"), (Name("mail"), "mail")):
        checked = checked_action(action)
        assert checked == plain
        assert type(checked) is str


@pytest.mark.parametrize("letter", ["x", "é", "漢", "🎈"])
def test_an_action_takes_a_thousand_bytes_and_not_one_more(letter: str) -> None:
    longest = letter * (MAX_ACTION_BYTES // len(letter.encode()))
    longest += "x" * (MAX_ACTION_BYTES - len(longest.encode()))
    assert checked_action(longest) == longest
    with pytest.raises(PayloadError) as error:
        checked_action(longest + "x", "actions[1]")
    assert error.value.path == "actions[1]"


@pytest.mark.parametrize("action", ["", None, 7, b"mail", ["mail"], "\ud800", "x" * 10_000_000, Plain.A])
def test_an_action_that_names_no_work_is_refused(action: object) -> None:
    with pytest.raises(PayloadError) as error:
        checked_action(action)
    assert error.value.path == "action"
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("zone", [UTC, TOKYO, timezone(-timedelta(hours=3)), TwiceAnHour()])
def test_a_time_that_knows_its_zone_is_cut_and_keeps_its_instant(zone: tzinfo) -> None:
    at = datetime(2026, 8, 25, 14, 0, 0, 123_999, tzinfo=zone)
    checked = checked_time(at, "before")
    assert checked - at == -timedelta(microseconds=999)
    assert checked.microsecond == 123_000


@pytest.mark.parametrize(
    "value",
    [None, "2026-08-25", 7, 1.5, date(2026, 8, 25), timedelta(days=7), NAIVE, NAIVE.replace(tzinfo=Nowhere())],
    ids=repr,
)
def test_what_is_no_point_in_time_is_refused(value: object) -> None:
    with pytest.raises(PayloadError) as error:
        checked_time(value, "before")
    assert error.value.path == "before"


def test_a_time_that_has_no_date_in_utc_is_refused_since_it_cannot_be_sent() -> None:
    for at in (datetime.min.replace(tzinfo=TOKYO), datetime.max.replace(tzinfo=timezone(-timedelta(hours=9)))):
        with pytest.raises(PayloadError) as error:
            checked_time(at, "before")
        assert error.value.path == "before"


@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, True, False, "1", None, float("nan"), float("inf")], ids=repr)
def test_what_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(PayloadError) as error:
        checked_count(value, "limit")
    assert error.value.path == "limit"


@pytest.mark.parametrize("value", [1, 2, 10**30])
def test_a_count_is_given_back(value: int) -> None:
    assert checked_count(value, "limit") == value


@given(st.datetimes(timezones=st.sampled_from([UTC, TOKYO, timezone(-timedelta(hours=3))])))
def test_a_cut_time_is_at_most_a_millisecond_earlier_and_stays_so(at: datetime) -> None:
    assert timedelta(0) <= at - cut(at) < timedelta(milliseconds=1)
    assert cut(cut(at)) == cut(at)
    assert cut(at).tzinfo is at.tzinfo


# A payload, and beside it what must come of it: the stored form, or REFUSED.
REFUSED = object()
Case = tuple[Any, Any]

INSTANTS = st.datetimes(
    min_value=datetime(1, 1, 2),  # noqa: DTZ001  # hypothesis adds the zone
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001  # as above
    timezones=st.sampled_from([UTC, TOKYO, timezone(-timedelta(hours=3, microseconds=1)), TwiceAnHour()]),
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
GOOD_VALUES: st.SearchStrategy[Case] = st.one_of(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        TEXTS,
        st.binary(max_size=8),
        st.sampled_from([value for name, value in GOOD.items() if "datetime" not in name]),
    ).map(lambda value: (value, value)),
    INSTANTS.map(lambda at: (at, cut(at.astimezone(UTC)))),
)
BAD_VALUES: st.SearchStrategy[Case] = st.one_of(
    st.sampled_from(list(BAD.values())).map(lambda make: (make(), REFUSED)),
    st.integers(min_value=2**63).map(lambda value: (value, REFUSED)),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=3).map(lambda value: (value, REFUSED)),
    st.datetimes().map(lambda value: (value, REFUSED)),
)
KEYS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
    st.sampled_from(["$ref", "$id", "$db", "_id", "status", "a.b", "", "$set", "data", "n" * 300]),
)


def in_a_list(cases: list[Case]) -> Case:
    expected = [stored for _, stored in cases]
    return [value for value, _ in cases], REFUSED if any(part is REFUSED for part in expected) else expected


def in_a_dict(cases: dict[Any, Case]) -> Case:
    value = {key: case[0] for key, case in cases.items()}
    expected = {key: case[1] for key, case in cases.items()}
    bad_key = any(not isinstance(key, str) or "\0" in key for key in expected)
    # By the specification of DBRefs: what has the two is one, wherever they stand.
    reference = isinstance(value.get("$ref"), str) and "$id" in value and isinstance(value.get("$db"), str | None)
    bad = bad_key or reference or any(part is REFUSED for part in expected.values())
    return value, REFUSED if bad else expected


def nested(values: st.SearchStrategy[Case], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    inside = st.recursive(
        values,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4).map(in_a_list), st.dictionaries(keys, inner, max_size=4).map(in_a_dict)
        ),
        max_leaves=12,
    )
    return st.dictionaries(keys, inside, max_size=4).map(in_a_dict)


GOOD_PAYLOADS = nested(GOOD_VALUES, KEYS)
PAYLOADS = st.one_of(
    GOOD_PAYLOADS,
    nested(st.one_of(GOOD_VALUES, GOOD_VALUES, GOOD_VALUES, BAD_VALUES), KEYS),
    nested(GOOD_VALUES, st.one_of(KEYS, KEYS, KEYS, st.sampled_from([1, None, b"x", (1,), "a\0", True]))),
)


def same(one: Any, other: Any) -> bool:
    """Equality in which a NaN equals itself and True is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and one != one:
        return isinstance(other, float) and other != other
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


@given(PAYLOADS)
@example(({"$ref": "c", "$id": 1}, REFUSED))
@example(({"x": [{"$id": 1, "y": 1, "$ref": "c"}]}, REFUSED))
def test_a_payload_is_stored_as_given_up_to_milliseconds_or_refused_and_nothing_else(case: Case) -> None:
    data, expected = case
    if expected is REFUSED:
        assert refused(data).path.startswith("data")
    else:
        stored = checked_data(data, DEFAULT)
        assert same(stored, expected)
        assert same(checked_data(stored, DEFAULT), stored)
        read = bson.decode(bson.encode({"data": stored}, codec_options=DEFAULT), codec_options=DEFAULT)
        assert same(read, {"data": stored})


@given(
    st.recursive(
        st.integers(0, 9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner, max_size=3),
        max_leaves=9,
    )
)
def test_the_place_of_one_bad_value_is_found_whatever_stands_around_it(frame: Any) -> None:
    data = {"outer": frame, "inner": [frame, {"first": frame, "deep": [frame, object(), frame]}], "last": frame}
    assert refused(data).path == "data.inner[1].deep[1]"


def test_an_update_of_more_than_a_thousand_fields_is_refused() -> None:
    assert len(checked_values({f"k{n}": n for n in range(1_000)}, DEFAULT)) == 1_000
    with pytest.raises(PayloadError, match="1,001 fields; at most 1,000"):
        checked_values({f"k{n}": n for n in range(1_001)}, DEFAULT)
