"""What a worker is told to run: MODULE:NAME, found as ``python -m`` finds modules; and how a handler is logged."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
import traceback
from collections.abc import Awaitable
from operator import attrgetter
from pathlib import Path, PurePath
from types import ModuleType

import click

from durabl_ext import AsyncJobQueue, JobQueue
from simplequeue import Job
from simplequeue.failure import stored_error
from simplequeue.handlers import checked_handler
from simplequeue.slots import Handler
from simplequeue_scripts._as_text import clipped, printable

HINT = "MODULE:NAME"

Queue = JobQueue | AsyncJobQueue

ACTION_WIDTH = 100
MESSAGE_WIDTH = 500
"""Characters of a log line. An action may have 1,000, an error's text any number; the job keeps more of both."""


def load(target: str) -> Handler | Queue:
    """Imports the module and gives its handler, or its queue.

    Raises:
        click.BadParameter: There is no such module or name, or it is neither.
        click.UsageError: The module raises while it is imported; its traceback has been printed.
    """
    module, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise _bad(
            "expected a module, a colon and a function or a queue, such as app.jobs:handle, "
            f"found {target!r:.200}{_if_a_file(module, name)}"
        )
    found = _imported(module, _if_a_file(module, name))
    try:
        handler = attrgetter(name)(found)
    except AttributeError as error:
        raise _bad(f"module {module!r} has no {name!r}; it is from {_place(found)}") from error
    if isinstance(handler, Queue):
        return handler
    try:
        return checked_handler(handler, "a job", 1)
    except TypeError as error:
        raise _bad(f"{error}; a processor of durabl_ext is run by naming its queue, such as app.jobs:queue") from error


def logged(handler: Handler) -> Handler:
    """Gives a handler for a sync queue that logs what this one raises, in one line, and raises it again.

    A call that is to be awaited gives one that is to be awaited, whatever kind of callable it came from.
    """
    # Made here and not with the module: an application that sets up its logging disables what is there before.
    logger = logging.getLogger("simplequeue.worker")

    @functools.wraps(handler)
    def call(job: Job) -> object:
        try:
            result = handler(job)
        except BaseException as error:
            _log(logger, job, error)
            raise
        return awaited(job, result) if inspect.isawaitable(result) else result

    async def awaited(job: Job, result: Awaitable[object]) -> object:
        try:
            return await result
        except BaseException as error:
            _log(logger, job, error)
            raise

    return call


def _log(logger: logging.Logger, job: Job, error: BaseException) -> None:
    stored = stored_error(error)  # an exception's text is foreign code, which may raise
    name, message = stored["name"], clipped(stored["message"], MESSAGE_WIDTH)
    logger.warning(
        "job %s failed, %s: %s: %s", printable(job.id), clipped(job.action, ACTION_WIDTH), printable(name), message
    )


def _imported(module: str, remedy: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise _bad(
                f"there is no module {error.name!r}, neither in this directory nor installed"
                f"{remedy or f'; start the worker where `python -m {module}` would find it'}"
            ) from error
        raise _broken(module, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(module, error) from error


def _broken(module: str, error: BaseException) -> click.UsageError:
    # From where the import machinery hands over to the module: what is above is not the user's.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in _MACHINERY:
        trace = trace.tb_next
    click.echo("".join(traceback.format_exception(type(error), error, trace)), err=True, nl=False)
    return click.UsageError(f"module {module!r} cannot be imported: the traceback above is its own")


_MACHINERY = frozenset((__name__, "importlib", "importlib._bootstrap", "importlib._bootstrap_external"))


def _if_a_file(module: str, name: str) -> str:
    """What to add for somebody who named the file of a module."""
    if not module.endswith(".py"):
        return ""
    path = PurePath(module).with_suffix("")
    parts = path.parts[-1:] if path.is_absolute() or ".." in path.parts else path.parts
    return f"; name the module, not its file: {'.'.join(parts)}:{name or 'NAME'}"


def _place(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "a namespace of folders"


def _bad(problem: str) -> click.BadParameter:
    return click.BadParameter(problem, param_hint=HINT)
