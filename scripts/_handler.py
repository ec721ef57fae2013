"""The handler that a worker is told to run: MODULE:HANDLER, found as ``python -m`` finds modules."""

from __future__ import annotations

import importlib
import sys
import traceback
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import click

from simplequeue.slots import Handler, checked_handler

HINT = "MODULE:HANDLER"


def load(target: str) -> Handler:
    """Imports the module and gives its handler.

    Raises:
        click.BadParameter: There is no such module or handler, or it cannot be a handler.
        click.UsageError: The module raises while it is imported; its traceback has been printed.
    """
    module, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise _bad(f"expected a module, a colon and a function, such as app.jobs:handle, found {target!r:.200}")
    found = _imported(module)
    try:
        handler = attrgetter(name)(found)
    except AttributeError as error:
        raise _bad(f"module {module!r} has no {name!r}; it is from {_place(found)}") from error
    try:
        return checked_handler(handler)
    except TypeError as error:
        raise _bad(str(error)) from error


def _imported(module: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise _bad(
                f"there is no module {error.name!r}, neither in this directory nor installed; "
                f"start the worker where `python -m {module}` would find it"
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


def _place(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "a namespace of folders"


def _bad(problem: str) -> click.BadParameter:
    return click.BadParameter(problem, param_hint=HINT)
