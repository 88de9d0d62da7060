"""The processes of the peers: their names, how they start, and how they are asked."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).resolve().parent


class PeerKind(NamedTuple):
    script: str
    variant: str
    only_on: str = ""  # "cuda", or "" for every device


OWN = "kerascnn"
KINDS = {
    OWN: PeerKind("keras_peer", "kerascnn"),
    "torch": PeerKind("torch_peer", "plain"),
    "torch-channels-last": PeerKind("torch_peer", "channels-last"),
    "torch-compile": PeerKind("torch_peer", "compile"),
    "torch-compile-reduce-overhead": PeerKind("torch_peer", "compile-reduce-overhead", "cuda"),
    "torch-cuda-graph": PeerKind("torch_peer", "cuda-graph", "cuda"),
    "torch-cuda-graph-compile": PeerKind("torch_peer", "cuda-graph-compile", "cuda"),
    # On a CPU a convolution inside a loop takes ten times as long as outside.
    "jax-scan": PeerKind("jax_peer", "scan", "cuda"),
    "jax-step": PeerKind("jax_peer", "step"),
    "keras-jax": PeerKind("keras_peer", "jax"),
    "keras-tensorflow": PeerKind("keras_peer", "tensorflow"),
    "keras-torch": PeerKind("keras_peer", "torch"),
    # These ways of using kerascnn cost something. They never count as peers.
    "kerascnn-generator": PeerKind("keras_peer", "kerascnn-generator"),
    "kerascnn-hooks": PeerKind("keras_peer", "kerascnn-hooks"),
}
BEST = {
    "cuda": ["torch-cuda-graph-compile", "jax-scan", "keras-jax"],
    "cpu": ["torch", "torch-channels-last", "torch-compile", "keras-tensorflow"],
}


def device_type(device: str) -> str:
    return device.partition(":")[0]


def usual_peers(device: str) -> list[str]:
    """Returns every peer that the device can run."""
    kind = device_type(device)
    return [
        name
        for name, peer in KINDS.items()
        if not name.startswith(OWN) and peer.only_on in ("", kind)
    ]


class PeerError(Exception):
    """A peer is not installed, has failed, or takes too long."""


class PeerProcess:
    """One peer, in a process that waits for requests.

    Args:
        command: Its command line.
        environment: Its environment.
    """

    def __init__(self, command: list[str], environment: dict[str, str]):
        self.hello: dict[str, Any] = {}
        # This stays open as long as the process runs.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )

    def wait_until_ready(self, seconds: float) -> None:
        """Waits until the peer has described itself in `hello`. Raises `PeerError`."""
        self.hello = self._answer(seconds)

    def ask(self, do: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        """Returns the answer to one request. Raises `PeerError`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(self._last_words()) from None
        answer = self._answer(seconds)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                self.stop()
                raise PeerError(f"no answer within {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1][:300] if lines else f"ended with status {status}"

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def command(name: str, data: Path, device: str, *more: str) -> list[str]:
    script = str(_FOLDER / "peers" / f"{KINDS[name].script}.py")
    # The environment says which GPU it is.
    return [sys.executable, script, KINDS[name].variant, str(data), inner_device(device), *more]


def inner_device(device: str) -> str:
    return "cpu" if device == "cpu" else "cuda:0"


def environment(device: str, folders: list[str]) -> dict[str, str]:
    """Returns the environment of a peer's process.

    Args:
        device: `"cpu"` or `"cuda:0"`.
        folders: import paths of this peer, before all others.
    """
    env = dict(os.environ)
    paths = [*folders, str(_FOLDER), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    # Several libraries share the GPU, so none may reserve all of its memory.
    env |= {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "KERAS_TORCH_DEVICE": device_type(device),
    }
    if device == "cpu":
        env |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    elif not device.endswith(":0"):
        number = int(device.partition(":")[2])
        visible = [part for part in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
        env["CUDA_VISIBLE_DEVICES"] = visible[number] if number < len(visible) else str(number)
    return env


def time_of_whole_process(
    name: str, data: Path, device: str, folders: list[str], net: str, epochs: int, seconds: float
) -> float:
    """Returns the seconds from the start of a Python process to its end, after so many epochs."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command(name, data, device, "--once", net, "--epochs", str(epochs)),
            env=environment(device, folders),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"not done within {seconds:.0f} s") from None
    elapsed = time.perf_counter() - start
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise PeerError(lines[-1][:300] if lines else f"ended with status {done.returncode}")
    return elapsed
