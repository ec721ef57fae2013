"""What an expression may stand for, as far as the rules ask. Plain data; ``resolve`` says which expression is what."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from durabl_ext.lint.modules import Module
from durabl_ext.lint.scopes import FunctionNode, Scope


class Mark(enum.Enum):
    """A value of which nothing but its role matters."""

    CONTEXT = "the context of an orchestration, or what it gives beside steps"
    TASK = "a step that was started, or a container of such"
    DATA = "a result: what was awaited already, or what a finding was reported for"
    SET = "a container whose order differs from process to process"
    UNKNOWN = "anything else"


@dataclass(frozen=True)
class External:
    """Something of another package, by its qualified name; an instance or a result has ``()`` after it."""

    name: str


@dataclass(frozen=True)
class Package:
    """A file or a folder of the same package."""

    path: Path


@dataclass(frozen=True)
class Class:
    """A class of the same package."""

    node: ast.ClassDef
    module: Module = field(compare=False)
    env: Env = field(compare=False)


@dataclass(frozen=True)
class Instance:
    """An object of such a class."""

    type: Class


@dataclass(frozen=True)
class Function:
    """A function of the same package, with the arguments that it was given already.

    Two are equal when they are one piece of text: otherwise a function that wraps its argument and calls itself
    would be without end.
    """

    node: FunctionNode
    module: Module = field(compare=False)
    env: Env = field(compare=False)
    given: tuple[Values, ...] = field(default=(), compare=False)
    named: dict[str, Values] = field(default_factory=dict, compare=False)

    def partial(self, given: Given) -> Function:
        """The function with what ``functools.partial`` was given after it."""
        positional, named = self.given + given.positional[1:], self.named | given.named
        return Function(self.node, self.module, self.env, positional, named)

    @property
    def name(self) -> str:
        """What messages call it."""
        return "a lambda" if isinstance(self.node, ast.Lambda) else self.node.name

    @property
    def scope(self) -> Scope:
        """The scope of its own names."""
        return self.module.scopes.of[self.node]


@dataclass(frozen=True)
class Coroutine:
    """What a call of an async function of the same package gives."""

    function: Function
    env: Env = field(compare=False)


Value = Mark | External | Package | Class | Instance | Function | Coroutine
Values = frozenset[Value]

NOTHING: Values = frozenset()
UNKNOWN: Values = frozenset((Mark.UNKNOWN,))
CONTEXT: Values = frozenset((Mark.CONTEXT,))
TASK: Values = frozenset((Mark.TASK,))
DATA: Values = frozenset((Mark.DATA,))


@dataclass(frozen=True)
class Given:
    """What a call passes on: by place, by name, and with ``*`` or ``**`` in places unknown (None: nothing)."""

    positional: tuple[Values, ...] = ()
    named: dict[str, Values] = field(default_factory=dict)
    rest: Values | None = None

    @property
    def unfilled(self) -> Values:
        """What a parameter holds that got no value of its own."""
        return UNKNOWN if self.rest is None else NOTHING


@dataclass(eq=False)
class Env:
    """A scope at one call: the values of its parameters, and where names are looked up that it does not bind.

    ``known`` keeps what names were found to stand for.
    """

    module: Module
    scope: Scope
    outer: Env | None
    parameters: dict[str, Values] = field(default_factory=dict)
    known: dict[str, Values] = field(default_factory=dict)


def joined(values: Iterable[Values]) -> Values:
    """All that any of several expressions may stand for."""
    return NOTHING.union(*values)


def may_be_gathered(values: Values) -> bool:
    """Whether these are steps, as far as anything is known of them."""
    return values <= {Mark.TASK, Mark.DATA, Mark.SET}


def may_be_awaited(values: Values) -> bool:
    """Whether these are steps or coroutines whose inside is looked into."""
    return all(isinstance(value, Coroutine) or value in (Mark.TASK, Mark.DATA, Mark.SET) for value in values)
