"""What the expressions of a control path stand for.

No order of execution is followed: a name stands for all that its scope binds it to, and where that includes a step that
was started, for the step, since a false alarm costs more than a miss. Nothing here reports anything.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable

from durabl_ext.lint import names
from durabl_ext.lint.lookup import Lookup
from durabl_ext.lint.modules import Modules
from durabl_ext.lint.scopes import Scope
from durabl_ext.lint.values import (
    CONTEXT,
    DATA,
    NOTHING,
    TASK,
    UNKNOWN,
    Class,
    Coroutine,
    Env,
    External,
    Function,
    Given,
    Instance,
    Mark,
    Value,
    Values,
    joined,
    may_be_gathered,
)

DEEPEST = 60
"""Expressions within expressions, through names and results; each takes up to ten of Python's thousand frames."""

VARIANTS = 50
"""Ways to call one function that are told apart: a recursive one may permute its arguments without end."""


class Resolver(Lookup):
    """Says what expressions stand for, over all files of a check."""

    def __init__(self, modules: Modules) -> None:
        super().__init__(modules)
        self._results: dict[Scope, dict[Hashable, Values]] = defaultdict(dict)
        self._depth = 0

    def value(self, node: ast.expr, env: Env) -> Values:
        """Says what an expression may stand for; nothing for constants, and where it is nested too deeply."""
        if self._depth > DEEPEST:
            return NOTHING
        self._depth += 1
        try:
            return self._value(node, env)
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, env: Env) -> Values:
        match node:
            case ast.Name(id=name):
                return self.name(name, env)
            case ast.Attribute(value=owner, attr=attr):
                if attr in names.CONTEXT_NAMES:
                    return CONTEXT
                return joined(self.attribute(value, attr) for value in self.value(owner, env))
            case ast.Call():
                return joined(self.result(value, node, env) for value in self.value(node.func, env))
            case ast.Await(value=inner):
                return joined(self._awaited(value) for value in self.value(inner, env))
            case ast.Lambda():
                return frozenset((Function(node, env.module, env),))
            case ast.NamedExpr(value=inner) | ast.Starred(value=inner):
                return self.value(inner, env)
            case ast.Subscript(value=inner):
                return self.value(inner, env) - {Mark.SET}
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BoolOp(values=parts) | ast.Dict(values=parts):
                return joined(self.value(part, env) for part in parts)
            case ast.Set(elts=parts):
                numbers = all(
                    isinstance(each, ast.Constant) and not isinstance(each.value, str | bytes) for each in parts
                )
                return joined(self.value(part, env) for part in parts) | (NOTHING if numbers else {Mark.SET})
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                repeated = [each for each in (left, right) if isinstance(each, ast.List | ast.Tuple)]
                return joined(self.value(each, env) for each in repeated)
            case ast.IfExp(body=left, orelse=right) | ast.BinOp(left=left, right=right):
                return self.value(left, env) | self.value(right, env)
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.DictComp(value=part):
                return self.value(part, self.inside(node, env))
            case ast.SetComp(elt=part):
                return self.value(part, self.inside(node, env)) | {Mark.SET}
            case ast.Constant() | ast.JoinedStr() | ast.Compare() | ast.UnaryOp():
                return NOTHING
            case _:
                return UNKNOWN

    def inside(self, node: ast.expr, env: Env) -> Env:
        """Gives the environment of a comprehension."""
        return Env(env.module, env.module.scopes.of[node], env)

    def given(self, call: ast.Call, env: Env) -> Given:
        """Says what a call passes on."""
        starred = [place for place, each in enumerate(call.args) if isinstance(each, ast.Starred)]
        fixed = call.args[: starred[0]] if starred else call.args
        more = [*call.args[len(fixed) :], *(each.value for each in call.keywords if each.arg is None)]
        return Given(
            tuple(self.value(each, env) for each in fixed),
            {each.arg: self.value(each.value, env) for each in call.keywords if each.arg is not None},
            joined(self.value(each, env) for each in more) if more else None,
        )

    def enter(self, function: Function, given: Given) -> Env:
        """Gives the environment of a call."""
        written = function.node.args
        positional = [*written.posonlyargs, *written.args]
        values = [*function.given, *given.positional]
        passed = dict(zip((each.arg for each in positional), values, strict=False))
        passed |= function.named | given.named
        defaults = dict(zip((each.arg for each in reversed(positional)), reversed(written.defaults), strict=False))
        defaults |= {
            each.arg: default
            for each, default in zip(written.kwonlyargs, written.kw_defaults, strict=True)
            if default is not None
        }
        env = Env(function.module, function.scope, function.env)
        for each in [*positional, *written.kwonlyargs]:
            value = passed.get(each.arg)
            if value is None:
                default = defaults.get(each.arg)
                value = self.value(default, function.env) if default is not None else given.unfilled
            declared = self.declared(each.arg, each.annotation, function.env)
            if Mark.CONTEXT in declared or (declared and value == UNKNOWN):
                value = declared
            env.parameters[each.arg] = value
        if written.vararg is not None:
            env.parameters[written.vararg.arg] = joined(values[len(positional) :]) | (given.rest or NOTHING)
        if written.kwarg is not None:
            env.parameters[written.kwarg.arg] = joined(given.named.values()) | (given.rest or NOTHING)
        return env

    def result(self, called: Value, call: ast.Call, env: Env) -> Values:
        """Says what a call gives, when it calls this."""
        match called:
            case Mark.CONTEXT | Mark.TASK:
                return TASK
            case Mark.SET:
                return NOTHING
            case External(name=name):
                return self._external(name, call, env)
            case Class():
                return frozenset((Instance(called),))
            case Instance():
                methods = self.member(called.type, "__call__", called)
                return joined(
                    self.returned(each, self.given(call, env)) if isinstance(each, Function) else UNKNOWN
                    for each in methods
                )
            case Function():
                return self.returned(called, self.given(call, env))
            case _:
                return UNKNOWN

    def returned(self, function: Function, given: Given) -> Values:
        """Says what a call of a function of the package gives: of an async one, a coroutine."""
        env = self.enter(function, given)
        if isinstance(function.node, ast.AsyncFunctionDef):
            return frozenset((Coroutine(function, env),))
        return self._results_of(env)

    def _results_of(self, env: Env) -> Values:
        results = self._results[env.scope]
        key = (env.outer, frozenset(env.parameters.items()))
        if key not in results and len(results) < VARIANTS:
            results[key] = NOTHING  # what a recursive function gives by way of itself
            results[key] = joined(self.value(each, env) for each in env.scope.results)
        return results.get(key, NOTHING)

    def _awaited(self, value: Value) -> Values:
        match value:
            case Mark.TASK | Mark.DATA:
                return DATA
            case Mark.SET:
                return frozenset((value,))
            case Coroutine(env=env):
                return DATA if env.scope.yields else self._results_of(env)
            case _:
                return UNKNOWN

    def _external(self, name: str, call: ast.Call, env: Env) -> Values:
        arguments = [self.value(each, env) for each in call.args]
        if name in names.CALLS:
            return DATA  # reported where it is called; awaiting it is no second finding
        if name in names.GATHERS:
            return TASK | ({Mark.SET} if name == "asyncio.wait" else NOTHING)
        if name == "functools.partial" and arguments:
            more = self.given(call, env)
            return frozenset(each.partial(more) if isinstance(each, Function) else each for each in arguments[0])
        if name == "builtins.map" and arguments:
            return joined(self._mapped(each) for each in arguments[0])
        if name == "collections.defaultdict":
            return NOTHING  # what is added to it in two steps, as in `tasks[key].append(...)`, is not followed
        if name == "builtins.super":
            return self._super(env)
        if name in names.PASSED_THROUGH:
            steps = [each for each in arguments if Mark.TASK in each and may_be_gathered(each)]
            kept = joined(steps or arguments) - ({Mark.SET} if name in names.ORDERED else NOTHING)
            return kept | ({Mark.SET} if name in names.SETS else NOTHING)
        return frozenset((External(f"{name}()"),))

    def _mapped(self, function: Value) -> Values:
        if function is Mark.CONTEXT:
            return TASK
        return self.returned(function, Given(rest=NOTHING)) if isinstance(function, Function) else UNKNOWN

    def _super(self, env: Env) -> Values:
        method: Env | None = env
        while method is not None and method.scope.method_of is None:
            method = method.outer
        if method is None or method.outer is None or not isinstance(method.outer.scope.node, ast.ClassDef):
            return UNKNOWN
        bases = [self.value(base, method.outer) for base in method.outer.scope.node.bases]
        return frozenset(Instance(each) if isinstance(each, Class) else Mark.UNKNOWN for each in joined(bases))
