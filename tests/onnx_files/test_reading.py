"""ONNX files as models: nodes of other libraries, what is refused, and training."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import kerascnn
from kerascnn.onnx_files import reading

from . import of_torch
from .running import difference, run

_F, _I = TensorProto.FLOAT, TensorProto.INT64


def write(path, nodes, constants=(), shape=("n", 3, 8, 6), opset=17, kind=_F, outputs=("y",)):
    """A file of these nodes, from `x` to `y`, with arrays as constants by name."""
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(constants).items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, list(shape))],
        [helper.make_tensor_value_info(name, 0, None) for name in outputs],
        tensors,
    )
    for output in graph.output:
        output.ClearField("type")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def floats(*shape):
    rng = np.random.default_rng(sum(shape) + len(shape))
    return rng.uniform(0.1, 1.0, shape).astype("float32")


def ints(*numbers):
    return np.array(numbers, "int64")


# A node, its constants by name, and the shape of a sample; the batch is open.
_IMAGE, _ROW = (3, 8, 6), (6,)
_CASES = {
    **{
        op: (op, {}, {}, _ROW) for op in ("Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Floor")
    },
    **{op: (op, {}, {}, _ROW) for op in ("Ceil", "Round", "Sign", "Sigmoid", "Tanh", "Erf", "Sin")},
    **{op: (op, {}, {}, _ROW) for op in ("Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh")},
    **{op: (op, {}, {}, _ROW) for op in ("Asinh", "Atanh", "Softplus", "Softsign", "HardSwish")},
    **{op: (op, {}, {}, _IMAGE) for op in ("Relu", "Elu", "Selu", "Celu", "LeakyRelu", "Mish")},
    "hard_sigmoid": ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, {}, _ROW),
    "thresholded": ("ThresholdedRelu", {"alpha": 0.5}, {}, _ROW),
    "softmax": ("Softmax", {"axis": 1}, {}, _IMAGE),
    "log_softmax": ("LogSoftmax", {}, {}, _IMAGE),
    "clip": ("Clip", {}, {"low": np.float32(0.3), "high": np.float32(0.6)}, _IMAGE),
    "clip_below": ("Clip", {}, {"low": np.float32(0.3)}, _ROW),
    **{f"{op}_weight": (op, {}, {"w": floats(3, 1, 1)}, _IMAGE) for op in ("Add", "Sub", "Mul")},
    "div_weight": ("Div", {}, {"w": floats(6)}, _IMAGE),
    "pow": ("Pow", {}, {"w": np.float32(2.0)}, _ROW),
    "max": ("Max", {}, {"w": floats(8, 6)}, _IMAGE),
    "less": ("Less", {}, {"w": floats(6)}, _ROW),
    "conv": ("Conv", {}, {"w": floats(4, 3, 3, 2), "b": floats(4)}, _IMAGE),
    "conv_pads": (
        "Conv",
        {"pads": [1, 0, 2, 1], "strides": [2, 1]},
        {"w": floats(4, 3, 3, 2)},
        _IMAGE,
    ),
    "conv_same": (
        "Conv",
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"w": floats(4, 3, 3, 3)},
        _IMAGE,
    ),
    "conv_lower": ("Conv", {"auto_pad": "SAME_LOWER"}, {"w": floats(4, 3, 2, 2)}, _IMAGE),
    "conv_groups": ("Conv", {"group": 3, "dilations": [2, 1]}, {"w": floats(6, 1, 3, 2)}, _IMAGE),
    "conv_1d": ("Conv", {"pads": [1, 1]}, {"w": floats(4, 3, 3)}, (3, 7)),
    "conv_3d": ("Conv", {}, {"w": floats(2, 3, 2, 2, 2)}, (3, 4, 5, 4)),
    "conv_transpose": (
        "ConvTranspose",
        {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]},
        {"w": floats(3, 2, 3, 2), "b": floats(2)},
        _IMAGE,
    ),
    "max_pool": (
        "MaxPool",
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        {},
        _IMAGE,
    ),
    "max_pool_ceil": (
        "MaxPool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {},
        _IMAGE,
    ),
    "mean_pool": (
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]},
        {},
        _IMAGE,
    ),
    "mean_pool_all": (
        "AveragePool",
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {},
        _IMAGE,
    ),
    "global_mean": ("GlobalAveragePool", {}, {}, _IMAGE),
    "global_max": ("GlobalMaxPool", {}, {}, (3, 5)),
    "batch_norm": ("BatchNormalization", {"epsilon": 0.01}, {n: floats(3) for n in "abcd"}, _IMAGE),
    "batch_norm_rows": ("BatchNormalization", {}, {n: floats(6) for n in "abcd"}, _ROW),
    "layer_norm": (
        "LayerNormalization",
        {"axis": -2},
        {"a": floats(8, 6), "b": floats(8, 6)},
        _IMAGE,
    ),
    "prelu": ("PRelu", {}, {"w": floats(3, 1, 1)}, _IMAGE),
    "gemm": (
        "Gemm",
        {"transB": 1, "alpha": 0.5, "beta": 2.0},
        {"w": floats(4, 6), "b": floats(4)},
        _ROW,
    ),
    "matmul": ("MatMul", {}, {"w": floats(6, 5)}, _IMAGE),
    "dropout": ("Dropout", {}, {"rate": np.float32(0.4)}, _IMAGE),
    "flatten": ("Flatten", {}, {}, _IMAGE),
    "reshape": ("Reshape", {}, {"s": ints(0, 4, -1)}, _IMAGE),
    "reshape_batch": ("Reshape", {}, {"s": ints(-1, 6, 24)}, _IMAGE),
    "transpose": ("Transpose", {"perm": [0, 3, 1, 2]}, {}, _IMAGE),
    "squeeze": ("Squeeze", {}, {"a": ints(1, 3)}, (1, 5, 1)),
    "unsqueeze": ("Unsqueeze", {}, {"a": ints(1, -1)}, _ROW),
    "slice": (
        "Slice",
        {},
        {"s": ints(-1, 1), "e": ints(-100, 3), "a": ints(2, 1), "k": ints(-2, 1)},
        _IMAGE,
    ),
    "gather": ("Gather", {"axis": 2}, {"i": ints(0, -1, 3)}, _IMAGE),
    "expand": ("Expand", {}, {"s": ints(1, 3, 4, 6)}, (3, 1, 6)),
    "tile": ("Tile", {}, {"r": ints(1, 2, 1, 3)}, _IMAGE),
    "pad": (
        "Pad",
        {"mode": "constant"},
        {"p": ints(0, 0, 1, 2, 0, 1, 0, 3), "v": np.float32(2)},
        _IMAGE,
    ),
    "pad_reflect": ("Pad", {"mode": "reflect"}, {"p": ints(0, 0, 1, 2, 0, 0, 0, 3)}, _IMAGE),
    "argmax": ("ArgMax", {"axis": 1, "keepdims": 0}, {}, _IMAGE),
    "argmin": ("ArgMin", {"axis": -1}, {}, _IMAGE),
    "cast": ("Cast", {"to": TensorProto.INT32}, {}, _ROW),
    **{
        op: (op, {"axes": [1, 3], "keepdims": 0}, {}, _IMAGE)
        for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")
    },
    "reduce_sum": ("ReduceSum", {}, {"a": ints(2)}, _IMAGE),
    "reduce_square": ("ReduceSumSquare", {"axes": [2, 3]}, {}, _IMAGE),
    "reduce_logsumexp": ("ReduceLogSumExp", {"axes": [1]}, {}, _IMAGE),
    "depth_to_space": ("DepthToSpace", {"blocksize": 2}, {}, (8, 3, 2)),
    "depth_to_space_crd": ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, {}, (8, 3, 2)),
}


@pytest.mark.parametrize("name", _CASES)
def test_nodes(name, tmp_path):
    op, attributes, constants, shape = _CASES[name]
    nodes = [helper.make_node(op, ["x", *constants], ["y"], name=name, **attributes)]
    opset = 18 if op == "Mish" else 17
    path = write(tmp_path / "node.onnx", nodes, constants, ("n", *shape), opset)
    model = kerascnn.models.from_onnx(path)
    for batch in (1, 3):
        x = floats(batch, *shape)
        assert difference(model.predict(x, verbose=0), run(path, [x])[0]) < 1e-5


def test_every_reader_has_a_case():
    """Or is in what other tests read: models of this library and of PyTorch."""
    elsewhere = {
        *("Acosh", "And", "BatchNormalization", "Concat", "Constant", "ConstantOfShape", "Equal"),
        *("Gelu", "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "LSTM", "GRU"),
        *("LessOrEqual", "Mean", "Min", "Mod", "Not", "Or", "Range", "Resize", "Shape", "Split"),
        *("Sum", "Where", "Xor"),
    }
    assert {case[0] for case in _CASES.values()} | elsewhere == set(reading.supported_ops())


def test_nodes_of_several_values(tmp_path):
    node = helper.make_node
    constants = {"two": ints(2, 4), "c": floats(2), "s": np.float32([1, 1, 2, 3])}
    nodes = [
        node("Split", ["x", "two"], ["a", "b"], axis=3),
        node("Concat", ["b", "a", "b"], ["d"], axis=3),
        node("Resize", ["d", "", "s"], ["e"], mode="nearest"),
        node("Sum", ["e", "e"], ["f"]),
        node("Mean", ["f", "e"], ["g"]),
        node("Greater", ["g", "e"], ["h"]),
        node("LessOrEqual", ["g", "f"], ["i"]),
        node("And", ["h", "i"], ["j"]),
        node("Xor", ["j", "h"], ["k"]),
        node("Or", ["k", "j"], ["l"]),
        node("Not", ["l"], ["m"]),
        node("Where", ["m", "g", "e"], ["o"]),
        node("Min", ["o", "g"], ["p"]),
        node("Identity", ["p"], ["y"]),
        node("GreaterOrEqual", ["g", "g"], ["q"]),
        node("Equal", ["q", "q"], ["r"]),
        node("IsNaN", ["g"], ["t"]),
        node("IsInf", ["g"], ["u"]),
        node("Or", ["t", "u"], ["v"]),
        node("Mod", ["x32", "five"], ["w"]),
        node("Cast", ["x"], ["x32"], to=TensorProto.INT32),
    ]
    nodes.insert(0, nodes.pop())
    constants["five"] = np.int32(5)
    outputs = ("y", "r", "v", "w")
    path = write(tmp_path / "nodes.onnx", nodes, constants, outputs=outputs)
    x = floats(2, 3, 8, 6) * 9
    found = kerascnn.models.from_onnx(path).predict(x, verbose=0)
    for actual, expected in zip(found, run(path, [x]), strict=True):
        assert difference(actual, expected) < 1e-5


@pytest.mark.parametrize("size", [(16, 6), (5, 11), (3, 1)])
@pytest.mark.parametrize(
    ("mode", "place", "more"),
    [
        ("linear", "half_pixel", {}),
        ("linear", "pytorch_half_pixel", {}),
        ("cubic", "half_pixel", {}),
        ("cubic", "half_pixel", {"cubic_coeff_a": -0.5}),
        ("linear", "align_corners", {}),
    ],
)
def test_resized_images(mode, place, more, size, tmp_path):
    options = {"mode": mode, "coordinate_transformation_mode": place, **more}
    nodes = [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **options)]
    path = write(tmp_path / "resize.onnx", nodes, {"sizes": ints(2, 3, *size)}, (2, 3, 8, 6))
    if more or place == "align_corners" or (place != "half_pixel" and 1 in size):
        with pytest.raises(ValueError, match=f"mode='{mode}' by"):
            kerascnn.models.from_onnx(path)
        return
    x = floats(2, 3, 8, 6)
    (expected,) = run(path, [x])
    found = kerascnn.models.from_onnx(path).predict(x, verbose=0)
    assert difference(found, expected) < 1e-5


def small_network():
    torch = of_torch.torch
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False),
                nn.BatchNorm2d(8),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(3, stride=2, padding=1),
            )
            # A bias before a batch normalization would have a gradient of rounding alone.
            convolution = nn.Conv2d(8, 8, 3, padding=1, bias=False)
            self.block = nn.Sequential(convolution, nn.BatchNorm2d(8), nn.SiLU())
            self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

        def forward(self, x):
            x = self.body(x)
            x = (x + self.block(x)).mean((2, 3))
            return torch.softmax(self.head(self.norm(x)), -1)

    torch.manual_seed(0)
    return of_torch.randomize(Network())


def check_training(model, x, classes):
    """A step of `fit` changes all weights that are trained."""
    before = [weight.numpy().copy() for weight in model.trainable_variables]
    # With this rate small gradients don't vanish in the rounding of large weights.
    model.compile(kerascnn.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
    model.train_on_batch(x, np.arange(len(x)) % classes)
    after = [weight.numpy() for weight in model.trainable_variables]
    assert before and all(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keeps_norms", [False, True])
def test_a_network_of_pytorch(keeps_norms, tmp_path):
    network = small_network()
    x = floats(2, 3, 33, 32) - 0.5
    options = {}
    if keeps_norms:  # as for training, with batch normalizations of their own
        mode = of_torch.torch.onnx.TrainingMode.PRESERVE
        options = {"training": mode, "do_constant_folding": False}
    of_torch.export(network, x, tmp_path / "network.onnx", **options)
    model = kerascnn.models.from_onnx(tmp_path / "network.onnx")
    expected = network(of_torch.torch.from_numpy(x)).detach().numpy()
    assert difference(model.predict(x, verbose=0), expected) < 1e-5
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds.count("Conv2D") == 2
    assert kinds.count("BatchNormalization") == 2 * keeps_norms
    model.save(tmp_path / "model.keras")
    again = kerascnn.models.load_model(tmp_path / "model.keras")
    assert difference(again.predict(x, verbose=0), expected) < 1e-5
    check_training(model, x, 5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keeps_norms", [False, True])
def test_resnet50_of_torchvision(keeps_norms, tmp_path, request):
    if not request.config.getoption("--thorough"):
        pytest.skip("ResNet-50 of torchvision is compared with --thorough")
    network = of_torch.randomize(of_torch.torchvision_models().resnet50(weights=None))
    x = floats(2, 3, 64, 64) - 0.5
    mode = of_torch.torch.onnx.TrainingMode.PRESERVE
    options = {"training": mode, "do_constant_folding": False} if keeps_norms else {}
    of_torch.export(network, x, tmp_path / "network.onnx", **options)
    model = kerascnn.models.from_onnx(tmp_path / "network.onnx")
    expected = network(of_torch.torch.from_numpy(x)).detach().numpy()
    assert np.std(expected) > 1e-3
    assert difference(model.predict(x, verbose=0), expected) < 1e-4
    parameters = sum(p.numel() for p in network.parameters())
    if keeps_norms:
        trained = sum(int(np.prod(w.shape)) for w in model.trainable_variables)
        assert trained == parameters
    check_training(model, x, 1000)


# What is refused ----------------------------------------------------------------------------------


def refused(path, match):
    with pytest.raises(ValueError, match=match):
        kerascnn.models.from_onnx(path)


def test_ops_that_are_not_read_are_named(tmp_path):
    nodes = [
        helper.make_node("Loop", ["", "", "x"], ["z"], name="around"),
        helper.make_node("Attention", ["x"], ["y"], domain="com.microsoft", name="fused"),
    ]
    path = write(tmp_path / "x.onnx", nodes)
    refused(path, r"Loop \(node 'around'\), com.microsoft.Attention \(node 'fused'\)\. Known are")


def test_what_is_no_file_of_onnx(tmp_path):
    path = tmp_path / "x.onnx"
    for content in (b"", b"x", b"PK\x03\x04", b"\x08\x08" * 100):
        path.write_bytes(content)
        refused(path, "is no ONNX file")
    with pytest.raises(FileNotFoundError):
        kerascnn.models.from_onnx(tmp_path / "none.onnx")


def test_opsets(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    refused(write(tmp_path / "x.onnx", [node], opset=9), "opset 9; those from 13 to")


def one_weight(path, change):
    """A file whose weight was changed by a function of its tensor."""
    write(path, [helper.make_node("Mul", ["x", "w"], ["y"])], {"w": floats(3, 8, 6)})
    model = onnx.load(path)
    change(model.graph.initializer[0])
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("dims", [[3, 8, 7], [1 << 40], [-1, 144], [1 << 62, 4], []])
def test_tensors_whose_bytes_do_not_fit(dims, tmp_path):
    def change(tensor):
        del tensor.dims[:]
        tensor.dims.extend(dims)

    refused(one_weight(tmp_path / "x.onnx", change), "tensor 'w'")


def outside(tensor, location, length=None):
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "length": length}.items():
        if value is not None:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)


def test_external_data_in_the_folder(tmp_path):
    weight = floats(3, 8, 6)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"\0" * 8 + weight.tobytes())

    def change(tensor):
        outside(tensor, "data/w.bin", weight.nbytes)
        entry = tensor.external_data.add()
        entry.key, entry.value = "offset", "8"

    path = one_weight(tmp_path / "x.onnx", change)
    x = floats(2, 3, 8, 6)
    assert difference(kerascnn.models.from_onnx(path).predict(x, verbose=0), x * weight) == 0.0


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "/etc/passwd", "a/../../w.bin", "..", "", ".", "C:\\w.bin", "..\\w.bin", "w\0"],
)
def test_external_data_elsewhere(location, tmp_path):
    (tmp_path / "w.bin").write_bytes(floats(3, 8, 6).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    path = one_weight(folder / "x.onnx", lambda tensor: outside(tensor, location))
    refused(path, "does not lie in the folder of the model")


def test_external_data_behind_links_or_of_another_size(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"x" * 10)
    (tmp_path / "link").symlink_to(tmp_path / "w.bin")
    (tmp_path / "linked").symlink_to(tmp_path)
    for location in ("link", "linked/w.bin"):
        path = one_weight(tmp_path / "x.onnx", lambda t, at=location: outside(t, at))
        refused(path, "behind the link")
    refused(one_weight(tmp_path / "x.onnx", lambda t: outside(t, "w.bin")), "no file of that size")
    wrong = one_weight(tmp_path / "x.onnx", lambda t: outside(t, "w.bin", 1 << 40))
    refused(wrong, "is said to be")
    refused(one_weight(tmp_path / "x.onnx", lambda t: outside(t, "none.bin")), "can't be read")


def test_a_value_is_not_made_larger_by_constants_that_fill_memory(tmp_path):
    node = helper.make_node("Expand", ["x", "s"], ["y"])
    path = write(tmp_path / "x.onnx", [node], {"s": ints(1, 1 << 40, 3)}, ("n", 1, 3))
    refused(path, "is not made")


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Range"])
def test_constants_that_the_file_does_not_hold(op, tmp_path):
    """Sizes that would fill the memory are refused before it is taken."""
    large = ints(1 << 20, 1 << 20)
    inputs = {"ConstantOfShape": ["s"], "Expand": ["o", "s"], "Range": ["a", "b", "c"]}[op]
    constants = {
        "s": large,
        "o": floats(1, 1),
        "a": ints(0)[0],
        "b": ints(1 << 50)[0],
        "c": ints(1)[0],
    }
    nodes = [helper.make_node(op, inputs, ["z"]), helper.make_node("Add", ["x", "z"], ["y"])]
    refused(write(tmp_path / "x.onnx", nodes, constants), "not made|known for constants")


def test_many_constants_that_the_file_does_not_hold(tmp_path):
    """Each of them would be small enough."""
    nodes = [helper.make_node("ConstantOfShape", ["s"], [f"z{i}"]) for i in range(50)]
    nodes.append(helper.make_node("Add", ["x", "x"], ["y"]))
    refused(write(tmp_path / "x.onnx", nodes, {"s": ints(400_000)}), "is not made")


def test_a_missing_package_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'kerascnn\[onnx\]'"):
        kerascnn.models.from_onnx(tmp_path / "x.onnx")
