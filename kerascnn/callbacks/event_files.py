"""Event files of TensorBoard, written with the package `tensorboard` alone."""

from __future__ import annotations

import importlib.util
import itertools
import os
import socket
import struct
import time
import zlib
from typing import Any

import numpy as np

from kerascnn.system_errors import naming_file

# TensorBoard shows at most this many images for a tag and a step.
_MAX_IMAGES = 3


def require_tensorboard() -> None:
    """Raises ImportError if the package is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ImportError(
            "The callback TensorBoard needs the package tensorboard: pip install tensorboard."
        )


class EventWriter:
    """One file of events in a folder.

    Args:
        folder: where the file is.
        name: its name.
        size: how many bytes to keep of a file that is there; 0 for a new file.

    Raises:
        OSError: where the file to go on with is not there or has fewer bytes.
    """

    def __init__(self, folder: str, name: str, size: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        os.makedirs(folder, exist_ok=True)
        self._path = path = os.path.join(folder, name)
        if size:
            if os.path.getsize(path) < size:
                raise OSError(f"{path} has fewer than {size} bytes")
            os.truncate(path, size)
        self._file = open(path, "ab" if size else "wb")  # noqa: SIM115
        self._records = RecordWriter(self._file)
        if not size:
            version = Event(wall_time=time.time(), file_version="brain.Event:2")
            self._write(version)
            self.flush()

    def size(self) -> int:
        """Returns the size of the file, once all of it is on disk."""
        with naming_file(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Writes a number; arrays with several are left out."""
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        if np.size(value) == 1:
            self._add(scalar_pb(tag, float(np.asarray(value).reshape(()))), step)

    def histogram(self, tag: str, values: np.ndarray, step: int) -> None:
        """Writes how the finite numbers among some are distributed."""
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb

        self._add(histogram_pb(tag, values[np.isfinite(values)]), step)

    def images(self, tag: str, images: np.ndarray, step: int) -> None:
        """Writes images of shape (n, h, w, c); numbers from 0 to 1 are gray from black to white."""
        from tensorboard.plugins.image.metadata import create_summary_metadata

        limited = np.nan_to_num(images[:_MAX_IMAGES])
        pixels = (np.clip(limited, 0, 1) * 255.999).astype(np.uint8)
        _, height, width, _ = pixels.shape
        texts = [str(width).encode(), str(height).encode(), *(encode_png(x) for x in pixels)]
        metadata = create_summary_metadata(display_name="", description="", converted_to_tensor=1)
        self._add_strings(tag, texts, metadata, step)

    def keras_model(self, tag: str, text: str) -> None:
        """Writes the configuration of a model, which the graph dashboard draws."""
        from tensorboard.compat.proto.summary_pb2 import SummaryMetadata

        data = SummaryMetadata.PluginData(plugin_name="graph_keras_model", content=b"1")
        self._add_strings(tag, text.encode(), SummaryMetadata(plugin_data=data), 0)

    def _add_strings(self, tag: str, content: Any, metadata: Any, step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        several = isinstance(content, list)
        sizes = [TensorShapeProto.Dim(size=len(content))] if several else []
        tensor = TensorProto(
            dtype=DT_STRING,
            string_val=content if several else [content],
            tensor_shape=TensorShapeProto(dim=sizes),
        )
        value = Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
        self._add(Summary(value=[value]), step)

    def _add(self, summary: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Any) -> None:
        with naming_file(self._path):
            self._records.write(event.SerializeToString())

    def flush(self) -> None:
        with naming_file(self._path):
            self._file.flush()

    def close(self) -> None:
        with naming_file(self._path):
            self._file.close()


_PREFIX = "events.out.tfevents."
_numbers = itertools.count()


def new_name() -> str:
    """Returns a name in TensorBoard's form that no other file has."""
    host = socket.gethostname()
    return f"{_PREFIX}{int(time.time()):010d}.{host}.{os.getpid()}.{next(_numbers)}"


def is_name_of_events(name: Any) -> bool:
    """Tells whether a name is that of a file of events, and of none elsewhere."""
    return isinstance(name, str) and name.startswith(_PREFIX) and os.path.basename(name) == name


def encode_png(pixels: np.ndarray) -> bytes:
    """A PNG file of an image of bytes, shape (h, w, c) with 1, 3 or 4 channels.

    Format: https://www.w3.org/TR/png/

    >>> encode_png(np.zeros((2, 2, 1), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, channels = pixels.shape
    color = {1: 0, 3: 2, 4: 6}[channels]
    # Each row begins with the number of its filter; 0 means none.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )
