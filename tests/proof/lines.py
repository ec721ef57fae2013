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
from pymongo.errors import AutoReconnect, BulkWriteError, PyMongoError, WriteConcernError, WriteError
from pymongo.read_concern import ReadConcern

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
    UNDONE = auto()
    """The same, and the server that applied it is replaced by one that has never heard of it, before anybody else calls
    and before the worker writes again."""


def faults_of(name: str) -> list[Fault]:
    """The ways to break a call that make a difference: a read applies nothing, and half of one write is none."""
    if name in READS:
        return [Fault.STOP_BEFORE, Fault.LOST]
    return [fault for fault in Fault if name in BULKS or fault is not Fault.HALF]


class Stopped(BaseException):
    """Ends a worker as the end of its process does; no decision may handle it."""


class Undoing:
    """A write that only one server has: what was stored before it, and whose it is.

    That it was there is no part of any history, unless somebody acts on it.
    """

    def __init__(self) -> None:
        self.line: Line | None = None
        self._collection: Any = None
        self._before: list[dict[str, Any]] = []

    def begin(self, line: Line, collection: Any) -> None:
        """Remembers what is stored, before a write of a line."""
        self.line, self._collection, self._before = line, collection, list(collection.find())

    def fail_over(self) -> None:
        """Undoes the write, if there is one."""
        if self.line is not None:
            self.line = None
            self._collection.delete_many({})
            if self._before:
                self._collection.insert_many(self._before)


class Line:
    """Carries the calls of one worker.

    Args:
        seen: Called after each write that was applied.
        undoing: What all lines share of writes that are to be undone.
        plan: Which calls go wrong, by their place, and how.
    """

    def __init__(self, seen: Callable[[], None], undoing: Undoing, plan: Mapping[int, Fault] | None = None) -> None:
        self.names: list[str] = []
        self.plan = dict(plan or {})
        self._seen = seen
        self._undoing = undoing
        self._late: list[Callable[[], Any]] = []

    def carry(self, name: str, majority: bool, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Makes a call, or what is left of it."""
        if majority or name not in READS or self._undoing.line is not self:
            self._undoing.fail_over()
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
            case Fault.UNDONE:
                self._undoing.begin(self, method.__self__)  # type: ignore[attr-defined]  # it is a method
                raise self._without_majority(name, method, *args, **kwargs)

    def deliver(self) -> None:
        """Applies the calls that are still on their way; nobody hears their answers."""
        self._undoing.fail_over()
        late, self._late = self._late, []
        for make in late:
            make()

    def _apply(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        finally:
            if name not in READS and self._undoing.line is None:
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
        except WriteError as error:
            return error  # the driver tells of the refusal and not of the concern
        if name in BULKS:
            return BulkWriteError({**details, "writeConcernErrors": [CONCERN]})
        return WriteConcernError(CONCERN["errmsg"], CONCERN["code"])


class Collection:
    """A collection whose every call goes through a line."""

    def __init__(self, collection: Any, line: Line, *, majority: bool = False) -> None:
        self._collection = collection
        self._line = line
        self._majority = majority

    def with_options(self, read_concern: ReadConcern) -> Collection:
        """The same, read as the read concern says."""
        return Collection(self._collection, self._line, majority=read_concern.level == "majority")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._line.carry, name, self._majority, getattr(self._collection, name))


def half_of(writes: list[Any]) -> list[Any]:
    """Gives the first half of some writes; of a single write for several ids, the same for half of these."""
    if len(writes) > 1:
        return writes[: len(writes) // 2]
    (only,) = writes
    if not isinstance(only, UpdateMany):
        return []
    ids = only._filter["_id"]["$in"]
    return [UpdateMany({**only._filter, "_id": {"$in": ids[: len(ids) // 2]}}, only._doc)]
