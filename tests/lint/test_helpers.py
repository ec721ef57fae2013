"""Functions that a body calls are looked into, in its own file and in others of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from durabl_ext.lint import check
from tests.lint.marked import expected, found, write

PACKAGES = {
    "absolute and relative imports, modules and names": {
        "app/__init__.py": "",
        "app/flows/__init__.py": "",
        "app/flows/refund.py": """
            import app.clock, app.flows.near as n
            from app import clock as c
            from app.clock import read as read_clock
            from . import near
            from .near import fetch
            from ..far import far
            async def body(job, octx):
                app.clock.read(), c.other(), read_clock()
                await n.fetch("x")
                await near.load(octx)
                await fetch("y")
                await far(octx)
        """,
        "app/clock.py": """
            from time import time
            def read(): return time()  # DUR002
            def other(): return time()  # DUR002
            def unused(): return time()
        """,
        "app/flows/near.py": """
            from app.clients import client
            async def fetch(url): return await client.get(url)  # DUR001
            async def load(context):
                await context.step("a", client.get)
                await client.get("x")  # DUR001
        """,
        "app/clients.py": "client = other.Client()",
        "app/far.py": "async def far(c):\n    await c.step('x', send)\n    import time; time.time()  # DUR002",
    },
    "packages without __init__.py": {
        "app/flows/refund.py": """
            from app.helpers.clock import read
            from app.helpers import clock
            from .more import more
            import app.helpers.clock as k
            async def body(job, octx):
                read(), clock.two(), k.three(), more()
        """,
        "app/helpers/clock.py": """
            import time
            def read(): return time.time()  # DUR002
            def two(): return time.time()  # DUR002
            def three(): return time.time()  # DUR002
        """,
        "app/flows/more.py": "import time\ndef more(): time.sleep(1)  # DUR001",
    },
    "neighbours of a script": {
        "script.py": """
            import clock
            from tools.chance import draw
            async def body(job, octx):
                clock.read(), draw()
        """,
        "clock.py": "import time\ndef read(): return time.time()  # DUR002",
        "tools/__init__.py": "",
        "tools/chance.py": "import random\ndef draw(): return random.random()  # DUR002",
    },
    "names that are handed on, stars and cycles": {
        "app/__init__.py": "from .a import *",
        "app/a.py": """
            from .b import helper, lost
            from random import *
            async def body(job, octx):
                helper()
                await awaited(octx)
                lost()
                shuffle([])  # DUR002
                print(len([]))
            from .c import *
        """,
        "app/b.py": "from .c import helper\nfrom .a import lost",
        "app/c.py": """
            import time
            from app import body
            def helper(): return time.time()  # DUR002
            async def awaited(c): await c.step("x", helper); time.sleep(1)  # DUR001
        """,
    },
    "an alternative that is imported": {
        "app/__init__.py": "",
        "app/a.py": """
            try:
                from uuid6 import uuid7 as make
            except ImportError:
                from .b import make
            async def body(job, octx):
                make()  # DUR002
        """,
        "app/b.py": "import random\ndef make(): return random.random()  # DUR002",
    },
    "classes, and what their bases have": {
        "app/__init__.py": "",
        "app/base.py": """
            import time, uuid
            class Base:
                def __init__(self, client):
                    self.client = client
                    self.id = uuid.uuid4()  # DUR002
                async def run(self, c):
                    await self.work(c)
                    self.touch()
                    return await self.client.get()  # DUR001
                def touch(self): time.time()  # DUR002
        """,
        "app/flow.py": """
            from app.base import Base
            from outside import Other
            class Flow(Base):
                async def work(self, c):
                    await c.step("x", send)
                    await super().more(c)  # DUR001
                def touch(self):
                    super().touch()
            async def body(job, octx):
                flow = Flow(octx.uuid("x"))
                await flow.run(octx)
                await Other().run(octx)  # DUR001
        """,
    },
    "other packages": {
        "app/__init__.py": "",
        "other/__init__.py": "import time\nasync def helper(c): time.time()\ndef plain(): time.time()",
        "app/flow.py": """
            from other import helper, plain
            async def body(job, octx):
                plain()
                await helper(octx)  # DUR001
                await other.helper(octx)  # DUR001
        """,
    },
    "what a helper is given": {
        "app/__init__.py": "",
        "app/flow.py": """
            import asyncio, functools, time
            async def body(job, octx):
                await by_name(order=1, context=octx)
                await starred(octx, *job.data)
                await started(octx.step("x", send))
                await started(client.get())
                await chosen(octx, chain)
                await chosen(octx, chain2)
                await functools.partial(by_name, 1)(octx)
                timed(time.time), timed(octx.now)
                timed(lambda: time.sleep(1))  # DUR001
                defaulted()
            async def by_name(order, context): await context.step("x", send)
            async def starred(context, *rest, **more): await context.step("x", send)
            async def started(task): await task  # DUR001
            async def chosen(context, fn): await fn(context)
            async def chain(c): await c.step("x", send)
            async def chain2(c): await client.get()  # DUR001
            def timed(clock): return clock()  # DUR002
            def defaulted(clock=time.monotonic): return clock()  # DUR002
        """,
    },
    "recursion": {
        "app/__init__.py": "from .flow import even",
        "app/flow.py": """
            import time
            from app import even as again
            async def body(job, octx):
                await even(octx, 5)
                wrap(lambda: 1)
                permute(1, octx, time, "x", job, send)
                await grow(octx, client)
            async def even(c, n):
                await odd(c, n - 1)
                await again(c, n)
            async def odd(c, n):
                await even(c, n - 1) if n else await client.get()  # DUR001
            def wrap(fn):
                time.time()  # DUR002
                return wrap(lambda: fn())
            def permute(a, b, c, d, e, f):
                return permute(b, a, c, d, e, f) or permute(b, c, d, e, f, a)
            async def grow(c, x):
                await grow(c, x.more().more)
            x = lambda: x()
            value = value or [value]
        """,
    },
}


@pytest.mark.parametrize("files", PACKAGES.values(), ids=PACKAGES)
def test_helpers_are_looked_into_wherever_the_package_has_them(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert found(tmp_path) == expected(tmp_path)


def test_a_finding_in_a_helper_names_the_body_that_leads_there(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "app/__init__.py": "",
            "app/flow.py": """
                from durabl_ext import Orchestrator
                from app.clock import read
                @Orchestrator(queue).define("refund")
                async def body(job, octx):
                    read()
            """,
            "app/clock.py": "import time\ndef read():\n    return time.time()",
        },
    )
    flow = tmp_path / "app" / "flow.py"
    (finding,) = check([flow]).findings
    assert str(finding) == (
        f"{tmp_path}/app/clock.py:3:12: DUR002 time.time() differs on resume: take octx.now(), or read the clock in a "
        f'step: octx.step("clock", lambda step: time.time()) (on the control path of "refund", {flow}:4)'
    )


def test_a_helper_that_does_not_parse_cannot_be_looked_into(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "flow.py": "from helper import load\nasync def body(job, octx):\n    await load(octx)",
            "helper.py": "async def load(octx:",
        },
    )
    (finding,) = check([tmp_path / "flow.py"]).findings
    assert (finding.line, finding.code) == (3, "DUR001")


def test_one_place_is_reported_once_however_many_bodies_lead_there(tmp_path: Path) -> None:
    bodies = "".join(f"async def body{n}(job, octx):\n    await helper({n}, octx)\n" for n in range(20))
    write(tmp_path, {"flow.py": f"{bodies}async def helper(n, c):\n    await client.get()\n"})
    assert len(check([tmp_path, tmp_path / "flow.py"]).findings) == 1
