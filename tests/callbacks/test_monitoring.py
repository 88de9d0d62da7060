"""What callbacks leave behind: TensorBoard files, backups, requests to a server."""

import gzip
import http.server
import json
import struct
import threading
import urllib.parse
import zlib

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers


def convnet(**compile_options):
    inputs = keras.Input((6, 6, 1))
    x = layers.Flatten(name="flatten")(layers.Conv2D(4, 3, name="conv")(inputs))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax", name="out")(x), name="net")
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return rng.normal(size=(24, 6, 6, 1)).astype("float32"), rng.integers(0, 3, 24)


# TensorBoard -------------------------------------------------------------------------------------


def events(folder):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.util import tensor_util

    accumulator = accumulators.EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    return {
        tag: [(e.step, tensor_util.make_ndarray(e.tensor_proto)) for e in accumulator.Tensors(tag)]
        for tag in accumulator.Tags()["tensors"]
    }


def test_tensorboard_after_epochs(tmp_path, data):
    x, y = data
    pytest.importorskip("tensorboard")
    model = convnet()
    board = callbacks.TensorBoard(tmp_path, write_graph=False, write_steps_per_second=True)
    assert not any(board.uses_batch_hooks(kind) for kind in ("train", "test", "predict"))
    history = model.fit(
        x, y, batch_size=8, epochs=3, validation_data=(x, y), verbose=0, callbacks=[board]
    ).history
    train, validation = events(tmp_path / "train"), events(tmp_path / "validation")
    assert set(train) == {
        "epoch_loss",
        "epoch_accuracy",
        "epoch_learning_rate",
        "epoch_steps_per_second",
    }
    for place, prefix in ((train, ""), (validation, "val_")):
        for name in ("loss", "accuracy"):
            steps, numbers = zip(*place[f"epoch_{name}"], strict=True)
            assert steps == (0, 1, 2)
            np.testing.assert_allclose(numbers, history[prefix + name], rtol=1e-6)
    assert [step for step, _ in validation["evaluation_loss_vs_iterations"]] == [3, 6, 9]
    assert all(value > 0 for _, value in train["epoch_steps_per_second"])


def test_tensorboard_after_batches(tmp_path, data):
    x, y = data
    pytest.importorskip("tensorboard")
    board = callbacks.TensorBoard(
        tmp_path, write_graph=False, update_freq=2, write_steps_per_second=True
    )
    convnet().fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[board])
    train = events(tmp_path / "train")
    for name in ("batch_loss", "batch_accuracy", "batch_steps_per_second"):
        assert [step for step, _ in train[name]] == [2, 4, 6]


def test_tensorboard_shows_graph_histograms_and_images(tmp_path, data):
    x, y = data
    pytest.importorskip("tensorboard")
    from tensorboard.plugins.graph import keras_util

    model = convnet()
    board = callbacks.TensorBoard(tmp_path, histogram_freq=1, write_images=True)
    model.fit(x, y, verbose=0, callbacks=[board])
    train = events(tmp_path / "train")
    [(_, text)] = train["keras"]
    graph = keras_util.keras_model_to_graph_def(json.loads(text.item()))
    edges = {node.name: list(node.input) for node in graph.node}
    assert edges["net/out"] == ["net/flatten"] and edges["net/flatten"] == ["net/conv"]
    [(_, buckets)] = train["conv/kernel/histogram"]
    kernel = model.get_layer("conv").get_weights()[0]
    assert buckets[:, 2].sum() == kernel.size
    np.testing.assert_allclose([buckets[0, 0], buckets[-1, 1]], [kernel.min(), kernel.max()])
    [(_, image)] = train["conv/kernel/image"]
    assert [int(image[0]), int(image[1]), len(image) - 2] == [3, 3, 3]
    pixels = decode_png(image[2])
    np.testing.assert_array_equal(
        pixels, np.floor(np.clip(kernel[:, :, 0, 0].astype("float64"), 0, 1) * 255.999)
    )


def decode_png(data):
    """Returns the gray pixels of a PNG file whose rows have no filter."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, parts = 8, {}
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        parts[kind] = data[place + 8 : place + 8 + size]
        (checksum,) = struct.unpack(">I", data[place + 8 + size : place + 12 + size])
        assert checksum == zlib.crc32(kind + parts[kind])
        place += 12 + size
    width, height, depth, color = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (depth, color) == (8, 0)
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:]


def profiled(folder):
    """Returns the kernels of each profile as (layer, phase, op), in the order of the profiles."""
    runs = sorted((folder / "plugins" / "profile").glob("*"))
    traces = []
    for run in runs:
        (file,) = run.iterdir()
        assert file.name.endswith(".trace.json.gz") and file.name != ".trace.json.gz"
        with gzip.open(file, "rt", encoding="utf-8") as opened:
            events = json.load(opened)["traceEvents"]
        kernels = [event["args"] for event in events if event["ph"] == "X"]
        assert any(event["ph"] == "M" and event["name"] == "process_name" for event in events)
        traces.append([(k["layer"], k["phase"], k["op"]) for k in kernels])
    return traces


def test_tensorboard_profiles_the_batches_it_is_told(tmp_path, data):
    """Batch 5 lies in the second epoch of 3 batches; batches 4 to 6 are a profile of three."""
    x, y = data
    pytest.importorskip("tensorboard")
    with keras.device("cpu"):
        model = convnet()
        for name, batches in (("one", 5), ("three", (4, 6)), ("text", "5,5")):
            board = callbacks.TensorBoard(tmp_path / name, write_graph=False, profile_batch=batches)
            assert board.uses_batch_hooks("train") and not board.uses_batch_hooks("test")
            model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[board])
    (one,), (three,) = profiled(tmp_path / "one"), profiled(tmp_path / "three")
    assert one.count(("net/conv", "forward", "conv2d")) == 1
    assert one.count(("net/conv", "backward", "conv2d_wgrad")) == 1
    assert any("net/out" in layer and phase == "backward" for layer, phase, _ in one)
    assert any(phase == "update" for _, phase, _ in one)
    assert sorted(3 * one) == sorted(three)  # Every batch runs the same program.
    assert sorted(profiled(tmp_path / "text")[0]) == sorted(one)


def test_tensorboard_profiles_nothing_by_default_or_after_the_end(tmp_path, data):
    x, y = data
    pytest.importorskip("tensorboard")
    for batches in (0, (0, 0), 4):
        board = callbacks.TensorBoard(tmp_path, write_graph=False, profile_batch=batches)
        assert board.uses_batch_hooks("train") == (batches == 4)
        convnet().fit(x, y, batch_size=8, verbose=0, callbacks=[board])
    assert not (tmp_path / "plugins").exists()


def test_tensorboard_writes_a_profile_that_training_ended_early(tmp_path, data):
    """This holds for two profiles within one second too: each has its own folder."""
    x, y = data
    pytest.importorskip("tensorboard")
    with keras.device("cpu"):
        model = convnet()
        board = callbacks.TensorBoard(tmp_path, write_graph=False, profile_batch=(3, 99))
        for _ in range(2):
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[board])
        with keras.profiler.trace() as after:
            keras.ops.add(x, 1.0)
    first, second = profiled(tmp_path)
    assert first and sorted(first) == sorted(second)
    assert [row["op"] for row in after.rows] == ["add"]


def test_tensorboard_warns_where_another_trace_records(tmp_path, data):
    x, y = data
    pytest.importorskip("tensorboard")
    board = callbacks.TensorBoard(tmp_path, write_graph=False, profile_batch=2)
    with keras.device("cpu"), keras.profiler.trace() as outer:
        model = convnet()
        with pytest.warns(UserWarning, match="does not profile batch 2"):
            history = model.fit(x, y, batch_size=8, verbose=0, callbacks=[board])
    assert np.isfinite(history.history["loss"]).all()
    assert not (tmp_path / "plugins").exists()
    # The outer trace continued to its end.
    assert any("conv" in row["layer"] for row in outer.rows)


def test_tensorboard_ends_the_trace_of_a_training_that_failed(tmp_path, data):
    x, y = data
    pytest.importorskip("tensorboard")

    class Fails(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("on purpose")

    board = callbacks.TensorBoard(tmp_path, write_graph=False, profile_batch=(1, 2))
    with keras.device("cpu"):
        model = convnet()
        with pytest.raises(RuntimeError, match="on purpose"):
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[board, Fails()])
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[board])
    assert len(profiled(tmp_path)) == 1


def test_wrong_batches_to_profile_are_named():
    for wrong in ((0, 3), (2, 1), -1, "a", (1, 2, 3), 1.5, None):
        with pytest.raises(ValueError, match="profile_batch of TensorBoard must be"):
            callbacks.TensorBoard("never", profile_batch=wrong)


def test_tensorboard_without_its_package(monkeypatch, data):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        convnet().fit(*data, verbose=0, callbacks=[callbacks.TensorBoard("never")])


# BackupAndRestore --------------------------------------------------------------------------------


class Interrupt(callbacks.Callback):
    def __init__(self, epoch, batch=None):
        super().__init__()
        self.place = (epoch, batch)
        self.epoch = 0
        if batch is not None:
            self.on_train_batch_begin = self.check_batch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if self.place == (epoch, None):
            raise RuntimeError("interrupted")

    def check_batch(self, batch, logs=None):
        if self.place == (self.epoch, batch):
            raise RuntimeError("interrupted")


def train(model, data, *extra, epochs=4):
    return model.fit(
        *data, batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=list(extra)
    )


def test_an_interrupted_training_ends_with_the_weights_of_one_that_was_not(tmp_path, data, device):
    with keras.device(device):
        whole, first, second = convnet(), convnet(), convnet()
    start = whole.get_weights()
    for model in (first, second):
        model.set_weights(start)
    expected = train(whole, data).history["loss"]
    folder = tmp_path / "backup"
    with pytest.raises(RuntimeError, match="interrupted"):
        train(first, data, callbacks.BackupAndRestore(folder), Interrupt(2))
    assert folder.exists()
    second.set_weights([np.zeros_like(w) for w in start])
    history = train(second, data, callbacks.BackupAndRestore(folder))
    assert history.epoch == [0, 1, 2, 3]
    # The same programs run on the same numbers, so the rounding is the same.
    assert history.history["loss"] == expected
    for ours, theirs in zip(second.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not folder.exists()
    assert train(second, data, epochs=2).epoch == [0, 1]


def test_a_damaged_backup(tmp_path, data):
    def interrupted(folder, **options):
        with pytest.raises(RuntimeError):
            train(convnet(), data, callbacks.BackupAndRestore(folder, **options), Interrupt(3))
        [state] = [p for p in folder.iterdir() if not p.name.startswith("previous")]
        state.write_bytes(state.read_bytes()[:100])

    interrupted(tmp_path / "one")
    with pytest.raises(ValueError, match="damaged|cut off"):
        train(convnet(), data, callbacks.BackupAndRestore(tmp_path / "one"))
    interrupted(tmp_path / "two", double_checkpoint=True)
    backup = callbacks.BackupAndRestore(
        tmp_path / "two", double_checkpoint=True, delete_checkpoint=False
    )
    assert train(convnet(), data, backup).epoch == [0, 1, 2, 3]
    assert (tmp_path / "two").exists()


def test_backups_of_other_models_and_unbuilt_models(tmp_path, data):
    with pytest.raises(RuntimeError):
        train(convnet(), data, callbacks.BackupAndRestore(tmp_path / "b"), Interrupt(1))
    other = keras.Sequential([keras.Input((6, 6, 1)), layers.Flatten(), layers.Dense(3)])
    other.compile("sgd", "mse")
    before = other.get_weights()
    with pytest.raises(ValueError, match="not of this model"):
        train(other, (data[0], np.zeros((24, 3))), callbacks.BackupAndRestore(tmp_path / "b"))
    np.testing.assert_array_equal(other.get_weights()[0], before[0])


# RemoteMonitor -----------------------------------------------------------------------------------


@pytest.fixture
def server():
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.append((self.path, dict(self.headers), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}", received
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize("as_json", [False, True])
def test_remote_monitor_sends_logs(server, data, as_json):
    address, received = server
    monitor = callbacks.RemoteMonitor(
        address, path="/logs/", field="entry", headers={"X-Key": "k"}, send_as_json=as_json
    )
    history = convnet().fit(*data, epochs=2, verbose=0, callbacks=[monitor]).history
    for epoch, (path, headers, body) in enumerate(received):
        if not as_json:
            body = urllib.parse.parse_qs(body)["entry"][0]
        assert path == "/logs/" and headers["X-Key"] == "k"
        assert ("json" in headers["Content-Type"]) == as_json
        expected = {name: numbers[epoch] for name, numbers in history.items()}
        assert json.loads(body) == {"epoch": epoch, **expected}
    assert len(received) == 2
    monitor.on_epoch_end(3, {"array": np.ones(2), "number": np.float32(1.5)})
    assert "1.5" in received[-1][2]


def test_remote_monitor_without_a_server():
    # This is the port of the "discard" service.
    monitor = callbacks.RemoteMonitor("http://127.0.0.1:9")
    with pytest.warns(UserWarning, match="RemoteMonitor could not send"):
        monitor.on_epoch_end(0, {"loss": 1.0})
