"""What a payload may hold.

A payload is accepted only if the collection's own codec gives back what was put in, so that a handler never sees
something else than the producer passed. Here lives that check and the error that names the place. Nothing here
knows of jobs or of a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any, cast

import bson
from bson.codec_options import CodecOptions, TypeRegistry
from bson.errors import InvalidBSON

MAX_DATA_BYTES = 16_000_000
"""A document ends at 16,777,216 bytes; the rest is room for what a job's life adds, so that its end always fits."""

MAX_DOCUMENT_BYTES = 16_777_216 - 200_000
"""What a document may be filled to while its job lives: its end adds 60,000 bytes of error at most, and some fields."""

MAX_DEPTH = 100
"""The nesting MongoDB documents as supported. (6.0 takes 180 levels, but not in every place a document goes.)"""

MAX_ACTION_BYTES = 1_000

CHUNK = 1_000
"""Payloads looked at together, which bounds the memory that takes."""

MAX_FIELDS = 1_000
"""Fields of one update. The server's cost grows with their square: 10,000 took it 0.7 s, 100,000 took 45."""

_AROUND_BYTES = len(bson.encode({"": {}})) - len(bson.encode({}))

Codec = CodecOptions[dict[str, Any]]


class PayloadError(ValueError):
    """Says that an argument cannot be stored, and which place in it is to blame. Nothing was stored.

    Attributes:
        path: The place, as in ``data.items[3].price``.
        problem: What is wrong there and what to pass instead.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def checked_action(action: object, path: str = "action") -> str:
    """Gives back an action that can be stored: a non-empty string of at most 1,000 bytes."""
    if not isinstance(action, str):
        raise PayloadError(path, f"expected a string that names the work, found {_named(action)}")
    if not action:
        raise PayloadError(path, "is empty; name the work, for example 'send-mail'")
    try:
        size = len(action.encode())
    except UnicodeEncodeError:
        raise PayloadError(path, "holds a lone surrogate, which is no character UTF-8 can write") from None
    if size > MAX_ACTION_BYTES:
        raise PayloadError(
            path, f"takes {size:,} bytes; at most {MAX_ACTION_BYTES:,} are allowed, details go into data"
        )
    return str.__str__(action)  # not str(action): of an Enum that is a string, that is another text


def checked_data(data: object, codec: Codec, path: str = "data") -> dict[str, Any]:
    """Gives back the copy of a payload that will be stored.

    The copy is what the codec makes of it: times in UTC, cut to milliseconds. Everything else comes back equal or is
    refused, a tuple too, since it would come back as a list.

    Args:
        data: A mapping with string keys. None means an empty one.
        codec: The collection's codec options.
        path: What the error calls the payload.

    Raises:
        PayloadError: The codec cannot write the payload or would give back something else.
    """
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise PayloadError(path, f"expected a mapping such as {{'user': 1}}, found {_named(data)}")
    try:
        # Beneath a key, as it will be stored: at the root bson moves "_id" to the front and reads no DBRef.
        encoded = bson.encode({"": data}, codec_options=codec)
        stored = bson.decode(encoded, codec_options=codec)[""]
    except Exception as error:  # the codec's own, or what foreign code in the payload raises: that may be anything
        raise _located(data, codec, path, 1) or PayloadError(path, _reason(data, error)) from error
    if (size := len(encoded) - _AROUND_BYTES) > MAX_DATA_BYTES:
        raise PayloadError(
            path,
            f"takes {size:,} bytes; at most {MAX_DATA_BYTES:,} are allowed. "
            "Store large things elsewhere and pass their id",
        )
    if not _is_plainly_equal(data, stored):
        _refuse_changed(data, stored, path)
    return cast(dict[str, Any], stored)


def checked_jobs(items: Iterable[object], codec: Codec) -> list[tuple[str, dict[str, Any]]]:
    """Gives back pairs of action and data, checked as ``checked_action`` and ``checked_data`` do.

    The error's path begins with ``jobs[n]``.
    """
    checked: list[tuple[str, dict[str, Any]]] = []
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK)):
        if (plain := _plain(chunk, codec)) is not None:
            checked += plain
            continue
        pairs = [_checked_pair(item, index) for index, item in enumerate(chunk, len(checked))]
        together = _stored_together([data for _, data in pairs], codec)
        checked += [
            (action, stored if _is_plainly_equal(data, stored) else _checked_apart(data, stored, index, codec))
            for index, ((action, data), stored) in enumerate(zip(pairs, together, strict=True), len(checked))
        ]
    return checked


def checked_values(values: object, codec: Codec) -> dict[str, Any]:
    """Gives back the fields of an update, checked like a payload and with keys that name one field of data each."""
    if not isinstance(values, Mapping):
        raise PayloadError("values", f"expected a mapping of fields of data, found {_named(values)}")
    checked = checked_data(values, codec)
    if len(checked) > MAX_FIELDS:
        raise PayloadError(
            "values", f"has {len(checked):,} fields; at most {MAX_FIELDS:,} are allowed, put them under one of them"
        )
    for key in checked:
        if not key or key.startswith("$") or "." in key:
            raise PayloadError(
                _inside("data", key),
                "cannot be a field of an update: a key is not empty, does not begin with '$' and holds no '.'; "
                "to change something nested, pass its whole top-level field",
            )
    return checked


def checked_time(value: object, path: str) -> datetime:
    """Gives back a time zone-aware time, cut to the milliseconds that can be stored."""
    if not isinstance(value, datetime):
        raise PayloadError(path, f"expected a datetime, found {_named(value)}")
    if value.utcoffset() is None:
        raise PayloadError(path, _NAIVE)
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise PayloadError(path, _NO_DATE) from None
    return cut(value)


def checked_count(value: object, path: str) -> int:
    """Gives back a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PayloadError(path, f"expected a whole number of at least 1, found {shown(value)}")
    return value


def cut(time: datetime) -> datetime:
    """Cuts a time to the milliseconds that BSON keeps, so that it compares equal to what is read back."""
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


_NO_DATE = "has no date in UTC between the years 1 and 9999"
_NAIVE = "is a naive datetime, which is another instant on every machine; pass datetime.now(timezone.utc) or the like"


def _checked_pair(item: object, index: int) -> tuple[str, object]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise PayloadError(f"jobs[{index}]", f"expected a pair of action and data, found {item!r:.100}")
    return checked_action(item[0], f"jobs[{index}].action"), item[1]


def _plain(items: list[Any], codec: Codec) -> list[tuple[str, dict[str, Any]]] | None:
    """Pairs whose payloads hold plain values only, copied; None where a closer look is needed, also to refuse them.

    A codec without types of its own gives such values back equal, so they are not read back to see it. All are looked
    at together, which takes a third of the time of a look at each.
    """
    if codec.type_registry != _NO_TYPES or {*map(type, items)} != {tuple} or {*map(len, items)} != {2}:
        return None
    actions, payloads = zip(*items, strict=True)
    if {*map(type, actions)} != {str} or {*map(type, payloads)} != {dict}:
        return None
    copies = list(map(dict, payloads))
    values = chain.from_iterable(map(dict.values, copies))
    if not _PLAIN.issuperset(map(type, values)):
        return None
    try:
        for action in {*actions}:
            checked_action(action)
        encoded = bson.encode({"": copies}, codec_options=codec)
    except Exception:  # whatever it is, and wherever
        return None
    if len(encoded) > MAX_DATA_BYTES or _REFERENCE in encoded:
        return None
    return list(zip(actions, copies, strict=True))


def _checked_apart(data: object, stored: Any, index: int, codec: Codec) -> dict[str, Any]:
    path = f"jobs[{index}].data"
    if not isinstance(data, Mapping) or type(stored) is not dict:
        return checked_data(data, codec, path)
    _refuse_changed(data, stored, path)
    return stored


def _stored_together(given: list[object], codec: Codec) -> list[Any]:
    """What the codec makes of payloads, at a quarter of what it costs one by one; Nones where it is better not tried.

    Only for a first look: whether a payload may be stored is for ``checked_data`` to say.
    """
    unknown = [None] * len(given)
    try:
        encoded = bson.encode({"": given}, codec_options=codec)
        stored = bson.decode(encoded, codec_options=codec)[""] if len(encoded) <= MAX_DATA_BYTES else unknown
    except Exception:  # the codec's own, or what foreign code in a payload raises: checked_data finds the place
        return unknown
    return stored if type(stored) is list and len(stored) == len(given) else unknown


def _is_plainly_equal(given: Any, stored: Any) -> bool:
    """Whether these are equal and hold nothing nested, which most payloads do not: a tenth of the cost of comparing."""
    return type(given) is type(stored) is dict and _PLAIN.issuperset(map(type, given.values())) and given == stored


_PLAIN = frozenset((str, int, float, bool, type(None)))
_NO_TYPES = TypeRegistry()
_REFERENCE = b"$ref\0"
"""As a key it makes a payload be read as a reference."""


def _refuse_changed(data: Mapping[str, Any], stored: object, path: str) -> None:
    """Raises unless the codec gives back what was put in."""
    if type(stored) is not dict:
        raise PayloadError(path, _changed(data, stored))
    try:
        _compare(data, stored, path, 1)
    except PayloadError:
        raise
    except Exception as error:
        raise PayloadError(path, _reason(data, error)) from error


def _compare(given: Any, stored: Any, path: str, depth: int) -> None:
    """Raises for the first place where the stored payload is not what was given."""
    if isinstance(given, Mapping) and type(stored) is dict:
        _check_depth(path, depth)
        for key, value in given.items():
            if key not in stored:
                raise PayloadError(_inside(path, key), "comes back under another name")
            _compare(value, stored[key], _inside(path, key), depth + 1)
    elif isinstance(given, list) and type(stored) is list:
        _check_depth(path, depth)
        for index, (value, other) in enumerate(zip(given, stored, strict=True)):
            _compare(value, other, f"{path}[{index}]", depth + 1)
    elif isinstance(given, datetime) and given.utcoffset() is None:
        raise PayloadError(path, _NAIVE)
    elif not _equal(given, stored):
        raise PayloadError(path, _changed(given, stored))


def _equal(given: Any, stored: Any) -> bool:
    if isinstance(given, datetime) and isinstance(stored, datetime):
        return timedelta(0) <= given - stored < timedelta(milliseconds=1)
    both_nan = isinstance(given, float) and isinstance(stored, float) and given != given and stored != stored
    try:
        return both_nan or bool(given == stored)
    except Exception:  # foreign code, which may raise anything
        return False


def _located(value: Any, codec: Codec, path: str, depth: int) -> PayloadError | None:
    """Finds the deepest place the codec refuses, or None where each part alone is accepted."""
    if depth > MAX_DEPTH:
        return _too_deep(path)
    try:
        for place, key, part in _parts(value, path):
            if problem := _key_problem(key):
                return PayloadError(path, problem)
            try:
                bson.decode(bson.encode({"": part}, codec_options=codec), codec_options=codec)
            except Exception as error:
                return _located(part, codec, place, depth + 1) or PayloadError(place, _reason(part, error))
    except Exception as error:
        return PayloadError(path, f"cannot be read: {type(error).__name__}")
    return None


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields the place, the key ("" in a list) and the value of each part of a container."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield _inside(path, key), key, part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"{path}[{index}]", "", part


def _key_problem(key: Any) -> str | None:
    if not isinstance(key, str):
        return f"has the key {shown(key)}, {_named(key)}; keys are strings"
    if "\0" in key:
        return f"has the key {shown(key)}; a key cannot hold a NUL"
    try:
        key.encode()
    except UnicodeEncodeError:
        return f"has the key {shown(key)}, which holds a lone surrogate"
    return None


def _reason(value: Any, error: Exception) -> str:
    if isinstance(error, RecursionError) or (isinstance(error, InvalidBSON) and "recursion" in str(error)):
        return f"is nested deeper than {MAX_DEPTH} levels (or contains itself)"
    if isinstance(error, UnicodeEncodeError):
        return "holds a lone surrogate, which is no character UTF-8 can write"
    if isinstance(value, datetime):
        return _NO_DATE
    if isinstance(error, OverflowError) and isinstance(value, int):
        return "is an integer of more than 64 bits; pass a string"
    return f"{_named(value)} cannot be stored; pass a type the collection's codec knows, such as a string"


def _check_depth(path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep(path)


def _too_deep(path: str) -> PayloadError:
    return PayloadError(_clipped(path), f"is nested deeper than {MAX_DEPTH} levels (or contains itself)")


def _inside(path: str, key: object) -> str:
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{shown(key)}]"


def _changed(given: object, stored: object) -> str:
    return f"{_named(given)} would come back as {_named(stored)}; pass that instead"


def shown(value: object) -> str:
    """What a value is, for an error message. Its own text may raise, and an integer be too long to be written out."""
    try:
        return repr(value)
    except Exception:
        return _named(value)


def _clipped(path: str) -> str:
    return path if len(path) <= 200 else path[:100] + " … " + path[-100:]


def _named(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
