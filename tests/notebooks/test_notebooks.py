"""Tutorials as Jupyter notebooks, and the progress display in one, run by a real kernel.

They need what builds the site: pip install ".[docs,test]".
"""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for package in ("myst_nb", "ipykernel"):
    pytest.importorskip(package)

EXTENSIONS = Path(__file__).resolve().parents[2] / "docs" / "_extensions"

# Jupyter's own packages use what others have deprecated, as they like.
pytestmark = pytest.mark.filterwarnings("ignore")


def extension():
    spec = importlib.util.spec_from_file_location("notebooks", EXTENSIONS / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOTEBOOKS = extension()
PAGES = {page.stem: page for page in NOTEBOOKS.tutorials()}


def run(notebook, folder):
    """Runs all cells as Jupyter would, and returns the code cells."""
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(output):
    return output["text"] if output.output_type == "stream" else output["data"]["text/plain"]


@pytest.mark.parametrize("page", PAGES)
def test_every_tutorial_is_a_notebook_that_installs_what_it_imports(page):
    notebook = NOTEBOOKS.as_notebook(PAGES[page])
    first, *others = notebook.cells
    assert first.cell_type == "code" and "%pip install" in first.source
    code = [cell.source for cell in others if cell.cell_type == "code"]
    needed = dict(re.findall(r'"(\w+)": "(\w+)"', first.source))
    assert NOTEBOOKS.imported(code) - NOTEBOOKS.WITH_KERASCNN == set(needed)
    assert needed["kerascnn"] == "kerascnn"
    # It stands alone: nothing is read from the repository, no link leads into it.
    assert "../../" not in "".join(code)
    words = [cell.source for cell in others if cell.cell_type == "markdown"]
    assert not re.search(r"\]\((?!https?:)", "".join(words))
    nbformat.validate(notebook)


def test_the_first_cell_installs_what_is_missing_and_nothing_else(monkeypatch):
    from IPython.core.inputtransformer2 import TransformerManager

    cell = NOTEBOOKS.install_cell(["import kerascnn, matplotlib.pyplot", "from PIL import Image"])
    code = TransformerManager().transform_cell(cell)
    asked = []

    class Shell:
        def run_line_magic(self, name, line):
            # IPython puts values in the place of what stands in braces.
            asked.append((name, re.sub(r"\{(.+)\}", lambda x: eval(x[1], names), line)))

    names = {"get_ipython": Shell}
    exec(code, names)
    assert asked == []
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in ("PIL", "kerascnn") else find(name),
    )
    exec(code, names)
    assert asked == [("pip", "install --quiet kerascnn pillow")]


@pytest.mark.parametrize("page, count", [("faster", 2), ("which_kernel", 5)])
def test_measurements_that_a_page_reads_are_in_its_notebook(page, count, tmp_path, monkeypatch):
    notebook = NOTEBOOKS.as_notebook(PAGES[page])
    monkeypatch.chdir(tmp_path)
    exec(notebook.cells[1].source, {})
    results = EXTENSIONS.parents[1] / "tests" / "benchmarks" / "results"
    written = {path.relative_to("measurements") for path in Path("measurements").rglob("*.json")}
    assert len(written) == count
    for path in written:
        assert (Path("measurements") / path).read_bytes() == (results / path).read_bytes()


def test_a_tutorial_runs_in_a_kernel(tmp_path):
    cells = run(NOTEBOOKS.as_notebook(PAGES["own_parts"]), tmp_path)
    assert all(cell.execution_count for cell in cells)
    assert cells[0].outputs == []  # everything is installed: nothing was asked of pip
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds and "display_data" in kinds


FIT = """
import numpy as np
import kerascnn as keras

keras.config.set_device("cpu")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones((4000, 8), "float32"), np.ones((4000, 1), "float32")


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)  # so that the line is drawn anew again and again


import time
"""


def test_the_progress_of_fit_is_one_line_for_each_epoch(tmp_path):
    sources = [
        FIT,
        "history = model.fit(x, y, epochs=3, batch_size=100, callbacks=[Slow()])",
        "loss = model.evaluate(x, y, batch_size=400)",
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()) as caught:\n"
        "    history = model.fit(x, y, batch_size=1000)\n"
        "print(len(caught.getvalue().splitlines()), 'line')",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    _, fitted, evaluated, caught = run(nbformat.v4.new_notebook(cells=cells), tmp_path)
    assert [output.output_type for output in fitted.outputs] == ["display_data"] * 3
    for epoch, output in enumerate(fitted.outputs, 1):
        title, line = text_of(output).splitlines()
        assert title == f"Epoch {epoch}/3"
        assert re.fullmatch(r"40/40 ━{20} \d+s \d+(us|ms|s)/step - loss: \S+", line)
        shown = re.sub(r"<[^>]+>", "", output["data"]["text/html"])
        assert shown == text_of(output)
    (output,) = evaluated.outputs
    assert re.fullmatch(r"10/10 ━{20} \d+s \d+(us|ms|s)/step - loss: \S+", text_of(output))
    # What is caught by the program is no output of the cell.
    assert [text_of(output) for output in caught.outputs] == ["1 line\n"]


def test_the_kernel_is_this_python(tmp_path):
    cells = [nbformat.v4.new_code_cell("import sys; print(sys.executable)")]
    (cell,) = run(nbformat.v4.new_notebook(cells=cells), tmp_path)
    assert text_of(cell.outputs[0]).strip() == sys.executable
