"""Steps that fail: the attempt fails and runs them again, unless the body has gone on; then the failure is history."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

from durabl_ext import NonRetryable, StepFailed, StepTimeout
from tests.orchestrator.conftest import Bench, Crash
from tests.orchestrator.test_branches import giving, raising


class Refused(Exception):  # noqa: N818  # an application's own name
    """Has state beside its arguments."""

    def __init__(self, code: int, *, reason: str = "none") -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"


class Odd(Exception):  # noqa: N818
    """Its constructor takes something else than its arguments."""

    def __init__(self, *, needed: str, other: int) -> None:
        super().__init__(f"{needed} {other}")
        self.needed = needed


class Holding(Exception):  # noqa: N818
    """Holds what cannot be stored."""

    def __init__(self, thing: object) -> None:
        super().__init__(thing)


class Picky(Exception):  # noqa: N818
    """Cannot be made from its arguments at all."""

    def __new__(cls, *, key: str) -> Any:
        return super().__new__(cls, key)

    def __init__(self, *, key: str) -> None:
        super().__init__(key)


class Untold(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ValueError("no text")


def raised_in_two_runs(bench: Bench, error: Exception) -> list[Exception]:
    """What a body catches in its first run and, behind another step, in the second."""
    seen: list[Exception] = []

    async def body(job: Any, octx: Any) -> None:
        try:
            await octx.step("fails", bench.does("fails", act=raising(error)))
        except Exception as caught:
            seen.append(caught)
        await octx.step("later", bench.does("later"))
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    assert (job.status, job.error, bench.ran) == ("completed", None, ["fails", "later"])
    return seen


def test_a_failure_that_ends_the_attempt_is_not_kept_and_the_step_runs_again(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        await octx.step("first", bench.does("first"))
        await octx.step("fails", bench.does("fails", act=act))

    def act(step: Any) -> None:
        if bench.ran.count("fails") < 3:
            raise ConnectionError

    job = bench.done(body)
    assert (job.status, job.attempt) == ("completed", 3)
    assert bench.ran == ["first", "fails", "fails", "fails"]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("no answer", 7),
        OSError(13, "denied", "/x"),
        KeyError("k"),
        Refused(7, reason="late"),
        ImportError("no module", name="x", path="/y"),
        TimeoutError(),
        Odd(needed="a", other=1),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        StepTimeout("id", "name", 1.5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_after_which_the_body_went_on_is_raised_again_as_it_was(bench: Bench, error: Exception) -> None:
    first, second = raised_in_two_runs(bench, error)
    assert first is error
    assert type(second) is type(error)
    assert (second.args, vars(second), str(second)) == (error.args, vars(error), str(error))


@pytest.mark.parametrize("error", [Holding(object()), Holding("x" * 100_000), Picky(key="a"), Untold()], ids=repr)
def test_a_failure_that_cannot_be_made_again_is_raised_as_one_that_says_what_it_was(
    def_bench: Bench, error: Exception
) -> None:
    first, second = raised_in_two_runs(def_bench, error)
    assert first is error
    if isinstance(error, Untold):
        assert type(second) is Untold
        return
    assert isinstance(second, StepFailed)
    assert (second.step, second.error_name) == ("fails", type(error).__name__)
    assert len(second.message) < 20_000


def test_a_failure_of_a_class_that_is_not_there_any_more_is_raised_as_one_that_says_what_it_was(
    bench: Bench,
) -> None:
    module = ModuleType("an_old_module")
    sys.modules["an_old_module"] = module
    kind = type("Gone", (Exception,), {"__module__": "an_old_module", "__qualname__": "Gone"})
    seen: list[Exception] = []

    async def body(job: Any, octx: Any) -> None:
        try:
            await octx.step("fails", bench.does("fails", act=raising(kind("text", 7))))
        except Exception as caught:
            seen.append(caught)
        await octx.step("later", bench.does("later"))
        if job.attempt == 1:
            del sys.modules["an_old_module"]
            raise Crash

    module.__dict__["Gone"] = kind
    job = bench.done(body)
    assert job.status == "completed"
    second = seen[1]
    assert isinstance(second, StepFailed)
    assert (second.job_id, second.step, second.error_name) == (job.id, "fails", "Gone")
    assert "('text', 7)" in second.message


def test_a_class_of_the_same_name_that_is_no_exception_is_not_called(bench: Bench) -> None:
    kind = type("open", (Exception,), {"__module__": "builtins", "__qualname__": "open"})
    first, second = raised_in_two_runs(bench, kind("/etc/passwd"))
    assert type(first) is kind
    assert isinstance(second, StepFailed)


def test_a_failure_is_kept_before_what_the_body_does_instead(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        with suppress(ConnectionError):
            await octx.step("fails", bench.does("fails", act=raising(ConnectionError())))
        await octx.step("instead", bench.does("instead", act=lambda step: kept.append(bench.steps(step.job_id))))

    kept: list[Any] = []
    assert bench.done(body).status == "completed"
    assert [(step["seq"], step["error"]["name"]) for step in kept[0]] == [("0", "ConnectionError")]


def test_a_failure_in_branches_is_kept_when_the_body_goes_on(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        async def fails(octx: Any) -> None:
            await octx.step("fails", bench.does("fails", act=raising(Refused(5))))

        for then in (octx.step, lambda name, fn: octx.all(giving(bench, name))):
            with suppress(Refused):
                await octx.all(fails)
            await then("later", bench.does("later"))
        if job.attempt == 1:
            raise Crash

    job = bench.done(body)
    assert job.status == "completed"
    assert bench.ran == ["fails", "later"] * 2
    assert [(step["seq"], "error" in step) for step in bench.steps(job.id)] == [
        ("0.0.0", True),
        ("1", False),
        ("2.0.0", True),
        ("3.0.0", False),
    ]


def test_a_failure_that_was_caught_is_shown_and_its_step_is_not_run_again(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        with suppress(Refused):
            await octx.step("fails", bench.does("fails", act=raising(Refused(5, reason="x"))))
        await octx.step("later", bench.does("later", 7))

    id = bench.done(body).id
    view = bench.view(id, results=True)
    assert [(step.name, step.failed) for step in view.steps] == [("fails", True), ("later", False)]
    assert view.steps[0].result["message"] == "5: x"
    assert view.steps[1].result == 7
    assert [step.result for step in bench.view(id).steps] == [None, None]


@pytest.mark.parametrize("where", ["body", "step"])
def test_a_job_that_is_not_to_be_retried_fails_at_once(bench: Bench, where: str) -> None:
    async def body(job: Any, octx: Any) -> None:
        if where == "body":
            raise NonRetryable("bad state")
        await octx.step("fails", bench.does("fails", act=raising(NonRetryable("bad state"))))

    job = bench.done(body)
    assert (job.status, job.failure_kind, job.attempt) == ("failed", "fatal", 1)
    assert job.error is not None
    assert (job.error["name"], job.error["message"]) == ("NonRetryable", "bad state")


@pytest.mark.parametrize("wrong", ["name", "fn", "key", "timeout"])
def test_an_argument_that_is_none_is_refused_and_takes_no_place(bench: Bench, wrong: str) -> None:
    async def body(job: Any, octx: Any) -> None:
        call = getattr(octx, "inner", octx).step
        fn = bench.does("fn")
        with pytest.raises((TypeError, ValueError)):
            match wrong:
                case "name":
                    call("", fn)
                case "fn":
                    call("x", 7)
                case "key":
                    call("x", fn, idempotency_key="")
                case "timeout":
                    call("x", fn, timeout=0)
        await octx.step("right", fn)

    job = bench.done(body)
    assert job.status == "completed"
    assert [step["seq"] for step in bench.steps(job.id)] == ["0"]


def test_an_async_function_in_a_def_body_is_an_error_that_says_so(def_bench: Bench) -> None:
    bench = def_bench

    async def fn(step: Any) -> None: ...

    async def body(job: Any, octx: Any) -> None:
        await octx.step("x", fn)

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert job.error is not None
    assert "async def" in job.error["message"]


def test_a_function_that_returns_what_nobody_runs_is_an_error(bench: Bench) -> None:
    async def body(job: Any, octx: Any) -> None:
        await octx.step("x", lambda step: (n for n in range(3)))

    bench.define(body)
    bench.start()
    job = bench.ended(bench.add(max_attempts=1))
    assert (job.status, bench.steps(job.id)) == ("failed", [])
