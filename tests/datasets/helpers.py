"""Small data sets in every form that the loaders read, and a local web server."""

from __future__ import annotations

import gzip
import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def small_arrays(num_train=12, num_test=5, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.integers(0, 256, (num_train, 28, 28), dtype=np.uint8),
        "y_train": rng.integers(0, 10, num_train, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (num_test, 28, 28), dtype=np.uint8),
        "y_test": rng.integers(0, 10, num_test, dtype=np.uint8),
    }


def idx_bytes(array):
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    return header + array.tobytes()


def write_folder(folder, arrays, compress=True):
    folder.mkdir(parents=True, exist_ok=True)
    for key, name in IDX_NAMES.items():
        data = idx_bytes(arrays[key])
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)
    return folder


def write_npz(path, arrays):
    np.savez_compressed(path, **arrays)
    return path


def check_same(loaded, arrays):
    (x_train, y_train), (x_test, y_test) = loaded
    got = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    for key, array in got.items():
        np.testing.assert_array_equal(array, arrays[key])
        assert array.dtype == np.uint8
        assert array.flags.writeable
        assert array.flags.c_contiguous


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Server:
    """Serves `content` (path to bytes) and notes each request; see `cut_after` and `announce`."""

    def __init__(self):
        self.content: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.cut_after: int | None = None  # After this many bytes the server closes the connection.
        self.announce = True  # If False, the server sends no Content-Length.
        self.address = ""


@contextmanager
def running_server():
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.requests.append(self.path)
            body = state.content.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            if state.announce:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cut_after])

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def files_below(folder: Path):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
