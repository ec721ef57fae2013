"""Checks files, and folders with all Python files in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from durabl_ext.lint.bodies import bodies
from durabl_ext.lint.control_path import ControlPath, Finding
from durabl_ext.lint.modules import Module, Modules
from durabl_ext.lint.resolve import Resolver
from durabl_ext.lint.sources import Unreadable


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
        findings: In the order of files and lines; also in files that only the checked ones call into.
        unreadable: What could not be checked.
    """

    findings: list[Finding]
    unreadable: list[Unreadable]


def check(paths: Iterable[Path | str]) -> Report:
    """Checks files, and folders with all Python files in them.

    A file that is not there or does not parse is told of in the report, and the others are checked all the same. Links
    to folders, hidden folders and virtual environments below a folder are passed over.

    Args:
        paths: Files and folders.
    """
    modules = Modules()
    path = ControlPath(Resolver(modules))
    unreadable: list[Unreadable] = []
    # All are read before any is walked through, so that each is reported under the path that was given for it.
    for module in [*_read(paths, modules, unreadable)]:
        walk(module, path)
    return Report(sorted(path.findings.values()), unreadable)


def walk(module: Module, path: ControlPath) -> None:
    """Walks through the control paths of a file's bodies."""
    for body in bodies(module, path.resolver):
        path.walk(body)


def _read(paths: Iterable[Path | str], modules: Modules, unreadable: list[Unreadable]) -> Iterator[Module]:
    seen: set[str] = set()
    for path in paths:
        for file in _files(Path(path)):
            place = os.path.realpath(file)
            if place in seen:
                continue
            seen.add(place)
            try:
                yield modules.read(file)
            except Unreadable as error:
                unreadable.append(error)


def _files(path: Path) -> Iterator[Path]:
    """Gives a file itself, whatever its name, and the Python files of a folder in the order of their names."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path):
        hidden = {name for name in folders if name.startswith(".") or name == "__pycache__"}
        folders[:] = sorted(name for name in set(folders) - hidden if not Path(folder, name, "pyvenv.cfg").exists())
        yield from (file for name in sorted(files) if name.endswith(".py") and (file := Path(folder, name)).is_file())
