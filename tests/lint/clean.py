"""Orchestrations as they should be written, in which nothing is to be found."""

from __future__ import annotations

ASYNC = {
    "sequential steps": """
        customer = await octx.step("customer", ensure_customer, job.data["user"], idempotency_key="k")
        charge = await octx.step("charge", stripe.charge, customer["id"], timeout=10)
        return {"charge": charge["id"], "customer": customer}
    """,
    "a loop with conditions": """
        total = 0
        for place, item in enumerate(job.data["items"]):
            if item["kind"] == "gift":
                continue
            total += await octx.step(f"price-{place}", price, item)
        while total > 100:
            total -= await octx.step("discount", discount, total)
        else:
            octx.log(f"total {total!r:>10}")
    """,
    "gather over a comprehension": """
        results = await asyncio.gather(*[octx.step(f"send-{n}", send, n) for n in job.data["users"]])
        more = await asyncio.gather(*(octx.step("send", send, n) for n in results), return_exceptions=True)
        one, two = await asyncio.gather(octx.step("a", send), octx.step("b", send))
    """,
    "tasks in a list": """
        tasks = []
        for user in job.data["users"]:
            tasks.append(octx.step(f"send-{user}", send, user))
        tasks += [octx.step("last", send)]
        tasks.extend(octx.step("x", send) for _ in range(3))
        await asyncio.gather(*tasks)
        for task in tasks:
            print(await task)
        done, _ = await asyncio.wait(tasks)
        await asyncio.wait(tasks, return_when=asyncio.ALL_COMPLETED, timeout=None)
        first = await tasks[0]
        last = await tasks.pop()
        return [task.result() for task in tasks], [await task for task in tasks]
    """,
    "tasks in a dict": """
        tasks = {user: octx.step(f"send-{user}", send, user) for user in job.data["users"]}
        tasks["extra"] = octx.step("extra", send)
        await asyncio.gather(*tasks.values())
        sent = {}
        for user, task in tasks.items():
            sent[user] = await task
        for user, task in zip(job.data["users"], tasks.values()):
            sent[user] = await task
        more = dict(zip(sent, [octx.step("again", send, user) for user in sent]))
        return {user: await task for user, task in more.items()}
    """,
    "tasks by name": """
        charge = octx.step("charge", send)
        mail, push = octx.step("mail", send), octx.step("push", send)
        if (late := octx.step("late", send)) is not None:
            await late
        other = None
        if job.data.get("other"):
            other = octx.step("other", send)
        if other is not None:
            other = await other
        charge = await charge
        await mail
        results = await asyncio.gather(mail, push, *([octx.step("opt", send)] if charge else []))
        last = octx.step("x", send) if charge else octx.step("y", send)
        return await last, results[0]["id"]
    """,
    "a name used again": """
        for t in job.data["names"]:
            octx.log(t)
        for t in [octx.step("a", send), octx.step("b", send)]:
            await t
        result = compute(job.data)
        result = octx.step("c", send, result)
        return await result
    """,
    "branches": """
        async def ship(branch):
            label = await branch.step("label", make_label, job.data["order"])
            await branch.step("print", print_label, label)
            return label

        async def mail(b, template, *, subject="Hi"):
            await b.step("mail", send_mail, template, subject)

        shipped, mailed, _ = await octx.all(
            ship, functools.partial(mail, template="t"), lambda b: mail(b, "u", subject=""), lambda b: b.step("n", send)
        )
        await octx.all(*[functools.partial(one, user) for user in job.data["users"]])
        branches = [ship]
        branches.append(lambda b: ship(b))
        await octx.all(*branches)
        for user in job.data["users"]:
            await octx.all(lambda b, user=user: mail(b, user))
    """,
    "nested branches": """
        async def outer(b):
            async def inner(c):
                return await c.step("x", send)
            await b.all(inner, inner)
            await asyncio.gather(b.step("y", send), b.step("z", send))

        await octx.all(outer, outer)
    """,
    "containers that are filled bit by bit": """
        names = job.data["names"]
        tasks = [None] * len(names)
        for place, name in enumerate(names):
            tasks[place] = octx.step(name, send)
        await asyncio.gather(*tasks)
        by_kind = collections.defaultdict(list)
        for name in names:
            by_kind[name[0]].append(octx.step(name, send))
        for kind, started in by_kind.items():
            await asyncio.gather(*started)
        queue = collections.deque(octx.step(name, send) for name in names)
        while queue:
            await queue.popleft()
        groups = [[octx.step(name, send) for name in pair] for pair in names]
        for group in groups:
            await asyncio.gather(*filter(None, group))
    """,
    "steps by way of partial, map and an object": """
        start = functools.partial(octx.step, "name")
        await start(send)
        await asyncio.gather(*map(functools.partial(octx.step, "name"), job.data["functions"]))
        await asyncio.gather(*map(octx.step, job.data["names"], job.data["functions"]))
        kept = Kept(octx)
        await kept.context.step("x", send)
    """,
    "errors": """
        try:
            await octx.step("charge", send)
        except NonRetryable as error:
            await octx.step("refund", send, str(error))
            raise
        except (OSError, ExceptionGroup):
            octx.log("down")
        finally:
            octx.log("over")
        try:
            await asyncio.gather(octx.step("a", send), octx.step("b", send))
        except* OSError:
            await octx.step("again", send)
    """,
    "the context's own": """
        started: datetime = await octx.step("started", send)
        now = octx.now()
        later = now + timedelta(days=octx.now().day)
        key = octx.uuid("key")
        octx.log(f"{key} at {now:%H:%M}")
        await octx.heartbeat()
        if octx.signal.is_set():
            octx.signal.raise_if_set()
        step = octx.step
        await step("a", send)
        context = octx
        await context.step("b", send)
        await octx.step("tx", send, transactional=True)
    """,
    "pure calls": """
        day = datetime(2020, 1, 1, tzinfo=UTC)
        parsed = datetime.fromisoformat(job.data["at"]).date() + timedelta(days=1)
        stamp = datetime.fromtimestamp(job.data["stamp"], UTC).isoformat()
        same = uuid.UUID(job.data["id"]), uuid.uuid5(uuid.NAMESPACE_URL, "x"), bson.ObjectId(job.data["oid"])
        shown = time.strftime("%H", time.gmtime(0)), time.gmtime(5), time.asctime(time.gmtime(0))
        rng = random.Random(octx.uuid("seed"))
        picked = rng.choice(job.data["names"]), rng.random(), rng.sample([1, 2], 1)
        text = json.dumps({"a": [1]}, sort_keys=True)
        logger.info("at %s", text)
        order = Order(id=octx.uuid("order"), lines=[Line(1), Line(2)])
        total = sum(line.price for line in order.lines) * RATE
        digest = hashlib.sha256(text.encode()).hexdigest()
        equal = secrets.compare_digest(text, digest)
        names = sorted({"b", "a"}, key=lambda name: name.lower())
        for name in names:
            await octx.step(name, send)
        for name in sorted(set(job.data["names"])):
            await octx.step(name, send)
        if "a" in {"a", "b"} and len(set(job.data["names"])) == 2:
            unique = set(job.data["names"])
            longest = max(len(name) for name in unique)
        return [helper(each) for each in names], total_of(order), longest
    """,
    "step functions": """
        def local(step):
            time.sleep(1)
            return time.time(), random.random()

        async def fetch(step, url):
            async with client.stream(url) as response:
                await asyncio.sleep(1)
                return [part async for part in response]

        await octx.step("a", local)
        await octx.step("b", lambda step: time.time())
        await octx.step("c", time.time)
        await octx.step("d", functools.partial(fetch, url="x"))
        await octx.step("e", fn=lambda step: uuid.uuid4())
        await octx.step("f", lambda step, url: asyncio.wait_for(client.get(url), 1), "x")
        await octx.step("g", module_step)
        await attempt(octx, "h", lambda step: datetime.now())
        fn = lambda step: time.monotonic()
        await octx.step("i", fn)
        await octx.step("j", {"x": lambda step: time.time()}["x"])
    """,
    "helpers": """
        order = await load(octx, job.data["id"])
        await load(id=order["id"], context=octx)
        await started(octx, order)
        await asyncio.gather(*[started(octx, each) for each in order["lines"]])
        await asyncio.gather(*map(lambda each: started(octx, each), order["lines"]))
        tasks = await start_all(octx, order)
        await asyncio.gather(*tasks)
        await wait_for_all(tasks)
        await wait_for_each(*tasks)
        await {"a": load, "b": load}["a"](octx, 1)
        for chain in (load, load):
            await chain(octx, 1)
        async for each in pages(octx):
            await octx.step("page", send, each)
        async with charged(octx) as charge:
            await octx.step("use", send, charge)
        await Flow(octx).run(order)
        flow = Flow(octx)
        await flow(order)
        coroutine = load(octx, 1)
        await coroutine
    """,
    "odd syntax": """
        match job.data:
            case {"kind": "a", **rest} if rest:
                await octx.step("a", send, rest)
            case [first, *others] | (first, others):
                await octx.step("b", send, first, others)
            case _:
                pass
        class Local:
            attribute = 1
            def method(self):
                return time.time()
        (await octx.step("x", send))["a"][0].b = [*(await octx.step("y", send)), {**(await octx.step("z", send))}]
        del first
        assert await octx.step("check", send), "no"
        print((await octx.step("p", send)), end="")
        lambda: time.time()
        return (yield_ := 1)
    """,
}
"""The lines of async bodies."""

SYNC = {
    "sequential steps": """
        customer = octx.step("customer", ensure_customer, job.data["user"])
        with contextlib.suppress(ValueError):
            octx.step("charge", lambda step: stripe.charge(customer, key=step.idempotency_key))
        octx.step("tx", write, transactional=True)
        return {"at": octx.now().isoformat(), "id": octx.uuid("id")}
    """,
    "branches": """
        def ship(b):
            return b.step("label", make_label)

        labels = octx.all(ship, lambda b: b.step("x", send))
        for label in labels:
            octx.log(label)
    """,
    "an executor inside of a step": """
        def fetch_all(step):
            with ThreadPoolExecutor() as pool:
                return [f.result() for f in concurrent.futures.as_completed([pool.submit(get, u) for u in urls])]

        octx.step("fetch", fetch_all)
    """,
}
"""The lines of sync bodies."""

MODULE = """
import asyncio, bson, collections, concurrent.futures, contextlib, functools, hashlib, json, logging
import random, secrets, time, uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from durabl_ext import NonRetryable, OrchestrationContext, Orchestrator

RATE = 1.5
STARTED = time.time()
RUN = uuid.uuid4()
logger = logging.getLogger(__name__)
orch = Orchestrator(queue)


@dataclass(frozen=True)
class Line:
    price: int


@dataclass
class Order:
    id: str
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self):
        self.lines = list(self.lines)


class Flow:
    def __init__(self, context):
        self._octx = context
        self.clock = time.time

    async def run(self, order):
        await self._octx.step("a", self.work, order)
        return await self.more(order)

    async def more(self, order):
        return await self._octx.step("b", self.work, order)

    async def __call__(self, order):
        return await self.run(order)

    async def work(self, step, order):
        await client.get(self.clock())


class Kept:
    def __init__(self, context):
        self.context = context


def module_step(step):
    return time.time(), requests.get("x")


def helper(each):
    return each.upper()


def total_of(order: Order) -> int:
    return sum(line.price for line in order.lines)


async def one(user, octx):
    await octx.step("one", send, user)


async def load(context, id):
    return await context.step("load", send, id)


def started(context, each):
    return context.step("started", send, each)


async def start_all(c: OrchestrationContext, order):
    return [c.step("x", send, line) for line in order["lines"]]


async def wait_for_all(tasks):
    return await asyncio.gather(*tasks)


async def wait_for_each(*tasks):
    for task in tasks:
        await task


async def attempt(octx, name, fn):
    try:
        return await octx.step(name, fn)
    except OSError:
        return await octx.step(name + "-again", fn)


async def pages(context) -> AsyncIterator[int]:
    page = await context.step("page", send)
    while page:
        yield page
        page = await context.step("page", send)


@contextlib.asynccontextmanager
async def charged(context):
    charge = await context.step("charge", send)
    try:
        yield charge
    finally:
        await context.step("release", send)


def test_of_a_step(queue, octx):
    time.sleep(time.time())


"""
"""What the bodies use."""
