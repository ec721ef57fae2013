"""What can happen to one call between a worker and its server.

A line carries the calls of one worker to the real collection. At chosen calls it breaks: the worker's process ends, the
call or its answer is lost, only half of it is applied, or it is applied after the worker has given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any

from pymongo import UpdateMany
from pymongo.errors import AutoReconnect, BulkWriteError, PyMongoError, WriteConcernError

READS = frozenset(("find", "find_one"))
BULKS = frozenset(("bulk_write", "insert_many"))
CONCERN: dict[str, Any] = {"code": 64, "errmsg": "waiting for replication timed out"}


class Fault(Enum):
    """How a call goes wrong."""

    STOP_BEFORE = auto()
    """The worker's process ends before the call."""
    STOP_AFTER = auto()
    """The worker's process ends when the call has been applied."""
    LOST = auto()
    """The call never arrives, and the worker is told that the connection broke."""
    AMBIGUOUS = auto()
    """The call is applied, and the worker is told that the connection broke."""
    HALF = auto()
    """Half of the writes of the call are applied, and the worker is told that the connection broke."""
    LATE = auto()
    """The worker is told that the connection broke; the call is applied when ``deliver`` says so."""
    CONCERN = auto()
    """The call is applied, and the worker is told that no majority has said so."""


def faults_of(name: str) -> list[Fault]:
    """The ways to break a call that make a difference: a read applies nothing, and half of one write is none."""
    if name in READS:
        return [Fault.STOP_BEFORE, Fault.LOST]
    return [fault for fault in Fault if name in BULKS or fault is not Fault.HALF]


class Stopped(BaseException):
    """Ends a worker as the end of its process does; no decision may handle it."""


class Line:
    """Carries the calls of one worker.

    Args:
        seen: Called after each write that was applied.
        plan: Which calls go wrong, by their place, and how.
    """

    def __init__(self, seen: Callable[[], None], plan: Mapping[int, Fault] | None = None) -> None:
        self.names: list[str] = []
        self.plan = dict(plan or {})
        self._seen = seen
        self._late: list[Callable[[], Any]] = []

    def carry(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Makes a call, or what is left of it."""
        fault = self.plan.get(len(self.names))
        if fault is not None and fault not in faults_of(name):
            fault = Fault.LOST
        self.names.append(name)
        match fault:
            case None:
                return self._apply(name, method, *args, **kwargs)
            case Fault.STOP_BEFORE:
                raise Stopped
            case Fault.LOST:
                raise AutoReconnect("the call was lost")
            case Fault.LATE:
                self._late.append(partial(self._unheard, name, method, *args, **kwargs))
                raise AutoReconnect("the call is on its way")
            case Fault.HALF:
                if half := half_of(args[0]):
                    self._unheard(name, method, half, *args[1:], **kwargs)
                raise AutoReconnect("the answer was lost half way")
            case Fault.STOP_AFTER:
                self._unheard(name, method, *args, **kwargs)
                raise Stopped
            case Fault.AMBIGUOUS:
                self._unheard(name, method, *args, **kwargs)
                raise AutoReconnect("the answer was lost")
            case Fault.CONCERN:
                raise self._without_majority(name, method, *args, **kwargs)

    def deliver(self) -> None:
        """Applies the calls that are still on their way; nobody hears their answers."""
        late, self._late = self._late, []
        for make in late:
            make()

    def _apply(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        finally:
            if name not in READS:
                self._seen()

    def _unheard(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Makes a call of which nobody hears whether it was refused."""
        with suppress(PyMongoError):
            self._apply(name, method, *args, **kwargs)

    def _without_majority(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> PyMongoError:
        details: dict[str, Any] = {"writeErrors": [], "nMatched": 0}
        try:
            self._apply(name, method, *args, **kwargs)
        except BulkWriteError as error:
            details = dict(error.details or {})
        if name in BULKS:
            return BulkWriteError({**details, "writeConcernErrors": [CONCERN]})
        return WriteConcernError(CONCERN["errmsg"], CONCERN["code"])


class Collection:
    """A collection whose every call goes through a line."""

    def __init__(self, collection: Any, line: Line) -> None:
        self._collection = collection
        self._line = line

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._line.carry, name, getattr(self._collection, name))


def half_of(writes: list[Any]) -> list[Any]:
    """Gives the first half of some writes; of a single write for several ids, the same for half of these."""
    if len(writes) > 1:
        return writes[: len(writes) // 2]
    (only,) = writes
    if not isinstance(only, UpdateMany):
        return []
    ids = only._filter["_id"]["$in"]
    return [UpdateMany({**only._filter, "_id": {"$in": ids[: len(ids) // 2]}}, only._doc)]
