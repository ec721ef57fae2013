"""What each rule finds: the lines that say so in a comment, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.marked import HEAD, expected, found, in_body, write

AWAITS = {
    "a client": """
        user = await client.get(job.data["user"])  # DUR001
        user = await octx.step("user", client.get)
        await (await pool.acquire()).fetch("x")  # DUR001 DUR001
        return [await octx.step("x", send), await client.get()]  # DUR001
    """,
    "sleep": """
        await asyncio.sleep(1)  # DUR001
        time.sleep(1)  # DUR001
        from time import sleep as pause
        pause(2)  # DUR001
    """,
    "async with and async for": """
        async with client.session() as session:  # DUR001
            octx.log("in")
        async with octx.span(), lock:  # DUR001
            octx.log("in")
        async for row in cursor:  # DUR001
            octx.log(row)
        rows = [row async for row in cursor]  # DUR001
        found = {row for name in rows async for row in cursor.of(name)}  # DUR001
    """,
    "gather of something else": """
        await asyncio.gather(
            octx.step("a", send),
            client.get("b"),  # DUR001
            *[client.get(each) for each in job.data],  # DUR001
        )
        await asyncio.gather(*[octx.step("a", send), client.get("b")])  # DUR001
        tasks = [octx.step("a", send)]
        tasks.append(client.get("x"))
        await asyncio.gather(*tasks)  # DUR001
        more = {"a": octx.step("a", send)}
        more["b"] = client.get("x")
        await asyncio.wait(more.values())  # DUR001
    """,
    "a chain of steps in a task of its own": """
        async def chain(name):
            await octx.step(name, send)
            await octx.step(f"{name}-again", send)

        await asyncio.gather(chain("a"), chain("b"))  # DUR001 DUR001
        await asyncio.gather(*map(chain, ["a", "b"]))  # DUR001
        task = asyncio.create_task(chain("c"))  # DUR001
        await task
        async with asyncio.TaskGroup() as group:  # DUR001
            group.create_task(chain("d"))
    """,
    "a name that is no step": """
        request = client.get("x")
        await request  # DUR001
        task = None
        task = client.get("x") if job.data else octx.step("a", send)
        await task  # DUR001
        for request in [client.get("x")]:
            await request  # DUR001
        await job.load()  # DUR001
        async for part in job.parts:  # DUR001
            await part  # DUR001
    """,
    "blocking calls": """
        requests.get("x")  # DUR001
        with urllib.request.urlopen("x") as answer:  # DUR001
            pass
        subprocess.run(["true"], check=True)  # DUR001
        await octx.step("get", requests.get, "x")
    """,
    "nested functions, lambdas and branches": """
        async def inner():
            await client.get("x")  # DUR001

        async def unused():
            await client.get("x")

        async def branch(b):
            await b.step("x", unused)
            await client.get("y")  # DUR001

        def decorator(fn):
            time.sleep(1)  # DUR001
            return fn

        @decorator
        def decorated(default=requests.get("x")):  # DUR001
            requests.get("y")

        await inner()
        await octx.all(branch, lambda b: ship(b, requests.get("x")))  # DUR001
        fn = lambda: requests.get("z")  # DUR001
        fn()
        (lambda: time.sleep(1))()  # DUR001
        sorted(job.data, key=lambda each: requests.get(each))  # DUR001
        list(map(inner2, job.data))
    """,
    "conditions, matches and walruses": """
        if (user := await client.get("x")) and job.data:  # DUR001
            pass
        while await client.more():  # DUR001
            pass
        match await client.kind():  # DUR001
            case str() as kind if await client.allows(kind):  # DUR001
                pass
        try:
            assert await client.ok(), await client.reason()  # DUR001 DUR001
        except await client.errors() as error:  # DUR001
            raise await client.error() from error  # DUR001
        finally:
            del user[await client.key()]  # DUR001
        x = f"{await client.name():>{await client.width()}}"  # DUR001 DUR001
        [(y := await client.get(n)) for n in range(3) if await client.ok(n)]  # DUR001 DUR001
        return await client.end() if job.data else await client.other()  # DUR001 DUR001
    """,
    "a function that is a step and is called too": """
        async def fetch(step=None):
            return await client.get("x")  # DUR001

        await octx.step("fetch", fetch)
        await fetch()
    """,
}

DIFFERS = {
    "the clock": """
        import time as t
        from datetime import datetime as dt, date
        a = t.time(), t.monotonic(), t.perf_counter_ns()  # DUR002 DUR002 DUR002
        b = dt.now(), datetime.datetime.utcnow(), date.today()  # DUR002 DUR002 DUR002
        c = datetime.datetime.now(tz=datetime.UTC).isoformat()  # DUR002
        d = asyncio.get_running_loop().time()  # DUR002
        loop = asyncio.get_event_loop()
        deadline = loop.time() + 5  # DUR002
        e = t.localtime(), t.localtime(5)  # DUR002
        clock = t.time
        await octx.step("a", send, clock())  # DUR002
        for _ in range(int(t.time())):  # DUR002
            pass
        t.strftime("%H"), t.strftime("%H", t.gmtime(1))  # DUR002
    """,
    "chance": """
        from random import choice as pick, Random, SystemRandom
        a = random.random(), pick([1, 2]), random.shuffle(x)  # DUR002 DUR002 DUR002
        rng = Random()  # DUR002
        seeded = Random(octx.uuid("seed"))
        b = rng.random() + seeded.random()
        c = secrets.token_hex(), os.urandom(8), SystemRandom().random()  # DUR002 DUR002 DUR002
        if random.random() < 0.5:  # DUR002
            await octx.step("a", send)
    """,
    "ids": """
        from uuid import uuid4
        from uuid6 import uuid7
        from bson import ObjectId
        import bson.objectid
        a = uuid4(), str(uuid7()), uuid.uuid1().hex, uuid.uuid5(NS, "x")  # DUR002 DUR002 DUR002
        b = ObjectId(), ObjectId("0" * 24), bson.objectid.ObjectId()  # DUR002 DUR002
        await octx.step("a", send, idempotency_key=f"{uuid4()}")  # DUR002
        shard = hash(job.data["user"]) % 4  # DUR002
    """,
    "arguments of a step": """
        await octx.step("a", send, time.time())  # DUR002
        await octx.step("b", functools.partial(send, time.time()))  # DUR002
        await octx.step("c", lambda step, at=time.time(): send(at))  # DUR002
        await octx.step(f"d-{time.time()}", lambda step: time.time())  # DUR002
        await octx.all(functools.partial(branch, at=time.time()))  # DUR002
    """,
    "the order of a set": """
        for name in {"a", "b"}:  # DUR002
            await octx.step(name, send)
        for name in set(job.data):  # DUR002
            await octx.step(name, send)
        names = {each for each in job.data}
        await asyncio.gather(*[octx.step(name, send) for name in names])  # DUR002
        for place, name in enumerate(list(names - {"c"})):  # DUR002
            await octx.step(name, send)
        done, _ = await asyncio.wait([octx.step("a", send)])
        for task in done:  # DUR002
            await octx.step("x", send, task.result())
        for name in sorted(names):
            await octx.step(name, send)
        for name in {1, 2}:
            await octx.step(str(name), send)
        for name in names:
            print(name)
        later = {each for each in job.data}
        later = sorted(later)
        for name in later:
            await octx.step(name, send)
    """,
    "shadowed names are not the module's": """
        time = octx.now()
        time.time()
        hash = lambda value: 1
        hash("x")
        def random(): return 1
        random()
        def inner(uuid, datetime):
            return uuid.uuid4(), datetime.now()
        inner(job, job)
    """,
}

RACES = {
    "as_completed": """
        tasks = [octx.step("a", send), octx.step("b", send)]
        for task in asyncio.as_completed(tasks):  # DUR003
            await task
        async for task in asyncio.as_completed(tasks):  # DUR003
            await task
        for future in concurrent.futures.as_completed(futures):  # DUR003
            future.result()
    """,
    "wait": """
        tasks = [octx.step("a", send), octx.step("b", send)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)  # DUR003
        from asyncio import FIRST_EXCEPTION as first
        await asyncio.wait(tasks, return_when=first)  # DUR003
        await asyncio.wait(tasks, return_when="FIRST_COMPLETED")  # DUR003
        await asyncio.wait(tasks, timeout=5)  # DUR003
        await asyncio.wait(tasks, timeout=None, return_when=asyncio.ALL_COMPLETED)
        done = concurrent.futures.wait(fs, None, concurrent.futures.FIRST_COMPLETED)  # DUR003
    """,
    "timeouts": """
        await asyncio.wait_for(octx.step("a", send), 5)  # DUR003
        async with asyncio.timeout(5):  # DUR003
            await octx.step("a", send)
        task = asyncio.wait_for(octx.step("b", send), timeout=1)  # DUR003
        await task
        await octx.step("c", send, timeout=5)
        await octx.step("d", lambda step: asyncio.wait_for(client.get(), 5))
    """,
}

IMPORTS = "import asyncio, concurrent.futures, datetime, functools, os, random, requests, secrets, subprocess, time\n"
IMPORTS += "import urllib.request, uuid\n" + HEAD + "def inner2(each):\n    requests.get(each)  # DUR001\n"


@pytest.mark.parametrize("lines", [pytest.param(text, id=name) for name, text in (AWAITS | DIFFERS | RACES).items()])
def test_a_rule_finds_the_marked_lines_of_an_async_body_and_no_others(tmp_path: Path, lines: str) -> None:
    text = IMPORTS if "inner2" in lines else IMPORTS.partition("def inner2")[0]
    write(tmp_path, {"flow.py": text + in_body(lines)})
    assert found(tmp_path) == expected(tmp_path)


SYNC = """
    import concurrent.futures
    user = requests.get("x").json()  # DUR001
    time.sleep(1)  # DUR001
    octx.step("a", send, time.time())  # DUR002
    def branch(b):
        b.step("x", send, uuid.uuid4())  # DUR002
    octx.all(branch, lambda b: b.step("y", send, random.random()))  # DUR002
    for future in concurrent.futures.as_completed([octx.step("a", send)]):  # DUR003
        pass
    octx.step("b", lambda step: time.sleep(1))
"""


def test_the_rules_hold_for_a_sync_body_too(tmp_path: Path) -> None:
    write(tmp_path, {"flow.py": IMPORTS.partition("def inner2")[0] + in_body(SYNC, "def")})
    assert found(tmp_path) == expected(tmp_path)
