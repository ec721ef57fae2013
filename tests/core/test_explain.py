"""Each command that claims a job or looks one up by its key uses an index, and no more of it than it has to.

The commands are those that the decisions send, caught on their way; see ``tests.plans``. None of them may read the
whole collection or sort, whatever a test asks for beyond that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from durabl_ext.core import claim as claiming
from durabl_ext.core.candidates import busy_keys
from durabl_ext.core.claim_or_enqueue import claim_or_enqueue
from durabl_ext.core.enqueue import holders
from durabl_ext.core.indexes import ALL, DUE, EXPIRED, KEY, QUEUED_SLOT, RUNNING_SLOT
from durabl_ext.core.stats import has_outstanding
from durabl_ext.options import Enqueue, checked
from simplequeue.states import Status
from tests.core.conftest import BATCH, LEASE, Explained
from tests.core.crowds import add_ended, add_followers, add_plain, add_queued
from tests.plans import keys, names


@pytest.mark.parametrize("actions", [("a",), ("a", "b", "c")])
def test_a_claim_among_5_000_due_jobs_examines_a_key_for_each_job_and_one_for_each_action(
    on_server: Explained, actions: tuple[str, ...]
) -> None:
    add_queued(on_server.core, 5_000, *actions, priorities=5)
    candidates, started, shown = on_server.claim(*actions)
    assert (candidates.command, started.command, shown.command) == ("find", "update", "find")
    assert candidates.indexes == {DUE.name}
    assert candidates.keys <= BATCH + len(actions)
    assert candidates.documents == BATCH
    for by_id in (started, shown):
        assert by_id.indexes == {"_id_"}
        assert by_id.keys <= 2 * BATCH  # one to find an id, one to see where it ends
        assert by_id.documents == BATCH


def test_a_claim_of_50_actions_merges_them(on_server: Explained) -> None:
    actions = tuple(f"a{n}" for n in range(50))
    add_queued(on_server.core, 5_000, *actions)
    candidates = on_server.claim(*actions)[0]
    assert candidates.keys <= BATCH + len(actions)
    assert candidates.documents == BATCH


@pytest.mark.parametrize("priorities", [1, 10])
def test_a_claim_before_5_000_jobs_in_the_future_examines_a_key_or_two_for_each_priority(
    on_server: Explained, priorities: int
) -> None:
    add_queued(on_server.core, 5_000, priorities=priorities, delay=3_600)
    (candidates,) = on_server.claim()
    assert candidates.keys <= 2 * priorities
    assert candidates.documents == 0


def test_a_claim_with_nothing_due_beside_20_000_ended_jobs_examines_nothing(on_server: Explained) -> None:
    add_ended(on_server.core, 20_000, action="a")
    (candidates,) = on_server.claim()
    assert (candidates.keys, candidates.documents) == (0, 0)


def test_a_claim_among_5_000_plain_jobs_looks_for_those_of_the_extension_by_themselves(on_server: Explained) -> None:
    add_plain(on_server.core, 5_000, "a", "b")
    add_queued(on_server.core, 5_000, "a", "b", priorities=5)
    plans = on_server.claim("a", "b")
    assert names(plans) == ["find", "find", "update", "find"]
    assert all(plan.indexes == {DUE.name} for plan in plans[:2])
    assert max(keys(plans[:2])) <= BATCH + 4
    assert max(keys(plans[2:])) <= 2 * BATCH
    assert [plan.documents for plan in plans] == [BATCH] * 4


@pytest.mark.parametrize("what", ["id", "key"])
def test_a_claim_of_one_job_examines_a_key(on_server: Explained, what: str) -> None:
    add_queued(on_server.core, 2_000)
    id = on_server.core.enqueue(dedupe_key="k")
    filter, index = ({"_id": id}, "_id_") if what == "id" else ({KEY: "k"}, QUEUED_SLOT.name)
    terms = claiming.Terms("token", LEASE, {})
    plans = on_server.do(claiming.claim_where(on_server.core.cell.jobs, filter, terms))
    assert names(plans) == ["find", "update", "find"]
    assert plans[0].indexes == {index}
    assert keys(plans) == [1, 1, 1]


@pytest.mark.parametrize("blocked", [1, 21, 200, 2_000])
def test_a_free_job_behind_blocked_keys_is_claimed_in_eight_calls_however_many_there_are(
    on_server: Explained, blocked: int
) -> None:
    core = on_server.core
    add_followers(core, blocked)
    free = core.enqueue(priority=5)
    add_queued(core, 1_000, "other")
    plans = on_server.costs(lambda: core.claim(limit=4))
    assert core.get(free).status is Status.RUNNING
    assert len(on_server.explainer.sent) <= 8
    assert sum(keys(plans)) <= 2 * blocked + 50


@pytest.mark.parametrize("scope", ["queued", "queued+running"])
@pytest.mark.parametrize("running", [False, True])
def test_the_holders_of_a_key_are_found_in_both_slots(on_server: Explained, scope: Any, running: bool) -> None:
    core, jobs = on_server.core, on_server.core.cell.jobs
    add_queued(core, 2_000)
    core.claim(limit=500)
    asked = Enqueue("k", dedupe_key="k", dedupe_scope=scope)
    core.enqueue_many(asked)
    if running:
        core.claim("k")
        core.enqueue_many(asked)  # is taken, or waits behind the run
    for decide in (
        lambda: core.cell.do(holders(jobs, ["k"])),
        lambda: core.cell.do(has_outstanding(jobs, "k", "k")),
        lambda: core.enqueue_many(asked),
        lambda: core.cell.do(claim_or_enqueue(jobs, checked(asked, jobs.codec), claiming.Terms("t", LEASE, {}))),
    ):
        (plan,) = on_server.costs(decide)
        assert plan.keys <= 4
        assert plan.documents <= 4
        assert plan.indexes == {QUEUED_SLOT.name, RUNNING_SLOT.name}


def test_an_enqueue_of_600_keys_that_are_taken_looks_for_them_in_two_calls(on_server: Explained) -> None:
    core = on_server.core
    asked = [Enqueue("a", dedupe_key=f"k{n}", dedupe_scope="queued") for n in range(600)]
    core.enqueue_many(*asked)
    plans = on_server.costs(lambda: core.enqueue_many(*asked, Enqueue("a", dedupe_key="free")))
    looks = [plan for plan in plans if plan.command == "find"]
    assert len(looks) == 2
    assert sum(keys(looks)) <= 2_000
    assert core.cell.collection.count_documents({}) == 601


def test_a_coalesced_request_examines_a_key_or_two_in_each_of_two_calls(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    core.claim(limit=500)
    asked = Enqueue("k", dedupe_key="k", dedupe_scope="queued", coalesce="latest")
    core.enqueue_many(asked)
    plans = on_server.costs(lambda: core.enqueue_many(asked))
    assert names(plans) == ["find", "update"]
    assert max(keys(plans)) <= 2


def test_a_plan_made_while_few_jobs_were_there_does_not_outlive_their_growing_number(on_server: Explained) -> None:
    core, jobs, db = on_server.core, on_server.core.cell.jobs, on_server.core.cell.collection.database
    for _ in range(5):  # with nothing in them all indexes are as good, and one of the wrong ones is kept in the cache
        core.cell.do(holders(jobs, ["k"]))
    add_queued(core, 2_000)
    core.claim(limit=500)
    core.enqueue(dedupe_key="k")
    db.command({"profile": 2})
    for _ in range(5):
        core.cell.do(holders(jobs, ["k"]))
    db.command({"profile": 0})
    examined = [entry["keysExamined"] for entry in db["system.profile"].find({"command.find": "job"})]
    assert len(examined) == 5
    assert max(examined) <= 20


def test_the_keys_that_runs_hold_are_found_among_the_runs(on_server: Explained) -> None:
    core = on_server.core
    add_followers(core, 100)
    add_queued(core, 2_000)
    (plan,) = on_server.do(busy_keys(core.cell.jobs))
    assert plan.indexes == {EXPIRED.name}
    assert plan.keys <= 101


@pytest.mark.parametrize("decision", ["claim", "claim of a key", "keys that are busy", "recover"])
def test_a_command_without_its_index_is_an_error_and_no_scan(on_server: Explained, decision: str) -> None:
    core, jobs = on_server.core, on_server.core.cell.jobs
    add_queued(core, 10)
    for index in ALL:
        core.cell.collection.drop_index(index.name)
    terms = claiming.Terms("token", LEASE, {})
    decide: dict[str, Callable[[], object]] = {
        "claim": core.claim,
        "claim of a key": lambda: core.cell.do(claiming.claim_where(jobs, {KEY: "k"}, terms)),
        "keys that are busy": lambda: core.cell.do(busy_keys(jobs)),
        "recover": core.recover,
    }
    with pytest.raises(OperationFailure, match="hint"):
        decide[decision]()


def test_no_command_examines_more_keys_when_the_queue_is_twenty_times_as_long(on_server: Explained) -> None:
    core, jobs = on_server.core, on_server.core.cell.jobs

    def examined(queued: int) -> dict[str, list[int]]:
        core.cell.collection.delete_many({})
        add_followers(core, 20)
        for run in core.cell.collection.find({"status": "running"}).limit(5):
            core.expire(run["_id"])
        add_queued(core, queued, "a", "b", "c", priorities=2)
        return {
            "claim": keys(on_server.claim("b", "c")),
            "claim past busy keys": keys(on_server.claim("a")),
            "holders": keys(on_server.do(holders(jobs, ["k1", "k2"]))),
            "recover": keys(on_server.costs(core.recover)),
        }

    few = examined(1_000)
    assert all(few.values())
    assert examined(20_000) == few
