"""What each name of a file is bound to, scope by scope, as far as its syntax says.

All bindings of a name are kept, in no order of execution: which of them counts is for ``resolve`` to say. Nothing here
looks into another file.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeVar

from durabl_ext.lint.bindings import Annotated, Assigned, Binding, Defined, Imported, Opaque, Parameter

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Place = TypeVar("Place")


@dataclass(eq=False)
class Scope:
    """A module, a class, a function or a comprehension.

    Attributes:
        names: What each name is bound to.
        added: What is appended to, or stored in, a container of that name.
        attributes: In a class, what its methods assign to attributes of their first parameter.
        results: What a function returns or yields.
        stars: Modules of which everything is imported.
        yields: Whether it is a generator.
    """

    node: ast.Module | ast.ClassDef | FunctionNode | Comprehension
    parent: Scope | None
    names: dict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    added: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    attributes: dict[str, list[tuple[ast.expr, Scope]]] = field(default_factory=lambda: defaultdict(list))
    results: list[ast.expr] = field(default_factory=list)
    stars: list[Imported] = field(default_factory=list)
    elsewhere: dict[str, Scope] = field(default_factory=dict)
    yields: bool = False

    @property
    def method_of(self) -> Scope | None:
        """The class that this function is written in."""
        return self.parent if self.parent is not None and isinstance(self.parent.node, ast.ClassDef) else None

    def own(self) -> Scope:
        """The scope that an assignment here binds in: a comprehension only keeps its loop variables."""
        scope = self
        while isinstance(scope.node, Comprehension) and scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(eq=False)
class Scopes:
    """The scopes of a file, and the calls and functions in it with the scope that each is in."""

    module: Scope
    of: dict[ast.AST, Scope] = field(default_factory=dict)
    calls: list[tuple[ast.Call, Scope]] = field(default_factory=list)
    functions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, Scope]] = field(default_factory=list)


_ADDING = {"append": 0, "appendleft": 0, "add": 0, "extend": 0, "update": 0, "insert": 1, "setdefault": 1}
"""Methods of containers, with the place of what they add."""


def scopes(tree: ast.Module) -> Scopes:
    """Finds the scopes of a file."""
    found = Scopes(Scope(tree, None))
    found.of[tree] = found.module
    # A stack of its own, since Python's is too small for what generated code nests.
    rest: list[tuple[ast.AST, Scope]] = [(tree, found.module)]
    while rest:
        node, scope = rest.pop()
        rest.extend(reversed(_enter(node, scope, found)))
    return found


def _enter(node: ast.AST, scope: Scope, found: Scopes) -> list[tuple[ast.AST, Scope]]:
    """Notes what a node binds, and gives what is inside, in the order of the text."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            inner = found.of[node] = Scope(node, scope)
            _bind_parameters(node.args, inner)
            if isinstance(node, ast.Lambda):
                inner.results.append(node.body)
                body: list[ast.AST] = [node.body]
            else:
                _bind(node.name, Defined(node), scope)
                found.functions.append((node, scope))
                body = list(node.body)
            return [(child, scope) for child in evaluated(node)] + [(child, inner) for child in body]
        case ast.ClassDef():
            _bind(node.name, Defined(node), scope)
            inner = found.of[node] = Scope(node, scope)
            return [(child, scope) for child in evaluated(node)] + [(child, inner) for child in node.body]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            inner = found.of[node] = Scope(node, scope)
            for generator in node.generators:
                _bind_target(generator.target, generator.iter, inner, item=True)
            return comprehended(node, scope, inner)
        case ast.Global(names=names):
            scope.elsewhere |= dict.fromkeys(names, found.module)
        case ast.Nonlocal(names=names):
            scope.elsewhere |= {name: outer for name in names if (outer := _binder(name, scope.parent))}
        case _:
            _note(node, scope, found)
    return [(child, scope) for child in ast.iter_child_nodes(node)]


def evaluated(node: FunctionNode | ast.ClassDef) -> list[ast.AST]:
    """The expressions that a definition evaluates where it stands."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
    defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
    return [*([] if isinstance(node, ast.Lambda) else node.decorator_list), *defaults]


def comprehended(node: Comprehension, outer: Place, inner: Place) -> list[tuple[ast.AST, Place]]:
    """The parts of a comprehension, each with where its names are looked up: the first iterable outside of it."""
    parts: list[tuple[ast.AST, Place]] = []
    for place, generator in enumerate(node.generators):
        parts.append((generator.iter, inner if place else outer))
        parts += [(condition, inner) for condition in generator.ifs]
    given = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    return parts + [(part, inner) for part in given]


def _note(node: ast.AST, scope: Scope, found: Scopes) -> None:
    match node:
        case ast.Import(names=aliases):
            for alias in aliases:
                root = alias.name.partition(".")[0]
                if alias.asname:
                    _bind(alias.asname, Imported(alias.name), scope)
                else:
                    _bind(root, Imported(root, whole=alias.name), scope)
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                if alias.name == "*":
                    scope.stars.append(Imported(module or "", level))
                else:
                    _bind(alias.asname or alias.name, Imported(module or "", level, alias.name), scope)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _bind_target(target, value, scope)
        case ast.AnnAssign(target=target, value=None, annotation=annotation):
            if isinstance(target, ast.Name):
                _bind(target.id, Annotated(annotation), scope)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            _bind_target(target, value, scope.own())
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            scope.added[name].append(value)
        case ast.For(target=target, iter=iterable) | ast.AsyncFor(target=target, iter=iterable):
            _bind_target(target, iterable, scope, item=True)
        case ast.withitem(optional_vars=ast.expr() as target):
            _bind_target(target, None, scope)
        case (
            ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name)
        ):
            _bind(name, Opaque(), scope)
        case ast.MatchMapping(rest=str() as name):
            _bind(name, Opaque(), scope)
        case ast.Return(value=ast.expr() as value) | ast.YieldFrom(value=value):
            scope.own().results.append(value)
        case ast.Call():
            found.calls.append((node, scope))
            match node.func:
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if len(node.args) > _ADDING.get(attr, 99):
                    scope.own().added[name].append(node.args[_ADDING[attr]])
        case _:
            pass
    if isinstance(node, ast.Yield | ast.YieldFrom):
        scope.own().yields = True
        scope.own().results += [node.value] if isinstance(node, ast.Yield) and node.value is not None else []


def _bind_parameters(arguments: ast.arguments, scope: Scope) -> None:
    extra = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        scope.names[argument.arg].append(Parameter(argument.arg, argument.annotation))
    for argument in extra:
        # Its annotation is that of one of the arguments, not of what holds them.
        scope.names[argument.arg].append(Parameter(argument.arg, None))


def _bind_target(target: ast.expr, value: ast.expr | None, scope: Scope, *, item: bool = False) -> None:
    match target:
        case ast.Name(id=name):
            _bind(name, Opaque() if value is None else Assigned(value, item), scope)
        case ast.Starred(value=inner):
            _bind_target(inner, value, scope, item=item)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for part, given in zip(targets, _unpacked(targets, value, item), strict=True):
                _bind_target(part, given, scope, item=item)
        case ast.Subscript(value=ast.Name(id=name)) if value is not None:
            scope.added[name].append(value)
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if value is not None:
            holder = scope.method_of
            if holder is not None and name == first_parameter(scope.node):
                holder.attributes[attr].append((value, scope))


def _unpacked(targets: list[ast.expr], value: ast.expr | None, item: bool) -> list[ast.expr | None]:
    """What each target gets: its own expression where both sides are written out, else any part of the value."""
    match value:
        case ast.Tuple(elts=values) | ast.List(elts=values) if not item and len(values) == len(targets):
            if not any(isinstance(each, ast.Starred) for each in [*targets, *values]):
                return list(values)
    return [value] * len(targets)


def first_parameter(node: ast.AST) -> str | None:
    """The name of a function's first parameter, in a method the object itself."""
    if not isinstance(node, FunctionNode):
        return None
    names = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]]
    return names[0] if names else None


def _bind(name: str, binding: Binding, scope: Scope) -> None:
    scope.elsewhere.get(name, scope).names[name].append(binding)


def _binder(name: str, scope: Scope | None) -> Scope | None:
    while scope is not None and name not in scope.names:
        scope = scope.parent
    return scope
