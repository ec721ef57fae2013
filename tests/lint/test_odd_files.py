"""Files that are huge, deep or crooked are checked in bounded time, and never end the check."""

from __future__ import annotations

import ast
import concurrent.futures
import time
from pathlib import Path

import pytest

import durabl_ext
import simplequeue
from durabl_ext.lint import check
from durabl_ext.lint.bodies import Body
from durabl_ext.lint.control_path import ControlPath
from durabl_ext.lint.modules import Modules
from durabl_ext.lint.resolve import Resolver
from durabl_ext.lint.values import Function
from tests.lint.marked import expected, findings, found, write

LONGEST = 30.0
"""Seconds: far more than any of these takes, and far less than what grows without bound."""


def test_a_huge_file_is_checked_in_time(tmp_path: Path) -> None:
    lines = "".join(
        f"    t{n} = octx.step('x', send)\n    t = t{n}\n    ts.append(t)\n    helper{n % 500}(t)\n    await t\n"
        for n in range(6_000)
    )
    helpers = "".join(f"def helper{n}(x): return helper{n + 1}(x)\n" for n in range(500))
    began = time.monotonic()
    text = (
        f"async def body(job, octx):\n    ts = []\n{lines}    await client.get()\n{helpers}def helper500(x): hash(x)\n"
    )
    assert [finding.code for finding in findings(tmp_path, text)] == ["DUR001", "DUR002"]
    assert time.monotonic() - began < LONGEST


@pytest.mark.parametrize(
    "line",
    [
        "x = " + " + ".join(["a"] * 800) + "; await x",
        "x = a" + ".b()" * 300 + "; await x.y()",
        "x = " + "f(" * 90 + "1" + ")" * 90 + "; await x",
        "x = " + "[" * 90 + "octx.step('a', b)" + "]" * 90 + "; await asyncio.gather(x)",
        "x = " + "lambda: " * 90 + "1; x()",
        "x = " + "not " * 150 + "1",
        "x = y = z = x; y = z or y; z = [x, y, z]; x = x(y(z(x)))(x)[x].x; await x",
        "x = [[[x for x in x] for x in x] for x in x]; await x[0]",
        "x: x = x; x += x; x.append(x); x[x] = x; await x",
        "(x := (x := (x := octx.step('a', b)))); await x",
        "global g; g = octx.step('a', b); await g",
    ],
    ids=range(11),
)
def test_deep_and_circular_expressions_do_not_end_the_check(tmp_path: Path, line: str) -> None:
    began = time.monotonic()
    assert all(finding.code == "DUR001" for finding in findings(tmp_path, f"async def body(job, octx):\n    {line}\n"))
    assert time.monotonic() - began < LONGEST


def test_calls_that_branch_at_every_level_are_checked_in_time(tmp_path: Path) -> None:
    helpers = "".join(
        f"def f{n}(a, b): return f{n + 1}(b, a) or f{n + 1}(a, f{n + 1}(b, lambda: a)) or [f{n + 1}(g, g) for g in a]\n"
        for n in range(80)
    )
    began = time.monotonic()
    helpers += "def f80(a, b): return time.time()\n"
    text = f"import time\nasync def body(job, octx):\n    await f0(octx, job)\n{helpers}"
    assert "DUR002" in [finding.code for finding in findings(tmp_path, text)]
    assert time.monotonic() - began < LONGEST


def test_classes_that_are_their_own_bases_and_attributes_are_passed(tmp_path: Path) -> None:
    text = """
        class A(B):
            def __init__(self):
                self.x = self.x.y(self.x)
                self.y = self.y or self.x
            x = property(lambda self: self.x)
            @property
            def z(self): return self.z
        class B(A):
            class Inner(A):
                def run(self): return super().run()
            def __call__(self): return self()
        class C(C, unknown(), *bases, metaclass=C):
            __init__ = __call__ = __post_init__ = C
        async def body(job, octx):
            a = A(); a.x.y(); a.z(); B()()(); C().nothing(); C()(); B.Inner().run()
            del a
            super().run()
    """
    assert findings(tmp_path, text) == []


def test_nested_scopes_bind_their_own_names(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "flow.py": """
                import time
                now = time.time
                class Outer:
                    now = None
                    def method(self): return now()  # DUR002
                    class Inner:
                        time = None
                        async def run(self, job, octx):
                            Outer().method()
                            def now(): return 1
                            now()  # DUR002
                            def replace():
                                nonlocal now
                                now = time.monotonic  # it may be what now() calls, before and after
                            now()  # DUR002
                            [time.time() for _ in range(3)]  # DUR002
                            [time.time() for time in job.data]
                            time.time()  # DUR002
                            class Local:
                                at = time.time()  # DUR002
                                def later(self): time.time()
                            try:
                                pass
                            except OSError as time2:
                                time2.time()
                            match job.data:
                                case {"now": clock, **more}: clock(), more()
                                case [*others] as all: others(), all()
            """
        },
    )
    assert found(tmp_path) == expected(tmp_path)


def test_no_function_of_real_code_ends_the_check() -> None:
    here = Path(durabl_ext.__file__).parent
    files = [*(here / "lint").glob("*.py"), *Path(concurrent.futures.__file__).parent.glob("*.py"), Path(ast.__file__)]
    bodies = 0
    for file in files:
        modules = Modules()
        module, path = modules.read(file), ControlPath(Resolver(modules))
        for node, scope in module.scopes.functions:
            path.walk(Body(Function(node, module, path.resolver.resting(scope, module)), node.name, module, node))
            bodies += 1
    assert bodies > 200


def test_there_is_nothing_to_find_in_this_project() -> None:
    report = check([Path(durabl_ext.__file__).parent, Path(simplequeue.__file__).parent])
    assert (report.findings, report.unreadable) == ([], [])
