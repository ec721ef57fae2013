"""The one door to the database, and the ways to go through it.

Decisions are coroutines over ``Jobs``. Here lives what a call is and how it is made: in the caller's thread, in a
thread of its own, or awaited. Nothing here knows what a job is.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self, TypeVar, cast

import bson
from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions, DatetimeConversion
from pymongo import ReadPreference, ReturnDocument, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.results import DeleteResult, UpdateResult

from simplequeue.clock import ServerClock
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
STREAM_WAIT_MS = 1_000
"""How long one read of a change stream waits on the server. It bounds how long a stopped reader lingers."""


class IndexConflictError(RuntimeError):
    """Says that the collection has another index under a name or on keys that this one needs.

    Attributes:
        index: The name of the index that could not be made.
    """

    def __init__(self, index: str, collection: str, reason: str) -> None:
        super().__init__(index, collection, reason)
        self.index = index

    def __str__(self) -> str:
        index, collection, reason = self.args
        return (
            f"index {index!r} of collection {collection!r} cannot be made: {reason}. An index of an earlier version or "
            f"of somebody else is in its place; drop that one (db.{collection}.dropIndex(...)) and try again"
        )


class NoChangeStreamError(RuntimeError):
    """Says that this server has no change streams, so that only polling shows what is new."""


class StreamEndedError(RuntimeError):
    """Says that a change stream has ended without an error."""


@dataclass(frozen=True, slots=True)
class Room:
    """Asks of an update that a sub-document stays within a size, judged by the server in the update itself.

    A check before the update could be outrun by another update, and a document that has grown to the limit could not
    even be ended.

    Attributes:
        field: The sub-document.
        values: What the update sets in it.
        size: What the values take, in encoded bytes, as a document of their own.
        limit: What the sub-document may take afterwards.
    """

    field: str
    values: Mapping[str, Any]
    size: int
    limit: int

    def as_filter(self) -> Document:
        """``size - size of what is replaced + size of what is set <= limit``, as the server computes it."""
        replaced = [
            {"$subtract": [{"$bsonSize": {key: f"${self.field}.{key}"}}, EMPTY_DOCUMENT_BYTES]} for key in self.values
        ]
        left = self.limit - (self.size - EMPTY_DOCUMENT_BYTES)
        return {"$expr": {"$lte": [{"$subtract": [{"$bsonSize": f"${self.field}"}, {"$add": replaced}]}, left]}}

    def fits(self, document: Document, codec: Codec) -> bool:
        """The same, computed here."""
        merged = {**(document.get(self.field) or {}), **self.values}
        return len(bson.encode(merged, codec_options=codec)) <= self.limit


class Stream(Protocol):
    """An open change stream."""

    async def next(self) -> bool:
        """Waits up to a second for an event and says whether there was one.

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
    ) -> list[Document]: ...

    async def find_one_and_update(
        self, filter: Document, update: Document, *, session: Session | None = None
    ) -> Document | None:
        """The document as it is after the update, None when none matched."""

    async def update_one(
        self, filter: Document, update: Document, *, room: Room | None = None, session: Session | None = None
    ) -> UpdateResult: ...

    async def delete_many(self, filter: Document, *, hint: str | None = None) -> DeleteResult: ...

    async def ensure_index(self, index: Index) -> None:
        """Makes an index unless this object has seen it made.

        Raises:
            IndexConflictError: Another index is in its place.
        """

    def forget_indexes(self) -> None:
        """Makes ``ensure_index`` ask the server again."""

    async def watch(self, match: Document) -> Stream:
        """Opens a change stream over the events that match; it carries nothing but the fact of each.

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


class CollectionJobs:
    """The calls on a collection of the driver; one class for its sync and its async half, which differ in ``call``.

    Args:
        collection: A ``Collection`` or ``AsyncCollection``.
        call: How to make a call on it.
    """

    def __init__(self, collection: Any, call: Call) -> None:
        self.codec = codec_of(collection.codec_options)
        self._collection = self._prepared(collection)
        self._call = call
        self._ensured: set[str] = set()
        self._clock = ServerClock(self._server_time)

    def through(self, wrap: Callable[[Call], Call]) -> Self:
        """The same collection with its calls made in another way."""
        other = copy.copy(self)
        other._call = wrap(self._call)
        other._clock = ServerClock(other._server_time)
        return other

    def _prepared(self, collection: Any) -> Any:
        """The collection with the promises of this class, whatever its client's defaults."""
        return collection.with_options(
            # Text of other programs that is no UTF-8 must not make the reads of many jobs fail.
            codec_options=self.codec.with_options(unicode_decode_error_handler="replace"),
            write_concern=WriteConcern("majority"),
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern(),  # the server's own: a change stream takes no other
        )

    async def now(self) -> datetime:
        return await self._clock.now()

    async def insert_one(self, document: Document, *, session: Session | None = None) -> None:
        await self._call(lambda: self._collection.insert_one(document, session=session))

    async def insert_many(self, documents: list[Document], *, session: Session | None = None) -> None:
        await self._call(lambda: self._collection.insert_many(documents, session=session))

    async def find_one(
        self, filter: Document, *, fields: Sequence[str] | None = None, session: Session | None = None
    ) -> Document | None:
        return cast(
            Document | None, await self._call(lambda: self._collection.find_one(filter, fields, session=session))
        )

    async def find(
        self,
        filter: Document,
        *,
        fields: Sequence[str] | None = None,
        sort: Sort | None = None,
        limit: int = 0,
        hint: str | None = None,
    ) -> list[Document]:
        return cast(
            list[Document],
            await self._call(
                lambda: self._collection.find(filter, fields, sort=sort, limit=limit, hint=hint).to_list()
            ),
        )

    async def find_one_and_update(
        self, filter: Document, update: Document, *, session: Session | None = None
    ) -> Document | None:
        return cast(
            Document | None,
            await self._call(
                lambda: self._collection.find_one_and_update(
                    filter, update, return_document=ReturnDocument.AFTER, session=session
                )
            ),
        )

    async def update_one(
        self, filter: Document, update: Document, *, room: Room | None = None, session: Session | None = None
    ) -> UpdateResult:
        asked = filter if room is None else {**filter, **room.as_filter()}
        return cast(UpdateResult, await self._call(lambda: self._collection.update_one(asked, update, session=session)))

    async def delete_many(self, filter: Document, *, hint: str | None = None) -> DeleteResult:
        return cast(DeleteResult, await self._call(lambda: self._collection.delete_many(filter, hint=hint)))

    async def ensure_index(self, index: Index) -> None:
        if index.name in self._ensured:
            return
        try:
            await self._call(
                lambda: self._collection.create_index(
                    list(index.keys),
                    name=index.name,
                    partialFilterExpression=dict(index.filter),
                    **({"unique": True} if index.unique else {}),
                )
            )
        except OperationFailure as error:
            if error.code in INDEX_CONFLICTS:
                reason = str((error.details or {}).get("errmsg", error))
                raise IndexConflictError(index.name, self._collection.name, reason) from error
            raise
        self._ensured.add(index.name)

    def forget_indexes(self) -> None:
        self._ensured.clear()

    async def watch(self, match: Document) -> Stream:
        # The projection keeps an event small whatever the document holds: one of nearly 16 MB would not fit into an
        # event beside its own description. Only `_id`, the position in the stream, has to stay.
        pipeline = [{"$match": match}, {"$project": {"_id": 1}}]
        try:
            stream = await self._call(lambda: self._collection.watch(pipeline, max_await_time_ms=STREAM_WAIT_MS))
        except OperationFailure as error:
            if error.code in NO_CHANGE_STREAMS:
                raise NoChangeStreamError(str((error.details or {}).get("errmsg", error))) from error
            raise
        return _DriverStream(stream, self._call)

    async def _server_time(self) -> datetime:
        hello = await self._call(lambda: self._collection.database.command("hello", codec_options=self.codec))
        return cast(datetime, hello["localTime"])


INDEX_CONFLICTS = frozenset((85, 86))
"""IndexOptionsConflict, IndexKeySpecsConflict."""

NO_CHANGE_STREAMS = frozenset((13, 115, 303, 40324, 40573))
"""Unauthorized, CommandNotSupported, FeatureNotSupported, unknown stage, "only supported on replica sets"."""


class _DriverStream:
    def __init__(self, stream: Any, call: Call) -> None:
        self._stream = stream
        self._call = call

    async def next(self) -> bool:
        event = await self._call(self._stream.try_next)
        if event is None and not self._stream.alive:
            raise StreamEndedError
        return event is not None

    async def close(self) -> None:
        await self._call(self._stream.close)


def codec_of(options: Any) -> Codec:
    """The collection's own codec, with what this package relies on: dicts, and times that know their zone.

    mongomock's codec options are a smaller class of its own; what they lack is as PyMongo has it by default.

    Times beyond what a datetime can hold, which other programs may have stored, read as ``DatetimeMS`` instead of
    making the whole document unreadable.
    """
    own = options if isinstance(options, CodecOptions) else DEFAULT_CODEC_OPTIONS
    return cast(
        Codec,
        own.with_options(
            document_class=dict,
            tz_aware=True,
            tzinfo=UTC,
            datetime_conversion=DatetimeConversion.DATETIME_AUTO,
        ),
    )
