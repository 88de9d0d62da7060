"""The progress display writes plain lines to files and pipes, and redraws a line in terminals."""

import io
import os
import re
import subprocess
import sys
import textwrap
import types

import pytest

from kerascnn.training import progress

from .helpers import blobs, classifier

NUMBER = r"\d\.\d{4}"


def fitted_output(capsys, verbose, **kwargs):
    model = classifier()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(*blobs(), batch_size=3, verbose=verbose, **kwargs)
    return capsys.readouterr().out.splitlines()


def test_each_epoch_ends_with_one_line(capsys):
    lines = fitted_output(capsys, "auto", epochs=2, validation_data=blobs())
    assert [lines[0], lines[2]] == ["Epoch 1/2", "Epoch 2/2"]
    for line in (lines[1], lines[3]):
        assert re.fullmatch(
            rf"7/7 ━{{20}} \d+s \d+(us|ms|s)/step - accuracy: {NUMBER} - loss: {NUMBER}"
            rf" - val_accuracy: {NUMBER} - val_loss: {NUMBER}",
            line,
        )
    assert len(lines) == 4


def test_verbose_2_leaves_the_bar_out(capsys):
    (line,) = fitted_output(capsys, 2)
    pattern = rf"7/7 - \d+s - \d+(us|ms|s)/step - accuracy: {NUMBER} - loss: {NUMBER}"
    assert re.fullmatch(pattern, line)


def test_verbose_0_is_silent(capsys):
    assert fitted_output(capsys, 0, epochs=2, validation_data=blobs()) == []


def test_evaluate_and_predict_show_their_steps(capsys):
    model = classifier()
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.evaluate(*blobs(), batch_size=3)
    model.predict(blobs()[0], batch_size=10)
    evaluated, predicted = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"7/7 ━{{20}} \d+s \d+(us|ms|s)/step - loss: {NUMBER}", evaluated)
    assert re.fullmatch(r"2/2 ━{20} \d+s \d+(us|ms|s)/step", predicted)


def test_numbers_are_written_as_in_keras():
    logs = {"a": 0.5, "b": 0.00012345, "c": -3.0, "d": float("nan")}
    assert progress.format_logs(logs) == " - a: 0.5000 - b: 1.2345e-04 - c: -3.0000 - d: nan"


def test_output_that_knows_ascii_only_gets_another_stroke(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    display = progress.ProgressDisplay(4)
    display.update(2, dict)
    display.finish({"loss": 1.0})
    stream.flush()
    assert re.search(rb"4/4 ={20} \d+s", stream.buffer.getvalue())


def test_a_notebook_gets_one_output_that_is_replaced(monkeypatch):
    """Outside of Jupyter, whose parts are stood for here; tests/notebooks runs a real kernel."""
    shown = []

    class Handle:
        def update(self, output, raw):
            assert raw
            shown[-1].append(output)

    def display(output, raw, display_id):
        assert raw and display_id
        shown.append([output])
        return Handle()

    class OutStream(io.StringIO):
        __module__ = "ipykernel.iostream"
        encoding = "UTF-8"

    stream = OutStream()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    bar = progress.ProgressDisplay(4, 1, "Epoch 1/2")
    bar.update(2, lambda: {"a < b": 0.5})
    bar.finish({"a < b": 0.25})
    assert stream.getvalue() == ""
    ((first, *_, last),) = shown
    assert first["text/plain"] == "Epoch 1/2\n"
    assert re.fullmatch(
        r"Epoch 1/2\n4/4 ━{20} \d+s \d+(us|ms|s)/step - a < b: 0.2500", last["text/plain"]
    )
    assert "a &lt; b: 0.2500" in last["text/html"]
    progress.ProgressDisplay(4, 2, "Epoch 2/2").finish({})
    assert stream.getvalue().startswith("Epoch 2/2\n4/4 - ")


SCRIPT = textwrap.dedent(
    """
    import sys, time
    from kerascnn.training.progress import ProgressDisplay
    assert "rich" not in sys.modules
    display = ProgressDisplay(40, 1, "Epoch 1/3")
    for step in range(1, 41):
        time.sleep(0.01)
        display.update(step, lambda: {"loss": 1.0 / step})
    display.finish({"loss": 0.025, "val_loss": 0.5})
    print("after")
    """
)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo terminal")
def test_a_terminal_shows_one_line_that_moves():
    master, slave = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=slave, env=environment)
    os.close(slave)
    output = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # Linux raises this when the other end is closed.
            break
        if not chunk:
            break
        output += chunk
    os.close(master)
    assert process.wait() == 0
    text = output.decode()
    assert "Epoch 1/3" in text
    # The line is drawn several times, with the time left and growing bars.
    assert len(re.findall(r"\d+/40", text)) >= 4
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert re.search(
        r"40/40 ━{20} \d+s \d+(ms|s)/step - loss: 0.0250 - val_loss: 0.5000\s+after", last
    )
