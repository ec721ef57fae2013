"""The public types of what tests use, for type checkers only: nothing here runs, and pytest does not collect it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from pymongo import AsyncMongoClient, MongoClient

from durabl_ext import AsyncOrchestrationContext, DurableJob, OrchestrationContext, StepView
from durabl_ext.testing import CrashNotReached, CrashUnsafe, OrchestrationHarness, assert_crash_safe


def body(job: DurableJob, octx: OrchestrationContext) -> None: ...


async def async_body(job: DurableJob, octx: AsyncOrchestrationContext) -> int:
    return 1


def not_a_body(job: DurableJob) -> None: ...


def harness(client: MongoClient[dict[str, Any]], other: AsyncMongoClient[dict[str, Any]]) -> None:
    made = OrchestrationHarness(body, data={"who": "ada"}, db=client.app, step_timeout=timedelta(seconds=1))
    assert_type(OrchestrationHarness(async_body).run(), DurableJob)
    assert_type(made.resume(), DurableJob)
    assert_type(made.resume_with(async_body), DurableJob)
    made.crash_after("a", occurrence=2)
    made.crash_before("a", seq="0.1.0")
    made.lose_lease_before("a")
    assert_type(made.steps, list[StepView])
    assert_type(made.logs, list[str])
    assert_type(made.attempts, int)
    assert_type(made.job, DurableJob)
    OrchestrationHarness(not_a_body)  # type: ignore[arg-type]
    OrchestrationHarness(body, db=other.app)  # type: ignore[arg-type]


def safe(client: MongoClient[dict[str, Any]]) -> None:
    assert_crash_safe(body, effects=list[int])
    assert_crash_safe(async_body, data={}, effects=lambda: 1, db=client.app, seed="a", max_attempts=2)
    assert_crash_safe(body)  # type: ignore[call-arg]
    assert_crash_safe(body, effects=list[int], unknown=1)  # type: ignore[call-arg]


def errors(unsafe: CrashUnsafe, never: CrashNotReached) -> None:
    assert_type(unsafe.step, str | None)
    assert_type(unsafe.seq, str | None)
    assert_type(unsafe.repeat, str)
    assert_type(never.journal, tuple[str, ...])
