"""How jobs and results are printed for scripts: one JSON document a line.

Times are ISO 8601 in UTC, so that they sort and compare as text; what JSON has no type for is MongoDB's Extended JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click
from bson import json_util
from bson.binary import UuidRepresentation

_EXTENDED = json_util.JSONOptions(json_mode=json_util.JSONMode.RELAXED, uuid_representation=UuidRepresentation.STANDARD)


def show_json(value: Mapping[str, Any]) -> None:
    """Prints a document on a line of its own, in ASCII."""
    click.echo(json.dumps(plain(value), allow_nan=False))


def named(document: Mapping[str, Any]) -> dict[str, Any]:
    """Gives a stored job with its id under the name that ``Job`` has for it."""
    return {"id": document.get("_id"), **{name: value for name, value in document.items() if name != "_id"}}


def plain(value: Any) -> Any:
    """Gives a value in types that JSON has."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, datetime):
        return iso(value)
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return json.loads(json_util.dumps(value, json_options=_EXTENDED))


def iso(time: datetime) -> str:
    """Gives a time in ISO 8601, in UTC, with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
