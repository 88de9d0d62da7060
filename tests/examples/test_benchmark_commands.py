"""The benchmarks' command lines on small data: what they print, write and leave out."""

import importlib.util
import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest

from .scripts import BENCHMARKS, ROOT, run

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "little.npz"
    arrays = {}
    for part, count in (("train", 200), ("test", 30)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count, np.uint8)
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="module")
def comparison(data, tmp_path_factory):
    """Compares kerascnn with a peer that cannot be imported; returns text, document and file."""
    folder = tmp_path_factory.mktemp("comparison")
    (folder / "jax").mkdir()
    (folder / "jax" / "__init__.py").write_text("raise ImportError('not here')\n")
    output = folder / "results" / "comparison.json"
    done = run(
        BENCHMARKS / "compare.py",
        *(data, "--device", "cpu", "--nets", "B,B@48", "--peers", "jax-step"),
        *("--path", f"jax-step={folder}", "--rounds", "2", "--epochs", "2"),
        *("--measure", "fit,predict,evaluate,memory,startup", "--test-batch-sizes", "16"),
        *("--output", output),
    )
    return done.stdout, json.loads(output.read_text()), output


def test_comparison_measures_what_it_was_asked_for(comparison):
    _, document, _ = comparison
    found = {(row["what"], row["net"]): row for row in document["rows"]}
    assert set(found) == {
        ("fit", "B"),
        ("fit", "B@48"),
        ("predict@16", "B"),
        ("evaluate@16", "B"),
        ("startup", "D"),
    }
    fit = found["fit", "B@48"]
    assert [len(turn) for turn in fit["ms"]] == [2, 2]
    assert all(value > 0 for turn in fit["ms"] for value in turn)
    assert 1 <= len(fit["warm_up_ms"]) <= 3 and 0 <= fit["accuracy"] <= 1
    assert len(found["startup", "D"]["seconds"]) == 3
    assert document["machine"]["device"] == "cpu"


def test_comparison_says_what_is_missing(comparison):
    text, document, _ = comparison
    assert document["peers"]["jax-step"] == {"missing": "ImportError: not here"}
    assert "jax-step: ImportError: not here" in text
    assert "memory: only counted on GPUs" in text
    assert "| kerascnn / best peer | - | - |" in text


def test_comparison_begins_nothing_without_time(data, tmp_path):
    output = tmp_path / "none.json"
    done = run(
        BENCHMARKS / "compare.py",
        *(data, "--device", "cpu", "--nets", "B", "--peers", "torch", "--seconds", "0"),
        *("--rounds", "1", "--patience", "120", "--output", output),
    )
    assert "fit of kerascnn on net B: no time left" in done.stdout
    assert all("ms" not in row for row in json.loads(output.read_text())["rows"])


def test_comparison_with_pytorch(data):
    pytest.importorskip("torch")
    done = run(
        BENCHMARKS / "compare.py",
        *(data, "--device", "cpu", "--nets", "D", "--peers", "torch", "--rounds", "1"),
        *("--epochs", "1", "--measure", "fit,predict,evaluate"),
    )
    lines = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("|")]
    ratios = [float(cells[1]) for cells in lines if "best peer" in cells[0]]
    assert len(ratios) == 3 and all(0 < ratio < math.inf for ratio in ratios)


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--nets", "F", "'F' is no net"),
        ("--nets", "C@many", "'C@many' is no net"),
        ("--peers", "abacus", "'abacus' is none of"),
        ("--measure", "speed", "'speed' is none of"),
        ("--device", "tpu", "tpu"),
    ],
)
def test_wrong_command_line(option, value, part):
    done = run(BENCHMARKS / "compare.py", "absent", option, value, expected=2)
    assert part in done.stderr.splitlines()[-1]


def test_chart_of_a_comparison(comparison, tmp_path):
    _, document, source = comparison
    torch = {"what": "fit", "peer": "torch", "net": "B", "ms": [[50.0, 70.0], [60.0]]}
    slower = {"what": "fit", "peer": "torch-compile", "net": "B", "ms": [[80.0]]}
    document["rows"] += [torch, slower]
    second = tmp_path / "second.json"
    second.write_text(json.dumps(document))
    output = tmp_path / "chart.svg"
    run(BENCHMARKS / "chart.py", source, second, "-o", output)
    root = ElementTree.parse(output).getroot()
    titles = [element.text for element in root.iter(f"{SVG}title")]
    # kerascnn appears twice in each panel, and the faster of PyTorch's two rows in one panel.
    assert len(titles) == 5
    assert titles.count("torch, net B: 60.0 ms") == 1
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts.count("B@48") == 2 and "PyTorch, own loop" in texts
    assert float(root.get("height")) == pytest.approx(float(root.get("viewBox").split()[3]))


def test_chart_of_something_else(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    done = run(BENCHMARKS / "chart.py", tmp_path / "x.json", "-o", tmp_path / "x.svg", expected=2)
    assert "was not written by compare.py" in done.stderr


def test_committed_results_can_be_drawn(module):
    chart = module("chart")
    paths = sorted((BENCHMARKS / "results").glob("*.json"))
    documents = [json.loads(path.read_text()) for path in paths]
    assert documents
    ElementTree.fromstring(chart.draw(documents))


def test_ratio_to_the_best(module):
    report = module("report")
    rows = [
        {"what": "fit", "peer": "kerascnn", "net": "A", "ms": [[10.0, 30.0], [20.0]]},
        {"what": "fit", "peer": "kerascnn-hooks", "net": "A", "ms": [[1.0]]},
        {"what": "fit", "peer": "torch", "net": "A", "ms": [[50.0]]},
        {"what": "fit", "peer": "keras-jax", "net": "A", "ms": [[400.0]]},
        {"what": "fit", "peer": "jax-scan", "net": "A", "error": "failed"},
        {"what": "startup", "peer": "torch", "net": "A", "seconds": [9.0, 2.0, 4.0]},
    ]
    found = report.medians({"rows": rows}, "fit")
    assert found["kerascnn"] == {"A": 20.0}
    assert report.ratio(found, "A", report.is_peer) == pytest.approx(0.4)
    assert report.ratio(found, "A", lambda name: name.startswith("keras-")) == pytest.approx(0.05)
    assert report.ratio(found, "B", report.is_peer) is None
    # The first start is left out, since it fills caches.
    assert report.medians({"rows": rows}, "startup") == {"torch": {"A": 3.0}}


def test_what_a_call_could_not_be_faster_than(module):
    profile = module("profile_step")
    limits = profile.Limits(1e-6, 1e9, 2e9, 1 << 20, 1e12)
    product = {"op": "matmul", "bytes": 296, "flop": 480}
    assert profile.floor_of(product, limits) == (1e-6, "launch")
    forward = {"op": "conv2d", "bytes": 30_000, "flop": 302_400}
    assert profile.floor_of(forward, limits) == (1.5e-5, "memory")
    assert profile.floor_of({**forward, "bytes": 1 << 21}, limits) == ((1 << 21) / 1e9, "memory")
    assert profile.floor_of({**forward, "flop": 10**8}, limits) == (1e-4, "compute")
    # Only products are compared with the rate of products.
    assert profile.floor_of({**forward, "op": "add", "flop": 10**8}, limits)[1] == "memory"


def test_profile_of_a_step(tmp_path):
    output = tmp_path / "profile.json"
    done = run(
        BENCHMARKS / "profile_step.py",
        *("--net", "B@32", "--device", "cpu", "--samples", "100", "--passes", "3"),
        *("--output", output),
    )
    (net,) = json.loads(output.read_text())["nets"]
    assert net["net"] == "B@32"
    calls = net["calls"]
    assert len(calls) == net["stats"]["num_instructions"]
    assert all(call["seconds"] > 0 and call["floor"] > 0 for call in calls)
    assert sum(call["seconds"] for call in calls) * 1e6 == pytest.approx(net["sum_us"])
    # Both convolutions have a gradient by their kernels; only the second needs one by its input.
    assert sum("conv2d" in call["label"].partition(" ")[0] for call in calls) == 5
    assert f"step {net['step_us']:.2f} us" in done.stdout


def test_profile_of_a_prediction(tmp_path):
    output = tmp_path / "profile.json"
    run(
        BENCHMARKS / "profile_step.py",
        *("--net", "A@25", "--step", "predict", "--device", "cpu", "--samples", "60"),
        *("--passes", "2", "--output", output),
    )
    (net,) = json.loads(output.read_text())["nets"]
    assert net["step"] == "predict"
    ops = [call["label"].partition(" ")[0] for call in net["calls"]]
    assert ops.count("conv2d_max_pool2d") == 1
    assert ops.count("put_batch") == 1


def test_what_the_profiler_costs(tmp_path):
    output = tmp_path / "costs.json"
    options = ("--nets", "A@8", "--device", "cpu", "--rounds", "1", "--output", output)
    done = run(BENCHMARKS / "profiler.py", *options)
    (net,) = json.loads(output.read_text())["nets"]
    assert net["net"] == "A@8" and net["without_layer"] == 0
    assert net["ratio"] == pytest.approx(net["busy_us"] / net["step_us"])
    assert all(us > 0 for us in net["fit_us"].values())
    assert f"| A@8 | {net['fit_us']['before']:.1f}" in done.stdout


def test_profile_needs_a_batch():
    done = run(BENCHMARKS / "profile_step.py", "--samples", "10", "--device", "cpu", expected=2)
    assert "fewer than one batch" in done.stderr


def test_custom_ops_beside_built_in_ones():
    done = run(
        BENCHMARKS / "custom_op.py",
        *("--device", "cpu", "--samples", 64, "--rounds", 1, "--epochs", 1),
    )
    lines = done.stdout.splitlines()[1:]
    assert [line[:16].strip() for line in lines] == [
        "fit, dense layer",
        "fit, every layer",
        "the same, plain",
        "at once, 64 x 12",
        "at once, 2048 x",
    ]
    for line in lines:
        built_in, own, _, ratio = line[24:].split()
        assert float(built_in) > 0 < float(own)
        assert float(ratio) == pytest.approx(float(own) / float(built_in), abs=0.01)


def test_layers_beside_those_of_pytorch():
    pytest.importorskip("torch")
    done = run(BENCHMARKS / "layers.py", "--only", "gelu,batch_norm", "--rounds", 1)
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [line[0] for line in lines] == ["gelu", "batch_norm"]
    for _, here, _, there, _, ratio in lines:
        # All three numbers are printed with one or two decimals.
        assert float(ratio) == pytest.approx(float(here) / float(there), abs=0.02)
    done = run(BENCHMARKS / "layers.py", "--only", "gelu,swoosh", expected=2)
    assert "unknown networks swoosh; there are relu, gelu" in done.stderr


def test_kernels_by_the_clock_beside_pytorch(tmp_path):
    pytest.importorskip("torch")
    output = tmp_path / "autotune.json"
    done = run(
        BENCHMARKS / "autotune.py",
        *("--device", "cpu", "--calls", "conv:2,8,9,3,4,3", "product:6,5,4"),
        *("--dtypes", "float32", "--rounds", 2, "--output", output),
    )
    document = json.loads(output.read_text())
    assert [row["call"] for row in document["rows"]] == [
        "conv (2, 8, 9, 3, 4, 3)",
        "product (6, 5, 4)",
    ]
    for row in document["rows"]:
        assert all(len(times) == 2 and min(times) > 0 for times in row["ms"].values())
    assert document["choices"] == []  # Kernels of the CPU are never timed.
    assert len(done.stdout.splitlines()) == 3
    wrong = run(BENCHMARKS / "autotune.py", "--calls", "conv:1,2", expected=2)
    assert "'conv:1,2' is no call" in wrong.stderr


def test_limits_of_own_kernels(tmp_path):
    output = tmp_path / "limits.json"
    script = BENCHMARKS / "kernel_limits.py"
    name = "16 to 32, 3 x 3, 32 images"
    done = run(script, *("--device", "cpu", "--filter", name, "--output", output))
    rows = json.loads(output.read_text())["rows"]
    assert [row["convolution"] for row in rows] == [f"{name} of 16", f"{name} of 16, pooled"]
    assert all(row["us"] == {} for row in rows)  # Kernels of the CPU are never timed.
    assert done.stdout.splitlines()[1].split() == [*f"{name} of 16".split(), "3.8e+07", *"---"]
    wrong = run(script, "--device", "cpu", "--filter", "17 to 32", expected=2)
    assert "no convolution has '17 to 32' in its name" in wrong.stderr


def test_speedrun_example(data):
    done = run(
        ROOT / "examples" / "mnist_speedrun.py",
        *("--data", data, "--device", "cpu", "--seeds", "3", "--epochs", "1"),
        *("--batch-size", "64"),
    )
    first, accuracy, seconds = done.stdout.splitlines()
    assert first == "3 trainings of 1 epochs on cpu"
    assert accuracy.startswith("Test accuracy: mean 0.")
    assert accuracy.endswith("; 0 of 3 reached 0.99")
    assert float(seconds.split()[2].rstrip(",")) > 0


def test_speedrun_needs_seeds():
    done = run(ROOT / "examples" / "mnist_speedrun.py", "--seeds", "0", expected=2)
    assert "must be at least 1" in done.stderr


def test_addresses_of_shared_memory_are_the_same_on_both_sides(tmp_path):
    output = tmp_path / "results" / "addresses.json"
    done = run(BENCHMARKS / "shared_addresses.py", "--output", output)
    rows = {row["library"]: row for row in json.loads(output.read_text())["rows"]}
    assert list(rows) == ["torch", "jax", "cupy"]
    for library, row in rows.items():
        if library == "cupy" or importlib.util.find_spec(library) is None:
            assert f"{library}: left out: {row['missing']}" in done.stdout
            continue
        for there, here in (row["to_here"], row["from_here"]):
            assert there == here and int(there, 16) > 0
