"""A trace records code of any kind."""

import json
import threading
import warnings

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops
from kerascnn.profiler import trace


@pytest.fixture(autouse=True)
def on_device(device):
    with keras.device(device):
        yield


def small_model():
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            keras.layers.Conv2D(4, 3, activation="relu", name="first"),
            keras.layers.Conv2D(5, 3, name="second"),
            keras.layers.Flatten(),
            keras.layers.Dense(3, name="last"),
        ],
        name="small",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"])
    return model


def some_data(rng, samples=24):
    x = rng.standard_normal((samples, 12, 12, 3)).astype("float32")
    return x, rng.integers(0, 3, samples).astype("int32")


def of_ops(t):
    """Returns the rows without the copies that only a GPU needs."""
    return [row for row in t.rows if row["layer"] != "copies"]


def test_ops_that_run_at_once(rng):
    x = ops.convert_to_tensor(rng.random((7, 5), np.float32))
    with trace() as t:
        for _ in range(3):
            y = ops.tanh(ops.matmul(x, ops.ones((5, 2))))
    product, tanh = (
        next(row for row in t.rows if row["op"] == name) for name in ("matmul", "tanh")
    )
    assert y.shape == (7, 2)
    assert (product["calls"], tanh["calls"]) == (3, 3)
    assert product["flop"] == 3 * 2 * 7 * 5 * 2
    assert product["bytes"] == 3 * 4 * (7 * 5 + 5 * 2 + 7 * 2)
    assert tanh["flop"] == 3 * 7 * 2
    assert product["phase"] == "forward" and product["dtype"] == "float32"
    for row in t.rows:
        assert row["device"] == keras.config.get_device()
        assert 0 < row["busy_us"] <= row["time_us"] * (1 + 1e-9)
        assert row["library"] and row["kernel"]
    # The sums have another order, which may cost a millionth of a microsecond.
    assert t.busy_us + t.gap_us <= t.recording.seconds * 1e6 + 1e-6


def test_layers_phases_and_gradients_of_eager_code(rng):
    layer = keras.layers.Dense(3, name="own")
    optimizer = keras.optimizers.Adagrad(0.1, name="steps")
    x = ops.convert_to_tensor(rng.random((4, 6), np.float32))
    layer(x)
    optimizer.build(layer.trainable_variables)
    with trace() as t:
        with keras.GradientTape() as tape:
            loss = keras.losses.MeanSquaredError()(ops.zeros((4, 3)), layer(x))
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply(gradients, layer.trainable_variables)
    found = {(row["phase"], row["layer"]) for row in of_ops(t)}
    assert {("forward", "own"), ("forward", "loss")} <= found
    assert {("backward", "own"), ("backward", "loss"), ("update", "steps")} <= found
    products = [row["phase"] for row in t.rows if row["op"] in ("matmul", "dense")]
    assert products.count("forward") == 1 and products.count("backward") >= 1


def test_fit_has_a_layer_for_every_kernel(rng):
    model, (x, y) = small_model(), some_data(rng)
    with trace() as t:
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    rows = of_ops(t)
    assert all(row["layer"] for row in rows)
    phases = {row["phase"] for row in rows}
    assert {"forward", "backward", "update"} <= phases
    layers = {part for row in rows for part in row["layer"].split(" + ")}
    assert {"small/first", "small/second", "small/last", "metrics", "data"} <= layers
    convolution = next(row for row in rows if row["op"] == "conv2d")
    assert convolution["calls"] == 2 * 3
    update = [row for row in rows if row["op"] == "adam_update"]
    updated = {part for row in update for part in row["layer"].split(" + ")}
    assert updated == {"small/first", "small/second", "small/last"}


def test_functions_that_are_compiled(rng):
    layer = keras.layers.Dense(3, name="own")
    x = ops.convert_to_tensor(rng.random((4, 6), np.float32))
    layer(x)

    @keras.jit
    def loss_and_gradients(x):
        with keras.GradientTape() as tape:
            loss = ops.sum(layer(x) ** 2)
        return loss, tape.gradient(loss, layer.trainable_variables)

    loss_and_gradients(x)
    with trace() as t:
        loss_and_gradients(x)
    assert {("forward", "own"), ("backward", "own")} <= {
        (row["phase"], row["layer"]) for row in t.rows
    }


def test_other_threads_are_recorded_on_tracks_of_their_own():
    x = ops.ones((64, 64))

    def work():
        ops.matmul(x, x)

    with trace() as t:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        work()
    (row,) = (row for row in t.rows if row["op"] == "matmul")
    assert row["calls"] == 4
    if keras.config.get_device() == "cpu":
        assert len({event[2] for event in t.recording.events.tolist()}) == 4


def test_one_trace_at_a_time():
    with trace() as t:
        again = trace()
        with pytest.raises(ValueError, match="recorded already, in this thread or another"), again:
            pass
        failures = []

        def other():
            try:
                with trace():
                    pass
            except ValueError as error:
                failures.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert "one at a time" in failures[0]
        ops.exp(ops.ones((3,)))
    assert "exp" in {row["op"] for row in t.rows}
    assert not _core.is_profiling()


def test_an_error_in_the_block_keeps_the_rows_so_far():
    t = trace()
    with pytest.raises(ZeroDivisionError), t:
        ops.exp(ops.ones((3,)))
        raise ZeroDivisionError
    assert [row["calls"] for row in t.rows if row["op"] == "exp"] == [1]
    assert not _core.is_profiling()
    with t:  # the same object is used again
        ops.log(ops.ones((3,)))
    assert {row["op"] for row in of_ops(t)} >= {"log"}
    assert "exp" not in {row["op"] for row in t.rows}


def test_a_trace_without_kernels():
    with trace() as t:
        pass
    assert t.rows == []
    assert "no kernel ran" in str(t)
    assert t.busy_us == t.gap_us == 0
    t.table("phase")


def test_rows_are_there_after_the_block():
    t = trace()
    with pytest.raises(ValueError, match="after the `with` block has ended"):
        t.rows  # noqa: B018
    with t, pytest.raises(ValueError, match="after the `with` block has ended"):
        print(t)
    assert repr(t) == "<Profile: 0 kernels, 1 steps>"
    with pytest.raises(ValueError, match="max_events must be a positive integer, received 0"):
        trace(max_events=0)
    with pytest.raises(ValueError, match='by must be "kernel", "layer" or "phase"'):
        t.table("op")


def test_too_many_events_are_counted():
    x = ops.ones((3,))
    t = trace(max_events=2)
    with pytest.warns(UserWarning, match="3 kernels ran beyond max_events=2"), t:
        for _ in range(5):
            ops.exp(x)
    assert t.recording.lost_events == 3
    assert sum(row["calls"] for row in t.rows) == 2


def test_pandas_takes_the_rows():
    pandas = pytest.importorskip("pandas")
    with trace() as t:
        ops.exp(ops.ones((3,)))
    frame = pandas.DataFrame(t.rows)
    assert {"phase", "layer", "kernel", "time_us", "gap_us", "compute_share"} <= set(frame)
    assert frame["time_us"].sum() > 0


def test_files(tmp_path, rng):
    model, (x, y) = small_model(), some_data(rng)
    with trace() as t:
        model.fit(x, y, batch_size=8, verbose=0)
    t.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(t.recording.events)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in complete)
    assert {"small/first"} <= {event["args"]["layer"] for event in complete}
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    # Constants are computed on the CPU while the step is compiled.
    assert names == {keras.config.get_device(), "cpu"}

    t.save_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 1
    assert page.count("<tr>") >= len(t.rows)
    assert "small/second" in page and "http://" not in page.replace("http://www.w3.org/2000", "")
    assert "<script" not in page


def test_names_are_escaped_in_pages(tmp_path):
    layer = keras.layers.Dense(2, name="<b>&")
    x = ops.ones((2, 3))
    layer(x)
    with trace() as t:
        layer(x)
    t.save_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;&amp;" in page and "<b>&" not in page
    assert "<b>&" in str(t)


def test_off_it_leaves_nothing_behind(rng):
    """Results have the same bits with a trace, without one, and after one."""
    model, (x, y) = small_model(), some_data(rng)
    weights = model.get_weights()

    def losses():
        model.set_weights(weights)
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
        history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return history.history["loss"], model.get_weights()

    plain, after = losses()
    with trace():
        traced, traced_after = losses()
    again, _ = losses()
    assert plain == traced == again
    for a, b in zip(after, traced_after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_warning_without_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with trace() as t:
            ops.exp(ops.ones((3,)))
        str(t)
