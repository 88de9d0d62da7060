"""Tensors of PyTorch in models here: the same outputs, or errors that say what does not fit."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, saving

from . import writing


def values(model):
    return [v.numpy() for v in model.variables]


def file_of(arrays, tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(writing.zip_of({n: np.asarray(a, "float32") for n, a in arrays.items()}))
    return path


def test_a_row_of_layers_as_pytorch_computes_it(tmp_path, rng):
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    theirs = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.PReLU(8),
        nn.Conv2d(8, 16, 3, groups=8, padding=1),
        nn.Conv2d(16, 8, 1, groups=2, bias=False),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(4 * 12 * 10, 7),
        nn.LayerNorm(7),
    ).eval()
    nn.init.uniform_(theirs[1].running_mean)
    nn.init.uniform_(theirs[1].running_var, 0.5, 2)
    for part in (theirs[1], theirs[6], theirs[9]):
        nn.init.uniform_(part.weight, 0.5, 2)
        nn.init.uniform_(part.bias)
    ours = keras.Sequential(
        [
            keras.Input((6, 5, 3)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(epsilon=1e-5),
            layers.PReLU(shared_axes=(1, 2)),
            layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same"),
            keras.Sequential([layers.Conv2D(8, 1, groups=2, use_bias=False)]),
            layers.Conv2DTranspose(4, 2, strides=2),
            layers.GroupNormalization(2, epsilon=1e-5),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(7),
            layers.LayerNormalization(epsilon=1e-5),
        ]
    )
    x = rng.normal(size=(2, 6, 5, 3)).astype("float32")
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()
    # DataParallel moves weights to the first GPU, where there is one.
    torch.save({"epoch": 3, "model": nn.DataParallel(theirs).state_dict()}, tmp_path / "x.pth")
    ours.load_weights(tmp_path / "x.pth")
    np.testing.assert_allclose(ours.predict(x, verbose=0), expected, atol=1e-5)


@pytest.mark.parametrize("as_in_timm", [False, True])
def test_layers_found_by_name_as_pytorch_computes_them(as_in_timm, tmp_path):
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    parts = nn.ModuleDict(
        {
            "emb": nn.Embedding(11, 6),
            "attn": nn.MultiheadAttention(6, 2, batch_first=True),
            "lstm": nn.LSTM(6, 5, batch_first=True),
            "gru": nn.GRU(5, 4, batch_first=True),
            "conv": nn.Conv1d(4, 3, 1),
        }
    ).eval()
    nn.init.uniform_(parts["attn"].in_proj_bias)
    nn.init.uniform_(parts["attn"].out_proj.bias)
    state = parts.state_dict()
    if as_in_timm:
        renamed = {"in_proj_": "qkv.", "out_proj.": "proj."}
        for old, new in renamed.items():
            state = {name.replace(old, new): value for name, value in state.items()}
    torch.save(state, tmp_path / "x.pth")
    words = keras.Input((9,), dtype="int32")
    x = layers.Embedding(11, 6, name="emb")(words)
    x = layers.MultiHeadAttention(2, 3, name="attn")(x, x)
    x = layers.LSTM(5, return_sequences=True, name="lstm")(x)
    x = layers.GRU(4, return_sequences=True, name="gru")(x)
    ours = keras.Model(words, layers.Dense(3, name="scores")(x))  # a window of one place
    ours.load_weights(tmp_path / "x.pth", names=lambda path: "conv" if path == "scores" else path)
    numbers = np.arange(18).reshape(2, 9) % 11
    with torch.no_grad():
        y = parts["emb"](torch.from_numpy(numbers))
        y = parts["attn"](y, y, y)[0]
        y = parts["gru"](parts["lstm"](y)[0])[0]
        expected = parts["conv"](y.transpose(1, 2)).transpose(1, 2).numpy()
    np.testing.assert_allclose(ours.predict(numbers, verbose=0), expected, atol=1e-6)


def branches():
    """Two dense layers beside each other, the same shapes, whose order says nothing."""
    x = keras.Input((2,))
    left, right = layers.Dense(3, name="left")(x), layers.Dense(3, name="right")(x)
    inner = keras.Sequential([keras.Input((3,)), layers.Dense(1, name="out")], name="head")
    return keras.Model(x, inner(layers.Add()([left, right])))


TENSORS = {
    "a.weight": np.ones((3, 2)),
    "a.bias": np.zeros(3),
    "b.weight": np.full((3, 2), 2),
    "b.bias": np.zeros(3),
    "c.weight": np.ones((1, 3)),
    "c.bias": np.zeros(1),
}


@pytest.mark.parametrize("out", ["out", "head/out"])
def test_names_say_which_layer_takes_what(out, tmp_path):
    model = branches()
    path = file_of(TENSORS, tmp_path)
    saving.load_torch_weights(model, path, {"left": "b", "right": "a", out: "c"})
    assert float(model.get_layer("left").kernel.numpy()[0, 0]) == 2
    assert model.predict(np.ones((1, 2)), verbose=0).tolist() == [[18.0]]


def test_none_leaves_a_layer(tmp_path):
    model = branches()
    before = model.get_layer("head").get_weights()
    few = {name: value for name, value in TENSORS.items() if name[0] != "c"}
    names = {"left": "a", "right": ("b.weight", "b.bias"), "out": None}
    few["b.weight"] = few["b.weight"].T  # named one by one they are taken as they are
    saving.load_torch_weights(model, file_of(few, tmp_path), names)
    for a, b in zip(before, model.get_layer("head").get_weights(), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (None, "no Sequential model.*left, right, head/out and the modules a, b, c"),
        ({"left": "a"}, "no module for layer 'right' .None leaves it."),
        ({"lef": "a"}, r"`names` has \['lef'\], which are no layers.*'left', 'right', 'head/out'"),
        (
            {"left": "a", "right": "x", "out": "c"},
            r"'right' \(Dense\): the file has no 'x\.weight'",
        ),
        (
            {"left": "a", "right": "c", "out": "b"},
            r"'kernel' of shape \(2, 3\).*c\.weight \(1, 3\)",
        ),
        ({"left": "a", "right": "a", "out": "c"}, r"'b\.weight' \(3, 2\) belongs to no layer"),
        ({"left": "a", "right": ("b.weight",), "out": "c"}, "2 weights, but 1 tensors are named"),
    ],
)
def test_what_does_not_fit_changes_nothing(names, match, tmp_path):
    model = branches()
    before = values(model)
    with pytest.raises(ValueError, match=match):
        model.load_weights(file_of(TENSORS, tmp_path), names=names)
    for a, b in zip(before, values(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_does_not_fit_can_be_left_out(tmp_path):
    model = branches()
    path = file_of(TENSORS, tmp_path)
    with pytest.warns(UserWarning, match=r"'b\.weight' \(3, 2\) belongs to no layer"):
        model.load_weights(path, skip_mismatch=True, names={"left": "a", "right": None, "out": "c"})
    assert float(model.get_layer("left").kernel.numpy()[0, 0]) == 1


def test_other_errors(tmp_path):
    path = file_of({**TENSORS, "q.weight": np.zeros((2, 2))}, tmp_path)
    row = keras.Sequential([keras.Input((2,)), layers.Dense(3), layers.Dense(3)])
    with pytest.raises(ValueError, match="2 layers with weights.*the file has 4 modules, a, b, c"):
        row.load_weights(path)
    with pytest.raises(ValueError, match="has no weights yet"):
        keras.Sequential([layers.Dense(3)]).load_weights(path)
    with pytest.raises(ValueError, match="`names` is for files of PyTorch"):
        row.load_weights(tmp_path / "x.weights.h5", names={})
    with pytest.raises(FileNotFoundError, match="none.pth"):
        row.load_weights(tmp_path / "none.pth")
    separable = keras.Sequential([keras.Input((4, 4, 2)), layers.SeparableConv2D(2, 3)])
    one = file_of({"s.weight": np.zeros((2, 1, 3, 3))}, tmp_path)
    with pytest.raises(ValueError, match="for a SeparableConv2D give the names of its tensors"):
        separable.load_weights(one)
    whole = keras.Sequential([keras.Input((2,)), layers.Dense(3, use_bias=False)])
    path.write_bytes(writing.zip_of({"d.weight": np.zeros((3, 2), "int8")}))
    with pytest.raises(ValueError, match=r"is no int8, as d\.weight is"):
        whole.load_weights(path)
