"""Where samples are taken: a database of its own, and a new collection for each sample."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice

from pymongo import MongoClient
from pymongo.database import Database

from benchmarks.documents import Document
from benchmarks.durable.documents import new_job
from benchmarks.durable.order import Order
from benchmarks.sizes import Colour, Side
from durabl_ext import MongoJobQueue

FILL = 5_000
"""Documents that are inserted together."""


class Place:
    """A database that holds nothing else.

    Args:
        db: The database.
        uri: The connection string of its server, for other processes.
    """

    def __init__(self, db: Database[Document], uri: str) -> None:
        self.db = db
        self.uri = uri
        self._names = count(1)

    @contextmanager
    def collection(self) -> Iterator[str]:
        """A new collection with the indexes of the library, on either side; dropped in the end."""
        name = f"job_{next(self._names)}"
        self.index(name)
        try:
            yield name
        finally:
            self.db.drop_collection(name)

    def index(self, name: str) -> None:
        """Makes the indexes of the library."""
        MongoJobQueue(self.db, collection=name).startup()

    def fill(self, name: str, documents: Iterable[Document]) -> None:
        """Stores documents as they are."""
        waiting = iter(documents)
        while batch := list(islice(waiting, FILL)):
            self.db[name].insert_many(batch, ordered=False)

    def backlog(self, name: str, jobs: int) -> None:
        """Stores queued jobs."""
        self.fill(name, (new_job() for _ in range(jobs)))

    def order(
        self,
        side: Side,
        colour: Colour,
        name: str,
        slots: int,
        *,
        tells: bool = False,
        calls: int = 0,
        batches: int = 0,
        batch: int = 0,
    ) -> Order:
        """What a process is to do here."""
        return Order(side, colour, self.uri, self.db.name, name, slots, tells, calls, batches, batch)


@contextmanager
def open_place(uri: str) -> Iterator[Place]:
    """A place on a server; its database is dropped in the end."""
    with MongoClient[Document](uri) as client:
        place = Place(client[f"benchmark_{uuid.uuid4().hex}"], uri)
        try:
            yield place
        finally:
            client.drop_database(place.db.name)
