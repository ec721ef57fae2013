"""Checks that orchestration bodies do the same again when they are resumed.

The rules, all about the control path: what a body and the functions it calls do outside of steps.

* DUR001: it awaits, or blocks on, something other than ``octx.*``;
* DUR002: it takes the clock, chance, a new uuid or the order of a set;
* DUR003: it lets a race or a timeout decide.

``python -m durabl_ext.lint PATH...`` checks files and folders, and flake8 finds the rules under ``DUR``. Nothing is
imported or run of what is checked.
"""

from durabl_ext.lint.check import Report, check
from durabl_ext.lint.control_path import Finding

__all__ = ["Finding", "Report", "check"]
