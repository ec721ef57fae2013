"""Files of one package, found on disk and read once.

Only what belongs to the package of the importing file is found: the folders above it that an import names, or, for a
file outside of any package, its neighbours. The rest is other people's code, and is not followed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from durabl_ext.lint.bindings import Imported
from durabl_ext.lint.scopes import Scopes, scopes
from durabl_ext.lint.sources import Source, Unreadable, read


@dataclass(frozen=True, eq=False)
class Module:
    """A file with its scopes."""

    source: Source
    scopes: Scopes

    @classmethod
    def of(cls, source: Source) -> Module:
        """Finds the scopes of a source."""
        return cls(source, scopes(source.tree))


class Modules:
    """The files that were read, by where they are."""

    def __init__(self) -> None:
        self._modules: dict[str, Module | None] = {}

    def add(self, module: Module) -> None:
        """Takes a file as read, whatever is on disk."""
        self._modules[os.path.realpath(module.source.path)] = module

    def read(self, path: Path) -> Module:
        """Reads a file, once.

        Raises:
            Unreadable: It cannot be opened or parsed.
        """
        place = os.path.realpath(path)
        module = self._modules.get(place)
        if module is None:
            module = self._modules[place] = Module.of(read(path))
        return module

    def get(self, path: Path) -> Module | None:
        """Gives a file that an import named, or None where it cannot be read; then its own check says so."""
        place = os.path.realpath(path)
        if place not in self._modules:
            try:
                return self.read(path)
            except Unreadable:
                self._modules[place] = None
        return self._modules[place]

    def imported(self, importer: Path, imported: Imported) -> Path | None:
        """Finds the file, or the folder of a package without ``__init__.py``, that an import means."""
        found = self._found(importer, imported)
        return found if found is None or importer.is_absolute() else Path(os.path.relpath(found))

    def _found(self, importer: Path, imported: Imported) -> Path | None:
        folder = Path(os.path.abspath(importer)).parent  # noqa: PTH100  # resolve() follows links, and imports do not
        if imported.level:
            for _ in range(imported.level - 1):
                folder = folder.parent
            return submodule(folder, imported.module) if imported.module else _package(folder) or folder
        root, _, rest = (imported.whole or imported.module).partition(".")
        above = [parent.parent for parent in (folder, *folder.parents) if parent.name == root]
        beside = [] if (folder / "__init__.py").exists() else [folder]
        for base in above:
            if is_file(submodule(base / root, rest) if rest else _package(base / root)) or (
                imported.name and is_file(submodule(base / root, f"{rest}.{imported.name}".strip(".")))
            ):
                return submodule(base, imported.module)
        for base in beside:
            if is_file(submodule(base, root)) and submodule(base, imported.module):
                return submodule(base, imported.module)
        return None


def is_file(path: Path | None) -> bool:
    """Whether an import found a file, and not a bare folder."""
    return path is not None and path.suffix == ".py"


def submodule(folder: Path, name: str) -> Path | None:
    """Finds a module by its dotted name below a folder."""
    path = folder.joinpath(*name.split("."))
    file = path.with_name(f"{path.name}.py")
    return _package(path) or (file if file.is_file() else None) or (path if path.is_dir() else None)


def _package(folder: Path) -> Path | None:
    file = folder / "__init__.py"
    return file if file.is_file() else None
