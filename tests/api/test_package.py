"""The package itself: what importing costs and touches, its names, and its choice of a device."""

import inspect
import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import kerascnn


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_import_is_light():
    """Importing loads few modules beside kerascnn's own.

    They are counted here, because time depends on the machine. tests/benchmarks/import_time.py
    measures the time.
    """
    code = (
        "import sys, numpy; before = set(sys.modules); import kerascnn; "
        "print(*(name for name in set(sys.modules) - before if name[:8] != 'kerascnn'))"
    )
    result = run_python(code)
    # Some forty are Python's own, most of them small; a framework would load hundreds.
    assert 0 < len(result.stdout.split()) < 60, result.stdout + result.stderr


def test_import_leaves_drivers_and_heavy_modules_alone():
    code = (
        "import sys, kerascnn; "
        "heavy = {'rich', 'torch', 'keras', 'ml_dtypes', 'urllib.request', 'email', 'h5py', 'PIL', "
        "'matplotlib', 'pandas', 'sklearn', 'asyncio', 'multiprocessing', 'concurrent.futures'}; "
        "print(sorted(heavy & set(sys.modules))); "
        "maps = open('/proc/self/maps').read(); "
        "print([name for name in ('libcuda.so', 'libcudart', 'libcudnn') if name in maps])"
    )
    result = run_python(code)
    assert result.stdout.split("\n")[:2] == ["[]", "[]"], result.stderr


def test_device_by_environment():
    code = "import kerascnn; print(kerascnn.config.get_device(), kerascnn.ops.ones(1).device)"
    assert run_python(code, KERASCNN_DEVICE="cpu").stdout.split() == ["cpu", "cpu"]
    missing = run_python(code, KERASCNN_DEVICE="gpu:63")
    assert "DeviceError" in missing.stderr
    assert "'cuda:63' was asked for" in missing.stderr
    wrong = run_python(code, KERASCNN_DEVICE="tpu")
    assert "not the name of a device" in wrong.stderr


def test_choices_in_the_program_come_before_the_environment():
    """The environment asks for a GPU that no machine has, so asking the environment would fail."""
    code = """if True:
        import kerascnn as keras

        def current():
            try:
                return keras.config.get_device()
            except keras.DeviceError:
                return "refused"

        with keras.device("cpu"):
            print(current())
        print(current())
        keras.config.set_device("CPU:0")
        print(current())
        keras.config.set_device(None)
        print(current())
        """
    result = run_python(code, KERASCNN_DEVICE="gpu:63")
    assert result.stdout.split() == ["cpu", "refused", "cpu", "refused"], result.stderr


@pytest.mark.parametrize("choose", [kerascnn.config.set_device, kerascnn.device])
def test_devices_that_are_not_there_are_refused_and_change_nothing(choose):
    before = kerascnn.config.get_device()
    with pytest.raises(kerascnn.DeviceError, match="'cuda:63' was asked for but cannot be used"):
        choose("gpu:63")
    with pytest.raises(ValueError, match="'tpu' is not the name of a device"):
        choose("tpu")
    assert kerascnn.config.get_device() == before


@pytest.mark.parametrize(("value", "allowed"), [("0", "False"), ("1", "True")])
def test_tf32_by_environment(value, allowed):
    """The variable counts for programs and for ops that run at once."""
    code = "import kerascnn; print(kerascnn.config.tf32(), kerascnn._core.allow_tf32())"
    assert run_python(code, KERASCNN_TF32=value).stdout.split() == [allowed, allowed]


def test_the_innermost_choice_of_a_device_wins(device):
    before = kerascnn.config.get_device()
    try:
        kerascnn.config.set_device(device)
        assert kerascnn.config.get_device() == device
        with kerascnn.device("cpu"):
            assert kerascnn.ops.zeros((1,)).device == "cpu"
        assert kerascnn.Variable(1.0).device == device
    finally:
        kerascnn.config.set_device(None)
    assert kerascnn.config.get_device() == before


def test_memory_is_counted(device, settled_memory):
    before = kerascnn.config.memory_stats(device)
    with kerascnn.device(device):
        x = kerascnn.ops.zeros((1024, 256))
        after = kerascnn.config.memory_stats(device)
    assert after["allocated"] >= before["allocated"] + x.nbytes
    assert after["num_allocations"] > before["num_allocations"]
    assert {"allocated", "cached", "peak", "num_allocations"} <= set(after)


def test_settings():
    with pytest.raises(ValueError, match="float31"):
        kerascnn.config.set_floatx("float31")
    try:
        kerascnn.config.set_floatx("float64")
        kerascnn.config.set_epsilon(1e-3)
        kerascnn.config.set_image_data_format("channels_first")
        assert kerascnn.ops.zeros((2,)).dtype == "float64"
        assert kerascnn.layers.Conv2D(1, 1).data_format == "channels_first"
        assert kerascnn.config.epsilon() == 1e-3
    finally:
        kerascnn.config.set_floatx("float32")
        kerascnn.config.set_epsilon(1e-7)
        kerascnn.config.set_image_data_format("channels_last")


def test_show_versions_names_devices_and_what_is_missing():
    text = io.StringIO()
    kerascnn.show_versions(file=text)
    shown = text.getvalue()
    assert kerascnn.__version__ in shown
    assert np.__version__ in shown
    assert "cpu: usable" in shown
    if not any(ok for name, ok, _ in kerascnn.config.list_devices() if name != "cpu"):
        assert 'KERASCNN_CUDA=ON pip install ".[cuda13]"' in shown.split("To train on")[1]
        assert '"kerascnn[cuda13]" once it is released (docs/install.md)' in shown


SAME_SIGNATURE = {
    "layers": (
        "Activation Add AveragePooling2D BatchNormalization Concatenate Conv2D Dense Dropout "
        "Flatten GlobalAveragePooling2D Input InputLayer InputSpec Layer MaxPooling2D ReLU "
        "Rescaling Reshape Softmax"
    ),
    "initializers": (
        "Constant GlorotNormal GlorotUniform HeNormal HeUniform LecunNormal LecunUniform "
        "RandomNormal RandomUniform TruncatedNormal VarianceScaling"
    ),
    "regularizers": "L1 L2 L1L2",
    "activations": (
        "celu elu exponential gelu hard_sigmoid hard_silu hard_tanh leaky_relu linear "
        "log_sigmoid log_softmax mish relu relu6 selu sigmoid silu softmax softplus softsign tanh"
    ),
    "ops": (
        "absolute add all any arange argmax argmin average_pool batch_normalization "
        "binary_crossentropy broadcast_to cast categorical_crossentropy clip concatenate conv "
        "convert_to_tensor count_nonzero divide dot elu equal exp expand_dims eye flip floor "
        "full full_like gelu greater isfinite isinf isnan leaky_relu less log log1p "
        "log_softmax logical_and logical_not logical_or matmul max max_pool maximum mean min "
        "minimum moments moveaxis multiply negative not_equal one_hot ones ones_like pad power "
        "ravel reciprocal relu reshape rsqrt sigmoid sign softmax softplus "
        "sparse_categorical_crossentropy split sqrt square squeeze stack std subtract sum "
        "swapaxes take tanh transpose unstack var where zeros zeros_like"
    ),
    "random": "SeedGenerator dropout normal randint uniform",
    "utils": "set_random_seed to_categorical",
    "config": "epsilon floatx image_data_format set_epsilon set_floatx set_image_data_format",
}
# Keras passes these keyword arguments on, or they belong to features that we leave out.
EXTRA_IN_KERAS = {"kwargs", "sparse", "ragged", "layout"}


@pytest.mark.parametrize(
    ("place", "name"), [(p, n) for p, names in SAME_SIGNATURE.items() for n in names.split()]
)
def test_signatures_are_those_of_keras(place, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other packages may warn when they are imported
        keras = pytest.importorskip("keras")
    here = parameters(getattr(getattr(kerascnn, place), name))
    there = parameters(getattr(getattr(keras, place), name))
    assert [p for p in here if p[0] not in EXTRA_IN_KERAS] == [
        p for p in there if p[0] not in EXTRA_IN_KERAS
    ]


def parameters(function):
    """Returns names and defaults in order."""
    if inspect.isclass(function):
        function = function.__init__
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.default) for p in found if p.name != "self"]
