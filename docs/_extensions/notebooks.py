"""Gives each tutorial as a Jupyter notebook: a link on its page leads to a file made of its source.

A notebook runs without the repository: its first cell installs what is missing, and measurements
that the page reads from tests/benchmarks/results are packed into it.
"""

from __future__ import annotations

import ast
import base64
import re
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
RESULTS = "../../tests/benchmarks/results"
PLACE = "_generated/notebooks"

# What pip calls the packages that tutorials import. The others are parts of Python or come with
# kerascnn.
PACKAGES = {"kerascnn": "kerascnn", "matplotlib": "matplotlib", "PIL": "pillow"}
WITH_KERASCNN = {"numpy", "h5py", "ml_dtypes", "rich"}

INSTALL = """\
# Installs what this notebook needs and this Python does not have. If your package index does not
# have kerascnn, run `pip install .` in a clone of its repository instead, with this same Python.
import importlib.util

needed = {needed}
missing = [package for module, package in needed.items() if not importlib.util.find_spec(module)]
if missing:
    %pip install --quiet {{" ".join(missing)}}"""

MEASUREMENTS = """\
# The measurements that this notebook reads, packed. In the repository they are files below
# tests/benchmarks/results.
import base64
import zlib
from pathlib import Path

packed = {{
{packed}
}}
for name, content in packed.items():
    file = Path("measurements", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(zlib.decompress(base64.b64decode(content)))"""


def tutorials() -> list[Path]:
    """Returns the sources of all tutorials."""
    return sorted((DOCS / "tutorials").glob("*.md"))


def as_notebook(page: Path) -> NotebookNode:
    """Returns the notebook of a tutorial, without outputs."""
    import nbformat
    from myst_nb.core.read import read_myst_markdown_notebook

    notebook = read_myst_markdown_notebook(page.read_text(encoding="utf-8"), path=page)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        }
    )
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    measured = measurements([cell.source for cell in cells])
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.source = cell.source.replace(f'Path("{RESULTS}', 'Path("measurements')
        else:
            cell.source = without_local_links(cell.source)
    first = [nbformat.v4.new_code_cell(install_cell([cell.source for cell in cells]))]
    if measured:
        folded = {"jupyter": {"source_hidden": True}}
        first.append(nbformat.v4.new_code_cell(packed(measured), metadata=folded))
    notebook.cells[:0] = first
    for number, cell in enumerate(notebook.cells):  # the same file from the same source
        cell.id = f"cell-{number}"
    nbformat.validate(notebook)
    return notebook


def imported(sources: list[str]) -> set[str]:
    """Returns the packages that code imports and that are no part of Python."""
    found = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    return {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names)


def install_cell(sources: list[str]) -> str:
    """Returns the first cell of a notebook with this code."""
    needed = sorted((PACKAGES[name], name) for name in imported(sources) - WITH_KERASCNN)
    listed = ", ".join(f'"{module}": "{package}"' for package, module in needed)
    return INSTALL.format(needed=f"{{{listed}}}")


def measurements(sources: list[str]) -> list[str]:
    """Returns the files below `RESULTS` that code reads, by their paths there.

    Of a folder, where the name of the file is known only when the code runs, these are all files.
    """
    code = "\n".join(sources)
    folder = (DOCS / "tutorials" / RESULTS).resolve()
    found = []
    for below in re.findall(rf'results = Path\("{re.escape(RESULTS)}/?([^"]*)"\)', code):
        for parts in re.findall(r'results((?: / "[^"]+")+)', code):
            names = [below] if below else []
            place = folder.joinpath(*names, *re.findall(r'"([^"]+)"', parts))
            files = sorted(place.glob("*.json")) if place.is_dir() else [place]
            found += [file.relative_to(folder).as_posix() for file in files]
    return found


def packed(names: list[str]) -> str:
    """Returns the cell that writes these files into a folder."""
    folder = (DOCS / "tutorials" / RESULTS).resolve()
    lines = []
    for name in names:
        content = zlib.compress((folder / name).read_bytes(), 9)
        lines.append(f'    "{name}": "{base64.b64encode(content).decode()}",')
    return MEASUREMENTS.format(packed="\n".join(lines))


def without_local_links(text: str) -> str:
    """Returns the text without links to other pages, which are not beside a notebook."""
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)\s]+\)", r"\1", text)


def write_notebooks(app: Sphinx) -> None:
    import nbformat

    folder = Path(app.srcdir) / PLACE
    folder.mkdir(parents=True, exist_ok=True)
    for page in tutorials():
        nbformat.write(as_notebook(page), folder / f"{page.stem}.ipynb")


def add_link(app: Sphinx, name: str, source: list[str]) -> None:
    """Puts the link below the title of a tutorial."""
    folder, _, page = name.rpartition("/")
    if folder == "tutorials":
        link = f"{{download}}`Open it in Jupyter: {page}.ipynb <../{PLACE}/{page}.ipynb>`"
        source[0] = re.sub(
            r"^(# .+\n)", lambda title: f"{title[1]}\n{link}\n", source[0], count=1, flags=re.M
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_notebooks)
    app.connect("source-read", add_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
