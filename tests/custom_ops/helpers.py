"""Custom ops that several tests share."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

import kerascnn as keras
from kerascnn import ops

SOFTSIGN = {
    "forward": "x / (1 + fabs(x))",
    "gradient": "dy / ((1 + fabs(x)) * (1 + fabs(x)))",
}


def softsign_in_numpy(x):
    return x / (1 + np.abs(x))


def row_sums(name="row_sums", body="y[row] = sum;", threads=64, **options):
    """Returns an op that sums a matrix along its last axis: a kernel on a GPU, NumPy on a CPU."""
    source = f"""
        __global__ void row_sums(const x_t* x, y_t* y, int64_t rows, int64_t columns) {{
          const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
          if (row >= rows) return;
          real sum = 0;
          for (int64_t i = 0; i < columns; ++i) sum += real(x[row * columns + i]);
          {body}
        }}
    """
    kernel = ops.KernelSource(source, sizes=lambda x: x, elements=lambda x: x[0], threads=threads)
    settings = {"cpu": lambda x: x.sum(axis=1), "output_shape": lambda x: x[:1], **options}
    return ops.custom_op(name, kernel, **settings)


def small_model(activation, seed=3):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, activation=activation),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(16),
            keras.layers.Activation(activation),
            keras.layers.Dense(3),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def run_python(program, expected=0, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )
    assert done.returncode == expected, done.stderr[-2000:]
    return done
