"""What is expected to go wrong, in one line for the user and as an exit code.

2  the command was used wrongly      click.UsageError: PayloadError, names that MongoDB does not allow
3  no server answers, or lets us in  NoServer
1  anything else the server refuses  click.ClickException, and in the commands: some items could not be done
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from bson.errors import BSONError
from pymongo.errors import ConfigurationError, ConnectionFailure, InvalidName, OperationFailure, PyMongoError

from simplequeue import IndexConflictError, PayloadError, UnsupportedServerError
from simplequeue_scripts._as_text import clipped

LOCKED_OUT = frozenset((13, 18, 8000))
"""Unauthorized, AuthenticationFailed, and what Atlas calls the latter."""

LONGEST_REASON = 500

_APPENDED = re.compile(r" \(configured timeouts:[^)]*\)|, (Topology Description|full error):.*", re.DOTALL)
"""What the driver appends to a reason. The topology alone takes a page."""


class NoServer(click.ClickException):
    """Says that there is no server to work with."""

    exit_code = 3


@contextmanager
def explained() -> Iterator[None]:
    """Turns the errors that users meet into messages without a traceback."""
    try:
        yield
    except (PayloadError, InvalidName) as error:
        raise click.UsageError(_reason(error)) from error
    except (IndexConflictError, UnsupportedServerError) as error:
        raise click.ClickException(str(error)) from error  # whole, since the remedy comes last
    except (ConnectionFailure, ConfigurationError) as error:
        raise NoServer(
            f"no MongoDB answers: {_reason(error)}. Is it running, and is --uri or MONGO_URL right?"
        ) from error
    except OperationFailure as error:
        if error.code in LOCKED_OUT:
            raise NoServer(
                f"MongoDB does not let us in: {_reason(error)}. Look at user, password and authSource in --uri or "
                "MONGO_URL, and at the user's roles"
            ) from error
        raise click.ClickException(f"MongoDB refused: {_reason(error)}") from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # click ends quietly when nobody reads on
        if error.errno == errno.ENOSPC:
            # What is still to be written cannot be either: tried again at the exit, it would end in a second message.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.ClickException(_reason(error)) from error
    except (PyMongoError, BSONError) as error:  # BSONError: another program stored what cannot be read
        raise click.ClickException(_reason(error)) from error


def _reason(error: Exception) -> str:
    return clipped(_APPENDED.sub("", str(error)).rstrip("."), LONGEST_REASON)
