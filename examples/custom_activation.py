"""An activation of one's own, from CUDA kernels to a trained network, on every device there is.

    python examples/custom_activation.py

The function is x / sqrt(1 + x^2), a sigmoid between -1 and 1. Its kernels are CUDA C++ that is
compiled when they are first used; NumPy stands in on a CPU. The same op as a one-line expression is
compiled for both.
"""

import time

import numpy as np
from common import load_mnist, make_parser, set_up, stop

import kerascnn as keras
from kerascnn import ops

FORWARD = """
__global__ void soft_sigmoid(const x_t* x, y_t* y, int64_t size) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= size) return;
  const real value = x[at];
  y[at] = value * rsqrt(1 + value * value);
}
"""
# dy / dx = (1 + x^2)^(-3/2), from all that there is: x, y and the gradient of y.
BACKWARD = """
__global__ void soft_sigmoid_gradient(const x_t* x, const y_t*, const dy_t* dy, dx_t* dx,
                                      int64_t size) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= size) return;
  const real value = x[at];
  const real slope = rsqrt(1 + value * value);
  dx[at] = real(dy[at]) * slope * slope * slope;
}
"""

soft_sigmoid = ops.custom_op(
    "soft_sigmoid",
    forward=ops.KernelSource(FORWARD),
    gradient=ops.KernelSource(BACKWARD),
    cpu=lambda x: x / np.sqrt(1 + x * x),
    cpu_gradient=lambda x, y, dy: dy / ((1 + x * x) * np.sqrt(1 + x * x)),
)

one_line = ops.custom_op(
    "soft_sigmoid_in_one_line",
    forward="x / sqrt(1 + x * x)",
    gradient="dy / ((1 + x * x) * sqrt(1 + x * x))",
)


def compare(device):
    """The two ops on random numbers, and the gradient with differences of the function."""
    with keras.device(device):
        x = ops.convert_to_tensor(np.random.default_rng(0).standard_normal(1001), "float64")
        results, slopes = [], []
        for op in (soft_sigmoid, one_line):
            results.append(op(x).numpy())
            slopes.append(keras.grad(lambda x, op=op: ops.sum(op(x)))(x).numpy())
        step = 1e-6
        differences = (soft_sigmoid(x + step) - soft_sigmoid(x - step)).numpy() / (2 * step)
    print(f"  kernels and expression differ by {np.abs(results[0] - results[1]).max():.1e}")
    print(f"  gradient and differences differ by {np.abs(slopes[0] - differences).max():.1e}")


def train(device, activation, data, args):
    (x_train, y_train), (x_test, y_test) = data
    with keras.device(device):
        keras.utils.set_random_seed(args.seed)
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Conv2D(16, 3, activation=activation),
                keras.layers.MaxPooling2D(2),
                keras.layers.Flatten(),
                keras.layers.Dense(64),
                keras.layers.Activation(activation),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
        start = time.perf_counter()
        model.fit(x_train, y_train, args.batch_size, args.epochs, verbose=0)
        seconds = time.perf_counter() - start
        _, accuracy = model.evaluate(x_test, y_test, args.batch_size, verbose=0)
    print(f"  {activation.__name__}: test accuracy {accuracy:.4f} after {seconds:.1f} s")


parser = make_parser(__doc__.splitlines()[0], batch_size=128)
parser.set_defaults(epochs=2)
args = parser.parse_args()
set_up(args)
data = load_mnist(args.data)
usable = [name for name, is_usable, _ in keras.config.list_devices() if is_usable]
if not usable:
    stop("--device", "there is no device")
for device in [args.device] if args.device else usable:
    print(device)
    compare(device)
    for activation in (soft_sigmoid, one_line):
        train(device, activation, data, args)
