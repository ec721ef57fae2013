"""The clock that all processes share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Self

import pytest
from pymongo.errors import AutoReconnect

from simplequeue import clock
from simplequeue.clock import MEASURE_EVERY, ServerClock
from simplequeue.jobs import run

START = datetime(2026, 8, 25, 14, 0, 0, tzinfo=UTC)


class World:
    """The clocks of this machine and of the server, all in the test's hand.

    ``set_back`` moves what this machine's wall clock shows; time itself only passes by ``sleep``.
    """

    def __init__(self, ahead: timedelta) -> None:
        self.true = START
        self.wall_error = timedelta(0)
        self.ahead = ahead
        self.there = timedelta(0)
        self.back = timedelta(0)
        self.asked = 0
        self.trouble: Exception | None = None

    def sleep(self, seconds: float) -> None:
        self.true += timedelta(seconds=seconds)

    def set_back(self, seconds: float) -> None:
        self.wall_error -= timedelta(seconds=seconds)

    def wall(self) -> datetime:
        return self.true + self.wall_error

    def server(self) -> datetime:
        return self.true + self.ahead

    def monotonic(self) -> float:
        return (self.true - START).total_seconds() + 1_000

    async def measure(self) -> datetime:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        self.true += self.there
        theirs = self.server()
        self.true += self.back
        return theirs


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which the server is ten minutes ahead of this machine."""
    made = World(timedelta(minutes=10))

    class Now(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            assert tz is UTC
            return cls.fromtimestamp(made.wall().timestamp(), tz)

    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=made.monotonic))
    monkeypatch.setattr(clock, "datetime", Now)
    return made


def test_the_time_is_the_servers_and_not_this_machines(world: World) -> None:
    now = run(ServerClock(world.measure).now())
    assert now == START + timedelta(minutes=10)
    assert now.utcoffset() == timedelta(0)


@pytest.mark.parametrize("ahead", [timedelta(minutes=-10), timedelta(0), timedelta(days=400), timedelta(seconds=-0.25)])
def test_the_distance_may_be_anything(world: World, ahead: timedelta) -> None:
    world.ahead = ahead
    assert run(ServerClock(world.measure).now()) == START + ahead


def test_the_time_goes_on_between_measurements_without_asking(world: World) -> None:
    shared = ServerClock(world.measure)
    run(shared.now())
    for _ in range(59):
        world.sleep(1)
        assert run(shared.now()) == world.server()
    assert world.asked == 1


def test_the_server_is_asked_again_after_a_minute(world: World) -> None:
    shared = ServerClock(world.measure)
    run(shared.now())
    world.sleep(MEASURE_EVERY)
    run(shared.now())
    assert world.asked == 1
    world.ahead += timedelta(milliseconds=30)
    world.sleep(0.001)
    assert run(shared.now()) == world.server()
    assert world.asked == 2
    world.sleep(MEASURE_EVERY)
    run(shared.now())
    assert world.asked == 2


@pytest.mark.parametrize("seconds", [3_600, -3_600, 0.2, -0.2], ids=lambda seconds: f"by {seconds:g} s")
def test_the_server_is_asked_again_once_somebody_has_set_the_wall_clock(world: World, seconds: float) -> None:
    shared = ServerClock(world.measure)
    run(shared.now())
    world.sleep(1)
    world.set_back(seconds)
    assert run(shared.now()) == world.server()
    assert world.asked == 2
    run(shared.now())
    assert world.asked == 2


def test_a_wall_clock_that_is_slewed_a_little_is_put_up_with(world: World) -> None:
    shared = ServerClock(world.measure)
    run(shared.now())
    world.sleep(1)
    world.set_back(0.01)
    now = run(shared.now())
    assert world.asked == 1
    assert abs(now - world.server()) <= timedelta(milliseconds=10)


def test_half_of_the_time_the_question_took_is_added_to_the_answer(world: World) -> None:
    world.there = world.back = timedelta(milliseconds=400)
    shared = ServerClock(world.measure)
    assert run(shared.now()) == world.server()


def test_an_answer_that_took_its_way_back_only_is_wrong_by_half_of_that_at_most(world: World) -> None:
    world.back = timedelta(seconds=2)
    shared = ServerClock(world.measure)
    assert abs(run(shared.now()) - world.server()) <= timedelta(seconds=1)


@pytest.mark.parametrize(
    ("waits", "error"), [([20], 0), ([20, 5], 0), ([0.2, 20, 0.15], 0.075), ([0.15, 0.2, 20], 0.075)]
)
def test_an_answer_that_waited_for_an_election_is_not_believed_when_a_prompter_one_can_be_had(
    world: World, waits: list[float], error: float
) -> None:
    left = iter(waits)

    async def measure() -> datetime:
        world.there = timedelta(seconds=next(left, 0))
        return await world.measure()

    shared = ServerClock(measure)
    assert abs(run(shared.now()) - world.server()) <= timedelta(seconds=error)
    asked = world.asked
    run(shared.now())
    assert world.asked == asked


@pytest.mark.parametrize("microseconds", [0, 1, 999, 1_000, 123_456, 999_999])
def test_the_time_is_cut_to_milliseconds_and_never_rounded_up(world: World, microseconds: int) -> None:
    world.ahead = timedelta(microseconds=microseconds)
    now = run(ServerClock(world.measure).now())
    assert now == START + timedelta(milliseconds=microseconds // 1_000)
    assert now.microsecond % 1_000 == 0


def test_an_error_of_the_server_reaches_who_asked_and_the_next_one_asks_again(world: World) -> None:
    shared = ServerClock(world.measure)
    world.trouble = AutoReconnect("gone")
    for _ in range(2):
        with pytest.raises(AutoReconnect, match="gone"):
            run(shared.now())
    assert world.asked == 2
    world.trouble = None
    assert run(shared.now()) == world.server()


def test_a_stale_measurement_is_not_used_when_a_new_one_cannot_be_had(world: World) -> None:
    shared = ServerClock(world.measure)
    run(shared.now())
    world.sleep(MEASURE_EVERY + 1)
    world.trouble = AutoReconnect("gone")
    with pytest.raises(AutoReconnect):
        run(shared.now())


def test_nothing_is_asked_before_somebody_wants_to_know(world: World) -> None:
    ServerClock(world.measure)
    assert world.asked == 0
