"""How a handler's exception becomes the error that is stored with its job.

Whatever was raised, the result encodes and fits: names, texts and traces come from foreign code, may be of any size
and may themselves raise when asked for. Nothing here knows of jobs or of a server.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TypedDict

NAME_BYTES = 200
MESSAGE_BYTES = 10_000
STACK_BYTES = 50_000
"""Together far below the 777,216 bytes that the limit on data leaves of a document."""

MINIMAL_BYTES = 100
"""What each text is cut to where the full error was refused."""


class StoredError(TypedDict):
    """What a failed job says of its failure."""

    name: str
    message: str
    stack: str


def stored_error(error: BaseException) -> StoredError:
    """Describes an exception within the byte budgets: its class, its text and its trace with all causes."""
    name = clip(_said(lambda: type(error).__name__, "Exception"), NAME_BYTES)
    return {
        "name": name,
        "message": clip(_said(lambda: str(error), f"<the text of this {name} cannot be had>"), MESSAGE_BYTES),
        "stack": clip(
            _said(lambda: "".join(traceback.format_exception(error)), "<the trace cannot be had>"), STACK_BYTES
        ),
    }


def minimal(error: StoredError) -> StoredError:
    """Cuts an error to what fits nearly anywhere."""
    return {"name": clip(error["name"], MINIMAL_BYTES), "message": clip(error["message"], MINIMAL_BYTES), "stack": ""}


def clip(text: str, budget: int) -> str:
    """Cuts a text to a number of UTF-8 bytes, keeping both ends, and writes out what cannot be stored."""
    if len(text) > budget:  # a character is at least a byte: spares encoding 20 MB to keep 10 kB of it
        text = text[:budget] + text[-budget:]
        clipped = True
    else:
        clipped = False
    encoded = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    if not clipped and len(encoded) <= budget:
        return encoded.decode()
    mark = " … [clipped] … ".encode()
    half = max(budget - len(mark), 0) // 2
    return (encoded[:half] + mark + encoded[len(encoded) - half :])[:budget].decode("utf-8", "ignore")


def _said(ask: Callable[[], str], otherwise: str) -> str:
    # An exception's __str__ is foreign code: what it raises, SystemExit included, must not replace the job's own end.
    try:
        return str.__str__(ask())  # the plain text, also where a class of its own came back
    except BaseException:
        return otherwise
