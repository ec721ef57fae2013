"""A file as it was read: its tree, and where a ``noqa`` comment silences a rule."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_NOQA = re.compile(r"#\s*noqa\b(?::\s*(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?", re.IGNORECASE)

LONGEST = 60
"""Of the texts that messages quote."""


class Unreadable(Exception):  # noqa: N818  # it is collected as a value, like the findings
    """Says that a file is not there, or holds no Python that the running interpreter could read.

    Attributes:
        path: The file.
        reason: What is wrong with it.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Source:
    """A file, with its path as it is printed."""

    path: Path
    text: str
    tree: ast.Module

    def silences(self, line: int, code: str) -> bool:
        """Whether a ``noqa`` comment on that line is for this rule, or for all."""
        return any(not codes or code.startswith(codes) for codes in self._noqa.get(line, ()))

    def segment(self, node: ast.expr) -> str:
        """The text of an expression, or as much of it as a message has room for."""
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        line = self._lines[node.lineno - 1].encode()[node.col_offset : end].decode().rstrip()
        return line if len(line) <= LONGEST and end is not None else f"{line[: LONGEST - 3].rstrip()}..."

    @cached_property
    def _lines(self) -> list[str]:
        return list(io.StringIO(self.text, newline=None))

    @cached_property
    def _noqa(self) -> dict[int, list[tuple[str, ...]]]:
        # As in flake8, a comment counts for all lines that one text in quotes, or a backslash, makes of its line.
        silenced: dict[int, list[tuple[str, ...]]] = {}
        begin = 1
        comments: list[tuple[str, ...]] = []
        for token in tokenize.generate_tokens(io.StringIO(self.text, newline=None).readline):
            if token.type == tokenize.COMMENT and (found := _NOQA.search(token.string)):
                comments.append(tuple(re.split(r"[,\s]+", found["codes"].upper())) if found["codes"] else ())
            elif token.type in (tokenize.NL, tokenize.NEWLINE):
                if comments:
                    silenced |= dict.fromkeys(range(begin, token.end[0] + 1), comments)
                begin, comments = token.end[0] + 1, []
        return silenced


def read(path: Path) -> Source:
    """Reads a file, in the encoding that it declares.

    Raises:
        Unreadable: It cannot be opened or parsed.
    """
    try:
        content = path.read_bytes()
        tree = ast.parse(content, str(path))
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return Source(path, content.decode(encoding), tree)
    except OSError as error:
        raise Unreadable(path, f"cannot be read: {error.strerror or error}") from error
    except SyntaxError as error:
        raise Unreadable(path, f"does not parse: {error.msg} (line {error.lineno})") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(path, f"does not parse: {str(error) or 'too deeply nested'}") from error
