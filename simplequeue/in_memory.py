"""The calls on a mongomock collection, for users' unit tests.

The decisions are the same as on a server. Here lives only what mongomock lacks: atomic calls, the document size
limit, time, change streams and transactions. It proves nothing about concurrency.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from weakref import WeakKeyDictionary

from pymongo.errors import DuplicateKeyError
from pymongo.results import DeleteResult, UpdateResult

from simplequeue.collection import CollectionJobs
from simplequeue.commands import Index
from simplequeue.job import Document
from simplequeue.jobs import DUPLICATE_KEY, AnyRoom, Call, NoChangeStreamError, Session, Sort, Stream, Write, Written
from simplequeue.payload import cut

# mongomock's find_one_and_update is not atomic: four threads made 610 claims of 300 jobs. One lock per store, since
# each `database[name]` may be an object of its own.
_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_locks_lock = threading.Lock()

TYPE_MISMATCH = 14


def locked(client: Any) -> Call:
    """Makes each call under the lock of its in-memory client."""
    with _locks_lock:
        lock = _locks.setdefault(client, threading.RLock())

    async def under_lock(call: Callable[[], Any]) -> Any:
        with lock:
            return call()

    return under_lock


class InMemoryJobs(CollectionJobs):
    """The calls on a mongomock collection; all else is as on a server."""

    def _prepared(self, collection: Any) -> Any:
        return collection.with_options(codec_options=collection.codec_options.with_options(tz_aware=True))

    async def now(self) -> datetime:
        return cut(datetime.now(UTC))

    async def has_transactions(self) -> bool:
        return False

    def _create_index(self, index: Index) -> Any:
        if not index.unique:
            return super()._create_index(index)
        # mongomock asks uniqueness of all documents there are, whatever the index's filter, but not of later ones.
        kept = list(self._collection.find())
        self._collection.delete_many({})
        try:
            super()._create_index(index)
            for document in kept:
                self._collection.insert_one(document)
        except DuplicateKeyError:
            self._collection.drop_index(index.name)
            self._collection.delete_many({})
            self._collection.insert_many(kept)
            raise
        return index.name

    async def insert_one(self, document: Document, *, session: Session | None = None) -> None:
        _refuse(session)
        await super().insert_one(document)

    async def insert_many(self, documents: list[Document], *, session: Session | None = None) -> None:
        _refuse(session)
        await super().insert_many(documents)

    async def insert_each(self, documents: list[Document], *, session: Session | None = None) -> set[int]:
        _refuse(session)

        def insert_one_by_one() -> set[int]:
            refused = set()
            for index, document in enumerate(documents):
                try:
                    self._collection.insert_one(document)
                except DuplicateKeyError:
                    refused.add(index)
            return refused

        return cast(set[int], await self._call(insert_one_by_one))

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
        _refuse(session)
        # mongomock has indexes only for their uniqueness, so there is nothing to hint at, and is its own majority.
        return cast(
            list[Document],
            await self._call(lambda: list(self._collection.find(filter, fields, sort=sort, limit=limit))),
        )

    async def count(self, filter: Document, *, hint: str) -> int:
        return cast(int, await self._call(lambda: self._collection.count_documents(filter)))

    async def find_one_and_update(
        self, filter: Document, update: Document, *, session: Session | None = None
    ) -> Document | None:
        _refuse(session)
        return await super().find_one_and_update(filter, update)

    async def update_one(
        self, filter: Document, update: Document, *, room: AnyRoom | None = None, session: Session | None = None
    ) -> UpdateResult:
        _refuse(session)

        def update_if_it_fits() -> UpdateResult:
            if room is not None:
                document = self._collection.find_one(filter)
                if document is not None and not room.fits(document, self.codec):
                    return UpdateResult({"n": 0, "nModified": 0}, acknowledged=True)
            return cast(UpdateResult, self._collection.update_one(filter, update))

        return cast(UpdateResult, await self._call(update_if_it_fits))

    async def write(self, writes: Sequence[Write], *, ordered: bool = False) -> Written:
        def write_one_by_one() -> Written:
            matched, refused = 0, {}
            for index, write in enumerate(writes):
                for before in list(self._collection.find(write.filter, limit=0 if write.many else 1)):
                    try:
                        matched += self._collection.update_one({"_id": before["_id"]}, write.update).matched_count
                    except DuplicateKeyError:
                        refused[index] = DUPLICATE_KEY
                        break
                    except TypeError:  # what a server calls a type mismatch, met with the document half changed
                        self._collection.replace_one({"_id": before["_id"]}, before)
                        refused[index] = TYPE_MISMATCH
                        break
                if ordered and refused:
                    break
            return Written(matched, refused)

        return cast(Written, await self._call(write_one_by_one))

    async def delete_many(self, filter: Document, *, hint: str | None = None) -> DeleteResult:
        return await super().delete_many(filter)

    async def check_server(self) -> None:
        """There is none."""

    async def watch(self, match: Document) -> Stream:
        raise NoChangeStreamError("mongomock has none")


def _refuse(session: Session | None) -> None:
    if session is not None:
        raise TypeError(
            "mongomock has no transactions, so session= would promise what it cannot keep; use a real server"
        )
