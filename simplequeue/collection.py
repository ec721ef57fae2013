"""The calls on a collection of the driver, sync or async.

Here lives what is made of a driver's answers and errors, and the promises that hold whatever the client's defaults are:
a majority acknowledges writes, the primary answers reads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self, cast

import pymongo
from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions, DatetimeConversion
from pymongo import ReadPreference, ReturnDocument, UpdateMany, UpdateOne, WriteConcern
from pymongo.errors import BulkWriteError, OperationFailure, WriteError
from pymongo.read_concern import ReadConcern
from pymongo.results import DeleteResult, UpdateResult

from simplequeue.clock import ServerClock
from simplequeue.commands import Index
from simplequeue.job import Document
from simplequeue.jobs import (
    BY_ID,
    DUPLICATE_KEY,
    AnyRoom,
    Call,
    NoChangeStreamError,
    Session,
    Sort,
    Stream,
    StreamEndedError,
    Write,
    Written,
)
from simplequeue.payload import Codec

STREAM_WAIT_MS = 1_000
"""How long one read of a change stream waits on the server. It bounds how long a stopped reader lingers."""

READ_TIMEOUT = 30.0
"""Seconds. One read of a change stream waits for longer than the ``timeoutMS`` that a client may have for its calls."""

INDEX_CONFLICTS = frozenset((85, 86))
"""IndexOptionsConflict, IndexKeySpecsConflict."""

NO_CHANGE_STREAMS = frozenset((13, 115, 303, 40324, 40573))
"""Unauthorized, CommandNotSupported, FeatureNotSupported, unknown stage, "only supported on replica sets"."""


CANNOT_CREATE_INDEX = 67

SERVER_TROUBLE = frozenset(
    (1, 6, 7, 8, 13, 24, 50, 64, 89, 91, 112, 133, 134, 189, 202, 262, 365, 9001, 10107, 11600, 11601, 11602, 13388)
).union((13435, 13436, 14031))
"""Codes of a refused write that speak of the server and not of the document: it is not the primary, shuts down, reaches
no other, has no time, memory, disk or right. A mongos gives those of its shards write by write."""

OLDEST_WIRE_VERSION = 17
"""What MongoDB 6.0 speaks."""


class IndexConflictError(RuntimeError):
    """Says that the collection cannot have an index: another is in its place, or what is stored contradicts it.

    Attributes:
        index: The name of the index that could not be made.
    """

    def __init__(self, index: str, collection: str, reason: str, remedy: str) -> None:
        super().__init__(index, collection, reason, remedy)
        self.index = index

    def __str__(self) -> str:
        index, collection, reason, remedy = self.args
        return f"index {index!r} of collection {collection!r} cannot be made: {reason}. {remedy}"


class UnsupportedServerError(RuntimeError):
    """Says that the server is older than MongoDB 6.0, whose partial indexes this package is built on."""


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
        self._transactions = False
        self._clock = ServerClock(self._server_time)

    @property
    def place(self) -> tuple[str, str]:
        """The names of the database and of the collection."""
        return self._collection.database.name, self._collection.name

    @property
    def made(self) -> Call:
        """How its calls are made."""
        return self._call

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

    @cached_property
    def _zoneless(self) -> Any:
        codec = self._collection.codec_options
        return self._collection.with_options(codec_options=codec.with_options(tz_aware=False, tzinfo=None))

    def session(self) -> Session:
        """A new session of the collection's client. No I/O."""
        return cast(Session, self._collection.database.client.start_session())

    async def call(self, make: Callable[[], Any]) -> Any:
        """Makes a call on one of those sessions, as those on the collection are made."""
        return await self._call(make)

    async def kill_session(self, session: Session) -> None:
        """Has the server end what goes on in a session, a transaction first of all."""
        await self._call(lambda: self._collection.database.command("killSessions", [session.session_id]))

    async def has_transactions(self) -> bool:
        """Whether the server has transactions, which need a replica set; one that has them is asked once."""
        if not self._transactions:
            hello = await self._hello()
            self._transactions = "setName" in hello or hello.get("msg") == "isdbgrid"
        return self._transactions

    async def now(self) -> datetime:
        return await self._clock.now()

    async def insert_one(self, document: Document, *, session: Session | None = None) -> None:
        await self._call(lambda: self._collection.insert_one(document, session=session))

    async def insert_many(self, documents: list[Document], *, session: Session | None = None) -> None:
        await self._call(lambda: self._collection.insert_many(documents, session=session))

    async def insert_each(self, documents: list[Document], *, session: Session | None = None) -> set[int]:
        try:
            await self._call(lambda: self._collection.insert_many(documents, ordered=False, session=session))
        except BulkWriteError as error:
            return refused_by_keys(error)
        return set()

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
        majority: bool = False,
        zones: bool = True,
        session: Session | None = None,
    ) -> list[Document]:
        read = self._collection if zones else self._zoneless
        if majority:
            read = read.with_options(read_concern=ReadConcern("majority"))
        return cast(
            list[Document],
            # All in one answer: by default the first has 101 documents, and what is left takes another call.
            await self._call(
                lambda: read.find(
                    filter, fields, sort=sort, limit=limit, batch_size=limit, hint=hint, session=session
                ).to_list()
            ),
        )

    async def count(self, filter: Document, *, hint: str) -> int:
        return cast(int, await self._call(lambda: self._collection.count_documents(filter, hint=hint)))

    async def distinct(self, field: str, filter: Document) -> list[Any]:
        return cast(list[Any], await self._call(lambda: self._collection.distinct(field, filter)))

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
        self, filter: Document, update: Document, *, room: AnyRoom | None = None, session: Session | None = None
    ) -> UpdateResult:
        asked = filter if room is None else {**filter, **room.as_filter()}
        return cast(UpdateResult, await self._call(lambda: self._collection.update_one(asked, update, session=session)))

    async def write(self, writes: Sequence[Write], *, ordered: bool = False) -> Written:
        if len(writes) == 1 and not writes[0].many:
            return await self._written_alone(writes[0])
        operations = [
            (UpdateMany if write.many else UpdateOne)(write.filter, write.update, hint=BY_ID) for write in writes
        ]
        try:
            result = await self._call(lambda: self._collection.bulk_write(operations, ordered=ordered))
        except BulkWriteError as error:
            refused = _refused(error)
            if SERVER_TROUBLE.intersection(refused.values()):
                raise
            return Written(int((error.details or {})["nMatched"]), refused)
        return Written(int(result.matched_count), {})

    async def _written_alone(self, write: Write) -> Written:
        # The driver takes 0.2 to 0.4 ms longer for a bulk of one. Not for one write of several documents: where some
        # were changed before one was refused, only a bulk says as well that no majority has these.
        try:
            result = await self._call(lambda: self._collection.update_one(write.filter, write.update, hint=BY_ID))
        except WriteError as error:
            if error.code in SERVER_TROUBLE:
                raise
            return Written(0, {0: int(error.code or 0)})
        return Written(int(result.matched_count), {})

    async def delete_many(self, filter: Document, *, hint: str | None = None) -> DeleteResult:
        return cast(DeleteResult, await self._call(lambda: self._collection.delete_many(filter, hint=hint)))

    async def ensure_index(self, index: Index, *, again: bool = False) -> None:
        if index.name in self._ensured and not again:
            return
        try:
            await self._call(lambda: self._create_index(index))
        except OperationFailure as error:
            reason = str((error.details or {}).get("errmsg", error))
            if error.code in INDEX_CONFLICTS:
                remedy = (
                    "An index of an earlier version or of somebody else is in its place; drop that one "
                    f"(db.{self._collection.name}.dropIndex(...)) and try again"
                )
                raise IndexConflictError(index.name, self._collection.name, reason, remedy) from error
            if error.code == DUPLICATE_KEY:
                remedy = "Two jobs live under one key; end one of them and try again"
                raise IndexConflictError(index.name, self._collection.name, reason, remedy) from error
            if error.code == CANNOT_CREATE_INDEX:
                raise UnsupportedServerError(
                    f"index {index.name!r} cannot be made, which needs MongoDB 6.0 or newer: {reason}"
                ) from error
            raise
        self._ensured.add(index.name)

    def _create_index(self, index: Index) -> Any:
        unique = {"unique": True} if index.unique else {}
        return self._collection.create_index(
            list(index.keys), name=index.name, partialFilterExpression=dict(index.filter), **unique
        )

    def has_seen(self, index: Index) -> bool:
        return index.name in self._ensured

    def forget_indexes(self) -> None:
        self._ensured.clear()

    async def check_server(self) -> None:
        version = (await self._hello())["maxWireVersion"]
        if version < OLDEST_WIRE_VERSION:
            raise UnsupportedServerError(
                f"MongoDB 6.0 or newer is needed, which speaks wire version {OLDEST_WIRE_VERSION}; this server speaks "
                f"{version}"
            )

    async def watch(self, match: Document) -> Stream:
        # The projection keeps an event small whatever the document holds: one of nearly 16 MB would not fit into an
        # event beside its own description. `_id`, the position in the stream, has to stay.
        pipeline = [{"$match": match}, {"$project": {"_id": 1, "documentKey._id": 1, "fullDocument.action": 1}}]
        try:
            stream = await self._call(lambda: self._collection.watch(pipeline, max_await_time_ms=STREAM_WAIT_MS))
        except OperationFailure as error:
            if error.code in NO_CHANGE_STREAMS:
                raise NoChangeStreamError(str((error.details or {}).get("errmsg", error))) from error
            raise
        return _DriverStream(stream, self._call)

    async def _server_time(self) -> datetime:
        return cast(datetime, (await self._hello())["localTime"])

    async def _hello(self) -> Document:
        return cast(
            Document, await self._call(lambda: self._collection.database.command("hello", codec_options=self.codec))
        )


def refused_by_keys(error: BulkWriteError) -> set[int]:
    """Gives the places of documents that a unique index has refused; raises the error where there is more to it.

    One that is refused for its own id is stored already: ids are new, so only an earlier attempt has stored it.
    """
    if set(_refused(error).values()) - {DUPLICATE_KEY}:
        raise error
    refusals = error.details.get("writeErrors", ())
    return {int(refusal["index"]) for refusal in refusals if refusal.get("keyPattern") != _OWN_ID}


def _refused(error: BulkWriteError) -> dict[int, int]:
    """The error codes of a bulk by place, unless what failed was not a write but what is known of it."""
    details = error.details or {}
    if details.get("writeConcernErrors"):
        raise error  # applied on the primary, and perhaps not for ever
    return {int(refusal["index"]): int(refusal["code"]) for refusal in details.get("writeErrors", ())}


_OWN_ID = {"_id": 1}


class _DriverStream:
    def __init__(self, stream: Any, call: Call) -> None:
        self._stream = stream
        self._call = call

    async def next(self) -> Document | None:
        with pymongo.timeout(READ_TIMEOUT):
            event = await self._call(self._stream.try_next)
        if event is None and not self._stream.alive:
            raise StreamEndedError
        return cast(Document | None, event)

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
