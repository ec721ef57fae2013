"""A body that was edited while a job of it was on its way: behind what is journaled it may, before that it may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from durabl_ext import DurableJob
from tests.orchestrator.bodies import AnyBody
from tests.orchestrator.conftest import Bench, Crash

Plan = list[Any]
"""What a body does: a text is a step of that name, a list holds plans of branches."""

OLD: Plan = ["a", "b", [["c1", "c2"], ["d1"]], "e", "CRASH", "f", [["g"], ["h"]], "i"]
"""The body that was deployed first; its run ends at CRASH."""


def follows(bench: Bench, plan: Plan, crashing: bool = False) -> AnyBody:
    """A body that follows a plan, and catches whatever an ``except Exception`` would."""

    async def along(octx: Any, plan: Plan) -> None:
        for part in plan:
            if isinstance(part, list):
                await octx.all(*(branch(inner) for inner in part))
            elif part != "CRASH":
                await octx.step(part, bench.does(part))
            elif crashing:
                raise Crash

    def branch(plan: Plan) -> Callable[[Any], Any]:
        async def branched(octx: Any) -> None:
            await along(octx, plan)

        return branched

    async def body(job: Any, octx: Any) -> None:
        await along(octx, plan)

    return body


@dataclass
class Deployed:
    """A job whose body can be replaced.

    Attributes:
        id: The job.
        body: What runs next.
    """

    bench: Bench
    id: str
    body: AnyBody

    def runs(self, plan: Plan) -> DurableJob:
        """Deploys another body and resumes the job, to its end."""
        self.bench.ran.clear()
        self.body = follows(self.bench, plan)
        return self.bench.resumed(self.id)


def crashed(bench: Bench, plan: Plan = OLD) -> Deployed:
    """Runs a body until it crashes."""
    deployed = Deployed(bench, "", follows(bench, plan, crashing=True))

    async def current(job: Any, octx: Any) -> None:
        await deployed.body(job, octx)

    bench.define(current)
    bench.start()
    deployed.id = bench.add(max_attempts=1, dedupe_key="k")
    job = bench.ended(deployed.id)
    assert (job.status, job.error and job.error["name"]) == ("failed", "Crash")
    return deployed


LATER: dict[str, tuple[Plan, list[str]]] = {
    "inserted": (["NEW", "f", [["g"], ["h"]], "i"], ["NEW", "f", "g", "h", "i"]),
    "removed": ([[["g"], ["h"]], "i"], ["g", "h", "i"]),
    "renamed": (["F", [["g"], ["h"]], "i"], ["F", "g", "h", "i"]),
    "reordered": (["i", "f", [["g"], ["h"]]], ["f", "g", "h", "i"]),
    "made branches": ([[["f"], ["x"]], [["g"], ["h"]], "i"], ["f", "g", "h", "i", "x"]),
    "made a step": (["f", "g and h", "i"], ["f", "g and h", "i"]),
    "fewer branches": (["f", [["g"]], "i"], ["f", "g", "i"]),
    "more branches": (["f", [["g"], ["h"], ["j"]], "i"], ["f", "g", "h", "i", "j"]),
    "ending early": ([], []),
}


@pytest.mark.parametrize(("rest", "ran"), LATER.values(), ids=LATER)
def test_an_edit_behind_the_last_step_that_is_journaled_goes_on(bench: Bench, rest: Plan, ran: list[str]) -> None:
    deployed = crashed(bench)
    job = deployed.runs([*OLD[: OLD.index("CRASH")], *rest])
    assert (job.status, job.error) == ("completed", None)
    assert sorted(bench.ran) == sorted(ran)


EARLIER: dict[str, tuple[Plan, str, str]] = {
    "inserted first": (["NEW", *OLD], "step 'a'", "calls step 'NEW'"),
    "inserted in the middle": (["a", "NEW", *OLD[1:]], "step 'b'", "calls step 'NEW'"),
    "inserted before branches": (["a", "b", "NEW", *OLD[2:]], "branches, with step", "calls step 'NEW'"),
    "inserted last": ([*OLD[:3], "NEW", *OLD[3:]], "step 'e'", "calls step 'NEW'"),
    "removed first": (OLD[1:], "step 'a'", "calls step 'b'"),
    "removed before branches": (["a", *OLD[2:]], "step 'b'", "calls 2 branches"),
    "branches removed": (["a", "b", *OLD[3:]], "branches, with step", "calls step 'e'"),
    "renamed": (["a", "B", *OLD[2:]], "step 'b'", "calls step 'B'"),
    "renamed in another case of its letters": (["A", *OLD[1:]], "step 'a'", "calls step 'A'"),
    "reordered": (["b", "a", *OLD[2:]], "step 'a'", "calls step 'b'"),
    "renamed in a branch": (["a", "b", [["c1", "C2"], ["d1"]], *OLD[3:]], "step 'c2'", "calls step 'C2'"),
    "inserted in a branch": (["a", "b", [["c1", "c2"], ["NEW", "d1"]], *OLD[3:]], "step 'd1'", "calls step 'NEW'"),
    "a step made branches": (["a", [["b"], ["x"]], *OLD[2:]], "step 'b'", "calls 2 branches"),
    "branches made a step": (["a", "b", "c and d", *OLD[3:]], "branches, with step", "calls step 'c and d'"),
    "branches made steps": (["a", "b", "c1", "c2", "d1", *OLD[3:]], "branches, with step", "calls step 'c1'"),
    "fewer branches": (["a", "b", [["c1", "c2"]], *OLD[3:]], "step 'd1'", "calls 1 branches"),
    "branches swapped": (["a", "b", [["d1"], ["c1", "c2"]], *OLD[3:]], "step 'c1'", "calls step 'd1'"),
    "a branch inside of a branch": (["a", "b", [["c1", "c2"], [[["d1"]]]], *OLD[3:]], "step 'd1'", "calls 1 branches"),
    "a branch that ends early": (["a", "b", [["c1"], ["d1"]], *OLD[3:]], "step 'c2'", "returns"),
    "ending early": (["a"], "step 'b'", "returns"),
    "ending before it begins": ([], "step 'a'", "returns"),
}


@pytest.mark.parametrize(("edited", "recorded", "called"), EARLIER.values(), ids=EARLIER)
def test_an_edit_before_that_fails_for_good_before_any_effect_and_can_be_rolled_back(
    bench: Bench, edited: Plan, recorded: str, called: str
) -> None:
    deployed = crashed(bench)
    journal = bench.steps(deployed.id)
    job = deployed.runs(edited)
    assert bench.ran == []
    assert (job.status, job.failure_kind, job.attempt) == ("failed", "fatal", 1)
    assert job.error is not None
    assert job.error["name"] == "NondeterminismError"
    assert recorded in job.error["message"]
    assert called in job.error["message"]
    assert deployed.id in job.error["message"]
    assert bench.steps(deployed.id) == journal
    other = bench.front.enqueue("another", dedupe_key="k")
    assert other is not None  # the key is free
    bench.front.cancel(other)

    job = deployed.runs(OLD)
    assert (job.status, job.error) == ("completed", None)
    assert sorted(bench.ran) == ["f", "g", "h", "i"]
