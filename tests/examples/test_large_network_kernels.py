"""Which kernels train networks of common sizes in mixed precision."""

import numpy as np
import pytest

import kerascnn as keras

# On a GPU, these are small batches and images with an op of 2^21 elements: kernels are not
# generated for smaller programs.
CASES = ["resnet50@32x128", "vit_s16@128x64", "convnext_t@64x128"]
# On a CPU, the regions of a GPU are requested, whatever their size.
SMALL_CASES = ["resnet50@2x64", "vit_s16@2x64", "convnext_t@2x64"]

NUMBERS = 64  # Casts of metrics and losses move this many bytes at most; they are not activations.


@pytest.fixture
def mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


def bytes_of_casting_weights(model, layers):
    """Returns the bytes for all weights of these layers: float32 is read and bfloat16 written."""
    return 6 * sum(
        int(np.prod(weight.shape))
        for weight in model.weights
        if any(f"/{layer}/" in f"/{weight.path}" for layer in layers.split(" + "))
    )


def profiled_casts_of_activations(model, x, y):
    """Profiles a step with all of the data."""
    profile = model.profile(x, y, batch_size=len(x))
    return [
        (row["layer"], row["kernel"], row["bytes"])
        for row in profile.rows
        if set(row["op"].split("+")) == {"cast"}
        and row["bytes"] > NUMBERS * row["calls"]
        and row["bytes"] > bytes_of_casting_weights(model, row["layer"])
    ]


@pytest.mark.parametrize("name", CASES)
def test_no_activation_is_cast_by_a_kernel_of_its_own(name, module, mixed_precision, cuda_device):
    nets = module("large_nets")
    case = nets.Case.parse(name)
    with keras.device(cuda_device):
        model = nets.keras_model(keras, case)
        assert profiled_casts_of_activations(model, *case.data(1)) == []


def test_attention_is_two_kernels_in_a_step(module, mixed_precision, cuda_device):
    nets = module("large_nets")
    case = nets.Case.parse("vit_s16@64x112")  # with fewer places its kernels stay apart
    with keras.device(cuda_device):
        profile = nets.keras_model(keras, case).profile(*case.data(1), batch_size=case.batch_size)
    layers = {"attention": set(), "attention_grad": set()}
    for row in profile.rows:
        assert "multi_head_attention" not in row["layer"] or "exp" not in row["op"].split("+")
        if row["op"] in layers:
            layers[row["op"]].add(row["layer"])
    assert [len(of) for of in layers.values()] == [nets.VIT_BLOCKS, nets.VIT_BLOCKS]
    assert not {"softmax", "softmax_grad"} & {row["op"] for row in profile.rows}


def test_the_profiler_shows_casts_of_activations(mixed_precision):
    """A CPU's kernels for pooling have no casts in them."""
    layers = keras.layers
    with keras.device("cpu"):
        model = keras.Sequential([keras.Input((16, 16, 3))])
        for _ in range(3):
            model.add(layers.Conv2D(32, 3, padding="same"))
            model.add(layers.AveragePooling2D(3, 1, padding="same", dtype="float32"))
        model.add(layers.GlobalAveragePooling2D())
        model.compile("sgd", "mse")
        found = profiled_casts_of_activations(model, np.ones((8, 16, 16, 3)), np.ones((8, 32)))
    one = 6 * 8 * 16 * 16 * 32  # bytes: float32 on one side and bfloat16 on the other
    assert sum(moved for *_, moved in found) >= 8 * one  # before and behind, forward and backward


@pytest.mark.parametrize("name", SMALL_CASES)
def test_no_activation_is_cast_by_itself_in_a_plan(name, module, mixed_precision, monkeypatch):
    """Casts of weights are allowed: a GPU does all of them in one kernel (`cast_all`)."""
    monkeypatch.setenv("KERASCNN_CPU_REGIONS", "1")
    nets = module("large_nets")
    case = nets.Case.parse(name)
    with keras.device("cpu"):
        model = nets.keras_model(keras, case)
        model.fit(*case.data(1), batch_size=case.batch_size, verbose=0)
    (step,) = model._programs.values()
    weights = {tuple(weight.shape) for weight in model.weights}
    casts = [
        (row["label"], dtype, shape)
        for row in step.program.describe()
        if set(row["label"].split(" (")[0].split("+")) == {"cast"}
        for dtype, shape in row["inputs"]
        if shape and tuple(shape) not in weights
    ]
    assert casts == []
