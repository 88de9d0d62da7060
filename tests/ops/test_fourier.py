"""Fourier transforms are compared with NumPy, and the ops built on them with Keras."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kerascnn
from kerascnn import ops
from kerascnn.ops.dispatch import to_tensor

# Powers of two, products of small primes, and primes, for which libraries use convolutions.
LENGTHS = [1, 2, 5, 17, 64, 65, 67, 100, 131, 360, 1024, 4757, 8191]


def complex_of(pair):
    real, imaginary = (np.asarray(part, "float64") for part in pair)
    return np.stack([real, imaginary], -1).view("complex128")[..., 0]


def check(received, expected, dtype):
    """Compares a transform within the rounding errors that it must have.

    They are as large as the rounding of its largest elements, and grow with the root of the number
    of its stages, of which there are ten at most.
    """
    scale = np.abs(expected).max() if expected.size else 1.0
    steps = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    np.testing.assert_allclose(received, expected, rtol=0, atol=32 * steps[dtype] * scale)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_transforms_along_the_last_axis(length, dtype, device, rng):
    a, b = rng.standard_normal((2, 2, 3, length)).astype(dtype)
    x = to_tensor(a, device_name=device), to_tensor(b, device_name=device)
    real, imaginary = ops.fft(x)
    assert real.dtype == imaginary.dtype == dtype and real.device == device
    check(complex_of((real, imaginary)), np.fft.fft(a.astype("float64") + 1j * b), dtype)
    check(complex_of(ops.rfft(x[0])), np.fft.rfft(a.astype("float64")), dtype)
    check(ops.irfft(ops.rfft(x[0]), length).numpy(), a, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype, device, rng):
    with kerascnn.device(device):
        x = ops.cast(rng.standard_normal((3, 40)), dtype)
        spectrum = ops.rfft(x)
        back, whole = ops.irfft(spectrum), ops.fft((x, x))
    assert all(part.dtype == dtype for part in (*spectrum, back, *whole))
    exact = ops.cast(x, "float64").numpy()
    for pair, expected in ((spectrum, np.fft.rfft(exact)), (whole, np.fft.fft(exact * (1 + 1j)))):
        check(complex_of([ops.cast(part, "float32") for part in pair]), expected, dtype)
    check(ops.cast(back, "float32").numpy(), exact, dtype)


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 9), (7,), (2, 1, 3, 30), (70_000, 4)])
def test_leading_axes(shape, device, rng):
    a, b = rng.standard_normal((2, *shape)).astype("float32")
    with kerascnn.device(device):
        pair = ops.convert_to_tensor(a), ops.convert_to_tensor(b)
        spectrum, half = ops.fft(pair), ops.rfft(pair[0])
        back = ops.irfft(half, shape[-1])
    check(complex_of(spectrum), np.fft.fft(a.astype("float64") + 1j * b), "float32")
    check(complex_of(half), np.fft.rfft(a.astype("float64")), "float32")
    check(back.numpy(), a, "float32")


def test_no_elements(device):
    """A transform of nothing is empty, but a half spectrum never is: it needs a length."""
    with kerascnn.device(device):
        nothing = ops.zeros((3, 0))
        assert [part.shape for part in ops.fft((nothing, nothing))] == [(3, 0), (3, 0)]
        with pytest.raises(ValueError, match="positive length"):
            ops.rfft(nothing)
        assert complex_of(ops.rfft(nothing, 4)).tolist() == np.zeros((3, 3), complex).tolist()


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("width", [3, 4, 8, 17])
def test_what_is_not_finite_stays_in_its_line(width, special, device, rng):
    """Which others of its line become NaN is left to the libraries; no line is without a sign."""
    a = rng.standard_normal((3, 2, width)).astype("float32")
    a[1, 1, width // 2] = special
    whole = np.isfinite(a).all(-1)
    with kerascnn.device(device):
        x, zeros = ops.convert_to_tensor(a), ops.zeros(a.shape)
        transforms = {
            "rfft": (ops.rfft(x, 4), np.fft.rfft(a.astype("float64"), 4)),
            "fft": (ops.fft((x, zeros)), np.fft.fft(a.astype("float64"))),
        }
        back = ops.irfft((x, zeros), 2 * width - 2).numpy()
    for name, (pair, exact) in transforms.items():
        check(complex_of(pair)[whole], exact[whole], "float32")
        has_sign = name == "fft" or width // 2 < 4  # of a longer line four elements are transformed
        assert np.isfinite(complex_of(pair)[~whole]).all() != has_sign
    check(back[whole], np.fft.irfft(a[whole].astype("float64"), 2 * width - 2), "float32")
    assert not np.isfinite(back[~whole]).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_two_axes(compiled, device, rng):
    a, b = rng.standard_normal((2, 2, 70, 12))

    def both(a, b):
        spectrum = ops.fft2((a, b))
        return spectrum, ops.ifft2(spectrum)

    with kerascnn.device(device):
        call = kerascnn.jit(both) if compiled else both
        spectrum, back = call(ops.convert_to_tensor(a), ops.convert_to_tensor(b))
    check(complex_of(spectrum), np.fft.fft2(a + 1j * b), "float64")
    check(complex_of(back), a + 1j * b, "float64")


@pytest.mark.parametrize(("own", "length"), [(10, 16), (10, 7), (9, None), (8, 9)])
def test_other_lengths(own, length, rng):
    a = rng.standard_normal((3, own))
    spectrum = ops.rfft(a, length)
    check(complex_of(spectrum), np.fft.rfft(a, length), "float64")
    # A half that is no spectrum of real numbers is treated as one, as in NumPy.
    real, imaginary = rng.standard_normal((2, 3, own))
    expected = np.fft.irfft(real + 1j * imaginary, length)
    check(ops.irfft((real, imaginary), length).numpy(), expected, "float64")


@pytest.mark.parametrize("length", [6, 70, 67])
def test_gradients_against_differences(length, device, rng):
    x, direction = rng.standard_normal((2, 2, length))
    weights = rng.standard_normal((2, 2, length // 2 + 1))

    def loss(x):
        real, imaginary = ops.rfft(x)
        return ops.sum(real * weights[0] + ops.square(imaginary) * weights[1])

    with kerascnn.device(device):
        gradient = kerascnn.grad(loss)(ops.convert_to_tensor(x)).numpy()
        step = 1e-5
        ends = [float(loss(ops.convert_to_tensor(x + s * direction))) for s in (step, -step)]
    # Central differences of a quadratic function are exact except for rounding.
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("length", [4, 9, 67])
@pytest.mark.parametrize("compiled", [False, True])
def test_second_derivatives_against_differences(length, compiled, device, rng):
    x, direction = rng.standard_normal((2, 2, 3, length)) / np.sqrt(length)

    def slope(a, b):
        """Returns the derivative along the direction."""
        with kerascnn.GradientTape() as tape:
            tape.watch([a, b])
            real, imaginary = ops.fft((a, b))
            half = ops.rfft(real * imaginary)
            back = ops.irfft((half[0] * half[0], half[1]), length)
            loss = ops.sum(ops.square(back))
        gradients = tape.gradient(loss, [a, b])
        return sum(ops.sum(g * d) for g, d in zip(gradients, direction, strict=True))

    def curvature(a, b):
        with kerascnn.GradientTape() as tape:
            tape.watch([a, b])
            value = slope(a, b)
        gradients = tape.gradient(value, [a, b])
        return sum(ops.sum(g * d) for g, d in zip(gradients, direction, strict=True))

    with kerascnn.device(device):

        def value(function, at):
            return float(function(*(ops.convert_to_tensor(part) for part in at)))

        received = value(kerascnn.jit(curvature) if compiled else curvature, x)
        # The function is a polynomial of degree 8 along a line, and the step is 1e-3. The error of
        # central differences grows with the square of the step, so halving the step lets us remove
        # it.
        coarse, fine = (
            (value(slope, x + s * direction) - value(slope, x - s * direction)) / (2 * s)
            for s in (2e-3, 1e-3)
        )
    expected = fine + (fine - coarse) / 3
    np.testing.assert_allclose(received, expected, rtol=1e-6)


def test_threads_transform_at_a_time(rng):
    """Neither planning nor running holds Python's lock, so no thread waits for another."""
    arrays = rng.standard_normal((8, 40, 300))

    def transform(x):
        for _ in range(20):
            result = ops.rfft(x)
        return complex_of(result)

    with ThreadPoolExecutor(4) as pool:
        for x, result in zip(arrays, pool.map(transform, arrays), strict=True):
            check(result, np.fft.rfft(x), "float64")


UNKNOWN_NUMPY = """
import sys, types
sys.modules["numpy.fft._pocketfft_umath"] = types.ModuleType("another")
import kerascnn
from kerascnn import ops
assert ops.sum([1.0, 2.0]).numpy() == 3.0
try:
    with kerascnn.device("cpu"):
        ops.rfft([1.0, 2.0])
except RuntimeError as error:
    print(error)
"""


def test_a_numpy_that_keeps_them_elsewhere_is_an_error_of_transforms_alone():
    ran = subprocess.run([sys.executable, "-c", UNKNOWN_NUMPY], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "rfft: there are no Fourier transforms for the CPU: NumPy" in ran.stdout
    assert "install a NumPy 2 that does" in ran.stdout


def test_profiles_name_the_library(device, rng):
    x = rng.standard_normal((4, 32)).astype("float32")
    with kerascnn.device(device):
        tensor = ops.convert_to_tensor(x)
        with kerascnn.profiler.trace() as profile:
            ops.rfft(tensor)
    libraries = {row["library"] for row in profile.rows if row["op"] == "rfft"}
    assert ("pocketfft" if device == "cpu" else "cuFFT") in libraries


def test_in_loops(device, rng):
    """The kernels of a loop's body run inside a graph on the device."""
    rows = rng.standard_normal((5, 24))

    def total(rows):
        def step(sums, row):
            real, imaginary = ops.rfft(row)
            return sums + ops.irfft((real, -imaginary), 24), ops.sum(real)

        return ops.scan(step, ops.zeros(24, "float64"), rows)

    with kerascnn.device(device):
        sums, firsts = kerascnn.jit(total)(ops.convert_to_tensor(rows))
    # The conjugate of a transform is the transform of the reversed signal.
    check(sums.numpy(), rows[:, -np.arange(24)].sum(0), "float64")
    check(firsts.numpy(), np.fft.rfft(rows).real.sum(-1), "float64")


def reference(name):
    return getattr(pytest.importorskip("keras").ops, name)


PIECES = [(16, 8, 16), (12, 5, 16), (16, 16, 16), (9, 4, 9)]


@pytest.mark.parametrize(("length", "stride", "size"), PIECES)
@pytest.mark.parametrize("window", ["hann", "hamming", None, "own"])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_short_time_transforms_against_keras(length, stride, size, window, center, rng):
    if window == "own":
        window = rng.uniform(0.5, 1.0, length).astype("float32")
    x = rng.standard_normal((2, 3, 50)).astype("float32")
    arguments = (length, stride, size, window, center)
    here, there = ops.stft(x, *arguments), reference("stft")(x, *arguments)
    check(complex_of(here), complex_of([part.numpy() for part in there]), "float32")


@pytest.mark.parametrize(("length", "stride", "size"), [(16, 8, 16), (12, 4, 16), (9, 3, 9)])
@pytest.mark.parametrize("window", ["hamming", None])
@pytest.mark.parametrize("center", [True, False])
def test_signals_come_back(length, stride, size, window, center, rng):
    """Overlapping windows that are nowhere 0 lose nothing of the samples that they cover."""
    x = rng.standard_normal((2, 60))
    spectrum = ops.stft(x, length, stride, size, window, center)
    reach = size + stride * (spectrum[0].shape[-2] - 1) - (size // 2 * 2 if center else 0)
    back = ops.istft(spectrum, length, stride, size, None, window, center).numpy()
    assert back.shape == (2, reach)
    edge = 0 if center else (size - length + 1) // 2
    inner = slice(edge, reach - edge)
    np.testing.assert_allclose(back[:, inner], x[:, :reach][:, inner], rtol=0, atol=1e-12)
    assert ops.istft(spectrum, length, stride, size, 30, window, center).shape == (2, 30)


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: ops.fft([1.0, 2.0]), ValueError, "have an axis"),
        (lambda: ops.fft((np.ones(3), np.ones(4))), ValueError, "one shape"),
        (lambda: ops.fft((np.ones(3, int), np.ones(3))), ValueError, "must be floating"),
        (lambda: ops.fft2((np.ones(3), np.ones(3))), ValueError, "of 2 axes"),
        (lambda: ops.rfft(np.ones(3), 0), ValueError, "positive length"),
        (lambda: ops.stft(np.ones(9), 4, 0, 4), ValueError, "sequence_stride"),
        (lambda: ops.stft(np.ones(9), 4, 2, 3), ValueError, "fft_length"),
        (lambda: ops.stft(np.ones(9), 4, 2, 4, "flat"), ValueError, "'flat'"),
        (lambda: ops.stft(np.ones(9), 4, 2, 4, np.ones(3)), ValueError, "(4,)"),
        (lambda: ops.stft(np.ones(9, "float16"), 4, 2, 4), TypeError, "float16"),
    ],
)
def test_errors(call, error, part):
    with pytest.raises(error) as caught:
        call()
    assert part in str(caught.value)


MEL = [
    {"fft_length": 64, "sequence_stride": 32, "num_mel_bins": 8, "sampling_rate": 800},
    {
        "fft_length": 128,
        "sequence_length": 100,
        "sequence_stride": 50,
        "window": "hamming",
        "power_to_db": False,
        "mag_exp": 1.0,
        "max_freq": 300,
    },
    {"fft_length": 32, "sequence_stride": 8, "num_mel_bins": 5, "ref_power": 2.0, "top_db": 20.0},
]


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("arguments", MEL)
def test_mel_spectrogram_against_keras(arguments, rng):
    there = pytest.importorskip("keras").layers.MelSpectrogram(**arguments)
    here = kerascnn.layers.MelSpectrogram(**arguments)
    for shape in ((400,), (3, 333)):
        x = rng.standard_normal(shape).astype("float32")
        expected = there(x).numpy()
        # These are sums of up to 65 squares in float32; a decibel is a quarter of the power.
        np.testing.assert_allclose(here(x).numpy(), expected, rtol=2e-4, atol=2e-3)
        assert here.compute_output_shape(shape) == expected.shape
    config = there.get_config()
    assert {k: v for k, v in here.get_config().items() if k in arguments} == {
        k: v for k, v in config.items() if k in arguments
    }


STFT = [
    {"mode": mode, "frame_length": 32, "frame_step": 12, "fft_length": 64}
    for mode in ("log", "magnitude", "psd", "real", "imag", "angle", "stft")
] + [
    {"frame_length": 16, "padding": "same", "expand_dims": True, "scaling": "spectrum"},
    {"frame_length": 16, "data_format": "channels_first", "window": "hamming", "periodic": True},
    {"frame_length": 16, "data_format": "channels_first", "expand_dims": True, "scaling": None},
]


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("arguments", STFT)
def test_stft_spectrogram_against_keras(arguments, rng):
    there = pytest.importorskip("keras").layers.STFTSpectrogram(**arguments)
    here = kerascnn.layers.STFTSpectrogram(**arguments)
    shape = (2, 3, 100) if arguments.get("data_format") == "channels_first" else (2, 100, 3)
    x = rng.standard_normal(shape).astype("float32")
    expected, received = there(x).detach().numpy(), here(x).numpy()
    if arguments.get("mode") == "angle":
        # The angle of a number next to 0 is arbitrary. Elsewhere errors of 1e-6 of the largest
        # numbers turn it by a thousandth at most, and angles that differ by a whole turn are the
        # same.
        size = kerascnn.layers.STFTSpectrogram(**{**arguments, "mode": "magnitude"})(x).numpy()
        large = size > 1e-2 * size.max()
        assert large.mean() > 0.5
        received, expected = np.exp(1j * received[large]), np.exp(1j * expected[large])
        np.testing.assert_allclose(received, expected, rtol=0, atol=1e-3)
        return
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-4)
    assert here.compute_output_shape((None, *shape[1:]))[1:] == received.shape[1:]
    copy = type(here).from_config(here.get_config())
    np.testing.assert_array_equal(copy(x).numpy(), received)


def test_spectrograms_in_models(rng):
    x = rng.standard_normal((8, 400)).astype("float32")
    model = kerascnn.Sequential(
        [
            kerascnn.Input((400,)),
            kerascnn.layers.MelSpectrogram(64, 32, num_mel_bins=8, sampling_rate=800),
            # Without it a step of Adam moves results by several times their size.
            kerascnn.layers.BatchNormalization(),
            kerascnn.layers.Flatten(),
            kerascnn.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    losses = model.fit(x, np.zeros(8), epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    with pytest.raises(ValueError, match="`mode` must be one of"):
        kerascnn.layers.STFTSpectrogram("loud")
    with pytest.raises(ValueError, match="fft_length"):
        kerascnn.layers.MelSpectrogram(64, sequence_length=65)
