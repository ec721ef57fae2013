"""Whether a body does the same however it is interrupted: a run for each way, at each of its writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack
from uuid import UUID

from pymongo.database import Database

from durabl_ext.errors import NondeterminismError
from durabl_ext.options import Seconds
from durabl_ext.orchestrator.define import AsyncBody, SyncBody
from durabl_ext.testing.errors import CrashUnsafe
from durabl_ext.testing.harness import OrchestrationHarness
from durabl_ext.testing.report import Call, problem, program, remedy, told_apart
from durabl_ext.testing.watch import Boundary

CASES = {
    "crash_before": "the worker died before {} was journaled, and the job was resumed",
    "crash_after": "the worker died after {} was journaled, and the job was resumed",
    "lose_lease_before": "the lease was lost before {} was journaled: another worker ran the job, the first went on",
}
SECOND_DELIVERY = "the body ran to its end, which was not stored, and the job was delivered again"


class Settings(TypedDict, total=False):
    """What ``assert_crash_safe`` hands on; ``OrchestrationHarness`` says what each is."""

    job_id: str | UUID
    action: str
    now: datetime
    seed: str
    step_timeout: Seconds
    max_duration: Seconds | None
    max_attempts: int
    db: Database[Any] | None


@dataclass(frozen=True, slots=True)
class _Case:
    """One way to interrupt a run, and the calls of a harness that do it."""

    told: str
    calls: tuple[Call, ...]
    at: Boundary | None = None


def assert_crash_safe(
    body: SyncBody | AsyncBody,
    *,
    data: Mapping[str, Any] | None = None,
    effects: Callable[[], object],
    **settings: Unpack[Settings],
) -> None:
    """Runs a body once for each way to interrupt it, and fails where what it has done in the end is not the same.

    At each write to the journal, that of ``octx.now()`` and that a step has failed included: the worker dies before the
    write; it dies after it; its lease is lost before it, another worker runs the job to its end, and the first goes on.
    And once the body runs to its end and is delivered again. Each time the job is resumed until it has ended, from an
    empty journal and under the same id: for ``n`` writes these are about ``6 n + 4`` runs, of a few milliseconds each
    beside what the steps take. The first ones are two that nothing interrupts, whose effects have to be equal.

    Args:
        body: A function of a job and an octx.
        data: The job's payload. None means ``{}``.
        effects: Gives what has been done outside since it was asked last, and forgets it: what a fake provider has
            noted, say, which it hands out and clears, the keys it knows a repeated call by included. What it gives is
            compared with ``==``; where steps run at once their order may vary, so give it sorted, or as a ``Counter``.
        settings: ``db`` and the others of ``OrchestrationHarness``.

    Raises:
        CrashUnsafe: An ``AssertionError``. It says which case, what differs, how to repeat just that case and what to
            do; the same as attributes.
        ValueError: ``effects`` does not forget, or sees nothing of what the body does.
        TypeError, PayloadError: An argument is none.
    """
    check = _Check(body, effects, {"data": data, **settings})
    boundaries = check.learn()
    for case in _cases(boundaries):
        check.case(case)


def _cases(boundaries: Sequence[Boundary]) -> list[_Case]:
    names = Counter(boundary.name for boundary in boundaries)
    cases = []
    for boundary in boundaries:
        # By its place only where the name does not tell: that is how a person would write it.
        place = {} if names[boundary.name] == 1 and boundary.seq != boundary.name else {"seq": boundary.seq}
        for method, told in CASES.items():
            calls = [Call(method, (boundary.name,), place)]
            if method != "lose_lease_before":
                calls.append(Call("resume"))
            cases.append(_Case(told.format(told_apart(boundary)), tuple(calls), boundary))
    return [*cases, _Case(SECOND_DELIVERY, (Call("run"), Call("resume")))]


class _Check:
    """What is known of a body, and whether it does the same in each case."""

    def __init__(self, body: Any, effects: Callable[[], object], settings: Mapping[str, Any]) -> None:
        if not callable(effects):
            raise TypeError(f"effects: expected a function that gives what was done, found {effects!r:.100}")
        self._body = body
        self._effects = effects
        self._settings = settings
        self._expected: object = None

    def learn(self) -> list[Boundary]:
        """Runs the body twice without interruption; gives what it writes, and remembers what it does."""
        self._effects()  # what is left of an earlier test
        nothing = self._effects()
        writes = self._uninterrupted()
        self._expected = self._effects()
        if self._effects() != nothing:
            raise ValueError(
                "effects does not forget: asked twice after one run it gave the same again. It has to give what was "
                "done since it was asked last, such as a copy of a list that it clears"
            )
        if self._expected == nothing:
            raise ValueError(
                f"effects sees nothing: it gives {nothing!r:.200} before a run and after it, so no difference would "
                "show. It has to give a copy of what it clears, and see all that the body does"
            )
        self._uninterrupted()
        again = self._effects()
        if again != self._expected:
            case = _Case("the body ran for a new job of the same id, and nothing interrupted it", (Call("run"),))
            raise self._unsafe(
                case,
                again,
                "Either the body depends on something besides its job and its journal, or effects does not forget: "
                "what knows a repeated call by its key has to forget the keys too",
            )
        return writes

    def case(self, case: _Case) -> None:
        """Runs one case."""
        harness = OrchestrationHarness(self._body, **self._settings)
        try:
            for call in case.calls:
                call.on(harness)
        except (Exception, NondeterminismError) as error:
            raise self._unsafe(case, self._effects(), remedy(case.at, case.calls[0].method, error), error) from error
        found = self._effects()
        if found != self._expected:
            raise self._unsafe(case, found, remedy(case.at, case.calls[0].method, None))

    def _uninterrupted(self) -> list[Boundary]:
        harness = OrchestrationHarness(self._body, **self._settings)
        try:
            harness.run()
        except (Exception, NondeterminismError) as error:
            case = _Case("the body failed although nothing interrupted it", (Call("run"),))
            raise self._unsafe(
                case, None, "Make it run through first: only then can it be interrupted", error
            ) from error
        return harness._last.writes

    def _unsafe(self, case: _Case, found: object, advice: str, error: BaseException | None = None) -> CrashUnsafe:
        return CrashUnsafe(
            case.told,
            case.at.name if case.at else None,
            case.at.seq if case.at else None,
            self._expected,
            found,
            problem(self._expected, found, error),
            program(self._body, self._settings, case.calls),
            advice,
        )
