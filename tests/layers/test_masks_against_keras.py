"""Masks through layers and models as in Keras."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn

from .comparing import keras, relative_error
from .parity import FEW, plain

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # Each library has its own wording.
    pytest.mark.filterwarnings("ignore:.*does not support mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*destroy the mask:UserWarning"),
]

# There are a few steps of float32 sums in another order.
TOLERANCE = 2e-5


def mask_of(x):
    mask = getattr(x, "_keras_mask", None)
    return None if mask is None else np.asarray(mask).astype(bool)


def value_of(x):
    return x.numpy() if isinstance(x, kerascnn.Tensor) else keras.ops.convert_to_numpy(x)


def masked(module, x, mask):
    x = module.ops.convert_to_tensor(x)
    if mask is not None:
        x._keras_mask = module.ops.convert_to_tensor(mask)
    return x


def check_same(here, there):
    """Compares values and masks."""
    assert relative_error(value_of(here), value_of(there)) < TOLERANCE
    mine, other = mask_of(here), mask_of(there)
    assert (mine is None) == (other is None)
    if mine is not None:
        np.testing.assert_array_equal(mine, other)


def random_mask(rng, shape):
    mask = rng.random(shape) < 0.6
    mask[:, 0] = True  # No row is masked completely.
    return mask


def run_pair(make, xs, masks, nested, **kwargs):
    """Calls the layer that `make` gives, with equal weights, in both libraries."""
    results = []
    weights = None
    for module in (kerascnn, keras):
        layer = make(module.layers)
        tensors = [masked(module, x, m) for x, m in zip(xs, masks, strict=True)]
        call = [tensors] if nested else tensors
        layer(*[module.ops.convert_to_tensor(x) for x in xs] if not nested else [list(xs)])
        if weights is None:
            rng = np.random.default_rng(0)
            # The values are positive, as variances are.
            weights = [rng.uniform(0.1, 0.9, w.shape).astype("float32") for w in layer.weights]
        layer.set_weights(weights)
        outputs = layer(*call, **kwargs)
        results.append((outputs, tensors, layer))
    return results


UNARY = {
    "Dense": lambda layers: layers.Dense(3),
    "EinsumDense": lambda layers: layers.EinsumDense("abc,cd->abd", (None, 3)),
    "Activation": lambda layers: layers.Activation("tanh"),
    "ReLU": lambda layers: layers.ReLU(),
    "LeakyReLU": lambda layers: layers.LeakyReLU(),
    "PReLU": lambda layers: layers.PReLU(),
    "ELU": lambda layers: layers.ELU(),
    "Dropout": lambda layers: layers.Dropout(0.5),
    "SpatialDropout1D": lambda layers: layers.SpatialDropout1D(0.5),
    "GaussianNoise": lambda layers: layers.GaussianNoise(0.5),
    "GaussianDropout": lambda layers: layers.GaussianDropout(0.5),
    "AlphaDropout": lambda layers: layers.AlphaDropout(0.5),
    "ActivityRegularization": lambda layers: layers.ActivityRegularization(0.1),
    "LayerNormalization": lambda layers: layers.LayerNormalization(),
    "RMSNormalization": lambda layers: layers.RMSNormalization(),
    "GroupNormalization": lambda layers: layers.GroupNormalization(2),
    "UnitNormalization": lambda layers: layers.UnitNormalization(),
    "BatchNormalization": lambda layers: layers.BatchNormalization(),
    "Rescaling": lambda layers: layers.Rescaling(0.5),
    "Identity": lambda layers: layers.Identity(),
    "Masking": lambda layers: layers.Masking(0.25),
    "TimeDistributed": lambda layers: layers.TimeDistributed(layers.Dense(3)),
    "GlobalAveragePooling1D": lambda layers: layers.GlobalAveragePooling1D(),
    "GlobalAveragePooling1D keepdims": lambda layers: layers.GlobalAveragePooling1D(keepdims=True),
    "GlobalMaxPooling1D": lambda layers: layers.GlobalMaxPooling1D(),
    "MaxPooling1D": lambda layers: layers.MaxPooling1D(2),
    "Conv1D": lambda layers: layers.Conv1D(3, 2, padding="same"),
    "Flatten": lambda layers: layers.Flatten(),
    "Reshape": lambda layers: layers.Reshape((4, -1)),
    "Permute": lambda layers: layers.Permute((2, 1)),
    "Lambda": lambda layers: layers.Lambda(lambda x: x * 2.0),
    "Lambda with a mask": lambda layers: layers.Lambda(lambda x: x * 2.0, mask=lambda x, m: m),
}


@pytest.mark.parametrize("name", UNARY)
def test_layers_of_one_input(name, device, rng):
    x = rng.uniform(0.1, 1.0, (3, 4, 6)).astype("float32")
    x[0, 1] = 0.25
    with kerascnn.device(device):
        here, there = run_pair(UNARY[name], [x], [random_mask(rng, (3, 4))], nested=False)
    check_same(here[0], there[0])
    assert here[2].supports_masking == there[2].supports_masking


@pytest.mark.parametrize(
    "name",
    [
        "Add",
        "Subtract",
        "Multiply",
        "Average",
        "Maximum",
        "Minimum",
        "Concatenate",
        "Dot",
        "axis 1",
    ],
)
@pytest.mark.parametrize("which", ["both", "first", "second", "none"])
def test_merging_layers(name, which, device, rng):
    xs = [rng.uniform(0.1, 1.0, (3, 4, 6)).astype("float32") for _ in range(2)]
    masks = [random_mask(rng, (3, 4)) for _ in range(2)]
    masks = [
        masks[0] if which in ("both", "first") else None,
        masks[1] if which in ("both", "second") else None,
    ]

    def make(layers):
        if name == "Dot":
            return layers.Dot(axes=2)
        return layers.Concatenate(axis=1) if name == "axis 1" else getattr(layers, name)()

    with kerascnn.device(device):
        here, there = run_pair(make, xs, masks, nested=True)
    check_same(here[0], there[0])


@pytest.mark.parametrize("name", ["Maximum", "Minimum", "Multiply", "Add"])
def test_merging_three(name, device, rng):
    xs = [rng.normal(size=(3, 4, 6)).astype("float32") for _ in range(3)]
    for missing in (None, 0, 1, 2):
        masks = [None if i == missing else random_mask(rng, (3, 4)) for i in range(3)]
        with kerascnn.device(device):
            here, there = run_pair(lambda layers: getattr(layers, name)(), xs, masks, nested=True)
        check_same(here[0], there[0])


@pytest.mark.parametrize("name", ["Attention", "AdditiveAttention", "MultiHead", "GroupQuery"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scores", [False, True])
def test_attention(name, causal, scores, device, rng):
    """Compares which of the masks of query, value and key reach the output."""

    def make(layers):
        if name == "MultiHead":
            return layers.MultiHeadAttention(2, 3)
        if name == "GroupQuery":
            return layers.GroupQueryAttention(3, 4, 2)
        return getattr(layers, name)()

    xs = [rng.normal(size=(3, n, 6)).astype("float32") for n in (4, 5, 5)]
    nested = name.endswith("Attention")
    for which in [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)]:
        shapes = ((3, 4), (3, 5), (3, 5))
        masks = [random_mask(rng, s) if w else None for s, w in zip(shapes, which, strict=True)]
        further = {"return_attention_scores": True} if scores else {}
        with kerascnn.device(device):
            here, there = run_pair(
                make, xs, masks, nested=nested, use_causal_mask=causal, **further
            )
        pairs = zip(here[0], there[0], strict=True) if scores else [(here[0], there[0])]
        for a, b in pairs:
            check_same(a, b)
        for a, b in zip(here[1], there[1], strict=True):
            assert (mask_of(a) is None) == (mask_of(b) is None)


def test_softmax_of_a_mask(device, rng):
    x, mask = rng.normal(size=(3, 4)).astype("float32"), random_mask(rng, (3, 4))
    with kerascnn.device(device):
        here, there = run_pair(lambda layers: layers.Softmax(), [x], [mask], nested=False)
    check_same(here[0], there[0])


def test_embedding(device, rng):
    ids = rng.integers(0, 5, (3, 4)).astype("int32")
    for mask_zero in (False, True):
        with kerascnn.device(device):
            here, there = run_pair(
                lambda layers, zero=mask_zero: layers.Embedding(5, 3, mask_zero=zero),
                [ids],
                [None],
                nested=False,
            )
        check_same(here[0], there[0])
        assert here[2].supports_masking == there[2].supports_masking == mask_zero
        assert plain(here[2].get_config())["mask_zero"] == mask_zero


def test_reversible_embedding(device, rng):
    ids = rng.integers(0, 5, (3, 4)).astype("int32")

    def make(layers):
        return layers.ReversibleEmbedding(5, 3, mask_zero=True)

    with kerascnn.device(device):
        here, there = run_pair(make, [ids], [None], nested=False)
        check_same(here[0], there[0])
        vectors = [value_of(here[0]), value_of(there[0])]
        check_same(here[2](vectors[0], reverse=True), there[2](vectors[1], reverse=True))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"axis": 1}, {"renorm": True}, {"scale": False}])
def test_batch_normalization_counts_what_the_mask_keeps(arguments, training, device, rng):
    x = rng.normal(size=(5, 4, 6)).astype("float32")
    with kerascnn.device(device):
        here, there = run_pair(
            lambda layers: layers.BatchNormalization(**arguments),
            [x],
            [random_mask(rng, (5, 4))],
            nested=False,
            training=training,
        )
    check_same(here[0], there[0])
    for a, b in zip(here[2].weights, there[2].weights, strict=True):
        assert relative_error(a.numpy(), keras.ops.convert_to_numpy(b.value)) < TOLERANCE


def test_batch_normalization_checks_the_mask(rng):
    layer = kerascnn.layers.BatchNormalization()
    with pytest.raises(ValueError, match=r"one axis less.*mask\.shape=\(2, 3, 4\)"):
        layer(np.ones((2, 3, 4), "float32"), mask=np.ones((2, 3, 4), bool))


def test_time_distributed_gives_each_step_its_mask(device, rng):
    def make(layers):
        return layers.TimeDistributed(layers.GlobalAveragePooling1D())

    x, mask = rng.normal(size=(3, 4, 5, 2)).astype("float32"), random_mask(rng, (3, 4, 5))
    mask[..., 0] = True
    with kerascnn.device(device):
        here, there = run_pair(make, [x], [mask], nested=False)
    check_same(here[0], there[0])
    with pytest.raises(ValueError, match="first two sizes of the mask"):
        make(kerascnn.layers)(x, mask=np.ones((3, 2), bool))


def test_merging_layers_check_their_masks():
    x = kerascnn.ops.ones((2, 3))
    add = kerascnn.layers.Add()
    with pytest.raises(ValueError, match="must be lists"):
        add.compute_mask([x, x], x)
    with pytest.raises(ValueError, match="must be lists"):
        add.compute_mask(x, [None, None])
    with pytest.raises(ValueError, match="one entry for each of the 2 inputs. Received: 1"):
        add.compute_mask([x, x], [None])
    assert add.compute_mask([x, x], [None, None]) is None


# Models


def gradients_are_right_there(names):
    """Tells whether PyTorch's gradients are those that differences of the loss give.

    On a CPU, PyTorch's fused attention, which Keras uses, gives wrong gradients of the values where
    the gradient that it receives is not contiguous, as that of a convolution is (seen with 2.13).
    """
    return "Self" not in names or "Losing" not in names[names.index("Self") :]


@st.composite
def chains(draw):
    """Draws a chain of layers between a masked sequence and its loss."""
    names = ["Dense", "Dropout", "LayerNormalization", "BatchNormalization", "Activation", "Self"]
    names += ["Residual", "Nested", "Shared", "TimeDistributed", "Attention", "Maximum", "Losing"]
    lists = st.lists(st.sampled_from(names), min_size=1, max_size=4)
    return {
        "layers": draw(lists.filter(gradients_are_right_there)),
        "begin": draw(st.sampled_from(["embedding", "masking", "both"])),
        "end": draw(st.sampled_from(["sequence", "pooled", "both"])),
        "kind": draw(st.sampled_from(["functional", "subclass"])),
        "weighted": draw(st.booleans()),
    }


def block(module, name, number):
    """Returns the layers of one kind, and a function that applies them to a tensor."""
    layers = module.layers
    if name == "Self":
        layer = layers.MultiHeadAttention(2, 3)
        return [layer], lambda x: layer(x, x)
    if name == "Attention":
        layer = layers.Attention()
        return [layer], lambda x: layer([x, x])
    if name in ("Residual", "Maximum"):
        inner = layers.Dense(4, activation="tanh")
        merge = layers.Add() if name == "Residual" else layers.Maximum()
        return [inner, merge], lambda x: merge([x, inner(x)])
    if name == "Shared":
        inner = layers.Dense(4, activation="tanh")
        return [inner], lambda x: inner(inner(x))
    if name == "Nested":
        inner = module.Sequential(
            [module.Input((5, 4)), layers.Dense(4, activation="tanh"), layers.Dropout(0.0)]
        )
        return [inner], inner
    makers = {
        "Dense": lambda: layers.Dense(4, activation="relu"),
        "Dropout": lambda: layers.Dropout(0.0),
        "LayerNormalization": lambda: layers.LayerNormalization(),
        "BatchNormalization": lambda: layers.BatchNormalization(),
        "Activation": lambda: layers.Activation("tanh"),
        "TimeDistributed": lambda: layers.TimeDistributed(layers.Dense(4)),
        "Losing": lambda: layers.Conv1D(4, 3, padding="same"),
    }
    layer = makers[name]()
    return [layer], layer


def make_model(module, chain):
    layers = module.layers
    kept = [layers.Embedding(7, 4, mask_zero=True), layers.Masking(0.5), layers.Multiply()]
    parts = [block(module, name, i) for i, name in enumerate(chain["layers"])]
    pool, last, step = layers.GlobalAveragePooling1D(), layers.Dense(2), layers.Dense(3)

    def compute(ids, x):
        if chain["begin"] == "both":
            y = kept[2]([kept[0](ids), kept[1](x)])
        else:
            y = kept[0](ids) if chain["begin"] == "embedding" else kept[1](x)
        for _, function in parts:
            y = function(y)
        outputs = {"sequence": [step(y)], "pooled": [last(pool(y))]}
        both = outputs["sequence"] + outputs["pooled"]
        return outputs.get(chain["end"], both)

    if chain["kind"] == "functional":
        inputs = [module.Input((5,), dtype="int32"), module.Input((5, 4))]
        return module.Model(inputs, compute(*inputs))

    class Own(module.Model):
        def __init__(self):
            super().__init__()
            self.parts = [*kept, *(layer for own, _ in parts for layer in own), pool, last, step]

        def call(self, inputs, training=None):  # Without `training`, Keras does not pass it on.
            outputs = compute(*inputs)
            return outputs if len(outputs) > 1 else outputs[0]

    return Own()


def test_models_train_as_in_keras(device):
    """Compares losses, metrics and weights after some steps, and `evaluate` and `predict`."""

    @FEW
    @given(chain=chains(), seed=st.integers(0, 2**16))
    def check(chain, seed):
        rng = np.random.default_rng(seed)
        ids = rng.integers(0, 7, (12, 5)).astype("int32")
        x = rng.normal(size=(12, 5, 4)).astype("float32")
        x[random_mask(rng, (12, 5)) ^ True] = 0.5
        ids[:, 0] = 1
        sequence = rng.normal(size=(12, 5, 3)).astype("float32")
        y = {"sequence": [sequence], "pooled": [rng.normal(size=(12, 2)).astype("float32")]}
        y = y.get(chain["end"], y["sequence"] + y["pooled"])
        weights = [rng.uniform(0.5, 1.5, t.shape[:-1]).astype("float32") for t in y]
        weights = weights if chain["weighted"] else None
        count = len(y)
        single = count == 1
        y, weights = (y[0], weights and weights[0]) if single else (y, weights)
        results = []
        start = None
        for module in (kerascnn, keras):
            model = make_model(module, chain)
            model([ids[:2], x[:2]])
            if start is None:
                start = [0.3 * rng.normal(size=w.shape).astype("float32") for w in model.weights]
                start = [
                    np.abs(v) if "variance" in w.path else v
                    for v, w in zip(start, model.weights, strict=True)
                ]
            model.set_weights(start)
            several = [["mae"]] * count
            model.compile(
                module.optimizers.SGD(0.05),
                ["mse"] * count,
                metrics=several,
                # Keras on PyTorch changes the weights of the metrics in place while it computes the
                # loss.
                weighted_metrics=None,
            )
            history = model.fit(
                [ids, x], y, batch_size=5, epochs=2, shuffle=False, verbose=0, sample_weight=weights
            ).history
            scores = model.evaluate([ids, x], y, batch_size=5, verbose=0, sample_weight=weights)
            outputs = model.predict([ids, x], batch_size=5, verbose=0)
            outputs = outputs if isinstance(outputs, list) else [outputs]
            results.append((sorted(history.values()), scores, outputs, model.get_weights()))
        here, there = results
        assert relative_error(here[0], there[0]) < 1e-4
        assert relative_error(here[1], there[1]) < 1e-4
        for kind in (2, 3):
            for a, b in zip(here[kind], there[kind], strict=True):
                assert relative_error(a, b) < 1e-3

    with kerascnn.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check()


def test_functional_graphs_have_the_masks_of_keras(rng):
    """The operations that compute masks are part of the model, as in Keras."""

    def make(module):
        layers = module.layers
        ids, x = module.Input((5,), dtype="int32", name="ids"), module.Input((5, 4), name="x")
        y = layers.Embedding(7, 4, mask_zero=True, name="e")(ids)
        y = layers.Concatenate(axis=1, name="c")([y, layers.Masking(name="m")(x)])
        y = layers.BatchNormalization(name="b")(layers.Dense(4, name="d")(y))
        y = layers.GlobalAveragePooling1D(name="g")(y)
        return module.Model([ids, x], y, name="model")

    here, there = make(kerascnn), make(keras)
    mine, other = here.get_config(), there.get_config()
    names = [entry["class_name"] for entry in other["layers"]]
    assert [entry["class_name"] for entry in mine["layers"]] == names
    assert "NotEqual" in names
    ids = rng.integers(0, 7, (3, 5)).astype("int32")
    x = rng.normal(size=(3, 5, 4)).astype("float32")
    x[:, 3] = 0
    here.set_weights(there.get_weights())
    expected = there.predict([ids, x], verbose=0)
    again = kerascnn.Model.from_config(mine)
    from_keras = kerascnn.Model.from_config(other)
    for model in (here, again, from_keras):
        model.set_weights(there.get_weights())
        assert relative_error(model.predict([ids, x], verbose=0), expected) < TOLERANCE


def test_files_keep_masks(tmp_path, rng):
    layers = kerascnn.layers
    model = kerascnn.Sequential(
        [
            kerascnn.Input((5,), dtype="int32"),
            layers.Embedding(7, 4, mask_zero=True),
            layers.Lambda(lambda x: x * 2.0, mask=lambda x, mask: mask),
            layers.GlobalAveragePooling1D(),
        ]
    )
    ids = rng.integers(0, 7, (3, 5)).astype("int32")
    ids[:, 0] = 1
    model.save(tmp_path / "model.keras")
    again = kerascnn.models.load_model(tmp_path / "model.keras", safe_mode=False)
    np.testing.assert_array_equal(again.predict(ids, verbose=0), model.predict(ids, verbose=0))
    vectors = model.layers[0].get_weights()[0][ids] * 2.0
    counts = (ids != 0)[..., None]
    expected = (vectors * counts).sum(1) / counts.sum(1)
    # Up to five numbers of at most 0.1 are added, which may cancel: each sum rounds by 2^-24 of
    # 0.5 at the most.
    atol = 5 * 2.0**-24 * 0.5
    np.testing.assert_allclose(model.predict(ids, verbose=0), expected, rtol=1e-5, atol=atol)
