"""Which functions are taken for orchestration bodies, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.marked import expected, found, write

TAKEN = {
    "a decorator": """
        from durabl_ext import Orchestrator
        orch = Orchestrator(queue)
        @orch.define("act", concurrency=2)
        async def body(job, c):
            await client.get()  # DUR001
    """,
    "an argument, positional or named": """
        from durabl_ext import Orchestrator as O
        async def one(job, c): await client.get()  # DUR001
        async def two(job, c): await client.get()  # DUR001
        async def three(job, c): await client.get()  # DUR001
        orch = O(queue)
        orch.define("one", one, concurrency=2)
        orch.define("two", body=two)
        orch.define("three")(three)
        orch.define(NAME, lambda job, c: c.step("x", send, time.sleep(1)))  # DUR001
        import time
    """,
    "an orchestrator that is annotated, or made in place": """
        import durabl_ext
        async def one(job, c): await client.get()  # DUR001
        async def two(job, c): await client.get()  # DUR001
        async def three(job, c): await client.get()  # DUR001
        async def four(job, c): await client.get()  # DUR001
        async def five(job, c): await client.get()  # DUR001
        def setup(orch: durabl_ext.Orchestrator, other: "Orchestrator | None", x: Optional[Orchestrator]):
            orch.define("one", one)
            other.define("two", two)
            x.define("x", five)
        (orch := durabl_ext.Orchestrator(queue)).define("three", three)
        orch.define("four", four)
        @durabl_ext.AsyncOrchestrator(queue).define("six")
        async def six(job, c): await client.get()  # DUR001
    """,
    "an orchestrator in an attribute, methods as bodies": """
        from durabl_ext import Orchestrator
        class Flows:
            orch: Orchestrator
            def __init__(self, queue):
                self.other = Orchestrator(queue)
                self.other.define("one", self.one)
                self.orch.define("two", self.two)
                self.orch.define("three", partial(self.three, 1))
            async def one(self, job, c):
                await self.helper(c)
            async def two(self, job, c):
                await client.get()  # DUR001
            async def three(self, number, job, c):
                await client.get()  # DUR001
            async def helper(self, c):
                await c.step("x", send)
                await self.client.get()  # DUR001
            async def unused(self):
                await self.client.get()
        from functools import partial
    """,
    "an unknown orchestrator, where the file imports the extension": """
        from durabl_ext import NonRetryable
        from elsewhere import flows
        @flows.define("act")
        async def body(job, c):
            await client.get()  # DUR001
    """,
    "the name of the second parameter": """
        async def body(job, octx):
            await client.get()  # DUR001
        class Flow:
            async def run(self, job, octx):
                await self.more()
            async def more(self):
                await client.get()  # DUR001
            @staticmethod
            async def other(job, octx):
                await client.get()  # DUR001
            @classmethod
            def third(cls, job, octx):
                cls.fourth()
            @staticmethod
            def fourth():
                time.sleep(1)  # DUR001
        import time
    """,
    "the annotation of the second parameter": """
        async def one(job, c: AsyncOrchestrationContext):
            await client.get()  # DUR001
        async def two(job, c: "durabl_ext.OrchestrationContext[int]"):
            await client.get()  # DUR001
        async def three(job, c: Ctx | None):
            await client.get()  # DUR001
        from durabl_ext import OrchestrationContext as Ctx
    """,
    "bodies given to the test harness": """
        from durabl_ext.testing import OrchestrationHarness as Harness, assert_crash_safe
        import durabl_ext.testing as t
        async def one(job, c): await client.get()  # DUR001
        async def two(job, c): await client.get()  # DUR001
        async def three(job, c): await client.get()  # DUR001
        def test_of_them():
            harness = Harness(one, data=None)
            harness.resume_with(two)
            assert_crash_safe(three)
            t.OrchestrationHarness(lambda job, c: requests.get("x"))  # DUR001
        import requests
    """,
    "a body made by a function, a decorated one and an object": """
        import time
        from durabl_ext import Orchestrator
        orch = Orchestrator(queue)
        def make(client):
            async def body(job, c):
                await client.get()  # DUR001
            return body
        def timed(fn):
            async def wrapper(*args, **kwargs):
                began = time.time()  # DUR002
                return await fn(*args, **kwargs)
            return wrapper
        def logged(fn):
            async def wrapper(job, octx):
                octx.log("begin")
                return await fn(job, octx)
            return wrapper
        @orch.define("two")
        @timed
        @logged
        async def two(job, c):
            await c.step("x", send)
            await client.get()  # DUR001
        class Flow:
            async def __call__(self, job, c):
                await client.get()  # DUR001
        orch.define("one", make(client))
        orch.define("three", Flow())
    """,
    "a helper that gives the orchestrator": """
        from durabl_ext import Orchestrator
        def orchestrator():
            return Orchestrator(queue)
        orch = orchestrator()
        async def body(job, c): await client.get()  # DUR001
        orch.define("x", body)
        define = orch.define
        @define("y")
        async def other(job, c): await client.get()  # DUR001
    """,
}

NOT_TAKEN = {
    "another define, in a file that knows nothing of the extension": """
        @words.define("word")
        async def meaning(word, language):
            await client.get()
        parser.define("x", meaning)
    """,
    "a define of the package's own": """
        import durabl_ext
        class Words:
            def define(self, word, fn): ...
        words = Words()
        @words.define("word")
        async def meaning(word, language):
            await client.get()
    """,
    "a define of something unknown, for other functions than bodies": """
        import durabl_ext
        @words.define("one")
        async def one(word):
            await client.get()
        @words.define("three")
        async def three(word, language, more):
            await client.get()
        @words.define()
        async def none(word, language):
            await client.get()
        words.define("x", 5)
    """,
    "job handlers, fixtures and callables that are annotated with the context": """
        import durabl_ext
        @queue.process("act")
        async def handler(job, ctx):
            await client.get()
        async def test_of_a_step(queue, octx):
            await client.get()
        async def call(job, branch: Callable[[OrchestrationContext], None]):
            await client.get()
        async def first(octx, url):
            await client.get()
        async def stored(url, *, octx=None):
            await client.get()
    """,
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in (TAKEN | NOT_TAKEN).items()])
def test_bodies_are_told_from_other_functions(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"flow.py": text})
    assert found(tmp_path) == expected(tmp_path)


def test_an_orchestrator_and_a_body_of_other_files_are_known(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "app/__init__.py": "from .queue import orch",
            "app/queue.py": "from durabl_ext import Orchestrator\norch = Orchestrator(queue)",
            "app/bodies.py": "async def body(job, c):\n    await client.get()  # DUR001\n",
            "app/main.py": """
                from app import bodies, orch
                from app.bodies import body
                orch.define("a", body)
                @orch.define("b")
                async def other(job, c):
                    await client.get()  # DUR001
            """,
        },
    )
    assert found(tmp_path) == expected(tmp_path)
