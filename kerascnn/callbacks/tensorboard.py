"""Logs of training for TensorBoard."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core, config, serialization
from kerascnn.callbacks.callback import Callback
from kerascnn.callbacks.learning_rates import optimizers_of, read_rate

if TYPE_CHECKING:
    from kerascnn.profiler.trace import trace

_WRITERS = ("train", "validation")  # the folders of the files


class TensorBoard(Callback):
    """Writes metrics, the model's graph and its weights to files that TensorBoard shows.

    It needs the package `tensorboard` (`pip install tensorboard`), not TensorFlow. Show the files
    with `tensorboard --logdir logs`.

    Args:
        log_dir: a folder for the files of this training alone.
        histogram_freq: after every so many epochs histograms of the weights are written; 0 never.
        write_graph: whether to write the model's layers as a graph (`Sequential` and functional
            models).
        write_images: whether to write weights as images too, together with their histograms.
        write_steps_per_second: whether to write how many steps a second were taken.
        update_freq: `"epoch"`, `"batch"`, or a number of batches: when metrics are written. With
            anything but `"epoch"` fit runs step by step; see `Callback`.
        profile_batch: the batch whose kernels are recorded, or the first and the last of several
            (also as text, "5,8"), counted from 1 over the whole training; 0 for none. What
            `keras.profiler.trace` sees of them is written as
            `plugins/profile/<time>/<host>.trace.json.gz` in `log_dir`, for TensorBoard's plugin
            (`pip install tensorboard-plugin-profile`) and for ui.perfetto.dev. Choose a batch after
            the first, for which the step is compiled. fit runs step by step. Where no trace can
            begin, since another one records or a GPU's profiling library is missing, there is a
            warning instead of a file.
        embeddings_freq: after every so many epochs the weights of `Embedding` layers are written
            for the projector; 0 never.
        embeddings_metadata: the file with the labels of an embedding's rows: its name, or a
            dictionary from names of layers to files.

    Raises:
        ImportError: at the start of training where the package is not installed.
        ValueError: for a `profile_batch` that is neither a number from 0 nor a pair of rising
            numbers from 1, and for names in `embeddings_metadata` that no `Embedding` layer has.

    >>> keras.callbacks.TensorBoard("logs", update_freq="batch").update_freq
    1
    """

    first_process_only = True

    def __init__(
        self,
        log_dir: str | os.PathLike = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: str | int = "epoch",
        profile_batch: int | str | tuple[int, int] = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: str | dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.log_dir = str(log_dir)
        self.histogram_freq = histogram_freq
        self.write_graph = write_graph
        self.write_images = write_images
        self.write_steps_per_second = write_steps_per_second
        self.update_freq = 1 if update_freq == "batch" else update_freq
        self.embeddings_freq = embeddings_freq
        self.embeddings_metadata = embeddings_metadata
        self._first_profiled, self._last_profiled = batches_to_profile(profile_batch)
        self._trace: trace | None = None
        self._writers: dict[str, Any] = {}
        self._file = ""  # the name of the files of this training, one for each writer
        self._train_batch = 0
        self._iterations_before = 0
        self._epoch_start = self._batch_start = time.perf_counter()

    def set_model(self, model: Any) -> None:
        from kerascnn.callbacks.event_files import new_name, require_tensorboard

        require_tensorboard()
        super().set_model(model)
        self._close()
        self._file = new_name()
        if self.write_graph:
            self._write_graph()
        if self.embeddings_freq:
            self._check_embeddings()

    def uses_batch_hooks(self, kind: str) -> bool:
        hooks = (f"on_{kind}_batch_begin", f"on_{kind}_batch_end")
        if all(getattr(type(self), hook) is getattr(TensorBoard, hook) for hook in hooks):
            return kind == "train" and (self.update_freq != "epoch" or self._first_profiled > 0)
        return super().uses_batch_hooks(kind)

    def _writer(self, name: str) -> Any:
        from kerascnn.callbacks.event_files import EventWriter

        if name not in self._writers:
            self._writers[name] = EventWriter(os.path.join(self.log_dir, name), self._file)
        return self._writers[name]

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._train_batch = 0
        self._end_trace()  # a training that ended with an error may have left one open

    def state_dict(self) -> dict[str, Any]:
        return {
            "train_batch": self._train_batch,
            "file": self._file,
            "sizes": {name: writer.size() for name, writer in self._writers.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with the files of the training: what was written after its state is cut off."""
        from kerascnn.callbacks.event_files import EventWriter, is_name_of_events

        self._train_batch = state["train_batch"]
        if not is_name_of_events(state["file"]):
            raise ValueError(f"{state['file']!r} is no name of a file of events")
        begun = [os.path.join(self.log_dir, name, self._file) for name in self._writers]
        self._close()
        if self._file != state["file"]:  # it is the same when a state is loaded again
            # This process has begun files with the graph, which the training's file has too.
            for path in begun:
                os.remove(path)
            self._file = state["file"]
        for name in _WRITERS:
            folder, size = os.path.join(self.log_dir, name), int(state["sizes"].get(name, 0))
            path = os.path.join(folder, self._file)
            if size and not (os.path.exists(path) and os.path.getsize(path) >= size):
                warnings.warn(
                    f"TensorBoard: {path} has not the events before the interruption.", stacklevel=2
                )
            elif size:
                self._writers[name] = EventWriter(folder, self._file, size)
            elif os.path.exists(path):
                os.remove(path)

    def on_train_end(self, logs: dict | None = None) -> None:
        if self._trace is not None:  # there were fewer batches than the profile should have
            self._write_trace()
        self._close()

    def _close(self) -> None:
        with contextlib.ExitStack() as stack:  # an error of one keeps no other open
            for writer in self._writers.values():
                stack.callback(writer.close)
            self._writers = {}

    def on_test_end(self, logs: dict | None = None) -> None:
        if self.model.optimizer is None:
            return
        step = int(np.asarray(self.model.optimizer.iterations))
        writer = self._writer("validation")
        for name, value in (logs or {}).items():
            writer.scalar(f"evaluation_{name}_vs_iterations", value, step)
        writer.flush()

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._train_batch += 1
        if self._train_batch == self._first_profiled:
            self._start_trace()
        self._batch_start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self._trace is not None and self._train_batch >= self._last_profiled:
            self._write_trace()
        if self.update_freq == "epoch" or self._train_batch % int(self.update_freq):
            return
        writer = self._writer("train")
        if self.write_steps_per_second:
            seconds = time.perf_counter() - self._batch_start
            writer.scalar("batch_steps_per_second", 1.0 / seconds, self._train_batch)
        for name, value in (logs or {}).items():
            writer.scalar(f"batch_{name}", value, self._train_batch)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if self.write_steps_per_second:
            self._iterations_before = int(np.asarray(self.model.optimizer.iterations))
            self._epoch_start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if logs:
            self._write_epoch(epoch, logs)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_weights(epoch)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            self._write_embeddings(epoch)
        for writer in self._writers.values():
            writer.flush()

    def _write_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        training = {name: v for name, v in logs.items() if not name.startswith("val_")}
        for key, optimizer in optimizers_of(self.model):
            training[key] = read_rate(optimizer)
        if self.write_steps_per_second:
            steps = int(np.asarray(self.model.optimizer.iterations)) - self._iterations_before
            training["steps_per_second"] = steps / (time.perf_counter() - self._epoch_start)
        for name, value in training.items():
            self._writer("train").scalar(f"epoch_{name}", value, epoch)
        for name, value in logs.items():
            if name.startswith("val_"):
                self._writer("validation").scalar(f"epoch_{name[4:]}", value, epoch)

    def _start_trace(self) -> None:
        from kerascnn.profiler.trace import trace

        try:
            self._trace = trace().__enter__()
        except (ValueError, _core.DeviceError) as error:
            warnings.warn(
                f"TensorBoard does not profile batch {self._first_profiled}: {error}", stacklevel=2
            )

    def _end_trace(self) -> trace | None:
        ended, self._trace = self._trace, None
        if ended is not None:
            ended.__exit__(None, None, None)
        return ended

    def _write_trace(self) -> None:
        ended = self._end_trace()
        assert ended is not None
        runs = Path(self.log_dir) / "plugins" / "profile"
        run = unused(runs / time.strftime("%Y_%m_%d_%H_%M_%S"))
        run.mkdir(parents=True)
        ended.save_trace(run / f"{platform.node() or 'localhost'}.trace.json.gz")

    def _write_graph(self) -> None:
        from kerascnn.models import Functional, Sequential

        if type(self.model) not in (Functional, Sequential):
            return
        try:
            text = json.dumps(serialization.serialize_object(self.model))
        except (TypeError, ValueError, NotImplementedError) as error:
            warnings.warn(
                f"TensorBoard leaves out the graph of '{self.model.name}', whose configuration "
                f"can't be written as JSON: {error}",
                stacklevel=3,
            )
            return
        self._writer("train").keras_model("keras", text)

    def _write_weights(self, epoch: int) -> None:
        writer = self._writer("train")
        for layer in self.model.layers:
            for weight in layer.weights:
                name = weight.path.replace(":", "_")
                values = weight.numpy().astype("float64")
                writer.histogram(f"{name}/histogram", values, epoch)
                images = weight_as_images(values) if self.write_images else None
                if images is not None:
                    writer.images(f"{name}/image", images, epoch)

    def _embeddings(self) -> list[Any]:
        return [layer for layer in self.model.layers if type(layer).__name__ == "Embedding"]

    def _check_embeddings(self) -> None:
        if isinstance(self.embeddings_metadata, dict):
            unknown = set(self.embeddings_metadata) - {layer.name for layer in self._embeddings()}
            if unknown:
                raise ValueError(
                    "`embeddings_metadata` of TensorBoard has names that no Embedding layer of the "
                    f"model has: {', '.join(sorted(unknown))}"
                )

    def _write_embeddings(self, epoch: int) -> None:
        """Writes the rows of each embedding as a table, and the projector's settings."""
        folder = Path(self.log_dir)
        entries = []
        for layer in self._embeddings():
            path = f"train/{layer.name}-{epoch}.tsv"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            np.savetxt(folder / path, layer.get_weights()[0], delimiter="\t", fmt="%.7g")
            lines = [f'  tensor_name: "{layer.name}"', f'  tensor_path: "{path}"']
            metadata = self.embeddings_metadata
            if isinstance(metadata, dict):
                metadata = metadata.get(layer.name)
            if metadata:
                lines.append(f'  metadata_path: "{metadata}"')
            entries.append("embeddings {\n" + "\n".join(lines) + "\n}\n")
        (folder / "projector_config.pbtxt").write_text("".join(entries))


def batches_to_profile(profile_batch: int | str | tuple[int, int]) -> tuple[int, int]:
    """Returns the first and the last batch to record, counted from 1, or zeros for none.

    >>> batches_to_profile(5), batches_to_profile((2, 4)), batches_to_profile("2,4")
    ((5, 5), (2, 4), (2, 4))
    """
    pair: Any = profile_batch
    if isinstance(pair, str):
        pair = tuple(int(part) if part.strip().isdecimal() else part for part in pair.split(","))
    if isinstance(pair, int):
        pair = (pair, pair)
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
    if is_pair and all(isinstance(batch, int) for batch in pair):
        first, last = pair
        if first == last == 0 or 1 <= first <= last:
            return first, last
    raise ValueError(
        "profile_batch of TensorBoard must be 0, the number of a batch (they count from 1), or a "
        f"pair of such numbers, the first and the last batch. Received: {profile_batch!r}"
    )


def unused(path: Path) -> Path:
    """Returns the path, with a number appended if it exists already."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}_{number}")
    return candidate


def weight_as_images(weight: np.ndarray) -> np.ndarray | None:
    """A weight as gray (or, with 3 or 4 numbers at the end, colored) images, shape (n, h, w, c).

    A vector is one row, a matrix lies on its longer side, and of three axes each channel is an
    image. What has more than that can't be shown.

    >>> weight_as_images(np.zeros((3, 3, 1, 8))).shape
    (8, 3, 3, 1)
    """
    squeezed = np.squeeze(weight)
    if squeezed.ndim == 1:
        images = squeezed.reshape(1, -1, 1, 1)
    elif squeezed.ndim == 2:
        wide = squeezed.T if squeezed.shape[0] > squeezed.shape[1] else squeezed
        images = wide.reshape(1, *wide.shape, 1)
    elif squeezed.ndim == 3:
        if config.image_data_format() == "channels_last":
            squeezed = squeezed.transpose(2, 0, 1)
        images = squeezed[..., None]
    else:
        images = squeezed
    return images if images.ndim == 4 and images.shape[-1] in (1, 3, 4) else None
