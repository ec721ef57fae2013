"""The table of states, and what the modules that decide may lean on."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import pytest

from durabl_ext import core
from simplequeue import states
from simplequeue.states import ENDED, MOVES, Move, Status

BASE = tuple(move for move in MOVES if move.layer == "base")


def reached(moves: tuple[Move, ...], start: Status = Status.QUEUED) -> set[Status]:
    """Every state that a job gets into from a state by these moves, that one included."""
    found, news = set[Status](), {start}
    while news:
        found |= news
        news = {move.target for move in moves if move.source in found} - found
    return found


def test_the_table_holds_these_moves_and_no_other() -> None:
    assert {(move.name, move.source.value, move.target.value, move.layer) for move in MOVES} == {
        ("claim", "queued", "running", "base"),
        ("cancel", "queued", "cancelled", "base"),
        ("complete", "running", "completed", "base"),
        ("fail", "running", "failed", "base"),
        ("retry", "running", "queued", "extension"),
        ("release", "running", "queued", "extension"),
        ("recover", "running", "queued", "extension"),
        ("supersede", "running", "superseded", "extension"),
        ("replay", "failed", "queued", "extension"),
    }


def test_a_state_is_the_word_that_is_stored() -> None:
    assert [str(status) for status in Status] == [
        "queued",
        "running",
        "completed",
        "failed",
        "cancelled",
        "superseded",
    ]
    assert all(status == status.value and Status(status.value) is status for status in Status)


def test_every_state_is_reached_from_queued() -> None:
    assert reached(MOVES) == set(Status)


def test_the_base_layer_alone_reaches_all_states_but_superseded() -> None:
    assert reached(BASE) == set(Status) - {Status.SUPERSEDED}


def test_from_every_state_that_is_not_ended_an_end_is_reached() -> None:
    for status in set(Status) - set(ENDED):
        assert reached(BASE, status) & set(ENDED)


def test_ended_are_all_states_but_queued_and_running() -> None:
    assert len(ENDED) == len(set(ENDED))
    assert set(ENDED) == {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.SUPERSEDED}


def test_nothing_leaves_an_end_but_the_replay_of_a_failed_job() -> None:
    assert [move.name for move in MOVES if move.source in ENDED] == ["replay"]
    assert states.REPLAY.source is Status.FAILED


def test_every_state_is_explained_where_it_is_defined() -> None:
    assert Status.__doc__ is not None
    assert all(f"``{status}``" in Status.__doc__ for status in Status)


def test_every_move_that_is_defined_is_in_the_table_once_and_under_its_own_name() -> None:
    defined = {name: value for name, value in vars(states).items() if isinstance(value, Move)}
    assert set(defined.values()) == set(MOVES)
    assert len(defined) == len(MOVES)
    assert all(name.lower() == move.name for name, move in defined.items())


def test_a_move_leads_somewhere_else_and_cannot_be_changed() -> None:
    assert all(move.source is not move.target for move in MOVES)
    with pytest.raises(FrozenInstanceError):
        MOVES[0].target = Status.FAILED  # type: ignore[misc]  # that it is refused is the point


DECISIONS = [
    *(f"simplequeue.{name}" for name in ("states", "payload", "failure", "job", "commands", "runs", "operations")),
    *(f"durabl_ext.{name}" for name in ("options", "many", "job", "outcomes", "errors")),
    *(f"durabl_ext.core.{module.name}" for module in pkgutil.iter_modules(core.__path__)),
]


def imported_by(module: str) -> Iterator[str]:
    """The top-level names of all modules that a module imports, wherever in it and in whichever form."""
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in ("__import__", "import_module"):
                yield from (str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))


@pytest.mark.parametrize("module", DECISIONS)
def test_a_module_that_decides_neither_waits_nor_asks_a_clock(module: str) -> None:
    imported = set(imported_by(module))
    assert imported
    assert not imported & {"asyncio", "threading", "time", "concurrent", "sched", "signal"}


def test_the_look_at_imports_finds_what_the_modules_that_wait_do_import() -> None:
    assert {"asyncio", "threading"} <= set(imported_by("simplequeue.threads"))
    assert "time" in imported_by("simplequeue.clock")
