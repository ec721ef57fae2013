"""The server that is measured on: a private one for the time of a run, or one that is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from simplequeue.embedded import MongodUnavailable, mongod


@contextmanager
def server(uri: str | None) -> Iterator[str]:
    """Gives the connection string of a server, which is a private one unless one is given.

    Raises:
        click.ClickException: There is no mongod here, or it does not start.
    """
    if uri is not None:
        yield uri
        return
    private = mongod()
    try:
        with private:
            yield private.uri
    except MongodUnavailable as error:
        raise click.ClickException(str(error)) from error
