"""What the benchmarks print and write. How fast anything is, no test says."""

from __future__ import annotations

import io
import json

import pytest

from benchmarks.durable.report import Line, by_ours, line, short, table, write
from benchmarks.pairs import Pair, by_difference, by_ratio
from benchmarks.report import Target, columns

PAIRS = [Pair([80.0], [100.0]), Pair([90.0], [100.0]), Pair([70.0], [100.0])]


def throughput(target: Target | None = None) -> Line:
    return line("throughput", "sync", "jobs/s", "floor", PAIRS, target, better="more")


def test_the_columns_of_a_table_are_as_wide_as_their_widest_cells() -> None:
    assert columns(("a", "bcd"), [("efg", "h")]).splitlines() == ["| a   | bcd |", "|-----|-----|", "| efg | h   |"]


def test_a_line_of_the_table_shows_both_sides_and_what_is_judged() -> None:
    shown = table([throughput(Target("at least", 0.75))]).splitlines()[2]
    cells = [cell.strip() for cell in shown.strip("|").split("|")]
    assert cells[:8] == ["throughput", "sync", "3", "jobs/s", "80", "100", "floor", "0.80"]
    assert cells[9:] == ["≥ 0.75", "met"]


def test_a_line_without_a_target_has_no_verdict() -> None:
    assert throughput().met is None
    assert throughput().cells()[-2:] == ("", "")


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target("at least", 0.81), False),
        (Target("at most", 0.8), True),
        (Target("ms more", -19), True),
        (Target("writes more", -21), False),
    ],
)
def test_a_target_is_met_in_its_direction(target: Target, met: bool) -> None:
    judged = line("any", "", "", "", PAIRS, target, compare=by_difference if target.unit else by_ratio)
    assert judged.met is met


def test_a_difference_is_shown_with_its_unit() -> None:
    target = Target("ms more", 1.0)
    assert (str(target), target.shown(0.54)) == ("≤ +1 ms", "+0.5 ms")


def test_a_figure_that_is_judged_by_itself_keeps_what_it_is_compared_with() -> None:
    memory = line("memory", "", "MB", "floor", PAIRS, Target("at most", 80), compare=by_ours)
    assert (memory.comparison.ours, memory.comparison.loop, memory.comparison.against) == (80, 100, 80)
    assert (memory.met, memory.ratio) == (True, 0.8)


def test_the_ratio_for_later_runs_is_of_both_sides_even_where_a_difference_is_judged() -> None:
    pickup = line("pickup", "sync", "ms", "floor", PAIRS, Target("ms more", 1), compare=by_difference, better="less")
    assert (pickup.comparison.against, pickup.ratio) == (-20, 0.8)


def test_the_json_of_a_line_has_every_run_and_their_spread() -> None:
    written = json.loads(json.dumps(throughput(Target("at least", 0.75)).as_json()))
    assert written["name"] == "throughput, sync"
    assert written["runs"] == [[80, 100], [90, 100], [70, 100]]
    assert written["spread"] == {"ours": [70, 90], "other": [100, 100]}
    assert (written["ours"], written["other"], written["ratio"], written["met"]) == (80, 100, 0.8, True)
    assert written["low"] <= written["judged"] <= written["high"]


def test_a_result_is_written_as_json_with_a_line_for_each_measure() -> None:
    result = {"note": 'a "busy" machine', "lines": [throughput().as_json(), {"name": "other"}]}
    file = io.StringIO()
    write(result, file)
    assert json.loads(file.getvalue()) == result
    assert len(file.getvalue().splitlines()) == 7


def test_figures_are_written_with_five_digits() -> None:
    assert [short(value) for value in (12345.678, 0.123456, 3.0)] == [12346, 0.12346, 3]
