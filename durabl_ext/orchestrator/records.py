"""What the journal keeps of a step: its result, or the failure after which its body went on.

A failure that ended the attempt is not kept: the next attempt runs the step again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import bson
from bson.errors import BSONError

from durabl_ext.core.journal import Step
from durabl_ext.errors import JournalTooLarge, NonSerializableStepResult, StepFailed
from durabl_ext.orchestrator.history import BESIDE, Failed
from simplequeue.failure import MESSAGE_BYTES, NAME_BYTES, clip
from simplequeue.job import Document
from simplequeue.payload import MAX_DATA_BYTES, Codec, PayloadError, checked_data

ENCODING = (BSONError, ValueError, TypeError, OverflowError, RecursionError)
"""What the driver raises for a value that it cannot encode."""


def of_result(
    job_id: str, seq: str, name: str, result: object, at: datetime, beside: Sequence[str], codec: Codec
) -> Step:
    """The record of a step that has ended well, and was called beside branches at those places.

    A result may hold what a job's ``data`` may.

    Raises:
        NonSerializableStepResult: The result cannot be stored, or would come back as something else.
        JournalTooLarge: No document could hold it.
    """
    try:
        stored = checked_data({"result": result}, codec, "step")
    except PayloadError as problem:
        if problem.path == "step":  # of a mapping with one text as its key only the size can be wrong
            size = len(bson.encode({"": result}, codec_options=codec))
            raise JournalTooLarge(job_id, name, size, 0, MAX_DATA_BYTES) from None
        raise NonSerializableStepResult(job_id, name, str(problem)) from None
    return Step(seq, name, {**stored, "at": at, **_beside(beside)})


def of_failure(failed: Failed, at: datetime) -> Step:
    """The record of a step that has failed, with what it takes to raise the same again."""
    error = failed.error
    kind = type(error)
    kept: Document = {
        "type": f"{kind.__module__}:{kind.__qualname__}",
        "name": clip(kind.__name__, NAME_BYTES),
        "message": clip(_text(error), MESSAGE_BYTES),
    }
    # What pickle would keep: an OSError's file and the parts of a UnicodeError are neither in args nor in the dict.
    _, args, *state = _built_in(kind).__reduce__(error)
    for field, value in (("args", list(args)), ("state", dict(state[0] if state else {}))):
        if _is_small(value):
            kept[field] = value
    return Step(failed.seq, failed.name, {"error": kept, "at": at, **_beside(failed.beside)})


def value_of(job_id: str, record: Mapping[str, Any]) -> Any:
    """Gives a step's result, or raises what it had raised."""
    if "error" in record:
        raise _raised_again(job_id, str(record.get("name")), record["error"])
    return record.get("result")


def _beside(places: Sequence[str]) -> Document:
    return {BESIDE: list(places)} if places else {}


def _raised_again(job_id: str, step: str, kept: Mapping[str, Any]) -> Exception:
    kind = _class(str(kept.get("type")))
    if kind is not None and "args" in kept and "state" in kept:
        try:
            error: Exception = kind.__new__(kind, *kept["args"])
            _built_in(kind).__init__(error, *kept["args"])  # not the class's own, which may take something else
            error.__setstate__(kept["state"])
        except Exception:  # a class that cannot be made from its own arguments
            return StepFailed(job_id, step, str(kept.get("name")), str(kept.get("message")))
        return error
    return StepFailed(job_id, step, str(kept.get("name")), str(kept.get("message")))


def _built_in(kind: type[Exception]) -> Any:
    """The class of Python's own that a class of errors is made from."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _class(path: str) -> type[Exception] | None:
    """The class of an error, if it is there. Nothing is imported for what a document says."""
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _is_small(value: Any) -> bool:
    try:
        encoded = bson.encode({"": value})
        return len(encoded) <= MESSAGE_BYTES and bson.decode(encoded)[""] == value
    except ENCODING:
        return False


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception as worse:
        return f"<the text of it cannot be had: {type(worse).__name__}>"
