"""Which functions of a file are orchestration bodies.

A function is one where it is

* what ``define`` of an orchestrator is given, as an argument or as a decorator. An object is known to be one when it
  was made by calling ``Orchestrator`` or ``AsyncOrchestrator``, or is annotated with that, in any file of the package.
  Where nothing is known of the object, it is taken for one if the file imports from ``durabl_ext`` and the function
  needs exactly two arguments;
* what ``OrchestrationHarness``, its ``resume_with`` or ``assert_crash_safe`` is given first;
* written with a second parameter, after ``self``, that is named ``octx`` or annotated with the context's type. Inside
  such a function only what it calls counts, and a pytest function ``test_...`` takes a fixture of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from durabl_ext.lint import names
from durabl_ext.lint.bindings import Defined
from durabl_ext.lint.lookup import decorated
from durabl_ext.lint.modules import Module
from durabl_ext.lint.resolve import Resolver
from durabl_ext.lint.scopes import Scope
from durabl_ext.lint.values import Class, Env, External, Function, Instance, Mark, Values, joined


@dataclass(frozen=True)
class Body:
    """An orchestration body, what messages call it, and the place in the checked file that makes it one."""

    function: Function
    label: str
    module: Module
    place: ast.Call | ast.FunctionDef | ast.AsyncFunctionDef


def bodies(module: Module, resolver: Resolver) -> list[Body]:
    """Finds the bodies of a file; one function may come more than once."""
    if not any(word in module.source.text for word in names.WORDS):
        return []
    found = list(_given(module, resolver))
    taken: set[ast.AST] = {body.function.node for body in found}
    # In the order of the text, so that a function comes before those inside of it.
    for node, scope in module.scopes.functions:
        if _within(scope, taken):
            continue
        for function in _functions(_defined(node, scope, module, resolver), resolver):
            if function.node is node and _takes_context(function, resolver):
                found.append(Body(function, node.name, module, node))
                taken.add(node)
    return found


def _given(module: Module, resolver: Resolver) -> Iterator[Body]:
    """Finds those that are given to something that takes bodies."""
    below = {decorator: place for place in module.scopes.functions for decorator in place[0].decorator_list}
    applied = {call.func: call.args[0] for call, _ in module.scopes.calls if call.args}
    ours = _imports_package(module.source.tree)
    for call, scope in module.scopes.calls:
        env = resolver.resting(scope, module)
        takers = [each.name for each in resolver.value(call.func, env) if isinstance(each, External)]
        if any(names.ends_with(taker, names.BODY_TAKERS) for taker in takers):
            for function in _functions(resolver.value(call.args[0], env), resolver) if call.args else ():
                yield Body(function, function.name, module, call)
            continue
        known = any(names.ends_with(taker, names.DEFINES) for taker in takers)
        if not call.args or not (known or (ours and _may_define(call, env, resolver))):
            continue
        given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "body")]
        given += [applied[call]] if call in applied and not given else []
        values = joined(resolver.value(each, env) for each in given)
        if call in below:
            values = _defined(*below[call], module, resolver)
        for function in _functions(values, resolver):
            least, most = _wanted(function)
            if least <= 2 <= most and (known or least == 2):
                yield Body(function, _label(call.args[0], function), module, call)


def _label(action: ast.expr, function: Function) -> str:
    match action:
        case ast.Constant(value=str() as text):
            return f'"{text}"'
        case _:
            return function.name


def _may_define(call: ast.Call, env: Env, resolver: Resolver) -> bool:
    """Whether a call is to a ``define`` of which nothing says that it is another's."""
    match call.func:
        case ast.Attribute(value=owner, attr="define"):
            return all(isinstance(each, External) or each is Mark.UNKNOWN for each in resolver.value(owner, env))
        case _:
            return False


def _defined(node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, module: Module, resolver: Resolver) -> Values:
    """Gives a function as its name would: in a class, as a method of an instance."""
    env = resolver.resting(scope, module)
    if isinstance(scope.node, ast.ClassDef) and not decorated(node, "staticmethod"):
        return resolver.method(Defined(node), Instance(Class(scope.node, module, env.outer or env)))
    return resolver.bound(Defined(node), env)


def _functions(values: Values, resolver: Resolver) -> list[Function]:
    """Gives what of this can be called: functions, and objects of classes of the package with ``__call__``."""
    called = [resolver.member(each.type, "__call__", each) for each in values if isinstance(each, Instance)]
    return [each for each in values | joined(called) if isinstance(each, Function)]


def _wanted(function: Function) -> tuple[int, int]:
    """How many arguments a function needs, and takes, beside those that it was given."""
    written = function.node.args
    given = len(function.given) + len(function.named)
    most = len(written.posonlyargs) + len(written.args)
    return max(0, most - len(written.defaults) - given), (99 if written.vararg else most - given)


def _takes_context(function: Function, resolver: Resolver) -> bool:
    """Whether the second parameter is the context, by its name or its annotation."""
    written = function.node.args
    own = [*written.posonlyargs, *written.args][len(function.given) :]
    if len(own) < 2 or (function.name.startswith("test_") and own[1].annotation is None):
        return False
    return Mark.CONTEXT in resolver.declared(own[1].arg, own[1].annotation, function.env)


def _within(scope: Scope | None, nodes: set[ast.AST]) -> bool:
    while scope is not None and scope.node not in nodes:
        scope = scope.parent
    return scope is not None


def _imports_package(tree: ast.Module) -> bool:
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return any(name.partition(".")[0] == names.PACKAGE for name in imported)
