"""Lets Sphinx read docstrings, which are plain text with `code` in backticks, as reStructuredText.

Signs that mean something there, such as the bars of |x - y|, are escaped, and indented lines below
a paragraph become blocks of code.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CODE = re.compile(r"(`[^`]*`)")
_SIGNS = re.compile(r"(?<!\\)([*|]|(?<=\w)_(?!\w))")
_NAMES = re.compile(r" +(\w+, )*\w+,$")


def escaped(line: str) -> str:
    """Returns the line with a backslash before signs of markup that are outside of `code`."""
    parts = _CODE.split(line)
    parts[::2] = [_SIGNS.sub(r"\\\1", part) for part in parts[::2]]
    for i in range(1, len(parts), 2):  # "`Input`s": code ends there only where a separator says so
        if parts[i + 1][:1].isalnum():
            parts[i] += "\\ "
    return "".join(parts)


def joined(lines: list[str]) -> list[str]:
    """Returns the lines with names of arguments that share a description on one line."""
    result: list[str] = []
    for line in lines:
        if result and _NAMES.match(result[-1]) and line.strip():
            result[-1] += " " + line.strip()
        else:
            result.append(line)
    return result


def readable(lines: list[str]) -> list[str]:
    """Returns a docstring as reStructuredText that shows what the docstring says."""
    result: list[str] = []
    before, blank, in_code, in_example = "", True, False, False
    for line in lines:
        indented = line.startswith("    ")
        if not line.strip():
            blank, in_example = True, False
            result.append(line)
            continue
        starts_code = blank and indented and before and not before.startswith(" ")
        if starts_code and not line.lstrip().startswith(">>>"):
            result += ["::", ""]
            in_code = True
        in_code = in_code and indented
        in_example = in_example or line.lstrip().startswith(">>>")
        result.append(line if in_code or in_example else escaped(line))
        before, blank = line, False
    return result


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what == "data" and inspect.getdoc(obj) == inspect.getdoc(type(obj)):
        lines.clear()  # Constants have no docstring of their own, and that of `tuple` says nothing.
    lines[:] = readable(joined(lines))


def skip(app: Sphinx, what: str, name: str, obj: Any, leave_out: bool, options: Any) -> bool | None:
    """Leaves out methods that another library adds to our classes, with its own docstrings."""
    return True if (getattr(obj, "__module__", None) or "").startswith("sklearn.") else None


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", process, priority=100)  # before napoleon
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
