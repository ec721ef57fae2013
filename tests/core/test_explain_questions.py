"""Each command that answers what people ask for, or does what they ask for, uses an index made for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from durabl_ext.core.indexes import ALL, DUE, FAILED, QUEUED_SLOT, RUNNING_SLOT
from durabl_ext.core.replay import list_failed, retry
from durabl_ext.core.stats import get_stats
from durabl_ext.job import FailureKind
from simplequeue.commands import ENDED_BEFORE
from tests.core.conftest import LONG_AGO, Explained
from tests.core.crowds import add_ended, add_plain, add_queued
from tests.plans import keys, names


@pytest.mark.parametrize("action", [None, "a"])
def test_stats_come_from_indexes_and_look_at_two_documents(on_server: Explained, action: str | None) -> None:
    core = on_server.core
    add_queued(core, 2_000, "a", "b", "c", priorities=5)
    add_queued(core, 500, "a", "b", "c", delay=3_600)
    add_plain(core, 500, "a", "b", "c")
    core.claim("a", "b", limit=100)
    for status in ("completed", "failed", "cancelled", "superseded"):
        add_ended(core, 500, status, durable={"failure_kind": "fatal"})
    plans = on_server.do(get_stats(core.cell.jobs, action))
    counts = [plan for plan in plans if plan.command == "aggregate"]
    assert len(counts) == 9
    assert all(plan.documents == 0 for plan in counts)
    assert all(len(plan.indexes) == 1 for plan in counts)
    if action is None:
        assert all(plan.stages[0].startswith("COUNT_SCAN") for plan in counts)
    assert max(keys(counts)) <= 2_901  # the queued ones, and one to see where they end
    others = [plan for plan in plans if plan.command != "aggregate"]
    assert names(others) == ["distinct", "distinct", "find", "find"][action is not None :]
    assert all(plan.indexes == {DUE.name} for plan in others)
    assert max(keys(others)) <= 3 * 7  # a key for each pair of an action and a priority
    assert sum(plan.documents for plan in others) == 2


@pytest.mark.parametrize("dropped", [index.name for index in ALL if not index.unique])
def test_stats_without_one_of_their_indexes_are_an_error_and_no_scan(on_server: Explained, dropped: str) -> None:
    core = on_server.core
    core.cell.collection.drop_index(dropped)
    with pytest.raises(OperationFailure, match="hint"):
        core.cell.do(get_stats(core.cell.jobs, None))


@pytest.mark.parametrize(
    ("action", "kind", "examined", "index"),
    [
        (None, None, 10, ENDED_BEFORE),
        (None, "fatal", 10, FAILED),
        # Without an index of its own for so rare a question: a key for each later failed job of others, or of the kind.
        ("a", None, 1_111, ENDED_BEFORE),
        ("a", "fatal", 111, FAILED),
    ],
)
def test_a_list_of_failed_jobs_reads_only_the_documents_it_gives(
    on_server: Explained, action: str | None, kind: FailureKind | None, examined: int, index: Any
) -> None:
    core = on_server.core
    add_ended(core, 5_000)
    add_ended(core, 1_000, "failed", durable={"failure_kind": "stalled"}, action="b")
    add_ended(core, 100, "failed", durable={"failure_kind": "fatal"}, action="b")
    core.cell.collection.update_many({"action": "b"}, {"$set": {"finished_at": LONG_AGO + timedelta(days=1)}})
    add_ended(core, 50, "failed", durable={"failure_kind": "fatal"}, action="a")
    (plan,) = on_server.do(list_failed(core.cell.jobs, action, kind, 10))
    assert plan.indexes == {index.name}
    assert plan.keys <= examined
    assert plan.documents == 10


def test_an_update_and_a_cancel_examine_a_key_beside_the_indexes_of_the_extension(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    id = core.enqueue()
    update, cancel = on_server.costs(lambda: (core.cell.queue.update(id, {"n": 1}), core.cell.queue.cancel(id)))
    assert (update.command, cancel.command) == ("update", "findAndModify")
    assert keys([update, cancel]) == [1, 1]


def test_a_replay_examines_a_key_and_so_does_one_that_is_refused(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    core.claim(limit=500)
    core.enqueue("k", dedupe_key="k", max_attempts=1)
    claimed = core.claim_one("k")
    core.settle(claimed, "fail")
    core.enqueue("k", dedupe_key="k")
    plans = on_server.do(retry(core.cell.jobs, claimed[0].id))
    assert names(plans) == ["update", "update", "find", "find"]  # one call of two updates
    assert max(keys(plans)) <= 2
    assert plans[3].indexes == {QUEUED_SLOT.name, RUNNING_SLOT.name}


def test_a_sweep_of_ended_jobs_examines_a_key_for_each_beside_the_indexes_of_the_extension(
    on_server: Explained,
) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    for status in ("completed", "failed", "cancelled", "superseded"):
        add_ended(core, 600, status)
    plans = on_server.costs(core.cell.queue.sweep)
    assert names(plans) == ["find", "delete"] * 3
    for found, deleted in zip(plans[::2], plans[1::2], strict=True):
        assert found.indexes == {ENDED_BEFORE.name}
        assert found.keys <= 1_004  # one more for each status that is merged
        assert deleted.indexes == {"_id_"}
        assert deleted.keys <= 2_000
