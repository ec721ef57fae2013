"""What one insert for several callers means for each of them.

Each is told of its own documents what it would have been told alone, and nothing of the others.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence

from pymongo.errors import BulkWriteError, PyMongoError

from simplequeue.collection import refused_by_keys

Answer = set[int] | Exception
"""The places of a caller's documents that were refused, or what went wrong."""


def shares(refused: Collection[int], sizes: Sequence[int]) -> list[Answer]:
    """Gives to each caller, of whom the documents were sent one after the other, which of its own were refused."""
    return [{place - begin for place in refused if begin <= place < end} for begin, end in _spans(sizes)]


def shares_of_error(error: BulkWriteError, sizes: Sequence[int]) -> list[Answer]:
    """Gives to each caller what a refusal of some documents means for its own.

    Where it is the call that went wrong, as when no majority has acknowledged it, that is each one's error.
    """
    return [_share(error, begin, end) for begin, end in _spans(sizes)]


def copied(error: PyMongoError) -> PyMongoError:
    """The same error for another caller, who will raise it with a traceback of its own."""
    other = copy.copy(error)
    other.__cause__ = error.__cause__
    return other


def _share(error: BulkWriteError, begin: int, end: int) -> Answer:
    own = [
        {**refusal, "index": refusal["index"] - begin}
        for refusal in error.details.get("writeErrors", ())
        if begin <= refusal["index"] < end
    ]
    if not own and not error.details.get("writeConcernErrors"):
        return set()
    share = BulkWriteError({**error.details, "writeErrors": own, "nInserted": end - begin - len(own)})
    try:
        return refused_by_keys(share)
    except BulkWriteError:
        return share.with_traceback(None)


def _spans(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    begin = 0
    for size in sizes:
        yield begin, begin + size
        begin += size
