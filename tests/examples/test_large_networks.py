"""The benchmark of larger networks runs, and both libraries have the same networks."""

import contextlib
import fcntl
import importlib
import json
import math

import numpy as np
import pytest

import kerascnn as keras

from .scripts import BENCHMARKS, run

# The numbers are published: for torchvision's weights, for the ResNet-18 for small images that is
# common for CIFAR-10, and for timm's vit_small_patch16_224 without the class token and its
# position.
PARAMETERS = {
    "resnet18": 11_173_962,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "mobilenet_v2": 3_504_872,
    "efficientnet_b0": 5_288_548,
    "convnext_t": 28_589_128,
    # Patches, convolution, dense layers, scale, three normalizations, classifier.
    "convnext_block": 49 * 96 + 50 * 96 + 97 * 384 + 385 * 96 + 96 + 3 * 192 + 97 * 10,
    "vit_s16": 22_050_664 - 2 * 384,
}


def torch_network(module, case):
    """Returns PyTorch's network on the "meta" device, where weights take no memory."""
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        return torch, module("large_torch").torch_model(case)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_pytorch_are_the_published_ones(module, name):
    _, network = torch_network(module, module("large_nets").Case.parse(name))
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[name]


def flop_of_layers(model):
    """Counts the operations for a sample in convolutions and dense layers outside attention."""
    total = 0
    for layer in model.layers:
        if isinstance(layer, (keras.layers.Conv2D, keras.layers.DepthwiseConv2D)):
            outputs = layer.output.shape[1:3]
        elif isinstance(layer, keras.layers.Dense):
            outputs = layer.output.shape[1:-1]
        else:
            continue
        total += 2 * math.prod(outputs) * math.prod(layer.kernel.shape)
    return total


def test_every_net_is_known(module):
    assert set(module("large_nets").NETS) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_networks_are_the_same_in_both_libraries(module, name):
    nets = module("large_nets")
    case = nets.Case.parse(f"{name}@2x64")
    torch, network = torch_network(module, case)
    model = nets.keras_model(keras, case)
    ours = sum(math.prod(v.shape) for v in model.trainable_variables)
    assert ours == sum(p.numel() for p in network.parameters())

    flop_counter = pytest.importorskip("torch.utils.flop_counter")
    with flop_counter.FlopCounterMode(display=False) as counter, torch.no_grad():
        logits = network.eval()(torch.empty((1, 3, 64, 64), device="meta"))
    assert tuple(logits.shape[1:]) == model.output_shape[1:]
    expected = counter.get_total_flops()
    if name == "vit_s16":
        places, width = (64 // nets.VIT_PATCH) ** 2, nets.VIT_WIDTH
        projections, attention = 4 * 2 * places * width**2, 2 * 2 * places**2 * width
        expected -= nets.VIT_BLOCKS * (projections + attention)
    assert flop_of_layers(model) == expected


@pytest.mark.parametrize(
    ("text", "expected", "printed"),
    [
        ("vit_s16", ("vit_s16", 128, 224), "vit_s16"),
        ("resnet18@512", ("resnet18", 512, 32), "resnet18"),
        ("resnet50@8", ("resnet50", 8, 224), "resnet50@8"),
        ("vgg16@64x32", ("vgg16", 64, 32), "vgg16@64x32"),
    ],
)
def test_names_of_cases(module, text, expected, printed):
    case = module("large_nets").Case.parse(text)
    assert case == expected and str(case) == printed
    x, y = case._replace(batch_size=2, image_size=9).data(3)
    assert x.shape == (6, 9, 9, 3) and x.dtype == np.uint8 and len(y) == 6


def test_measures_in_turns(tmp_path):
    pytest.importorskip("torch")
    output = tmp_path / "large.json"
    done = run(
        BENCHMARKS / "large.py",
        *("--device", "cpu", "--nets", "resnet18@2x8", "--peers", "torch", "--batches", 2),
        *("--seconds", 0.1, "--measure", "fit,predict", "--profile", "--output", output),
    )
    rows = json.loads(output.read_text())["rows"]
    assert [row["peer"] for row in rows] == ["kerascnn", "torch"]
    for row in rows:
        assert "error" not in row
        assert (row["net"], row["policy"]) == ("resnet18@2x8", "mixed_bfloat16")
        assert row["parameters"] == PARAMETERS["resnet18"]
        # The loss of a guess among ten classes is near 2.3; the libraries start from different
        # weights.
        assert 0 < row["first_loss"] < 20
        for figures in ("images_per_s", "predicted_per_s"):
            assert len(row[figures]) == 2 and min(map(min, row[figures])) > 0
        assert len(row["first_step_s"]) == 1 and row["first_step_s"][0] > 0
        assert ("profile" in row) == (row["peer"] == "kerascnn")
    assert "| convolution |" in done.stdout and "| update |" in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("| resnet18@2x8 |")]
    for ratio in (7, 10):  # of training and of prediction
        own, torch, *_ = (line.split("|")[ratio].strip() for line in lines)
        assert float(own) > 0 and torch == ""


def test_says_which_peer_is_missing(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('not here')\n")
    done = run(
        BENCHMARKS / "large.py",
        *("--device", "cpu", "--nets", "resnet18@1x8", "--peers", "torch", "--batches", 1),
        *("--seconds", 0, "--rounds", 1, "--starts", 2, "--policy", "float32"),
        *("--path", tmp_path),
    )
    assert "resnet18@1x8 float32, torch failed: ImportError: not here" in done.stdout
    (own,) = (line for line in done.stdout.splitlines() if "| kerascnn |" in line)
    assert own.split("|")[5].count(",") == 1 and own.split("|")[7].strip() == "-"


def test_compiles_before_the_turns(tmp_path):
    pytest.importorskip("torch")
    lock, caches, output = (tmp_path / name for name in ("lock", "caches", "large.json"))
    common = ("--device", "cpu", "--nets", "resnet18@2x8", "--peers", "torch", "--batches", 1)
    common += ("--seconds", 0, "--rounds", 1, "--gpu-lock", lock, "--caches", caches)
    done = run(BENCHMARKS / "large.py", *common, "--compile-only")
    assert "torch: first step" in done.stderr and "images/s\n" not in done.stderr
    run(BENCHMARKS / "large.py", *common, "--output", output)
    own, torch = json.loads(output.read_text())["rows"]
    assert own["images_per_s"] and torch["images_per_s"]


def test_one_at_a_time_has_the_lock(module, tmp_path):
    file = tmp_path / "lock"
    with contextlib.closing(module("gpu_lock").GpuLock(str(file))) as lock, file.open() as other:

        def is_free():
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            fcntl.flock(other, fcntl.LOCK_UN)
            return True

        assert is_free()
        with lock:
            with lock:
                assert not is_free()
            assert not is_free()
        assert is_free()


def test_without_a_file_nothing_is_locked(module):
    make = module("gpu_lock").GpuLock
    with make() as first, make() as second:
        assert first.depth == second.depth == 1


@pytest.mark.parametrize(
    ("only_compiles", "expected"),
    [(False, [(1, True), (2, True), (0, True)]), (True, [(0, False), (1, True), (0, False)])],
)
def test_a_compiled_model_holds_the_lock_until_it_is_ready(
    module, monkeypatch, only_compiles, expected
):
    """`expected` has, for each call, how often the lock is held, and whether cuDNN may try."""
    torch = pytest.importorskip("torch")
    timing = importlib.import_module("torch._inductor.runtime.benchmarking")
    graph = importlib.import_module("torch._inductor.output_code").CompiledFxGraph
    cache = importlib.import_module("torch._inductor.select_algorithm").AlgorithmSelectorCache
    found, lock = [], module("gpu_lock").GpuLock()

    def note(*_):
        found.append((lock.depth, torch.backends.cudnn.benchmark))

    # What is set here and changed by SharedGpu is as before behind the test.
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(graph, "__call__", note)
    monkeypatch.setattr(cache, "make_precompile_fn", cache.make_precompile_fn)
    for name in ("TritonBenchmarker", "TorchProfilerBenchmarker"):
        if (kind := getattr(timing, name, None)) is not None:  # PyTorch 2.11 has the first alone
            monkeypatch.setattr(kind, "benchmark_gpu", kind.benchmark_gpu)
    monkeypatch.setattr(timing.InductorBenchmarker, "benchmark_gpu", note)
    shared = module("max_autotune").SharedGpu(lock, only_compiles)
    graph.__call__(object(), [])
    timing.InductorBenchmarker.benchmark_gpu(object())
    shared.is_ready()
    graph.__call__(object(), [])
    assert found == expected and lock.depth == 0 and torch.backends.cudnn.benchmark


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--nets", "resnet51", "'resnet51' is no net"),
        ("--nets", "resnet50@0", "'resnet50@0' is no net"),
        ("--peers", "abacus", "'abacus' is none of"),
        ("--policy", "float8", "'float8' is none of"),
        ("--measure", "speed", "'speed' is none of"),
        ("--rounds", "0", "--rounds must be at least 1"),
        ("--compile-only", "", "--compile-only needs --caches"),
    ],
)
def test_wrong_command_lines(option, value, part):
    options = (option, value) if value else (option,)
    done = run(BENCHMARKS / "large.py", "--device", "cpu", *options, expected=2)
    assert part in done.stderr.splitlines()[-1]


def row(op, kernel, **more):
    plain = {"op": op, "kernel": kernel, "implementation": "", "phase": "forward", "calls": 1.0}
    return plain | {"busy_us": 1.0, "bytes": 8.0, "flop": 2.0} | more


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (row("conv2d_wgrad", "sm90_xmma_wgrad"), "convolution"),
        (row("cast+matmul", "nvjet"), "product"),
        (row("cast", "interpret_floats"), "cast alone"),
        (row("cast+add", "interpret_floats"), "interpreter"),
        (row("cast+add", "region_1f", implementation="generated map"), "generated region"),
        (row("max_pool2d_grad", "pool"), "pooling"),
        (row("batch_norm", "normalize"), "normalization"),
        (row("reduce_sum", "reduce_rows"), "reduction"),
        (row("transpose", "transpose_tiles"), "copy"),
        (row("sgd_update", "update_all", phase="update"), "update"),
        (row("argmax", "find"), "other"),
    ],
)
def test_kinds_of_kernels(module, found, kind):
    assert module("kernel_kinds").kind_of(found) == kind


def test_kinds_are_summed(module):
    kinds = module("kernel_kinds")
    rows = [
        row("cast", "interpret_floats"),
        row("relu", "interpret_floats", busy_us=5.0),
        row("cast", "interpret_floats", busy_us=2.5),
    ]
    first, second = kinds.summed(rows)
    assert (first["kind"], second["kind"]) == ("interpreter", "cast alone")
    assert second == {
        "kind": "cast alone",
        "calls": 2.0,
        "busy_us": 3.5,
        "bytes": 16.0,
        "flop": 4.0,
    }
    assert [r["busy_us"] for r in kinds.longest(rows, 2)] == [5.0, 3.5]
