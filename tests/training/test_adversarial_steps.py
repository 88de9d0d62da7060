"""Steps that train several networks in turn have Keras' losses for 20 steps.

Each step is written once, for a `way` to take gradients. Keras on PyTorch uses `autograd`; kerascnn
uses eager tapes, tapes in a compiled function, and `backward` in `train_step`.
"""

import numpy as np
import pytest

import kerascnn

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS, BATCH, SIZE, LATENT = 20, 3, 6, 5
# The networks are float64. In both libraries the rates and the powers of Adam's betas are float32;
# their rounding (6e-8) is carried on by twenty steps. Losses are sums of terms near 1, which may
# cancel.
CLOSE = {"rtol": 2e-5, "atol": 2e-5}

OPTIMIZERS = {
    "adam": lambda k: k.optimizers.Adam(2e-3, beta_1=0.5),
    "rmsprop": lambda k: k.optimizers.RMSprop(1e-3),
    "momentum": lambda k: k.optimizers.SGD(5e-3, momentum=0.9),
    "adamw": lambda k: k.optimizers.AdamW(1e-3, weight_decay=0.01),
    "nadam": lambda k: k.optimizers.Nadam(1e-3),
    "adagrad": lambda k: k.optimizers.Adagrad(1e-2),
}


def discriminator(k, channels):
    layers = k.layers
    return k.Sequential(
        [
            k.Input((SIZE, SIZE, channels), dtype="float64"),
            layers.Conv2D(4, 3, strides=2, padding="same", dtype="float64"),
            # It is smooth: where rounding moves a number across the corner of a LeakyReLU, as in
            # some runs, gradients jump and the losses part.
            layers.Activation("silu", dtype="float64"),
            layers.Conv2D(3, 3, padding="same", activation="tanh", dtype="float64"),
            layers.Flatten(dtype="float64"),
            layers.Dense(1, dtype="float64"),
        ]
    )


def generator(k):
    layers = k.layers
    return k.Sequential(
        [
            k.Input((LATENT,), dtype="float64"),
            layers.Dense(3 * 3 * 2, activation="tanh", dtype="float64"),
            layers.Reshape((3, 3, 2), dtype="float64"),
            layers.Conv2DTranspose(2, 4, strides=2, padding="same", dtype="float64"),
        ]
    )


def translator(k):
    layers = k.layers
    return k.Sequential(
        [
            k.Input((SIZE, SIZE, 2), dtype="float64"),
            layers.Conv2D(4, 3, padding="same", activation="tanh", dtype="float64"),
            layers.Conv2D(2, 3, padding="same", dtype="float64"),
        ]
    )


class Dcgan:
    """The second gradient is taken after the update of the first network."""

    def nets(self, k):
        return [discriminator(k, 2), generator(k)]

    def step(self, k, way, nets, optimizers, batch):
        critic, maker = nets
        ops, real, _, latent = k.ops, *batch
        bce = k.losses.BinaryCrossentropy(from_logits=True, dtype="float64")
        # This result is made before the gradient is taken, so the critic's step gets it as a
        # constant.
        made = maker(latent)

        def by_critic():
            pairs = ops.concatenate([critic(real), critic(way.given(made))], axis=0)
            labels = ops.concatenate([ops.ones((BATCH, 1)), ops.zeros((BATCH, 1))], axis=0)
            return bce(labels, pairs)

        def by_maker():
            return bce(ops.ones((BATCH, 1)), critic(maker(latent)))

        first = way.train(by_critic, critic, optimizers[0])
        return [first, way.train(by_maker, maker, optimizers[1])]


class WganGp:
    """Penalizes the critic's gradient, which needs second derivatives, in two updates in a row."""

    def nets(self, k):
        return [discriminator(k, 2), generator(k)]

    def step(self, k, way, nets, optimizers, batch):
        critic, maker = nets
        ops, real, share, latent = k.ops, *batch

        def by_critic():
            made = way.given(maker(latent))
            between = real * share + made * (1.0 - share)
            slope = way.slope(critic, between)
            length = ops.sqrt(ops.sum(ops.square(slope), axis=(1, 2, 3)) + 1e-12)
            penalty = ops.mean(ops.square(length - 1.0))
            return ops.mean(critic(made)) - ops.mean(critic(real)) + 10.0 * penalty

        losses = [way.train(by_critic, critic, optimizers[0]) for _ in range(2)]
        return [*losses, way.train(lambda: -ops.mean(critic(maker(latent))), maker, optimizers[1])]


class Pix2pix:
    """The discriminator sees pairs of images; the generator also has an absolute loss."""

    def nets(self, k):
        return [discriminator(k, 4), translator(k)]

    def step(self, k, way, nets, optimizers, batch):
        critic, maker = nets
        ops, real, share, _ = k.ops, *batch
        source = ops.sin(real * 3.0) * share

        def score(image):
            return critic(ops.concatenate([source, image], axis=-1))

        def by_critic():
            made = way.given(maker(source))
            return ops.mean(ops.softplus(-score(real))) + ops.mean(ops.softplus(score(made)))

        def by_maker():
            made = maker(source)
            return ops.mean(ops.softplus(-score(made))) + 5.0 * ops.mean(ops.abs(real - made))

        first = way.train(by_critic, critic, optimizers[0])
        return [first, way.train(by_maker, maker, optimizers[1])]


class CycleGan:
    """Two translators map both ways, and each is also trained through the other."""

    def nets(self, k):
        return [discriminator(k, 2), discriminator(k, 2), translator(k), translator(k)]

    def step(self, k, way, nets, optimizers, batch):
        of_x, of_y, there, back = nets
        ops, x, share, _ = k.ops, *batch
        y = ops.cos(x * 2.0) * share

        def by_maker(forth, other, critic, start):
            made = forth(start)
            cycle = ops.mean(ops.abs(start - other(made)))
            return ops.mean(ops.square(critic(made) - 1.0)) + 10.0 * cycle

        def by_critic(critic, real, forth, start):
            made = way.given(forth(start))
            return ops.mean(ops.square(critic(real) - 1.0)) + ops.mean(ops.square(critic(made)))

        return [
            way.train(lambda: by_maker(there, back, of_y, x), there, optimizers[2]),
            way.train(lambda: by_maker(back, there, of_x, y), back, optimizers[3]),
            way.train(lambda: by_critic(of_x, x, back, y), of_x, optimizers[0]),
            way.train(lambda: by_critic(of_y, y, there, x), of_y, optimizers[1]),
        ]


KINDS = {"dcgan": Dcgan, "wgan_gp": WganGp, "pix2pix": Pix2pix, "cyclegan": CycleGan}


class Autograd:
    """Takes gradients in Keras on PyTorch."""

    def given(self, x):
        return x.detach()

    def slope(self, net, x):
        import torch

        x = x.detach().requires_grad_()
        return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]

    def train(self, compute, net, optimizer):
        import torch

        variables = net.trainable_variables
        loss = compute()
        found = torch.autograd.grad(loss, [v.value for v in variables])
        with torch.no_grad():
            optimizer.apply(found, variables)
        return loss.detach()


class Tapes:
    def given(self, x):
        return kerascnn.ops.stop_gradient(x)

    def slope(self, net, x):
        with kerascnn.GradientTape() as tape:
            tape.watch(x)
            score = net(x)
        return tape.gradient(score, x)

    def train(self, compute, net, optimizer):
        with kerascnn.GradientTape() as tape:
            loss = compute()
        variables = net.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss


class Backward(Tapes):
    def train(self, compute, net, optimizer):
        net.zero_grad()
        loss = compute()
        loss.backward()
        variables = net.trainable_variables
        optimizer.apply([v.value.grad for v in variables], variables)
        return loss


def batches(rng):
    return [
        (
            rng.normal(size=(BATCH, SIZE, SIZE, 2)),
            rng.uniform(size=(BATCH, 1, 1, 1)),
            rng.normal(size=(BATCH, LATENT)),
        )
        for _ in range(STEPS)
    ]


def stepwise(k, kind, way, nets, optimizers, data, wrap=lambda f: f):
    step = wrap(lambda *batch: KINDS[kind]().step(k, way, nets, optimizers, batch))
    return [[float(x) for x in step(*map(k.ops.convert_to_tensor, batch))] for batch in data]


def by_fit(kind, nets, optimizers, data):
    class Own(kerascnn.Model):
        def __init__(self):
            super().__init__()
            self.nets = nets

        def train_step(self, batch):
            losses = KINDS[kind]().step(kerascnn, Backward(), nets, optimizers, batch[0])
            return {f"loss_{i}": loss for i, loss in enumerate(losses)}

    model = Own()
    model.compile()
    logs = [model.train_on_batch(batch, return_dict=True) for batch in data]
    return [[float(x) for x in log.values()] for log in logs]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_are_those_of_keras(kind, name, rng):
    keras = pytest.importorskip("keras")
    data = batches(rng)
    theirs = KINDS[kind]().nets(keras)
    weights = [net.get_weights() for net in theirs]

    def start(k, nets):
        optimizers = [OPTIMIZERS[name](k) for _ in nets]
        for net, own, optimizer in zip(nets, weights, optimizers, strict=True):
            net.set_weights(own)
            optimizer.build(net.trainable_variables)
        return k, nets, optimizers

    k, nets, optimizers = start(keras, theirs)
    expected = stepwise(k, kind, Autograd(), nets, optimizers, data)
    assert np.ptp([losses[0] for losses in expected]) > 1e-2  # The losses do change.
    with kerascnn.device("cpu"):
        for wrap in (lambda f: f, kerascnn.jit):
            k, nets, optimizers = start(kerascnn, KINDS[kind]().nets(kerascnn))
            found = stepwise(k, kind, Tapes(), nets, optimizers, data, wrap)
            np.testing.assert_allclose(found, expected, **CLOSE)
        _, nets, optimizers = start(kerascnn, KINDS[kind]().nets(kerascnn))
        np.testing.assert_allclose(by_fit(kind, nets, optimizers, data), expected, **CLOSE)
