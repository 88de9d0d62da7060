"""Leaves out what cannot be executed, and says what was: pages that train on MNIST need its files.

A build without network and without a copy of MNIST executes the other pages. Those that it leaves
out say so to their readers, and the build's last lines say which they are and why.
"""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

logger = logging.getLogger(__name__)

# The gallery runs the examples, which train on MNIST.
GALLERY = "gallery"
FIGURE = re.compile(r"^```\{glue:figure\}[^\n]*\n(?::[^\n]*\n)*\n?(.*?)^```\n", re.M | re.S)
NOTE = """
:::{admonition} Not executed in this copy of the site
:class: warning not-executed

This page trains on MNIST, which was not there when this copy was built. What its
cells print and draw is missing.
:::
"""


def executable(folder: Path) -> list[str]:
    """Returns the names of the pages that have cells."""
    pages = [*folder.glob("*.md"), *folder.glob("tutorials/*.md")]
    found = [page for page in pages if "\n```{code-cell}" in page.read_text(encoding="utf-8")]
    return sorted(page.relative_to(folder).with_suffix("").as_posix() for page in found)


def needs_mnist(folder: Path, page: str) -> bool:
    text = (folder / f"{page}.md").read_text(encoding="utf-8")
    return page == GALLERY or "datasets.mnist.load_data(" in text


def why_there_is_no_mnist() -> str:
    """Returns the reason, or nothing where MNIST is there, or could be downloaded."""
    from kerascnn.datasets import mnist

    try:
        mnist.load_data()
    except FileNotFoundError:
        raise  # Who names a place of it does not want the pages left out.
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Execution:
    """Which pages a build executes, and which it leaves out."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.left_out: list[str] = []
        self.reason = ""

    def choose(self, app: Sphinx, config: Config) -> None:
        """Takes pages that cannot run from those that MyST-NB executes."""
        folder = Path(app.srcdir)
        if config.nb_execution_mode == "off":
            return
        self.pages = executable(folder)
        self.reason = why_there_is_no_mnist()
        if not self.reason:
            return
        if config.nb_execution_complete:
            raise RuntimeError(f"Pages that train on MNIST cannot be executed. {self.reason}")
        self.left_out = [page for page in self.pages if needs_mnist(folder, page)]
        patterns = [f"{folder.as_posix()}/{page}.md" for page in self.left_out]
        config.nb_execution_excludepatterns = [*config.nb_execution_excludepatterns, *patterns]

    def add_note(self, app: Sphinx, name: str, source: list[str]) -> None:
        """Tells the readers of a page that was left out, below its title."""
        if name in self.left_out:
            # A kernel that ran would have told its language.
            text = source[0].replace("kernelspec:\n", "kernelspec:\n  language: python\n", 1)
            text = FIGURE.sub(r"\1", text)  # the captions of pictures that are not there
            source[0] = re.sub(r"^# .+\n", lambda title: title[0] + NOTE, text, count=1, flags=re.M)

    def report(self, app: Sphinx, error: Exception | None) -> None:
        """Says what was executed, how long it took, and what was left out."""
        if error is not None or not self.pages:
            return
        seconds = {}
        for page in self.pages:
            data = app.env.nb_metadata[page].get("exec_data")  # type: ignore[attr-defined]
            if data and data["succeeded"] and page not in self.left_out:
                seconds[page] = data["runtime"]
        for page, taken in sorted(seconds.items(), key=lambda item: -item[1]):
            logger.info("executed in %5.1f s: %s", taken, page)
        for page in self.left_out:
            logger.info("skipped, because it trains on MNIST: %s", page)
        if self.left_out:
            logger.info("there is no MNIST: %s", self.reason)
        tutorials = [page for page in self.pages if page != GALLERY]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        logger.info(
            "%d of %d tutorials were executed, in %.0f s; all pages took %.0f s of processor time. "
            "No GPU was used: figures of GPUs are read from results of other machines.",
            sum(page in seconds for page in tutorials),
            len(tutorials),
            sum(seconds.get(page, 0) for page in tutorials),
            used.ru_utime + used.ru_stime,
        )


def setup(app: Sphinx) -> dict[str, Any]:
    execution = Execution()
    app.add_config_value("nb_execution_complete", False, "env", (bool,))
    app.connect("config-inited", execution.choose)
    app.connect("source-read", execution.add_note, priority=400)  # above the notebook's link
    app.connect("build-finished", execution.report)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
