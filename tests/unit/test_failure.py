"""What is stored of an exception, whatever it is."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simplequeue.failure import (
    MESSAGE_BYTES,
    MINIMAL_BYTES,
    NAME_BYTES,
    STACK_BYTES,
    StoredError,
    clip,
    minimal,
    stored_error,
)
from simplequeue.payload import MAX_ACTION_BYTES, MAX_DATA_BYTES

DOCUMENT_BYTES = 16_777_216


def stored(make: Callable[[], BaseException]) -> StoredError:
    """What is stored of an error that was raised, after a check that it can be.

    It takes what makes the error, since a failing test shows the arguments, and some of these cannot be shown.
    """
    told, escaped = None, ""
    try:
        raise make()
    except BaseException as raised:
        try:
            told = stored_error(raised)
        except BaseException as another:
            escaped = type(another).__qualname__
    assert told is not None, f"describing the error raised {escaped}"
    check(told)
    return told


def check(told: StoredError) -> None:
    """Every text is a plain string that encodes, has no NUL and keeps its budget in bytes."""
    assert list(told) == ["name", "message", "stack"]
    for text, budget in ((told["name"], NAME_BYTES), (told["message"], MESSAGE_BYTES), (told["stack"], STACK_BYTES)):
        assert type(text) is str
        assert "\0" not in text
        assert len(text.encode()) <= budget
    assert bson.decode(bson.encode(told)) == told


def raising(what: BaseException) -> type[Exception]:
    """An exception class whose text cannot be had."""

    class SilentError(Exception):
        def __str__(self) -> str:
            raise what

    return SilentError


def test_an_ordinary_error_is_told_by_class_text_and_trace() -> None:
    def find_user() -> NoReturn:
        raise LookupError("no user 7")

    try:
        find_user()
    except LookupError as raised:
        told = stored_error(raised)
    assert told["name"] == "LookupError"
    assert told["message"] == "no user 7"
    assert told["stack"].startswith("Traceback")
    assert "in find_user" in told["stack"]
    assert told["stack"].endswith("LookupError: no user 7\n")
    check(told)


def test_the_trace_tells_the_cause_as_well() -> None:
    try:
        try:
            raise KeyError("the cause")
        except KeyError as cause:
            raise RuntimeError("the effect") from cause
    except RuntimeError as raised:
        told = stored_error(raised)
    assert "KeyError: 'the cause'" in told["stack"]
    assert "RuntimeError: the effect" in told["stack"]


@pytest.mark.parametrize("letter", ["x", "é", "漢", "🎈", "\0", "\ud800"])
def test_twenty_megabytes_of_text_are_cut_to_the_budget_with_both_ends_kept(letter: str) -> None:
    size = 20_000_000 // len(letter.encode("utf-8", "surrogatepass"))
    told = stored(lambda: ValueError("the beginning " + letter * size + " the end"))
    assert told["name"] == "ValueError"
    assert told["message"].startswith("the beginning ")
    assert told["message"].endswith(" the end")
    assert "clipped" in told["message"]
    assert len(told["message"].encode()) > MESSAGE_BYTES - 10
    assert len(told["stack"].encode()) > STACK_BYTES - 10


def test_what_cannot_be_stored_is_written_out() -> None:
    told = stored(lambda: ValueError("a lone \ud800, a NUL \0, a 漢 and a \n stay apart"))
    assert told["message"] == "a lone \\ud800, a NUL \\x00, a 漢 and a \n stay apart"


@pytest.mark.parametrize(
    "what",
    [ValueError("inner"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError(), MemoryError()],
    ids=lambda what: type(what).__name__,
)
def test_a_text_that_raises_when_asked_for_does_not_replace_the_error(what: BaseException) -> None:
    told = stored(lambda: raising(what)("lost"))
    assert told["name"] == "SilentError"
    assert "SilentError" in told["message"]
    assert "SilentError" in told["stack"]
    assert "Traceback" in told["stack"]


@pytest.mark.parametrize("answer", [None, 7, b"bytes", ["list"]], ids=repr)
def test_a_text_that_is_no_text_does_not_replace_the_error(answer: object) -> None:
    class OddError(Exception):
        def __str__(self) -> Any:
            return answer

    told = stored(OddError)
    assert told["name"] == "OddError"
    assert "OddError" in told["message"]


class Treacherous(str):
    """A text that is not what it says of itself."""

    def __str__(self) -> str:
        return self

    def __len__(self) -> int:
        return 3

    def replace(self, *args: object) -> NoReturn:
        raise ZeroDivisionError

    def encode(self, *args: object) -> NoReturn:
        raise SystemExit


def test_a_text_of_a_class_of_its_own_is_stored_as_the_text_it_is() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            return Treacherous("the text")

    assert stored(OddError)["message"] == "the text"


def test_a_long_text_of_a_class_of_its_own_keeps_the_budget() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            return Treacherous("x" * 1_000_000)

    assert len(stored(OddError)["message"]) > MESSAGE_BYTES - 10


def test_a_class_whose_name_is_a_megabyte_is_told_within_the_budget() -> None:
    told = stored(lambda: type("N" * 1_000_000, (Exception,), {})("hello"))
    assert told["name"].startswith("NNNN")
    assert len(told["name"].encode()) > NAME_BYTES - 10
    assert told["message"] == "hello"


def test_a_class_of_a_long_name_whose_text_cannot_be_had_is_told_too() -> None:
    told = stored(type("N" * 1_000_000, (raising(ValueError()),), {}))
    assert len(told["message"].encode()) <= MESSAGE_BYTES


def test_a_class_that_will_not_say_its_name_is_told_too() -> None:
    class Shy(type):
        @property
        def __name__(cls) -> NoReturn:  # type: ignore[override]  # that it raises is the point
            raise ZeroDivisionError

    class HiddenError(Exception, metaclass=Shy):
        pass

    told = stored(lambda: HiddenError("hello"))
    assert told["name"]
    assert told["message"] == "hello"


def test_a_class_that_says_neither_name_nor_text_is_told_too() -> None:
    class Shy(type):
        @property
        def __name__(cls) -> NoReturn:  # type: ignore[override]  # that it raises is the point
            raise KeyboardInterrupt

    class HiddenError(Exception, metaclass=Shy):
        def __str__(self) -> NoReturn:
            raise SystemExit

    told = stored(HiddenError)
    assert told["name"]
    assert told["message"]


def chain(length: int) -> Exception:
    error: Exception = ValueError("the root cause")
    for number in range(length):
        outer = RuntimeError(f"effect {number}")
        outer.__cause__ = error
        error = outer
    return error


def test_five_thousand_causes_are_told_by_the_first_and_the_last() -> None:
    told = stored(lambda: chain(5_000))
    assert told["message"] == "effect 4999"
    assert "the root cause" in told["stack"]
    assert "effect 4999" in told["stack"]


def test_a_group_of_long_cause_chains_is_told() -> None:
    told = stored(lambda: ExceptionGroup("many", [chain(5_000), chain(5_000)]))
    assert told["name"] == "ExceptionGroup"
    assert told["message"] == "many (2 sub-exceptions)"


def test_causes_that_go_in_a_circle_are_told_once() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    told = stored(lambda: one)
    assert told["stack"].count("ValueError: other") == 1


def nested(depth: int) -> Exception:
    error: Exception = ValueError("the innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


@pytest.mark.parametrize("depth", [5, 100, 5_000])
def test_groups_within_groups_are_told_however_deep(depth: int) -> None:
    told = stored(lambda: nested(depth))
    assert told["name"] == "ExceptionGroup"
    assert told["message"] == "group (1 sub-exception)"
    assert told["stack"]


def test_a_group_of_thousands_is_told() -> None:
    told = stored(lambda: ExceptionGroup("wide", [ValueError(str(number)) for number in range(10_000)]))
    assert told["message"] == "wide (10000 sub-exceptions)"


class Mute:
    def __repr__(self) -> NoReturn:
        raise SystemExit

    __str__ = __repr__


class Unending(list[str]):
    def __iter__(self) -> NoReturn:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "notes",
    [7, "text", b"bytes", None, [1, None, b"x", "\ud800\0"], [Mute()], Mute(), Unending(["x"]), ["x" * 5_000_000]],
    ids=["int", "str", "bytes", "None", "mixed", "mute in a list", "mute", "raising", "long"],
)
def test_notes_of_any_kind_do_not_replace_the_error(notes: object) -> None:
    error = ValueError("hello")
    error.__notes__ = notes  # type: ignore[assignment]  # anybody may put anything there
    told = stored(lambda: error)
    assert told["name"] == "ValueError"
    assert told["message"] == "hello"
    assert told["stack"]


def test_a_note_is_told_with_the_trace() -> None:
    error = ValueError("hello")
    error.add_note("job 7 of 9")
    assert "job 7 of 9" in stored(lambda: error)["stack"]


def test_an_endless_recursion_is_told() -> None:
    def endless(depth: int) -> int:
        return endless(depth + 1) + 1

    with pytest.raises(RecursionError) as raised:
        endless(0)
    told = stored_error(raised.value)
    check(told)
    assert told["name"] == "RecursionError"
    assert "in endless" in told["stack"]


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), StopIteration(), BaseExceptionGroup("g", [SystemExit()])],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_that_is_no_error_is_told_like_one(error: BaseException) -> None:
    assert stored(lambda: error)["name"] == type(error).__name__


def test_an_error_that_has_never_been_raised_is_told_too() -> None:
    told = stored_error(ValueError("hello"))
    check(told)
    assert told["stack"] == "ValueError: hello\n"


def test_the_trace_of_a_syntax_error_with_nonsense_in_it_is_told() -> None:
    error = SyntaxError("bad", ("\ud800\0", 1, 1, "x" * 1_000_000, 2, -5))
    assert stored(lambda: error)["name"] == "SyntaxError"


def test_a_text_with_an_attribute_that_raises_is_told() -> None:
    class HostileError(Exception):
        def __getattribute__(self, name: str) -> NoReturn:
            raise SystemExit(name)

    told = stored(lambda: HostileError("hello"))
    assert told["name"] == "HostileError"
    assert told["stack"]


def test_the_text_of_an_error_is_asked_for_by_its_own_class() -> None:
    class DetailedError(Exception):
        def __str__(self) -> str:
            return f"code {self.args[0]}"

    assert stored(lambda: DetailedError(7))["message"] == "code 7"


def test_even_with_the_largest_payload_there_is_room_for_the_largest_error() -> None:
    error: StoredError = {"name": "n" * NAME_BYTES, "message": "m" * MESSAGE_BYTES, "stack": "s" * STACK_BYTES}
    around = {
        "_id": "i" * 36,
        "action": "a" * MAX_ACTION_BYTES,
        "status": "superseded",
        "error": error,
        **dict.fromkeys(("created_at", "updated_at", "started_at", "finished_at"), bson.DatetimeMS(0)),
        "data": {},
    }
    assert MAX_DATA_BYTES + len(bson.encode(around)) < DOCUMENT_BYTES


def test_the_minimal_form_says_the_name_and_the_beginning_of_the_text_in_few_bytes() -> None:
    told = minimal(stored(lambda: ValueError("the beginning " + "漢" * 1_000_000)))
    check(told)
    assert told["name"] == "ValueError"
    assert told["message"].startswith("the beginning ")
    assert told["stack"] == ""
    assert len(bson.encode(told)) <= 2 * MINIMAL_BYTES + 60


@given(st.text(st.characters(codec=None, exclude_categories=())), st.integers(0, 100))
def test_a_clipped_text_encodes_and_keeps_any_budget(text: str, budget: int) -> None:
    clipped = clip(text, budget)
    assert type(clipped) is str
    assert len(clipped.encode()) <= budget
    assert "\0" not in clipped


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers(0, 100))
def test_a_text_that_fits_is_left_as_it_is(text: str, budget: int) -> None:
    clipped = clip(text, len(text.encode()) + budget)
    assert clipped == text


@given(st.integers(40, 400), st.integers(0, 2_000))
def test_a_clipped_text_keeps_as_much_of_both_ends_as_the_budget_allows(budget: int, more: int) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(budget + 1 + more))
    clipped = clip(text, budget)
    head, mark, tail = clipped.partition(" … [clipped] … ")
    assert mark
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) >= 10
    assert len(tail) >= 10
    assert budget - 2 <= len(clipped.encode()) <= budget


@pytest.mark.parametrize("cut", range(8))
def test_a_cut_in_the_midst_of_a_character_leaves_no_half_of_it(cut: int) -> None:
    clipped = clip("漢" * 1_000, 100 + cut)
    assert set(clipped) == set("漢 … [clipped] … ")


@pytest.mark.parametrize("make", [lambda: stored_error(ValueError("x")), lambda: minimal(stored_error(ValueError()))])
def test_what_is_stored_is_plain_data(make: Callable[[], StoredError]) -> None:
    told = make()
    assert type(told) is dict
    assert pickle.loads(pickle.dumps(told)) == told
