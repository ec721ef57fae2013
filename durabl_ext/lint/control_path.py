"""The control path: all that runs when a body does, except inside its steps; what is wrong on it is found here.

Functions of the package that are called on it are on it too. A function that is only handed on, as to ``octx.step``, is
not: what it does is a step's business. What is right or wrong is in ``rules``.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

from durabl_ext.lint import names
from durabl_ext.lint.bodies import Body
from durabl_ext.lint.resolve import VARIANTS, Resolver
from durabl_ext.lint.rules import Broken, Rules
from durabl_ext.lint.scopes import comprehended, evaluated
from durabl_ext.lint.values import (
    CONTEXT,
    NOTHING,
    UNKNOWN,
    Class,
    Env,
    External,
    Function,
    Given,
    Instance,
    Mark,
    Values,
)


@dataclass(frozen=True, order=True)
class Finding:
    """What breaks a rule, and where.

    Attributes:
        path: The file.
        line: The line in it, from 1.
        column: The place in the line, from 1.
        code: The rule.
        message: What is wrong and what to write instead.
        via: Line and column, from 0, in the file that was checked: of the same place, or of the call that leads there.
    """

    path: Path
    line: int
    column: int
    code: str
    message: str
    via: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.code} {self.message}"


@dataclass(frozen=True)
class _Call:
    """A call on the control path of a body, and where the checked file makes it, or what leads to it."""

    function: Function
    env: Env
    via: ast.expr | ast.stmt


class ControlPath:
    """Walks through the control paths of bodies; what several of them share is walked through once."""

    def __init__(self, resolver: Resolver) -> None:
        self.findings: dict[Hashable, Finding] = {}
        self.resolver = resolver
        self.rules = Rules(resolver)
        self.walked: dict[ast.AST, set[Hashable]] = defaultdict(set)

    def walk(self, body: Body) -> None:
        """Walks through a body and all that it calls."""
        _Walk(self, body).all()


class _Walk:
    """One body's walk: calls yet to enter wait in a list, since a chain of calls may be longer than Python's stack."""

    def __init__(self, path: ControlPath, body: Body) -> None:
        self._path = path
        self._resolver = path.resolver
        self._rules = path.rules
        self._body = body
        self._calls: list[_Call] = []
        self._nodes: list[tuple[ast.AST, Env]] = []
        outside = path.resolver.resting(body.module.scopes.module, body.module)
        self._here = _Call(body.function, outside, body.place)

    def all(self) -> None:
        """Enters the body, and calls until there are none left."""
        self._follow(self._body.function, Given((UNKNOWN, CONTEXT)), self._body.place)
        while self._calls:
            self._here = self._calls.pop()
            node = self._here.function.node
            body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
            self._nodes = [(each, self._here.env) for each in reversed(body)]
            while self._nodes:
                self._visit(*self._nodes.pop())

    def _visit(self, node: ast.AST, env: Env) -> None:
        """Judges a node, and notes what is inside of it that runs when it does."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                for decorator in [] if isinstance(node, ast.Lambda) else node.decorator_list:
                    self._enter(self._resolver.value(decorator, env), Given(rest=NOTHING), decorator)
                self._nodes += [(each, env) for each in evaluated(node)]
                return
            case ast.ClassDef():
                inside = Env(env.module, env.module.scopes.of[node], env)
                self._nodes += [(each, env) for each in evaluated(node)] + [(each, inside) for each in node.body]
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = self._resolver.inside(node, env)
                parts = comprehended(node, env, inner)
                for generator in node.generators:
                    if generator.is_async:
                        self._report(self._rules.awaits(generator.iter, inner, "iterates over"))
                    self._report(self._rules.iterates(generator.iter, [part for part, _ in parts], inner))
                self._nodes += parts
                return
            case ast.Await(value=value):
                self._report(self._rules.awaits(value, env, "awaits"))
            case ast.AsyncFor(iter=iterable):
                self._report(self._rules.awaits(iterable, env, "iterates over"))
            case ast.AsyncWith(items=items):
                for item in items:
                    self._report(self._rules.awaits(item.context_expr, env, "enters"))
            case ast.For(iter=iterable, body=body):
                self._report(self._rules.iterates(iterable, body, env))
            case ast.Call():
                self._visit_call(node, env)
            case _:
                pass
        self._nodes += [(each, env) for each in ast.iter_child_nodes(node)]

    def _visit_call(self, call: ast.Call, env: Env) -> None:
        values = self._resolver.value(call.func, env)
        self._enter(values, self._resolver.given(call, env), call)
        if Mark.CONTEXT in values and isinstance(call.func, ast.Attribute) and call.func.attr == "all":
            self._enter_arguments(call, env, Given((CONTEXT,)))
        for external in sorted(each.name for each in values if isinstance(each, External)):
            self._report(self._rules.calls(external, call, env))
            if external in names.CALLERS:
                self._enter_arguments(call, env, Given(rest=NOTHING))

    def _enter(self, values: Values, given: Given, at: ast.expr) -> None:
        """Notes that something is called, which is looked into where it belongs to the package."""
        for value in values:
            match value:
                case Function():
                    self._follow(value, given, at)
                case Class():
                    self._enter_method(Instance(value), "__init__", given, at)
                    self._enter_method(Instance(value), "__post_init__", Given(), at)
                case Instance():
                    self._enter_method(value, "__call__", given, at)
                case _:
                    pass

    def _enter_method(self, holder: Instance, name: str, given: Given, at: ast.expr) -> None:
        for method in self._resolver.member(holder.type, name, holder):
            if isinstance(method, Function):
                self._follow(method, given, at)

    def _enter_arguments(self, call: ast.Call, env: Env, given: Given) -> None:
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            for value in self._resolver.value(argument, env):
                if isinstance(value, Function):
                    self._follow(value, given, argument)

    def _follow(self, function: Function, given: Given, at: ast.expr | ast.stmt) -> None:
        """Notes that a function is called, unless one that was given the same was entered already."""
        env = self._resolver.enter(function, given)
        key = (env.outer, frozenset(env.parameters.items()))
        entered = self._path.walked[function.node]
        if key not in entered and len(entered) < VARIANTS:
            entered.add(key)
            self._calls.append(_Call(function, env, at if self._is_home() else self._here.via))

    def _is_home(self) -> bool:
        """Whether the walk is in the file that is checked."""
        return self._here.env.module is self._body.module

    def _report(self, found: Iterable[Broken]) -> None:
        source = self._here.function.module.source
        for code, node, message in found:
            if source.silences(node.lineno, code):
                continue
            at = node if self._is_home() else self._here.via
            place = (source.path, node.lineno, node.col_offset + 1, code)
            self._path.findings.setdefault(
                place, Finding(*place, message + self._reached(), (at.lineno, at.col_offset))
            )

    def _reached(self) -> str:
        if self._here.function.node is self._body.function.node:
            return ""
        return (
            f" (on the control path of {self._body.label}, {self._body.module.source.path}:{self._body.place.lineno})"
        )
