"""assert_crash_safe: it passes what is safe, and names what is not; each fault here is planted."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from durabl_ext import NondeterminismError
from durabl_ext.testing import CrashUnsafe, OrchestrationHarness, assert_crash_safe
from tests.testing.provider import Provider, two_steps

KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["def", "async def"])


@pytest.fixture
def provider() -> Provider:
    return Provider()


def unsafe(body: Any, effects: Callable[[], object], **settings: Any) -> CrashUnsafe:
    with pytest.raises(CrashUnsafe) as raised:
        assert_crash_safe(body, effects=effects, **settings)
    return raised.value


@KINDS
def test_a_body_whose_provider_knows_its_keys_is_safe(kind: int, provider: Provider) -> None:
    assert_crash_safe(two_steps(provider)[kind], data={"who": "ada"}, effects=provider.effects)
    # Two writes: two runs without interruption, 2 x 3 cases of two runs each, and two for the second delivery. In all
    # of them ada is charged, and once more where the worker died before that was kept or lost its lease.
    assert provider.calls.count("ada") == 2 + 6 + 1 + 2


@KINDS
def test_a_key_that_names_an_entity_does_no_harm(kind: int, provider: Provider) -> None:
    def waiting(job: Any, octx: Any) -> None:
        octx.step("charge", lambda step: provider.charge("ada", 1, step.idempotency_key), idempotency_key="ada:1")

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.step("charge", lambda step: provider.charge("ada", 1, step.idempotency_key), idempotency_key="ada:1")

    assert_crash_safe((waiting, awaiting)[kind], effects=provider.effects)


@KINDS
def test_a_charge_without_a_key_is_named(kind: int, provider: Provider) -> None:
    def waiting(job: Any, octx: Any) -> None:
        octx.step("greet", lambda step: "hello")
        octx.step("charge", lambda step: provider.charge("ada", 5))

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.step("greet", lambda step: "hello")
        await octx.step("charge", lambda step: provider.charge("ada", 5))

    body = (waiting, awaiting)[kind]
    error = unsafe(body, provider.effects, data={"who": "ada"})
    assert (error.step, error.seq) == ("charge", "1")
    assert (error.expected, error.found) == ([("ada", 5)], [("ada", 5), ("ada", 5)])
    text = str(error)
    assert text.startswith("the worker died before step 'charge' at 1 was journaled, and the job was resumed: ")
    assert "      ('ada', 5)\n    + ('ada', 5)\n" in text
    assert "step.idempotency_key" in text
    assert "transactional=True" in text
    assert "Traceback" not in text
    assert isinstance(error, AssertionError)
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_the_program_in_the_message_shows_the_same(provider: Provider, capsys: pytest.CaptureFixture[str]) -> None:
    def body(job: Any, octx: Any) -> None:
        for key in ("a key", None):
            octx.step("charge", lambda step, key: provider.charge(job.data["who"], 5, key), key)

    error = unsafe(body, provider.effects, data={"who": "ada"}, seed="7")
    assert error.repeat.splitlines() == [
        "    harness = OrchestrationHarness(body, data={'who': 'ada'}, seed='7')",
        "    harness.crash_before('charge', seq='1')",
        "    harness.resume()",
        "    print(effects())",
    ]
    names = {"OrchestrationHarness": OrchestrationHarness, "body": body, "effects": provider.effects}
    exec("\n".join(line[4:] for line in error.repeat.splitlines()), names)
    assert capsys.readouterr().out == f"{error.found}\n"


@KINDS
def test_a_lost_lease_is_tried_at_each_write(kind: int, provider: Provider) -> None:
    # Dying it does no harm; only who lives on and lost its lease goes on to undo what another worker has done.
    def undo(octx: Any) -> None:
        if octx.signal.reason == "lease-lost" and len(provider.calls) > 1:
            provider.charge("undone", -5)

    def charge(step: Any) -> str:
        return provider.charge("ada", 5, step.idempotency_key)

    def waiting(job: Any, octx: Any) -> None:
        try:
            octx.step("charge", charge)
        except Exception:
            raise
        except BaseException as error:
            if type(error).__name__ == "RunAborted":
                undo(octx)
            raise

    async def awaiting(job: Any, octx: Any) -> None:
        try:
            await octx.step("charge", charge)
        except BaseException as error:
            if type(error).__name__ == "RunAborted":
                undo(octx)
            raise

    error = unsafe((waiting, awaiting)[kind], provider.effects)
    assert error.case.startswith("the lease was lost before step 'charge' at 0 was journaled")
    assert error.found == [("ada", 5), ("undone", -5)]
    assert "harness.lose_lease_before('charge')" in error.repeat
    assert "except or a finally" in error.remedy


@KINDS
def test_what_is_done_outside_of_steps_is_found(kind: int, provider: Provider) -> None:
    def waiting(job: Any, octx: Any) -> None:
        octx.step("a", lambda step: None)
        provider.charge("ada", 5)

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.step("a", lambda step: None)
        provider.charge("ada", 5)

    error = unsafe((waiting, awaiting)[kind], provider.effects)
    assert error.case == "the body ran to its end, which was not stored, and the job was delivered again"
    assert (error.step, error.seq) == (None, None)
    assert "put it into a step" in error.remedy
    assert "    harness.run()\n    harness.resume()\n" in error.repeat


def test_what_comes_before_the_first_step_is_found_too(provider: Provider) -> None:
    def body(job: Any, octx: Any) -> None:
        provider.charge("ada", 5)
        octx.step("a", lambda step: None)

    assert unsafe(body, provider.effects).step == "a"


@KINDS
def test_hidden_state_that_picks_another_step_is_found(kind: int, provider: Provider) -> None:
    runs: list[str] = []

    def first(job: Any) -> bool:
        # True in a run that nothing interrupted before: what a cache in a global does.
        runs.append(job.id)
        return bool(job.attempt == 1)

    def waiting(job: Any, octx: Any) -> None:
        octx.step("warm" if first(job) else "cold", lambda step: provider.charge("ada", 1, step.idempotency_key))

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.step("warm" if first(job) else "cold", lambda step: provider.charge("ada", 1, step.idempotency_key))

    error = unsafe((waiting, awaiting)[kind], provider.effects)
    assert error.step == "warm"

    def after(job: Any, octx: Any) -> None:
        octx.step("read", lambda step: None)
        octx.step("warm" if first(job) else "cold", lambda step: provider.charge("ada", 1, "one key"))

    error = unsafe(after, provider.effects)
    assert error.case.startswith("the worker died after step 'warm' at 1")
    assert isinstance(error.__cause__, NondeterminismError)
    assert "did not call the same steps" in error.remedy
    assert "NondeterminismError: job" in error.problem


def test_hidden_state_that_changes_every_run_is_found_before_anything_is_interrupted(provider: Provider) -> None:
    amounts: list[int] = []

    def body(job: Any, octx: Any) -> None:
        amounts.append(len(amounts))
        octx.step("charge", lambda step: provider.charge("ada", len(amounts), step.idempotency_key))

    error = unsafe(body, provider.effects)
    assert "nothing interrupted it" in error.case
    assert "depends on something besides its job" in error.remedy


def test_a_write_that_does_not_come_again_is_chance(provider: Provider) -> None:
    runs: list[int] = []

    def body(job: Any, octx: Any) -> None:
        runs.append(1)
        octx.step("charge", lambda step: provider.charge("ada", 5, step.idempotency_key))
        if len(runs) <= 2:
            octx.step("sometimes", lambda step: None)

    error = unsafe(body, provider.effects)
    assert error.step == "sometimes"
    assert "did not write step 'sometimes'" in error.problem


def test_a_body_that_fails_by_itself_is_said_to(provider: Provider) -> None:
    def body(job: Any, octx: Any) -> None:
        octx.step("charge", lambda step: provider.charge("ada", 5))
        raise LookupError("no such user")

    error = unsafe(body, provider.effects)
    assert error.case == "the body failed although nothing interrupted it"
    assert error.problem == "LookupError: no such user"
    assert isinstance(error.__cause__, LookupError)


def test_a_resumed_body_that_fails_is_found(provider: Provider) -> None:
    seen: set[str] = set()

    def create(step: Any) -> str:
        provider.charge("ada", 5, step.idempotency_key)
        if step.idempotency_key in seen:
            raise ValueError("exists already")
        seen.add(step.idempotency_key)
        return "made"

    def effects() -> object:
        seen.clear()
        return provider.effects()

    error = unsafe(lambda job, octx: octx.step("create", create), effects)
    assert error.step == "create"
    assert error.problem == "ValueError: exists already"
    assert "must be no error" in error.remedy
    assert "OrchestrationHarness(body" in error.repeat, "a lambda has no name to write"


@KINDS
def test_a_compensated_failure_is_crash_safe(kind: int, provider: Provider) -> None:
    def pay(step: Any) -> None:
        raise ValueError("declined")

    def refund(step: Any) -> str:
        return provider.charge("refund", -5, step.idempotency_key)

    def waiting(job: Any, octx: Any) -> None:
        try:
            octx.step("pay", pay)
        except ValueError:
            octx.step("refund", refund)

    async def awaiting(job: Any, octx: Any) -> None:
        try:
            await octx.step("pay", pay)
        except ValueError:
            await octx.step("refund", refund)

    assert_crash_safe((waiting, awaiting)[kind], effects=provider.effects)


@KINDS
def test_the_failure_of_a_step_is_a_boundary(kind: int, provider: Provider) -> None:
    def pay(step: Any) -> None:
        provider.charge("try", 0)
        raise ValueError("declined")

    def waiting(job: Any, octx: Any) -> None:
        try:
            octx.step("pay", pay)
        except ValueError:
            octx.step("tell", lambda step: None)

    async def awaiting(job: Any, octx: Any) -> None:
        try:
            await octx.step("pay", pay)
        except ValueError:
            await octx.step("tell", lambda step: None)

    error = unsafe((waiting, awaiting)[kind], provider.effects)
    assert "before the failure of step 'pay' at 0 was journaled" in error.case


@KINDS
def test_loops_branches_and_gather_are_crash_safe(kind: int, provider: Provider) -> None:
    def charge(step: Any, who: str) -> str:
        return provider.charge(who, 1, step.idempotency_key)

    def waiting(job: Any, octx: Any) -> None:
        octx.now()

        def branch(who: str) -> Callable[[Any], Any]:
            return lambda octx: [octx.step("charge", charge, f"{who}{n}") for n in range(2)]

        def nested(octx: Any) -> Any:
            return octx.all(branch("b"), branch("c"))

        octx.all(branch("a"), nested)
        octx.step("charge", charge, octx.uuid("last"))

    async def awaiting(job: Any, octx: Any) -> None:
        await octx.now()

        def branch(who: str) -> Callable[[Any], Any]:
            async def steps(octx: Any) -> None:
                for n in range(2):
                    await octx.step("charge", charge, f"{who}{n}")

            return steps

        async def nested(octx: Any) -> Any:
            return await octx.all(branch("b"), branch("c"))

        await octx.all(branch("a"), nested)
        await asyncio.gather(*[octx.step("charge", charge, f"d{n}") for n in range(3)])
        await octx.step("charge", charge, await octx.uuid("last"))

    async def main() -> None:  # also under a running loop
        assert_crash_safe((waiting, awaiting)[kind], effects=provider.effects)

    asyncio.run(main())


def test_one_charge_without_a_key_among_steps_at_once_is_named_by_its_place(provider: Provider) -> None:
    async def charge(step: Any, who: str) -> None:
        await asyncio.sleep(random.random() / 1000)
        provider.charge(who, 1, None if who == "bob" else step.idempotency_key)

    async def body(job: Any, octx: Any) -> None:
        await asyncio.gather(*[octx.step("charge", charge, who) for who in ("ada", "bob", "eve")])

    error = unsafe(body, lambda: Counter(provider.effects()))
    # A worker that dies takes down what was under way beside the step it dies at, so that may be the place as well.
    assert error.step == "charge"
    assert isinstance(error.found, Counter)
    assert error.found[("bob", 1)] == 2
    assert "+ ('bob', 1): 2" in error.problem


def test_effects_that_do_not_forget_are_refused(provider: Provider) -> None:
    body = two_steps(provider)[0]
    with pytest.raises(ValueError, match="does not forget"):
        assert_crash_safe(body, data={"who": "ada"}, effects=lambda: list(provider.charged))
    with pytest.raises(ValueError, match="does not forget"):
        assert_crash_safe(body, data={"who": "ada"}, effects=lambda: len(provider.calls))


def test_effects_that_cannot_show_a_difference_are_refused(provider: Provider) -> None:
    def cleared() -> object:
        try:
            return provider.charged
        finally:
            provider.charged.clear()

    body = two_steps(provider)[0]
    for effects in (cleared, lambda: provider.charged, lambda: None):
        with pytest.raises(ValueError, match="sees nothing"):
            assert_crash_safe(body, data={"who": "ada"}, effects=effects)


def test_effects_that_forget_what_was_done_but_not_the_keys_are_found(provider: Provider) -> None:
    def effects() -> object:
        done = sorted(provider.charged)
        provider.charged.clear()
        return done

    error = unsafe(two_steps(provider)[0], effects, data={"who": "ada"})
    assert "has to forget the keys too" in error.remedy


def test_what_was_left_by_an_earlier_test_does_not_count(provider: Provider) -> None:
    provider.charge("earlier", 1)
    assert_crash_safe(two_steps(provider)[0], data={"who": "ada"}, effects=provider.effects)


def test_effects_must_be_callable() -> None:
    with pytest.raises(TypeError, match="effects"):
        assert_crash_safe(lambda job, octx: None, effects=[])  # type: ignore[arg-type]
