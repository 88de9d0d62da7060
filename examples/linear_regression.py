"""A straight line through points, found by gradient descent: tensors and gradients at work.

    python examples/linear_regression.py

Nothing here is a layer or a model. Each step computes at once, and the tape notes how.
"""

import argparse

import numpy as np
from common import stop

import kerascnn as keras
from kerascnn import ops

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--device", help="cpu, gpu or gpu:1; default the first usable GPU")
parser.add_argument("--steps", type=int, default=200, help="default 200")
parser.add_argument("--seed", type=int, default=0, help="same seed, same points; default 0")
args = parser.parse_args()
if args.device:
    try:
        keras.config.set_device(args.device)
    except (keras.DeviceError, ValueError) as error:
        stop("--device", error)

# Points near y = 3 x - 1.
rng = np.random.default_rng(args.seed)
points = rng.uniform(-1.0, 1.0, 100).astype("float32")
x = ops.convert_to_tensor(points)
y = ops.convert_to_tensor(3.0 * points - 1.0 + 0.1 * rng.standard_normal(100).astype("float32"))

slope, offset = keras.Variable(0.0), keras.Variable(0.0)
optimizer = keras.optimizers.SGD(learning_rate=0.3)

for step in range(args.steps):
    with keras.GradientTape() as tape:
        error = slope * x + offset - y
        loss = ops.mean(error * error)
    optimizer.apply(tape.gradient(loss, [slope, offset]), [slope, offset])
    if step % 50 == 0:
        print(f"step {step}: loss {float(loss):.4f}")

print(f"y = {float(slope):.3f} x + {float(offset):.3f}")

# The same question to algebra: the derivative of the loss is 0 there.
best = np.polyfit(np.array(x), np.array(y), 1)
print(f"least squares: y = {best[0]:.3f} x + {best[1]:.3f}")
