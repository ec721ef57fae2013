"""The ways in which a name gets a value. Plain data; ``scopes`` finds them in a file."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Imported:
    """A module, or with ``name`` what it calls so. ``whole`` is all that ``import a.b.c`` says, which binds ``a``."""

    module: str
    level: int = 0
    name: str | None = None
    whole: str | None = None


@dataclass(frozen=True)
class Defined:
    """A function or a class."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Assigned:
    """The value of an expression or a part of it, or with ``item`` what iterating over it gives."""

    value: ast.expr
    item: bool = False


@dataclass(frozen=True)
class Annotated:
    """A variable of which only the type is said."""

    annotation: ast.expr


@dataclass(frozen=True)
class Parameter:
    """What the caller gives."""

    name: str
    annotation: ast.expr | None


@dataclass(frozen=True)
class Opaque:
    """Something that syntax does not tell."""


Binding = Imported | Defined | Assigned | Annotated | Parameter | Opaque
