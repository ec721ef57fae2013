"""The rules as a plugin of flake8, which reports on the file it checks only and does its own ``noqa``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from durabl_ext.lint.check import walk
from durabl_ext.lint.control_path import ControlPath
from durabl_ext.lint.modules import Module, Modules
from durabl_ext.lint.resolve import Resolver
from durabl_ext.lint.sources import Source


class Plugin:
    """Checks one file, as flake8 read it.

    What is wrong in another file that this one calls into is reported at the call, and names the place.
    """

    name = "durabl_ext.lint"
    version = version("simplequeue")

    def __init__(self, tree: ast.Module, filename: str, lines: list[str]) -> None:
        self._source = Source(Path(filename), "".join(lines), tree)

    def run(self) -> Iterator[tuple[int, int, str, type]]:
        """Gives line, column from 0, message and the plugin of each finding."""
        modules = Modules()
        module = Module.of(self._source)
        modules.add(module)
        path = ControlPath(Resolver(modules))
        walk(module, path)
        for finding in sorted(path.findings.values()):
            elsewhere = "" if finding.path == self._source.path else f"{finding.path}:{finding.line}: "
            yield *finding.via, f"{finding.code} {elsewhere}{finding.message}", type(self)
