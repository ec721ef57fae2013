"""The options that every command shares: which jobs, on which server, and how to print.

They may stand before the command or after it; after it wins, and either wins over the environment. Here lives how they
are read and what they open, not what a command does with it.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import pymongo
from click.core import ParameterSource
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import ConfigurationError

from durabl_ext import MongoJobQueue
from simplequeue import Queue, create_queue
from simplequeue.collection import CollectionJobs
from simplequeue.job import Document
from simplequeue.jobs import blocking, run
from simplequeue.operations import known_id
from simplequeue_scripts._arguments import Text
from simplequeue_scripts._trouble import explained

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

SELECTION_TIMEOUT_MS = 5_000
"""Milliseconds to look for a server, unless the URI says otherwise; the driver's own 30,000 look like a hang."""

GOODBYE = 2.0
"""Seconds that closing may take: it says goodbye, to a server that may be frozen."""


@dataclass
class Store:
    """Gives access to the jobs of one collection.

    Attributes:
        queue: What applications use.
        durable: What the extension decides on the same jobs.
        jobs: Single calls, for reads that the queue does not offer.
        collection: The collection, with the promises of the queue, for whole batches.
    """

    queue: Queue
    durable: MongoJobQueue
    jobs: CollectionJobs
    collection: Collection[Document]

    def now(self) -> datetime:
        """Gives the server's time, so that ages do not depend on the clock of this machine."""
        return run(self.jobs.now())

    def read(self, id: str, fields: Sequence[str] | None = None) -> Document | None:
        """Reads a job as it is stored, None when there is none; also one that another program has spoiled."""
        known = known_id(id)
        return None if known is None else run(self.jobs.find_one({"_id": known}, fields=fields))


@dataclass
class Options:
    """Holds what the shared options say."""

    uri: str | None = None
    db: str | None = None
    collection: str = "job"
    json: bool = False

    def open(self) -> Store:
        """Opens the jobs until the command ends. Nothing is sent to the server yet.

        Raises:
            click.UsageError: No server or no database is named, or a name cannot be one.
        """
        if not self.uri:
            raise click.UsageError("no server: pass --uri mongodb://HOST/NAME, or set MONGO_URL")
        client = click.get_current_context().with_resource(_client(self.uri))
        db = self._database(client)
        jobs = CollectionJobs(db[self.collection], blocking)
        collection = db[self.collection].with_options(
            codec_options=jobs.codec, write_concern=WriteConcern("majority"), read_preference=ReadPreference.PRIMARY
        )
        return Store(create_queue(db, collection=self.collection), MongoJobQueue.on(jobs), jobs, collection)

    def _database(self, client: MongoClient[dict[str, Any]]) -> Database[dict[str, Any]]:
        if self.db is not None:
            return client[self.db]
        try:
            return client.get_default_database()
        except ConfigurationError:
            raise click.UsageError(
                "no database: pass --db NAME, or set SIMPLEQUEUE_DB, or name it in the URI as in mongodb://HOST/NAME"
            ) from None


def shared_options(function: F) -> F:
    """Adds the shared options to a command or a group; what they say is kept in the context."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def connected(function: Callable[Concatenate[Options, P], None]) -> Callable[P, None]:
    """Makes the body of a command: adds the shared options, passes them first, and explains expected trouble."""

    @shared_options
    @functools.wraps(function)
    def body(*args: P.args, **kwargs: P.kwargs) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # the terminal may not be able to show a job's text
        with explained():
            function(click.get_current_context().ensure_object(Options), *args, **kwargs)

    return body


@contextmanager
def _client(uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    own: dict[str, Any] = {}
    if "serverselectiontimeoutms=" not in uri.lower():
        own["serverSelectionTimeoutMS"] = SELECTION_TIMEOUT_MS
    try:
        # Without connect=False a name that the DNS does not know would look like a mistake in the URI.
        client = MongoClient[dict[str, Any]](uri, connect=False, **own)
    except (ConfigurationError, ValueError, TypeError, OSError) as error:  # OSError: a certificate that is not there
        raise click.UsageError(f"--uri: {error}") from error
    try:
        yield client
    finally:
        with pymongo.timeout(GOODBYE):
            client.close()


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    options = context.ensure_object(Options)
    name = str(parameter.name)
    said = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    # The environment and defaults, which the command sees too, must not replace what was said before the command.
    if said or getattr(options, name) == getattr(Options, name):
        setattr(options, name, value)


_kept: dict[str, Any] = {"callback": _keep, "expose_value": False}

_OPTIONS = (
    click.option(
        "--uri", type=Text("uri"), envvar="MONGO_URL", show_envvar=True, help="The MongoDB to connect to.", **_kept
    ),
    click.option(
        "--db",
        type=Text("name"),
        envvar="SIMPLEQUEUE_DB",
        show_envvar=True,
        help="The database. Without it: the one that the URI names.",
        **_kept,
    ),
    click.option(
        "--collection",
        type=Text("name"),
        default=Options.collection,
        show_default=True,
        help="Where the jobs are.",
        **_kept,
    ),
    click.option(
        "--json",
        is_flag=True,
        help="Print one JSON document a line: times in ISO 8601 and UTC, types that JSON lacks in MongoDB's Extended "
        "JSON.",
        **_kept,
    ),
)
