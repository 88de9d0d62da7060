"""Hands arrays of PyTorch, JAX and CuPy over by DLPack, both ways, and notes where they begin.

    python tests/benchmarks/shared_addresses.py [--device gpu] [--output today.json]

The tutorial on DLPack shows what this writes, for libraries that are not there when it is built. A
library that is not installed, or has no arrays on the device, is left out and named.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
from pathlib import Path
from typing import Any

import report

import kerascnn as keras
from kerascnn import ops

# Without this JAX takes most of a GPU's memory when it first uses it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


class PyTorch:
    name = "torch"

    def __init__(self, torch: Any, kind: str) -> None:
        self.torch, self.kind = torch, kind

    def make(self) -> Any:
        return self.torch.arange(6, dtype=self.torch.float32, device=self.kind)

    def take(self, tensor: keras.Tensor) -> Any:
        return self.torch.from_dlpack(tensor)

    def address(self, array: Any) -> int:
        return array.data_ptr()


class Jax:
    name = "jax"

    def __init__(self, jax: Any, kind: str) -> None:
        self.jax, self.place = jax, jax.devices(kind)[0]

    def make(self) -> Any:
        return self.jax.device_put(self.jax.numpy.arange(6, dtype="float32"), self.place)

    def take(self, tensor: keras.Tensor) -> Any:
        return self.jax.dlpack.from_dlpack(tensor)

    def address(self, array: Any) -> int:
        return array.unsafe_buffer_pointer()


class CuPy:
    name = "cupy"

    def __init__(self, cupy: Any, kind: str) -> None:
        if kind == "cpu":
            raise RuntimeError("CuPy has no arrays on a CPU")
        self.cupy = cupy

    def make(self) -> Any:
        return self.cupy.arange(6, dtype="float32")

    def take(self, tensor: keras.Tensor) -> Any:
        return self.cupy.from_dlpack(tensor)

    def address(self, array: Any) -> int:
        return array.data.ptr


def address(tensor: keras.Tensor) -> int:
    interface = "__array_interface__" if tensor.device == "cpu" else "__cuda_array_interface__"
    return getattr(tensor.numpy() if tensor.device == "cpu" else tensor, interface)["data"][0]


def exchange(library: type[PyTorch | Jax | CuPy], kind: str) -> dict[str, Any]:
    """Hands an array over and a result back, and returns where both sides see them begin."""
    try:
        module = importlib.import_module(library.name)
        other = library(module, kind)
    except (ImportError, RuntimeError, AssertionError) as error:
        return {"library": library.name, "missing": str(error).splitlines()[0]}
    theirs = other.make()
    ours = keras.from_dlpack(theirs)
    result = ops.tanh(ours)
    back = other.take(result)
    return {
        "library": library.name,
        "version": module.__version__,
        "to_here": [hex(other.address(theirs)), hex(address(ours))],
        "from_here": [hex(address(result)), hex(other.address(back))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--output", type=Path, help="file for all of it as JSON")
    arguments = parser.parse_args()
    keras.config.set_device(arguments.device)
    kind = "cpu" if arguments.device == "cpu" else "cuda"
    rows = [exchange(library, kind) for library in (PyTorch, Jax, CuPy)]
    for row in rows:
        if "missing" in row:
            print(f"{row['library']}: left out: {row['missing']}")
            continue
        print(f"{row['library']} {row['version']}")
        print(f"    to here:   {row['to_here'][0]} there, {row['to_here'][1]} here")
        print(f"    from here: {row['from_here'][0]} here, {row['from_here'][1]} there")
    if arguments.output:
        machine = report.machine(keras.config.get_device())
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
