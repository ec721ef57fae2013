"""The names that the rules know: those of orchestration, and calls that a resume answers differently.

All of them are fully qualified, as ``resolve`` gives them: ``datetime.datetime.now``, however it was imported. Nothing
here knows of syntax trees.
"""

from __future__ import annotations

from collections.abc import Iterable

CONTEXT_TYPES = frozenset(("OrchestrationContext", "AsyncOrchestrationContext"))
CONTEXT_NAMES = frozenset(("octx", "_octx"))
"""What a parameter or an attribute is called that holds the context, where nothing is annotated."""

DEFINES = frozenset(("Orchestrator().define", "AsyncOrchestrator().define"))
BODY_TAKERS = frozenset(("OrchestrationHarness", "OrchestrationHarness().resume_with", "assert_crash_safe"))
"""Calls whose first argument is an orchestration body, by the end of their name."""

WORDS = ("define", "octx", "OrchestrationContext", "OrchestrationHarness", "resume_with", "assert_crash_safe")
"""A file with none of them has no body. Most files have none, and to follow all their imports takes seconds."""

PACKAGE = "durabl_ext"

Remedies = dict[str, tuple[str, str]]


def _each(code: str, remedy: str, module: str, names: str) -> Remedies:
    return {f"{module}.{name}": (code, remedy) for name in names.split()}


_STEP = 'octx.step("name", lambda step: {name}(...))'
_CLOCK = 'differs on resume: take octx.now(), or read the clock in a step: octx.step("clock", lambda step: {name}())'
_RANDOM = f'differs on resume: draw from random.Random(octx.uuid("draw")), or in a step: {_STEP}'
_SECRET = "differs on resume: make it in the step that uses it"
_UUID = 'differs on resume: take octx.uuid("label"), or make it in a step: octx.step("id", lambda step: str({name}()))'
_HASH = "of a text differs in another process: take zlib.crc32() of its bytes"
_BLOCKS = f"is done again by a resume: put it into a step: {_STEP}"
_STARTS = "starts what no journal knows of: octx.step() starts its work at once, chains of steps go to octx.all(...)"

TIMEOUT = 'lets a timeout decide, which may fall otherwise on resume: octx.step("name", fn, timeout=...)'
RACE = "lets a race decide, which may end otherwise on resume: await all of it with asyncio.gather or octx.all(...)"
AWAITED = f"which a resume does again: put it into a step: {_STEP}"
WHOLE = "which a resume does again: do so in a step that returns what the body needs of it"
NO_STEP = 'which octx.step() did not start and a resume does again: put it into a step: octx.step("name", ...)'
NOT_FOUND = "which is not found in this package, so that what it awaits is not checked: move it into the package"
OWN_TASK = "which becomes a task of its own there, where no step may start: give chains of steps to octx.all(...)"
SET_ORDER = "is a set, whose order differs in another process: iterate over sorted(...)"

CALLS: Remedies = {
    **_each("DUR001", _BLOCKS, "time", "sleep"),
    **_each("DUR001", _BLOCKS, "requests", "get post put patch delete head options request"),
    **_each("DUR001", _BLOCKS, "httpx", "get post put patch delete head options request stream"),
    **_each("DUR001", _BLOCKS, "urllib.request", "urlopen urlretrieve"),
    **_each("DUR001", _BLOCKS, "subprocess", "run call check_call check_output Popen"),
    **_each("DUR001", _BLOCKS, "os", "system"),
    **_each("DUR001", _STARTS, "asyncio", "create_task ensure_future run_coroutine_threadsafe run TaskGroup"),
    **_each("DUR002", _CLOCK, "time", "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns"),
    **_each("DUR002", _CLOCK, "time", "process_time process_time_ns thread_time thread_time_ns"),
    **_each("DUR002", _CLOCK, "time", "clock_gettime clock_gettime_ns"),
    **_each("DUR002", _CLOCK, "datetime.datetime", "now utcnow today"),
    **_each("DUR002", _CLOCK, "datetime.date", "today"),
    **_each("DUR002", _CLOCK, "asyncio", "get_running_loop().time get_event_loop().time"),
    **_each("DUR002", _RANDOM, "random", "random uniform triangular randint randrange choice choices sample shuffle"),
    **_each("DUR002", _RANDOM, "random", "betavariate binomialvariate expovariate gammavariate gauss lognormvariate"),
    **_each("DUR002", _RANDOM, "random", "normalvariate vonmisesvariate paretovariate weibullvariate getrandbits"),
    **_each("DUR002", _RANDOM, "random", "randbytes seed SystemRandom"),
    **_each("DUR002", _SECRET, "secrets", "choice randbelow randbits token_bytes token_hex token_urlsafe SystemRandom"),
    **_each("DUR002", _SECRET, "os", "urandom getrandom"),
    **_each("DUR002", _UUID, "uuid", "uuid1 uuid4 uuid6 uuid7 uuid8 getnode"),
    **_each("DUR002", _UUID, "uuid6", "uuid1 uuid4 uuid6 uuid7 uuid8"),
    **_each("DUR002", _HASH, "builtins", "hash"),
    **_each("DUR003", RACE, "asyncio", "as_completed"),
    **_each("DUR003", RACE, "concurrent.futures", "as_completed"),
    **_each("DUR003", TIMEOUT, "asyncio", "wait_for timeout timeout_at"),
}
"""A code and a remedy for each call that is never right on a control path."""

WITHOUT_ARGUMENTS: Remedies = {
    **_each("DUR002", _CLOCK, "time", "localtime gmtime ctime asctime strftime"),
    **_each("DUR002", _RANDOM, "random", "Random"),
    **_each("DUR002", _UUID, "bson", "ObjectId objectid.ObjectId"),
}
"""Those that take the time, or chance, where they are not given it: the last argument that they have."""

ENOUGH = {"time.strftime": 2}
"""How many arguments such a call needs to have been given it, where that is not one."""

WAITS = frozenset(("asyncio.wait", "concurrent.futures.wait"))
RACES = frozenset(("FIRST_COMPLETED", "FIRST_EXCEPTION"))

GATHERS = frozenset(("asyncio.gather", "asyncio.wait"))
"""Calls that wait for all they are given, and give it the tasks to do so."""

_HOLDERS = "list tuple set frozenset dict enumerate zip reversed sorted iter next aiter anext filter sum"
PASSED_THROUGH = frozenset(
    (
        *(f"builtins.{name}" for name in _HOLDERS.split()),
        *(
            "itertools.chain",
            "itertools.chain.from_iterable",
            "itertools.zip_longest",
            "collections.deque",
            "typing.cast",
        ),
    )
)
"""Calls whose result holds what they were given."""

SETS = frozenset(("builtins.set", "builtins.frozenset"))
ORDERED = frozenset(("builtins.sorted", "builtins.dict", "builtins.set", "builtins.frozenset"))
CALLERS = frozenset(f"builtins.{name}" for name in ["map", "filter", "sorted", "min", "max"]) | {"functools.reduce"}
"""Calls that call the functions they are given, here and now."""


def ends_with(name: str, ends: Iterable[str]) -> bool:
    """Whether a qualified name is one of these, in whatever module."""
    return any(name == end or name.endswith(f".{end}") for end in ends)
