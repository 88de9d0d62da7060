"""Updates at the end of a training step run as kernels of their own and may add up partial sums."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers
from kerascnn.training.steps import CompiledStep

rng = np.random.default_rng(8)
X = rng.normal(size=(88, 14, 13, 1)).astype("float32")
Y = rng.integers(0, 5, 88)

# The epsilons are large because Adam divides by gradients, which may be nothing but rounding
# errors.
OPTIMIZERS = {
    "sgd": lambda **options: keras.optimizers.SGD(0.05, **options),
    "momentum": lambda **options: keras.optimizers.SGD(0.05, momentum=0.8, **options),
    "nesterov": lambda **options: keras.optimizers.SGD(0.05, 0.8, nesterov=True, **options),
    "decay": lambda **options: keras.optimizers.SGD(0.05, weight_decay=0.1, **options),
    "adam": lambda **options: keras.optimizers.Adam(0.01, epsilon=1e-2, **options),
    "amsgrad": lambda **options: keras.optimizers.Adam(0.01, epsilon=1e-2, amsgrad=True, **options),
    "adamw": lambda **options: keras.optimizers.AdamW(0.01, epsilon=1e-2, **options),
    "averages": lambda **options: keras.optimizers.Adam(
        0.01, epsilon=1e-2, use_ema=True, ema_momentum=0.8, **options
    ),
    "accumulation": lambda **options: keras.optimizers.SGD(
        0.05, gradient_accumulation_steps=2, **options
    ),
    "adagrad": lambda **options: keras.optimizers.Adagrad(0.05, epsilon=1e-2, **options),
}


def convolutional(regularizer=None, filters=4):
    """Builds two convolutions that a GPU joins with their pooling, and a third that stays apart."""
    return keras.Sequential(
        [
            keras.Input((14, 13, 1)),
            layers.Conv2D(filters, 3, activation="relu", kernel_regularizer=regularizer),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, padding="same", activation="tanh"),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 2, activation="relu"),
            layers.Flatten(),
            layers.Dense(6, activation="relu"),
            layers.Dense(5, activation="softmax"),
        ]
    )


def train(device, optimizer, **options):
    """Returns weights and slots after ten steps and a shorter one, and the step's calls."""
    keras.utils.set_random_seed(3)
    with keras.device(device):
        model = convolutional(**options)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        original = CompiledStep.run

        def run(self, *args, **options):
            runs.append(self)
            return original(self, *args, **options)

        patch.setattr(CompiledStep, "run", run)
        model.fit(X, Y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    state = [np.array(v) for v in (*model.variables, *model.optimizer.variables)]
    return state, runs[0].program.describe()


def stacks(calls):
    return [call for call in calls if "copies" in call["attributes"]]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_does_not_depend_on_who_adds_up(name, device):
    """Clipping needs the whole sum, even at a limit that is never reached: no update adds it up."""
    plain, calls = train(device, OPTIMIZERS[name]())
    clipped, clipped_calls = train(device, OPTIMIZERS[name](clipvalue=1e6))
    assert not stacks(clipped_calls)
    if device != "cpu" and name in ("sgd", "momentum", "nesterov", "adam"):
        assert len(stacks(calls)) == 3
        updates = [call for call in calls if call["op"] in ("sgd_update", "adam_update")]
        assert sorted(call["attributes"]["count"] for call in updates) == [2, 8]
    for received, expected in zip(plain, clipped, strict=True):
        # Sums have another order in eleven steps. TF32 may round the differences to 2^-11.
        np.testing.assert_allclose(received, expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw"])
def test_two_runs_give_the_same_bits(name, device):
    first, _ = train(device, OPTIMIZERS[name]())
    second, _ = train(device, OPTIMIZERS[name]())
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_regularized_kernel_keeps_its_gradient(device):
    _, calls = train(device, OPTIMIZERS["sgd"](), regularizer="l2")
    shapes = [tuple(shape[1:]) for call in stacks(calls) for _, shape in call["outputs"]]
    assert ((3, 3, 4, 8) in shapes) == (device != "cpu")
    assert (3, 3, 1, 4) not in shapes


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_other_dtypes_train(policy, name, device):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        first, _ = train(device, OPTIMIZERS[name]())
        second, _ = train(device, OPTIMIZERS[name]())
    finally:
        keras.config.set_dtype_policy(before)
    for a, b in zip(first, second, strict=True):
        assert np.isfinite(a.astype("float64")).all()
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("filters", [4, 7])
def test_any_order_of_kernels_gives_the_same_bits(filters, device, monkeypatch):
    expected, _ = train(device, OPTIMIZERS["adam"](), filters=filters)
    for seed in range(1, 5):
        monkeypatch.setenv("KERASCNN_SHUFFLE_KERNELS", str(seed))
        received, _ = train(device, OPTIMIZERS["adam"](), filters=filters)
        for a, b in zip(received, expected, strict=True):
            assert a.tobytes() == b.tobytes(), seed
