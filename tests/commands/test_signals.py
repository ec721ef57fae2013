"""A signal at any moment ends a worker within its budget, and what signals did before is restored."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from simplequeue import create_queue, listener
from simplequeue_scripts import worker
from simplequeue_scripts._signals import SIGNALS, Signals
from simplequeue_scripts.worker import serve
from tests.watching import DEADLINE

ROUNDS = 200
BUDGET = 20.0
"""Seconds for a round that takes some tens of milliseconds: only one that hangs or runs into a timeout misses it."""


class Recorded:
    """A signal handler from before, which remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, FrameType | None]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.calls.append((number, frame))


@pytest.fixture
def earlier() -> Iterator[Recorded]:
    """The handler that both signals have, also where one comes too late for the worker."""
    recorded = Recorded()
    before = {number: signal.signal(number, recorded) for number in SIGNALS}
    yield recorded
    for number, handler in before.items():
        signal.signal(number, handler)


def send(entered: threading.Event, burst: list[tuple[float, signal.Signals]]) -> None:
    """Sends this process signals, each after a pause, from when somebody is ready for them."""
    entered.wait(DEADLINE)
    for pause, number in burst:
        threading.Event().wait(pause)  # the random moment
        os.kill(os.getpid(), number)


class Silent:
    """A listener with no jobs, for rounds that are about the signals only."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.timeouts: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        return self._stopped.wait(timeout)

    def stop(self, timeout: float | None = None) -> bool:
        self.timeouts.append(timeout)
        self._stopped.set()
        return True


@pytest.mark.parametrize(
    "burst",
    [
        (signal.SIGTERM,),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGINT, signal.SIGTERM),
    ],
    ids=lambda burst: "-".join(number.name for number in burst),
)
def test_a_signal_at_a_random_moment_ends_it_within_the_budget(
    burst: tuple[signal.Signals, ...], earlier: Recorded, monkeypatch: pytest.MonkeyPatch, mock_db: Any
) -> None:
    monkeypatch.setattr(worker, "LOOK", 0.01)
    monkeypatch.setattr(listener, "MOMENT", 0.01)  # which no wait of a listener is shorter than
    rng = random.Random(40)
    queue = create_queue(mock_db)
    queue.add_many([("greet", {})] * ROUNDS)
    for _ in range(ROUNDS):
        entered = threading.Event()
        sender = threading.Thread(target=send, args=(entered, [(rng.uniform(0, 0.02), number) for number in burst]))
        sender.start()
        began = time.monotonic()
        with Signals() as signals:
            entered.set()
            assert serve(signals, lambda: queue.listen(lambda job: None, concurrency=1), BUDGET, "listening")
        assert time.monotonic() - began < BUDGET
        sender.join(DEADLINE)
        assert [signal.getsignal(number) for number in SIGNALS] == [earlier, earlier]
    assert mock_db.job.count_documents({"status": "running"}) == 0
    assert len(earlier.calls) >= ROUNDS


def test_the_signal_handler_only_sets_an_attribute() -> None:
    # Whatever it did more, it would do while the interrupted line may hold the lock that it needs.
    code = Signals._note.__code__
    assert code.co_names == ("signal", "Signals", "received")


@pytest.mark.usefixtures("earlier")
def test_it_stops_with_the_timeout_and_tells_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    listener = Silent()
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert serve(signals, lambda: listener, 7.5, "listening")
    assert listener.timeouts == [7.5]
    assert capsys.readouterr().err.splitlines() == [
        "listening",
        "SIGTERM: taking no more jobs, waiting up to 7.5 s for those that run",
        "stopped: every handler has finished",
    ]


def test_a_handler_from_before_is_called_from_the_main_line(earlier: Recorded) -> None:
    listener = Silent()
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert earlier.calls == []
        serve(signals, lambda: listener, 1, "listening")
    assert earlier.calls == [(signal.SIGINT, None)]


def test_a_handler_from_before_that_raises_does_not_spare_the_stop(earlier: Recorded) -> None:
    listener = Silent()

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(number)

    signal.signal(signal.SIGTERM, leave)
    with pytest.raises(SystemExit), Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        serve(signals, lambda: listener, 1, "listening")
    assert listener.timeouts == [1]
    assert [signal.getsignal(number) for number in SIGNALS] == [leave, earlier]


@pytest.mark.usefixtures("earlier")
@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler])
def test_defaults_are_restored_and_not_called(before: Any) -> None:
    signal.signal(signal.SIGINT, before)
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received is signal.SIGINT
        signals.pass_on()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("earlier")
def test_an_error_at_the_start_restores_the_handlers(earlier: Recorded) -> None:
    def fail() -> Silent:
        raise ConnectionError

    with pytest.raises(ConnectionError), Signals() as signals:
        serve(signals, fail, 1, "listening")
    assert [signal.getsignal(number) for number in SIGNALS] == [earlier, earlier]


@pytest.mark.usefixtures("earlier")
def test_it_ends_when_the_listener_is_stopped_by_somebody_else() -> None:
    listener = Silent()
    listener.stop()
    with Signals() as signals:
        assert serve(signals, lambda: listener, 1, "listening")
