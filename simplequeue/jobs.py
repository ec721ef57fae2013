"""The one door to the database.

Decisions are coroutines over ``Jobs``. Here lives what a call promises and how one is made: in the caller's thread, in
a thread of its own, or awaited. ``collection`` is what stands behind it. Nothing here knows what a job is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast

import bson
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.results import DeleteResult, UpdateResult

from simplequeue.commands import Index
from simplequeue.job import Document
from simplequeue.payload import Codec
from simplequeue.threads import Threads

T = TypeVar("T")
Session = ClientSession | AsyncClientSession
Sort = Sequence[tuple[str, int]]
Call = Callable[[Callable[[], Any]], Awaitable[Any]]
"""How a call is made: takes what makes it, gives its result."""

EMPTY_DOCUMENT_BYTES = 5

BY_ID = "_id_"
"""The index on ids. A command that names several ids, and their status as well, says so: the server would as soon walk
over all jobs of that status while they are few, and go on with that for a while when they no longer are."""


class NoChangeStreamError(RuntimeError):
    """Says that this server has no change streams, so that only polling shows what is new."""


class StreamEndedError(RuntimeError):
    """Says that a change stream has ended without an error."""


@dataclass(frozen=True, slots=True)
class Room:
    """Asks of an update that a sub-document and its document keep their limits; the server judges it in the update.

    A check before the update could be outrun by another update, and a document that has grown to the limit could not
    even be ended.

    Attributes:
        field: The sub-document.
        values: What the update sets in it.
        size: What the values take, in encoded bytes, as a document of their own.
        limit: What the sub-document may take afterwards.
        whole: What the document may take afterwards.
    """

    field: str
    values: Mapping[str, Any]
    size: int
    limit: int
    whole: int

    def as_filter(self) -> Document:
        """``size - size of what is replaced + size of what is set <= limit``, as the server computes it, for both."""
        replaced = [
            {"$subtract": [{"$bsonSize": {key: f"${self.field}.{key}"}}, EMPTY_DOCUMENT_BYTES]} for key in self.values
        ]
        added = self.size - EMPTY_DOCUMENT_BYTES

        def within(what: str, limit: int) -> Document:
            return {"$lte": [{"$subtract": [{"$bsonSize": what}, {"$add": replaced}]}, limit - added]}

        return {"$expr": {"$and": [within(f"${self.field}", self.limit), within("$$ROOT", self.whole)]}}

    def fits(self, document: Document, codec: Codec) -> bool:
        """The same, computed here."""
        merged = {**(document.get(self.field) or {}), **self.values}
        size = len(bson.encode(merged, codec_options=codec))
        whole = len(bson.encode({**document, self.field: merged}, codec_options=codec))
        return size <= self.limit and whole <= self.whole


@dataclass(frozen=True, slots=True)
class WholeRoom:
    """Asks of an update that the whole document leaves room for what has to be written to it later.

    Attributes:
        adds: What the update adds at most, in encoded bytes.
        limit: What the document may take afterwards.
    """

    adds: int
    limit: int

    def as_filter(self) -> Document:
        """``size of the document + what is added <= limit``, as the server computes it."""
        return {"$expr": {"$lte": [{"$bsonSize": "$$ROOT"}, self.limit - self.adds]}}

    def fits(self, document: Document, codec: Codec) -> bool:
        """The same, computed here."""
        return len(bson.encode(document, codec_options=codec)) + self.adds <= self.limit


AnyRoom = Room | WholeRoom


@dataclass(frozen=True, slots=True)
class Write:
    """One conditional update among several that are sent together.

    Attributes:
        filter: The id or ids, and the evidence the write was decided on.
        update: What it changes.
        many: Whether it is for all documents that match, or for one.
    """

    filter: Document
    update: Document
    many: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What became of several writes.

    Attributes:
        matched: How many documents they changed, as far as the server counts: one of many that was refused half way
            counts none.
        refused: For each write that was refused, by its place, the server's error code.
    """

    matched: int
    refused: dict[int, int]


DUPLICATE_KEY = 11000


class Stream(Protocol):
    """An open change stream."""

    async def next(self) -> Document | None:
        """Waits up to a second for an event and gives it, None when there was none.

        Raises:
            StreamEndedError: It has ended, for example since the collection was dropped.
            PyMongoError: It cannot go on.
        """

    async def close(self) -> None:
        """Gives up the server's cursor."""


class Jobs(Protocol):
    """The calls that decisions are made of. Writes are acknowledged by a majority, reads come from the primary."""

    codec: Codec

    async def now(self) -> datetime:
        """The server's time, cut to milliseconds."""

    async def insert_one(self, document: Document, *, session: Session | None = None) -> None: ...

    async def insert_many(self, documents: list[Document], *, session: Session | None = None) -> None: ...

    async def insert_each(self, documents: list[Document], *, session: Session | None = None) -> set[int]:
        """Inserts what no unique index refuses, and gives the places of the others. Not in a transaction.

        What an earlier attempt has stored is not refused, so it may be called again.

        Raises:
            PyMongoError: Something else went wrong; some may be stored.
        """

    async def find_one(
        self, filter: Document, *, fields: Sequence[str] | None = None, session: Session | None = None
    ) -> Document | None: ...

    async def find(
        self,
        filter: Document,
        *,
        fields: Sequence[str] | None = None,
        sort: Sort | None = None,
        limit: int = 0,
        hint: str | None = None,
        majority: bool = False,
        zones: bool = True,
        session: Session | None = None,
    ) -> list[Document]:
        """The documents that match.

        Args:
            filter: Which.
            fields: What of them.
            sort: In which order.
            limit: At most so many; 0 for all.
            hint: The index to use.
            majority: Only as a majority has them, which no failover can undo. It may be older than what was just
                written, unless a majority has acknowledged that.
            zones: Whether times know their zone. Those that do not are read in a fifth of the time; for what nobody
                else gets to see.
            session: The caller's session.
        """

    async def count(self, filter: Document, *, hint: str) -> int:
        """How many documents match, by an index that has to be there.

        Raises:
            OperationFailure: There is no such index.
        """

    async def distinct(self, field: str, filter: Document) -> list[Any]:
        """The different values of a field, in no order. A document without the field may give None, or nothing."""

    async def find_one_and_update(
        self, filter: Document, update: Document, *, session: Session | None = None
    ) -> Document | None:
        """The document as it is after the update, None when none matched."""

    async def update_one(
        self, filter: Document, update: Document, *, room: AnyRoom | None = None, session: Session | None = None
    ) -> UpdateResult: ...

    async def write(self, writes: Sequence[Write], *, ordered: bool = False) -> Written:
        """Makes all writes in one call, one after the other; one that is refused stops none, or those after it.

        The driver does not repeat a call that holds a write for many: an election surfaces here. What the server is to
        blame for is an error and no refusal, since a job must not be ended for it.

        Args:
            writes: What to write.
            ordered: Whether what comes after a write that is refused is not tried.

        Raises:
            PyMongoError: It is not known what became of them, or nothing did.
        """

    async def delete_many(self, filter: Document, *, hint: str | None = None) -> DeleteResult: ...

    async def ensure_index(self, index: Index, *, again: bool = False) -> None:
        """Makes an index unless this object has seen it made, or even then (``again``): it may have been dropped.

        Raises:
            IndexConflictError: Another index is in its place.
        """

    def has_seen(self, index: Index) -> bool:
        """Whether this object has seen an index made, or made it."""

    def forget_indexes(self) -> None:
        """Makes ``ensure_index`` ask the server again."""

    async def check_server(self) -> None:
        """Asks whether the server can keep the promises that indexes are relied on for.

        Raises:
            UnsupportedServerError: It is older than MongoDB 6.0.
        """

    async def watch(self, match: Document) -> Stream:
        """Opens a change stream over the events that match.

        Of each it carries ``documentKey._id`` and, of an insert, ``fullDocument.action``; nothing that may be large.

        Raises:
            NoChangeStreamError: The server has none.
        """


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine over a blocking adapter, which never suspends, in one step and without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    coroutine.close()
    raise RuntimeError("a coroutine over a blocking adapter has suspended")


async def blocking(call: Callable[[], Any]) -> Any:
    """Makes a driver call in the caller's thread."""
    return call()


async def native(call: Callable[[], Any]) -> Any:
    """Makes a call of the asynchronous driver."""
    return await call()


def threaded(call: Call, threads: Threads) -> Call:
    """Makes each blocking call in a thread, so that a loop can wait for it."""

    async def in_thread(make: Callable[[], Any]) -> Any:
        return await threads.run(lambda: run(call(make)))  # type: ignore[arg-type]  # both are coroutine functions

    return in_thread
