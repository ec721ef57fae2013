"""Documents that another program spoiled: they wedge nothing and nobody."""

from __future__ import annotations

from typing import Any

import pytest

from durabl_ext.core.replay import retry
from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import Completed, LeaseLost, NotFailed, RetryScheduled
from tests.core.conftest import LONG_AGO, Core

SPOILED: list[Any] = ["2020-01-01", 7, 1.5, True, [LONG_AGO], {"at": LONG_AGO}, b"x"]


@pytest.mark.parametrize("beside", ["durable", "plain"])
@pytest.mark.parametrize("field", ["durable.run_at", "durable.priority", "durable", "created_at"])
def test_a_job_that_another_program_spoiled_keeps_no_other_from_being_claimed(
    core: Core, field: str, beside: str
) -> None:
    for spoil in SPOILED:
        id = core.enqueue()
        core.cell.collection.update_one({"_id": id}, {"$set": {field: spoil}})
    core.cell.collection.update_one({"_id": core.cell.queue.add("a").id}, {"$set": {"created_at": 7}})
    good = core.enqueue(priority=1) if beside == "durable" else core.cell.queue.add("a").id
    claimed = [core.claim(limit=1) for _ in range(len(SPOILED) + 2)]
    mine = [one for some in claimed for one in some if one[0].id == good]
    assert len(mine) == 1
    assert core.settle(mine[0], "complete") == Completed()


@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize(
    "spoil",
    [
        {"durable.attempt": "three"},
        {"durable.logs": 7},
        {"action": ["a", "b"]},
        {"durable.backoff": {"kind": "fixed", "delay": 1e300, "max_delay": 1e300}},
    ],
)
def test_a_spoiled_job_at_the_head_starts_or_lets_the_next_one_start(
    core: Core, spoil: dict[str, Any], limit: int
) -> None:
    core.cell.collection.update_one({"_id": core.enqueue(priority=-1)}, {"$set": spoil})
    good = core.enqueue()
    claimed = [*core.claim("a", "b", limit=limit), *core.claim("a", "b", limit=limit)]
    assert good in [job.id for job, _ in claimed]
    for one in claimed:
        assert isinstance(core.settle(one, "fail"), RetryScheduled)


@pytest.mark.parametrize("limit", [1, 2])
def test_an_attempt_that_cannot_be_counted_on_lets_the_next_one_start(real_core: Core, limit: int) -> None:
    real_core.cell.collection.update_one(
        {"_id": real_core.enqueue(priority=-1)}, {"$set": {"durable.attempt": 2**63 - 1}}
    )
    good = real_core.enqueue()
    claimed = [*real_core.claim("a", "b", limit=limit), *real_core.claim("a", "b", limit=limit)]
    assert good in [job.id for job, _ in claimed]
    for one in claimed:
        assert isinstance(real_core.settle(one, "fail"), RetryScheduled)


def test_receipts_that_another_program_spoiled_hide_no_outcome_of_their_batch(core: Core) -> None:
    core.enqueue_many(Enqueue("a"), Enqueue("a"))
    spoiled, other = core.claim(limit=2)
    core.settle(spoiled, "release")
    core.change(spoiled[0].id, durable__receipts=7)
    assert core.settle_all([(spoiled, "release"), (other, "complete")]) == [LeaseLost(), Completed()]


@pytest.mark.parametrize("running", [False, True])
def test_a_key_whose_scope_is_missing_is_held_in_scope_queued(core: Core, running: bool) -> None:
    id = core.enqueue(dedupe_key="k", dedupe_scope="queued")
    core.cell.collection.update_one({"_id": id}, {"$unset": {"durable.dedupe.scope": ""}})
    if running:
        core.claim_one()
    with pytest.raises(DedupeScopeConflictError):
        core.enqueue(dedupe_key="k")
    assert (core.enqueue(dedupe_key="k", dedupe_scope="queued") is not None) == running


def test_a_status_that_there_is_not_is_told_as_it_is(core: Core) -> None:
    id = core.enqueue()
    core.change(id, status="paused")
    assert core.cell.do(retry(core.cell.jobs, id)) == NotFailed("paused")  # type: ignore[arg-type]  # it is foreign
