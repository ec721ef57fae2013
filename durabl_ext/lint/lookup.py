"""Where names, attributes and imports lead, over the files of one package. What expressions give is in ``resolve``."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod

from durabl_ext.lint import names
from durabl_ext.lint.bindings import Annotated, Assigned, Binding, Defined, Imported, Parameter
from durabl_ext.lint.modules import Module, Modules, submodule
from durabl_ext.lint.scopes import Scope, first_parameter
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
    Package,
    Value,
    Values,
    joined,
    may_be_gathered,
)

LONGEST = 120
"""Of a qualified name: a recursive function can chain calls to any length."""

_WRAPPERS = frozenset(("Optional", "Union", "Annotated", "Final"))


class Lookup(ABC):
    """Follows names; an unresolvable one is UNKNOWN, and one that is defined by way of itself is nothing."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self._resting: dict[Scope, Env] = {}
        self._members: dict[tuple[Class, str, Instance | None], Values] = {}

    @abstractmethod
    def value(self, node: ast.expr, env: Env) -> Values:
        """Says what an expression may stand for."""

    @abstractmethod
    def returned(self, function: Function, given: Given) -> Values:
        """Says what a call of a function gives."""

    def resting(self, scope: Scope, module: Module) -> Env:
        """Gives the environment of a scope outside of any call: of parameters only the annotation is known."""
        env = self._resting.get(scope)
        if env is None:
            outer = None if scope.parent is None else self.resting(scope.parent, module)
            env = self._resting[scope] = Env(module, scope, outer)
            holder = scope.method_of
            for name, bindings in scope.names.items():
                if isinstance(bindings[0], Parameter):
                    env.parameters[name] = self.declared(name, bindings[0].annotation, env.outer) or UNKNOWN
            if holder is not None and outer is not None and isinstance(holder.node, ast.ClassDef):
                this = first_parameter(scope.node)
                if this is not None and not decorated(scope.node, "staticmethod"):
                    env.parameters[this] = frozenset((Instance(Class(holder.node, module, outer.outer or outer)),))
        return env

    def declared(self, name: str, annotation: ast.expr | None, env: Env | None) -> Values:
        """Says what a parameter holds by its name and annotation, or nothing where they do not tell."""
        if name in names.CONTEXT_NAMES:
            return CONTEXT
        found: list[Value] = []
        rest = [annotation] if annotation is not None and env is not None else []
        while rest and env is not None:
            match rest.pop():
                case ast.Constant(value=str() as text):
                    try:
                        rest.append(ast.parse(text.strip(), mode="eval").body)
                    except (SyntaxError, ValueError, RecursionError, MemoryError):
                        continue
                case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                    rest += [left, right]
                case ast.Subscript(value=base, slice=inner):
                    wraps = getattr(base, "id", getattr(base, "attr", None)) in _WRAPPERS
                    rest += [base] if not wraps else inner.elts if isinstance(inner, ast.Tuple) else [inner]
                case ast.Name() | ast.Attribute() as type:
                    found += self.value(type, env)
        return frozenset(_object(value) for value in found) - UNKNOWN

    def name(self, name: str, env: Env) -> Values:
        """Says what a name stands for."""
        home = self.binder(name, env)
        if home is None:
            return self._unbound(name, env)
        if name not in home.known:
            home.known[name] = NOTHING
            each = [self.bound(binding, home) for binding in home.scope.names[name]]
            steps = [values for values in each if Mark.TASK in values and may_be_gathered(values)]
            found = joined(steps or each)
            if not all(Mark.SET in values for values in each):
                found -= {Mark.SET}
            home.known[name] = found | joined(self.value(added, home) for added in home.scope.added.get(name, ()))
        return home.known[name]

    def binder(self, name: str, env: Env) -> Env | None:
        """Finds the environment that binds a name: this one or one around it, but no class around a function."""
        home: Env | None = env
        while home is not None and name not in home.scope.names:
            home = home.outer
            while home is not None and isinstance(home.scope.node, ast.ClassDef):
                home = home.outer
        return home

    def bound(self, binding: Binding, env: Env) -> Values:
        """Says what one binding gives. A decorated function is itself and what decorators of the package make of it."""
        match binding:
            case Imported():
                return self._imported(binding, env.module)
            case Defined(node=ast.ClassDef() as node):
                return frozenset((Class(node, env.module, env),))
            case Defined(node=ast.FunctionDef() | ast.AsyncFunctionDef() as node):
                plain = Function(node, env.module, env)
                made = [
                    self.returned(decorator, Given((frozenset((plain,)),)))
                    for expression in node.decorator_list
                    for decorator in self.value(expression, env)
                    if isinstance(decorator, Function)
                ]
                return frozenset((plain, *(each for each in joined(made) if isinstance(each, Function))))
            case Assigned(value=value, item=item):
                return self.value(value, env) - ({Mark.SET} if item else NOTHING)
            case Annotated(annotation=annotation):
                return self.declared("", annotation, env) or UNKNOWN
            case Parameter(name=name):
                return env.parameters.get(name, NOTHING)
            case _:
                return UNKNOWN

    def attribute(self, value: Value, name: str) -> Values:
        """Says what an attribute of something is."""
        match value:
            case Mark.CONTEXT | Mark.TASK:
                return frozenset((value,))
            case Mark.SET:
                return NOTHING
            case Mark.UNKNOWN if name == "step":
                return CONTEXT  # a context that came by a way that is not followed, as in an object it was stored in
            case External(name=owner) if len(owner) < LONGEST:
                return frozenset((External(f"{owner}.{name}"),))
            case Package():
                return self._in_package(value, name)
            case Class():
                return self.member(value, name, None)
            case Instance():
                return self.member(value.type, name, value)
            case _:
                return UNKNOWN

    def member(self, type: Class, name: str, holder: Instance | None) -> Values:
        """Says what a class, or an instance of it, has under a name: of its own or from a base class of the package."""
        scope = type.module.scopes.of[type.node]
        if name in scope.names:
            found = self.name(name, self.resting(scope, type.module))
            return joined(self._method(value, holder) for value in found)
        key = (type, name, holder)
        if key not in self._members:
            self._members[key] = NOTHING
            stored = [self.value(value, self.resting(by, type.module)) for value, by in scope.attributes.get(name, ())]
            bases = joined(self.value(base, type.env) for base in type.node.bases)
            self._members[key] = joined(stored) or joined(
                self.member(base, name, holder) for base in bases if isinstance(base, Class)
            )
        return self._members[key] or UNKNOWN

    def method(self, binding: Defined, holder: Instance) -> Values:
        """Says what a function that is written in a class is to an instance of it."""
        env = self.resting(holder.type.module.scopes.of[holder.type.node], holder.type.module)
        return joined(self._method(value, holder) for value in self.bound(binding, env))

    def _method(self, value: Value, holder: Instance | None) -> Values:
        if holder is None or not isinstance(value, Function) or value.given or decorated(value.node, "staticmethod"):
            return frozenset((value,))
        method = Function(value.node, value.module, value.env, (frozenset((holder,)),))
        if decorated(value.node, "property") or decorated(value.node, "cached_property"):
            return self.returned(method, Given())
        return frozenset((method,))

    def _imported(self, imported: Imported, module: Module) -> Values:
        path = self.modules.imported(module.source.path, imported)
        dots = "." * imported.level
        if path is None:
            qualified = ".".join(part for part in (imported.module, imported.name) if part)
            return frozenset((External(dots + qualified),))
        return self._in_package(Package(path), imported.name) if imported.name else frozenset((Package(path),))

    def _in_package(self, package: Package, name: str) -> Values:
        module = self.modules.get(package.path) if package.path.suffix == ".py" else None
        if module is not None:
            env = self.resting(module.scopes.module, module)
            if name in module.scopes.module.names:
                return self.name(name, env)
        folder = package.path.parent if package.path.name == "__init__.py" else package.path
        inner = submodule(folder, name) if folder.is_dir() else None
        if inner is not None:
            return frozenset((Package(inner),))
        return UNKNOWN if module is None else self._starred(name, module) or UNKNOWN

    def _unbound(self, name: str, env: Env) -> Values:
        return self._starred(name, env.module) or frozenset((External(f"builtins.{name}"),))

    def _starred(self, name: str, module: Module) -> Values:
        """Says what a name stands for that came with ``from ... import *``, which is followed one file far."""
        for star in module.scopes.module.stars:
            path = self.modules.imported(module.source.path, star)
            starred = self.modules.get(path) if path is not None and path.suffix == ".py" else None
            if starred is not None and name in starred.scopes.module.names:
                return self.name(name, self.resting(starred.scopes.module, starred))
            if path is None and f"{star.module}.{name}" in names.CALLS:
                return frozenset((External(f"{star.module}.{name}"),))
        return NOTHING


def decorated(node: ast.AST, name: str) -> bool:
    """Whether a function has a decorator of that name."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return any(name == getattr(each, "id", getattr(each, "attr", None)) for each in decorators)


def _object(type: Value) -> Value:
    match type:
        case External(name=name):
            known = names.ends_with(name, names.CONTEXT_TYPES)
            return Mark.CONTEXT if known else External(f"{name}()")
        case Class(node=node):
            return Mark.CONTEXT if node.name in names.CONTEXT_TYPES else Instance(type)
        case _:
            return Mark.UNKNOWN
