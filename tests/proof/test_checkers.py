"""The checks are shown to fail: each fault that is planted in a decision is found by one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext.core import candidates, claim, claim_or_enqueue, enqueue, journal, plans, recover, settle
from durabl_ext.core.indexes import ALL, QUEUED_SLOT, RUNNING_SLOT
from durabl_ext.job import durable_from, new_durable
from durabl_ext.outcomes import Appended
from simplequeue.collection import CollectionJobs
from simplequeue.commands import Index
from simplequeue.job import Document
from simplequeue.jobs import Write, Written
from tests.proof import test_crashes as crashes
from tests.proof import test_interleaved_keys as keys
from tests.proof import test_interleaved_turns as turns
from tests.proof import test_interleavings as pairs
from tests.proof import test_requests_during_runs as requests
from tests.proof.lives import live_through
from tests.proof.scenes import SCENES
from tests.proof.world import BOTH, QUEUED, World

Check = Callable[[World], None]
Plant = Callable[[pytest.MonkeyPatch], None]


def without(document: Document, *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}


def a_reaper_not_fenced_by_the_lease_it_read(patch: pytest.MonkeyPatch) -> None:
    real = recover._read
    patch.setattr(recover, "_read", lambda document: without(real(document), "durable.lease_expires_at"))


def a_reaper_fenced_by_the_id_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recover, "_read", lambda document: {"_id": document["_id"]})


def a_claim_fenced_by_the_status_alone(patch: pytest.MonkeyPatch) -> None:
    real = claim._started

    def started(*args: Any) -> Write:
        write = real(*args)
        return replace(write, filter=without(write.filter, "durable.run_at"))

    patch.setattr(claim, "_started", started)


def a_claim_fenced_by_the_id_alone(patch: pytest.MonkeyPatch) -> None:
    real = claim._started

    def started(*args: Any) -> Write:
        write = real(*args)
        return replace(write, filter={"_id": write.filter["_id"]})

    patch.setattr(claim, "_started", started)


def payloads_of_the_first_find(patch: pytest.MonkeyPatch) -> None:
    real, first = claim.take, candidates._first

    async def whole(jobs: Any, wanted: Document, limit: int) -> list[Document]:
        found = await first(jobs, wanted, limit)
        return [jobs._collection._collection.find_one({"_id": one["_id"]}) for one in found]  # in the same turn

    async def take(jobs: Any, found: Sequence[Document], *rest: Any) -> claim.Claimed:
        taken = await real(jobs, found, *rest)
        read = {document["_id"]: document["data"] for document in found}
        return replace(taken, jobs=[replace(job, data=read[job.id]) for job in taken.jobs])

    patch.setattr(candidates, "_first", whole)
    patch.setattr(claim, "take", take)


def a_claim_that_believes_its_first_find(patch: pytest.MonkeyPatch) -> None:
    real = claim.take

    async def take(jobs: Any, found: Sequence[Document], *rest: Any) -> claim.Claimed:
        taken = await real(jobs, found, *rest)
        every = await jobs.find({"_id": {"$in": [document["_id"] for document in found]}})
        return replace(taken, jobs=[durable_from(document) for document in every])

    patch.setattr(claim, "take", take)


def a_settle_of_ids_times_tokens(patch: pytest.MonkeyPatch) -> None:
    def grouped(plans: Sequence[Any]) -> list[Write]:
        ids = [plan.settlement.job.id for plan in plans]
        tokens = [plan.settlement.token for plan in plans]
        filter = {"_id": {"$in": ids}, "status": "running", "durable.token": {"$in": tokens}}
        return [Write(filter, plans[0].update, many=True)]

    patch.setattr(settle, "grouped", grouped)


def a_settle_without_the_token(patch: pytest.MonkeyPatch) -> None:
    real = plans._claim
    patch.setattr(plans, "_claim", lambda settlement: without(real(settlement), "durable.token"))


def a_release_that_keeps_the_attempt(patch: pytest.MonkeyPatch) -> None:
    real = plans.planned

    def planned(*args: Any) -> Any:
        plan = real(*args)
        return replace(plan, update=without(plan.update, "$inc"))

    patch.setattr(settle, "planned", planned)


def a_move_back_without_a_receipt(patch: pytest.MonkeyPatch) -> None:
    real = plans._queued_again
    patch.setattr(plans, "_queued_again", lambda *args: without(real(*args), "$push"))


def a_run_that_keeps_its_token_in_the_queue(patch: pytest.MonkeyPatch) -> None:
    real = plans._queued_again
    patch.setattr(plans, "_queued_again", lambda *args: without(real(*args), "$unset"))


def ends_that_do_not_count_what_was_matched(patch: pytest.MonkeyPatch) -> None:
    real = settle.Ends.written
    patch.setattr(settle.Ends, "written", lambda ends, answer, others=0: real(ends, Written(len(ends.writes), {}), 0))


def a_latest_that_does_not_ask_whether_the_job_still_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(enqueue, "_read", lambda waiting: {"_id": waiting["_id"]})


def a_latest_that_asks_only_whether_the_job_still_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(enqueue, "_read", lambda waiting: {"_id": waiting["_id"], "status": "queued"})


def a_latest_without_the_count_it_read(patch: pytest.MonkeyPatch) -> None:
    real = enqueue._read
    patch.setattr(enqueue, "_read", lambda waiting: without(real(waiting), enqueue.COALESCED))


def a_latest_without_the_time_it_read(patch: pytest.MonkeyPatch) -> None:
    real = enqueue._read
    patch.setattr(enqueue, "_read", lambda waiting: without(real(waiting), "updated_at"))


def an_answer_that_the_key_is_taken_without_another_look(patch: pytest.MonkeyPatch) -> None:
    async def taken(jobs: Any, request: Any, document: Document, seen: Any, session: Any) -> str | None:
        held = await enqueue.holders(jobs, (request.dedupe.key,))
        waiting = enqueue.replaceable(request, held)
        return await enqueue.coalesce(jobs, request, waiting) if waiting else None

    patch.setattr(enqueue, "_taken", taken)


def an_insert_that_is_decided_on_a_read_alone(patch: pytest.MonkeyPatch) -> None:
    async def decide(jobs: Any, request: Any, terms: Any) -> Any:
        running = claim_or_enqueue._started(new_durable(request, await jobs.now()), terms)
        if await enqueue.holders(jobs, (request.dedupe.key,)):
            return None
        await jobs.insert_one(running)
        return durable_from(running)

    patch.setattr(claim_or_enqueue, "claim_or_enqueue", decide)


def a_journal_that_is_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal, "_run", lambda which, token: {"_id": which, "status": "running"})


def a_journal_that_does_not_ask_whether_the_step_is_there(patch: pytest.MonkeyPatch) -> None:
    async def append(jobs: Any, id: str, token: str, step: journal.Step, limit: int) -> Any:
        update = {"$push": {journal.STEPS: step.document()}, "$inc": {journal.JOURNAL_BYTES: 100}}
        await jobs.update_one(journal._run(id, token), update)
        return Appended(step.document())

    patch.setattr(journal, "append_step", append)


def a_journal_that_counts_too_little(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal, "ELEMENT_BYTES", -100)


def reads_that_believe_one_server(patch: pytest.MonkeyPatch) -> None:
    real = CollectionJobs.find

    async def find(*args: Any, majority: bool = False, **kwargs: Any) -> Any:
        return await real(*args, **kwargs)

    patch.setattr(CollectionJobs, "find", find)


def crash(name: str) -> Check:
    (scene,) = [scene for scene in SCENES if scene.name == name]
    return partial(crashes.test_whatever_breaks_at_any_call_all_that_was_acknowledged_ends_once, scene=scene)


other_scope = keys.test_a_key_is_refused_to_the_other_scope_while_its_run_is_on_and_only_then


def schedules(world: World) -> None:
    """The first of the random schedules."""
    for seed in range(100):
        live_through(world, seed)


def swallowed(world: World) -> None:
    """Some of the seeds."""
    for seed in range(100):
        requests.play(world, seed)


def pair(test: Callable[..., None], **arguments: Any) -> Check:
    return partial(test, **arguments)


PLANTED: list[tuple[Plant, Check]] = [
    (
        a_reaper_not_fenced_by_the_lease_it_read,
        pair(pairs.test_a_heartbeat_beside_a_recovery_keeps_the_run_or_learns_that_it_is_lost),
    ),
    (a_reaper_fenced_by_the_id_alone, pair(keys.test_of_two_sweeps_one_recovers_the_run, options=BOTH)),
    (
        a_claim_fenced_by_the_status_alone,
        pair(pairs.test_a_job_that_failed_beside_a_claim_does_not_start_inside_its_backoff),
    ),
    (a_claim_fenced_by_the_id_alone, pair(pairs.test_of_two_claims_one_gets_the_job, options={})),
    (
        payloads_of_the_first_find,
        pair(pairs.test_a_claim_gives_the_newest_payload_that_was_acknowledged_before_it, plain=False),
    ),
    (a_claim_that_believes_its_first_find, pair(pairs.test_of_two_claims_one_gets_the_job, options={})),
    (
        a_settle_of_ids_times_tokens,
        pair(pairs.test_a_batch_that_holds_a_stale_claim_ends_nothing_of_the_newer_run_of_the_same_worker),
    ),
    (a_settle_without_the_token, pair(pairs.test_a_late_finisher_beside_a_newer_run_changes_nothing_of_it)),
    (a_release_that_keeps_the_attempt, pair(pairs.test_a_release_beside_a_claim_spends_no_attempt)),
    (
        ends_that_do_not_count_what_was_matched,
        pair(turns.test_an_end_with_a_claim_beside_a_recovery_ends_its_run_or_learns_that_it_is_lost),
    ),
    (a_move_back_without_a_receipt, crash("settle a mix")),
    (a_run_that_keeps_its_token_in_the_queue, pair(pairs.test_a_release_beside_a_claim_spends_no_attempt)),
    (
        a_latest_that_does_not_ask_whether_the_job_still_waits,
        pair(keys.test_the_latest_payload_beside_a_claim_is_run_by_it_or_by_a_follower),
    ),
    (
        a_latest_that_asks_only_whether_the_job_still_waits,
        pair(keys.test_a_latest_that_arrives_late_replaces_nothing_newer, newer="latest"),
    ),
    (
        a_latest_without_the_count_it_read,
        pair(keys.test_a_latest_that_arrives_late_replaces_nothing_newer, newer="latest"),
    ),
    (
        a_latest_without_the_time_it_read,
        pair(keys.test_a_latest_that_arrives_late_replaces_nothing_newer, newer="update"),
    ),
    (
        a_latest_without_the_time_it_read,
        pair(keys.test_a_latest_that_arrives_late_replaces_nothing_newer, newer="run"),
    ),
    (
        an_answer_that_the_key_is_taken_without_another_look,
        pair(
            keys.test_a_third_job_of_a_key_beside_the_start_of_its_follower_leaves_work_outstanding, coalesce="latest"
        ),
    ),
    (reads_that_believe_one_server, crash("claim")),
    (reads_that_believe_one_server, crash("settle completions")),
    (reads_that_believe_one_server, crash("settle completions and claim")),
    (a_journal_that_is_not_fenced, crash("journal of a lost run")),
    (a_journal_that_is_not_fenced, schedules),
    (a_journal_that_does_not_ask_whether_the_step_is_there, crash("journal")),
    (a_journal_that_counts_too_little, crash("journal")),
    (an_answer_that_the_key_is_taken_without_another_look, swallowed),
    (a_latest_that_does_not_ask_whether_the_job_still_waits, swallowed),
    (a_settle_of_ids_times_tokens, schedules),
    (a_release_that_keeps_the_attempt, schedules),
    (a_claim_fenced_by_the_id_alone, schedules),
    (a_latest_that_does_not_ask_whether_the_job_still_waits, schedules),
    (
        an_insert_that_is_decided_on_a_read_alone,
        pair(pairs.test_of_two_that_claim_or_enqueue_one_key_one_runs, options=QUEUED),
    ),
]


@pytest.mark.parametrize(("plant", "check"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_fault_is_found(world: World, monkeypatch: pytest.MonkeyPatch, plant: Plant, check: Check) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(world)


@pytest.mark.parametrize(
    ("index", "branch", "check"),
    [
        (QUEUED_SLOT, 0, pair(keys.test_of_two_jobs_of_a_key_added_at_once_one_is_stored, options=QUEUED)),
        (QUEUED_SLOT, 1, pair(other_scope, held=BOTH, asked=QUEUED)),
        (RUNNING_SLOT, 0, pair(keys.test_a_follower_starts_when_its_run_has_ended_and_not_before)),
        (RUNNING_SLOT, 1, pair(other_scope, held=QUEUED, asked=BOTH)),
    ],
)
def test_a_branch_that_is_left_out_of_a_dedupe_index_is_found(
    db: Database[dict[str, Any]], index: Index, branch: int, check: Check
) -> None:
    branches = index.filter["$or"]
    less = replace(index, filter={"$or": [other for n, other in enumerate(branches) if n != branch]})
    world = World(db.job, [less if one is index else one for one in ALL])
    with pytest.raises(AssertionError):
        check(world)
