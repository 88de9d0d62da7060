"""Corrects what Sphinx writes in a way that programs which read pages aloud misunderstand.

Options such as --help are marked too, because browsers break their lines after a hyphen.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# A signature of several lines is a list of definitions without a word that they define.
_SIGNATURE = re.compile(r'<dl>\n((?:<dd><em class="sig-param.*</dd>\n)+)</dl>')
_PARAMETER = re.compile(r"^<dd>(.*)</dd>$", re.MULTILINE)
# The corner of a table with names in its first column heads nothing.
_CORNER = re.compile(r'<th class="head[^"]*"><p></p></th>')
_OPTION = re.compile(r'<span class="pre">(?=-)')
# The captions of the list of pages are headings of no level.
_CAPTION = 'class="caption" role="heading"'


def _plain_signature(match: re.Match[str]) -> str:
    parameters = _PARAMETER.sub(r"<div>\1</div>", match[1])
    return f'<div class="sig-params">\n{parameters}</div>'


def corrected(body: str) -> str:
    """Returns the HTML of a page's text with signatures, tables and options as they are meant."""
    body = _CORNER.sub("<td></td>", _SIGNATURE.sub(_plain_signature, body))
    return _OPTION.sub('<span class="pre option">', body)


def correct(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if context.get("body"):
        context["body"] = corrected(context["body"])
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(_CAPTION, f'{_CAPTION} aria-level="2"')


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", correct, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
