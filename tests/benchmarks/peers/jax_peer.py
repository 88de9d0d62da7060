"""Trains with JAX.

The variant "scan" is a whole epoch as one compiled `lax.scan` over steps, shuffled in it, which
drops the last samples that fill no batch. The variant "step" is one compiled step, called from
Python.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from nets import CLASSES, IMAGE_SIZE, NETS, Case, Data, Net
from worker import main, timed_epochs

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def init(net: Net, random: np.random.Generator) -> dict[str, list]:
    def draw(shape, fan_in, fan_out):
        if net.initializer == "glorot_uniform":
            limit = np.sqrt(6 / (fan_in + fan_out))
            return jnp.asarray(random.uniform(-limit, limit, shape), jnp.float32)
        return jnp.asarray(random.standard_normal(shape) * np.sqrt(2 / fan_in), jnp.float32)

    kernels, channels, size = [], 1, IMAGE_SIZE
    for filters, k, padding in net.convolutions:
        kernels.append(draw((k, k, channels, filters), k * k * channels, k * k * filters))
        channels, size = filters, (size if padding == "same" else size - k + 1) // 2
    features = channels * size * size
    for units in (*net.hidden, CLASSES):
        kernels.append(draw((features, units), features, units))
        features = units
    biases = [jnp.zeros(kernel.shape[-1]) for kernel in kernels] if net.bias else []
    return {"kernels": kernels, "biases": biases}


def logits_of(net: Net, parameters, x, key=None):
    """Returns scores of uint8 images; dropout is active if there is a `key`."""
    kernels, biases = parameters["kernels"], parameters["biases"]
    x = x.astype(jnp.float32)[..., None] / 255
    count = len(net.convolutions)
    for i, (_, _, padding) in enumerate(net.convolutions):
        x = lax.conv_general_dilated(
            x, kernels[i], (1, 1), padding.upper(), dimension_numbers=_LAYOUT
        )
        x = jax.nn.relu(x + biases[i] if biases else x)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    if net.dropout and key is not None:
        kept = jax.random.bernoulli(key, 1 - net.dropout, x.shape)
        x = jnp.where(kept, x / (1 - net.dropout), 0)
    for i in range(count, len(kernels)):
        x = x @ kernels[i]
        x = x + biases[i] if biases else x
        x = jax.nn.relu(x) if i + 1 < len(kernels) else x
    return x


def losses_of(scores, y):
    picked = jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - picked


def make_update(net: Net):
    """Returns the first state of the optimizer, and the function that takes a step."""
    tree_map = jax.tree_util.tree_map
    if net.optimizer == "sgd":
        return lambda p: (), lambda p, g, s: (
            tree_map(lambda a, b: a - net.learning_rate * b, p, g),
            s,
        )

    def start(p):
        return jnp.zeros(()), tree_map(jnp.zeros_like, p), tree_map(jnp.zeros_like, p)

    def adam(p, g, state):
        t, m, v = state
        t = t + 1
        m = tree_map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = tree_map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        rate = net.learning_rate * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        p = tree_map(lambda a, b, c: a - rate * b / (jnp.sqrt(c) + 1e-7), p, m, v)
        return p, (t, m, v)

    return start, adam


class JaxModel:
    def __init__(self, peer: "JaxPeer", case: Case):
        self._peer, self._net, self._size = peer, NETS[case.net], case.batch_size
        start, self._update = make_update(self._net)
        self._parameters = init(self._net, np.random.default_rng(0))
        self._state = start(self._parameters)
        # This generator is fast on a GPU; with threefry an epoch of net D takes a tenth longer.
        self._key = jax.random.key(0, impl="rbg")
        self._steps = len(peer.x) // self._size
        self._epoch = jax.jit(self._scan, donate_argnums=(0, 1))
        self._jitted_step = jax.jit(self._step, donate_argnums=(0,))
        self._forward = jax.jit(functools.partial(self._batches, self._probabilities))
        self._measure = jax.jit(functools.partial(self._batches, self._sums))

    def _step(self, carry, batch, x, y):
        parameters, state = carry
        chosen, key = batch

        def loss_of(p):
            return losses_of(logits_of(self._net, p, x[chosen], key), y[chosen]).mean()

        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        return self._update(parameters, gradients, state), loss

    def _order(self, key, count):
        shuffle, drop = jax.random.split(key)
        order = jax.random.permutation(shuffle, count)[: self._steps * self._size]
        return order.reshape(self._steps, self._size), jax.random.split(drop, self._steps)

    def _scan(self, parameters, state, key, x, y):
        return lax.scan(
            lambda carry, batch: self._step(carry, batch, x, y),
            (parameters, state),
            self._order(key, len(x)),
        )

    def _run(self) -> None:
        self._key, key = jax.random.split(self._key)
        x, y = self._peer.x, self._peer.y
        if self._peer.variant == "scan":
            carry, _ = self._epoch(self._parameters, self._state, key, x, y)
        else:
            carry = self._parameters, self._state
            order, keys = self._order(key, len(x))
            for i in range(self._steps):
                carry, _ = self._jitted_step(carry, (order[i], keys[i]), x, y)
        self._parameters, self._state = jax.block_until_ready(carry)

    def run_epochs(self, count: int) -> list[float]:
        return timed_epochs(self._run, count)

    def _probabilities(self, parameters, x):
        return jax.nn.softmax(logits_of(self._net, parameters, x))

    def _sums(self, parameters, x, y):
        scores = logits_of(self._net, parameters, x)
        return losses_of(scores, y).sum(), (scores.argmax(1) == y).sum()

    @staticmethod
    def _batches(function, parameters, *arrays):
        """Applies the function to each batch of arrays (batches, batch size, ...)."""
        return lax.map(lambda batch: function(parameters, *batch), arrays)

    def _parts(self, batch_size: int, *arrays):
        """Yields the whole batches as one array, and then the rest."""
        whole = len(arrays[0]) // batch_size * batch_size
        for part in (slice(0, whole), slice(whole, None)):
            if len(arrays[0][part]):
                size = min(batch_size, len(arrays[0][part]))
                yield [a[part].reshape(-1, size, *a.shape[1:]) for a in arrays]

    def predict(self, x, batch_size):
        results = [self._forward(self._parameters, part) for (part,) in self._parts(batch_size, x)]
        return np.concatenate([np.asarray(result).reshape(-1, CLASSES) for result in results])

    def evaluate(self, x, y, batch_size):
        parts = self._parts(batch_size, x, y.astype(np.int32))
        sums = [self._measure(self._parameters, *part) for part in parts]
        loss, right = (sum(float(s[i].sum()) for s in sums) / len(x) for i in range(2))
        return loss, right


class JaxPeer:
    def __init__(self, variant: str, data: Data, device: str):
        self.variant = variant
        if device != "cpu" and jax.default_backend() != "gpu":
            raise RuntimeError(f"jax {jax.__version__} finds no GPU")
        self.x, self.y = jnp.asarray(data.x_train), jnp.asarray(data.y_train.astype(np.int32))

    def versions(self) -> dict[str, str]:
        return {"jax": jax.__version__}

    def make(self, case: Case) -> JaxModel:
        return JaxModel(self, case)

    def reset_peak(self) -> None:
        """JAX cannot reset its peak."""

    def peak_bytes(self) -> int | None:
        return None


if __name__ == "__main__":
    main(JaxPeer)
