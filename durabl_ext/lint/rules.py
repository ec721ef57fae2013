"""What breaks a rule at one place of a control path. Which places are on it is for ``control_path`` to say."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from durabl_ext.lint import names
from durabl_ext.lint.resolve import Resolver
from durabl_ext.lint.values import Coroutine, Env, External, Mark, may_be_awaited, may_be_gathered


class Broken(NamedTuple):
    """A rule that is broken, the expression that does so, and what to write instead."""

    code: str
    node: ast.expr
    message: str


class Rules:
    """Judges single expressions."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def awaits(self, node: ast.expr, env: Env, verb: str) -> Iterator[Broken]:
        """Whether a body waits for something else than a step, or a function that is looked into."""
        values = self._resolver.value(node, env)
        if may_be_awaited(values) or Mark.CONTEXT in values or self._gives_context_to_parameter(node, env):
            return
        source = env.module.source
        if isinstance(node, ast.Call) and self._passes_context(node, env):
            remedy = names.NOT_FOUND
        elif verb != "awaits":
            remedy = names.WHOLE
        elif isinstance(node, ast.Call):
            remedy = names.AWAITED.format(name=source.segment(node.func))
        else:
            remedy = names.NO_STEP
        yield Broken("DUR001", node, f"{verb} {source.segment(node)}, {remedy}")

    def iterates(self, iterable: ast.expr, body: Iterable[ast.AST], env: Env) -> Iterator[Broken]:
        """Whether a loop with steps in it goes through a set."""
        if Mark.SET in self._resolver.value(iterable, env) and any(
            isinstance(node, ast.Name | ast.Attribute) and Mark.CONTEXT in self._resolver.value(node, env)
            for part in body
            for node in ast.walk(part)
        ):
            yield Broken("DUR002", iterable, f"{env.module.source.segment(iterable)} {names.SET_ORDER}")

    def calls(self, name: str, call: ast.Call, env: Env) -> Iterator[Broken]:
        """Whether a call into another package is one that a resume answers differently."""
        if name in names.CALLS:
            yield _broken(name, call, *names.CALLS[name])
        if name in names.WITHOUT_ARGUMENTS and len(call.args) + len(call.keywords) < names.ENOUGH.get(name, 1):
            yield _broken(name, call, *names.WITHOUT_ARGUMENTS[name])
        if name in names.WAITS:
            yield from self._waits(name, call, env)
        if name in names.GATHERS:
            for argument in call.args:
                yield from self._gathers(name, argument, env)

    def _waits(self, name: str, call: ast.Call, env: Env) -> Iterator[Broken]:
        timeouts = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "timeout")]
        ends = [*call.args[2:3], *(each.value for each in call.keywords if each.arg == "return_when")]
        if any(self._is_race(each, env) for each in ends):
            yield _broken(name, call, "DUR003", names.RACE)
        elif any(not (isinstance(each, ast.Constant) and each.value is None) for each in timeouts):
            yield _broken(name, call, "DUR003", names.TIMEOUT)

    def _is_race(self, node: ast.expr, env: Env) -> bool:
        values = self._resolver.value(node, env)
        named = any(isinstance(each, External) and names.ends_with(each.name, names.RACES) for each in values)
        return named or (isinstance(node, ast.Constant) and node.value in names.RACES)

    def _gathers(self, name: str, argument: ast.expr, env: Env) -> Iterator[Broken]:
        values = self._resolver.value(argument, env)
        if not may_be_gathered(values):
            remedy = names.OWN_TASK if any(isinstance(each, Coroutine) for each in values) else names.NO_STEP
            yield Broken("DUR001", argument, f"{name}() awaits {env.module.source.segment(argument)}, {remedy}")

    def _gives_context_to_parameter(self, node: ast.expr, env: Env) -> bool:
        """Whether a function that came as an argument is given the context: where it is written, it is a body."""
        match node:
            case ast.Call(func=ast.Name(id=name)):
                home = self._resolver.binder(name, env)
                return home is not None and name in home.parameters and self._passes_context(node, env)
            case _:
                return False

    def _passes_context(self, call: ast.Call, env: Env) -> bool:
        passed = [*call.args, *(keyword.value for keyword in call.keywords)]
        return any(Mark.CONTEXT in self._resolver.value(each, env) for each in passed)


def _broken(name: str, call: ast.Call, code: str, remedy: str) -> Broken:
    called = name.removeprefix("builtins.")
    return Broken(code, call, f"{called}() {remedy.format(name=called)}")
