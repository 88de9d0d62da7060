"""Padded sequences, windows of time series, and folders of text and audio files."""

import wave

import numpy as np
import pytest

import kerascnn
from kerascnn import utils
from kerascnn.utils.audio_dataset import resampled

keras = pytest.importorskip("keras")


@pytest.mark.parametrize("padding", ["pre", "post"])
@pytest.mark.parametrize("truncating", ["pre", "post"])
@pytest.mark.parametrize("maxlen", [None, 1, 3, 9])
@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_pad_sequences(padding, truncating, maxlen, shape, dtype, rng):
    sequences = [rng.normal(size=(n, *shape)) * 9 for n in (4, 0, 1, 6)]
    arguments = {"maxlen": maxlen, "padding": padding, "truncating": truncating, "dtype": dtype}
    found = utils.pad_sequences(sequences, value=-1, **arguments)
    expected = keras.utils.pad_sequences(sequences, value=-1, **arguments)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_pad_sequences_of_text_and_wrong_ones():
    found = utils.pad_sequences([["a"], ["b", "cd"]], dtype=object, value="-", padding="post")
    assert found.tolist() == [["a", "-"], ["b", "cd"]]
    for arguments, words in [
        ((5,), "must be a list"),
        (([1, 2],), "list of sequences"),
        (([[1]], None, "int32", "mid"), "`padding` must be"),
        (([[1]], None, "int32", "pre", "mid"), "`truncating` must be"),
        (([[1]], None, "int32", "pre", "pre", "x"), "dtype=object"),
        (([[1], [[2, 3]]],), "have shape"),
    ]:
        with pytest.raises(ValueError, match=words):
            utils.pad_sequences(*arguments)
    assert kerascnn.preprocessing.sequence.pad_sequences is utils.pad_sequences


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("rate", [1, 2])
@pytest.mark.parametrize(("start", "end"), [(None, None), (4, None), (None, 25), (3, 21)])
@pytest.mark.parametrize("with_targets", [False, True])
def test_windows(stride, rate, start, end, with_targets, rng):
    data = rng.normal(size=(30, 2))
    targets = rng.normal(size=30) if with_targets else None
    dataset = utils.timeseries_dataset_from_array(
        data, targets, 5, stride, rate, batch_size=4, start_index=start, end_index=end
    )
    first, last = start or 0, end or 30
    windows, wanted = [], []
    for begin in range(first, last, stride):
        if begin + 4 * rate < last:
            windows.append(data[begin : begin + 4 * rate + 1 : rate])
            if with_targets:
                wanted.append(targets[begin])
    batches = list(dataset)
    assert all(len(b if targets is None else b[1]) <= 4 for b in batches)
    if with_targets:
        np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), wanted)
        batches = [x for x, _ in batches]
    np.testing.assert_array_equal(np.concatenate(batches), windows)


def test_windows_in_random_order_and_alone():
    x = np.arange(20)
    dataset = utils.timeseries_dataset_from_array(
        x, x, 3, batch_size=None, shuffle=True, seed=4, end_index=15
    )
    passes = [[(int(w[0]), int(y)) for w, y in dataset] for _ in range(3)]
    assert all(sorted(found) == [(i, i) for i in range(13)] for found in passes)
    assert len(set(map(tuple, passes))) > 1
    short = utils.timeseries_dataset_from_array(x, x[:6], 3)
    assert [len(y) for _, y in short] == [6]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start_index": -1}, "`start_index`"),
        ({"start_index": 10}, "`start_index`"),
        ({"end_index": 10}, "`end_index`"),
        ({"start_index": 5, "end_index": 5}, "`end_index`"),
        ({"sampling_rate": 0}, "`sampling_rate`"),
        ({"sampling_rate": 10}, "`sampling_rate`"),
        ({"sequence_stride": 0}, "`sequence_stride`"),
        ({"sequence_length": 0}, "sequence_length"),
        ({"format": "torch"}, "`format`"),
    ],
)
def test_wrong_windows(arguments, words):
    with pytest.raises(ValueError, match=words):
        utils.timeseries_dataset_from_array(
            np.arange(10), None, **{"sequence_length": 2, **arguments}
        )


@pytest.fixture
def texts(tmp_path):
    for name, words in (("bad", ["dull", "grün", "x" * 9]), ("good", ["fun\r\n", ""])):
        (tmp_path / name).mkdir()
        for i, word in enumerate(words):
            (tmp_path / name / f"{i}.txt").write_bytes(word.encode())
    (tmp_path / "bad" / "a.csv").write_text("no text")
    return tmp_path


def test_text_files(texts):
    options = {"verbose": False, "batch_size": 3}
    dataset = utils.text_dataset_from_directory(texts, shuffle=False, **options)
    batches = list(dataset)
    assert [b[0].tolist() for b in batches] == [["dull", "grün", "x" * 9], ["fun\r\n", ""]]
    assert [b[1].tolist() for b in batches] == [[0, 0, 0], [1, 1]]
    assert (dataset.class_names, dataset.num_classes, len(dataset)) == (["bad", "good"], 2, 2)
    assert dataset.map(lambda x, y: x).class_names == ["bad", "good"]
    cut = utils.text_dataset_from_directory(
        texts, label_mode=None, max_length=3, shuffle=False, **options
    )
    assert [t for b in cut for t in b] == ["dul", "grü", "xxx", "fun", ""]
    train, rest = utils.text_dataset_from_directory(
        texts, validation_split=0.4, subset="both", seed=1, label_mode="binary", **options
    )
    assert (len(train.file_paths), len(rest.file_paths)) == (3, 2)
    assert next(iter(train))[1].shape == (3, 1)
    (texts / "bad" / "0.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"0\.txt cannot be read as UTF-8"):
        list(dataset)
    with pytest.raises(ValueError, match="number of text files"):
        utils.text_dataset_from_directory(texts, labels="some")


def write_wav(path, values, width, rate=8000):
    """Writes integers (samples, channels) to a file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(values.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        if width == 1:
            content = (values + 128).astype(np.uint8).tobytes()
        else:
            raw = values.astype("<i4").view(np.uint8).reshape(-1, 4)
            content = raw[:, :width].tobytes()
        file.writeframes(content)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_sound_files(tmp_path, width, channels, rng):
    limit = 2 ** (8 * width - 1)
    sounds = [rng.integers(-limit, limit, (n, channels)) for n in (7, 4)]
    for name, sound in zip("ab", sounds, strict=True):
        (tmp_path / name).mkdir()
        write_wav(tmp_path / name / "1.wav", sound, width)
    options = {"shuffle": False, "verbose": False}
    ((found, labels),) = utils.audio_dataset_from_directory(tmp_path, **options)
    assert found.shape == (2, 7, channels)
    assert (found.dtype, labels.tolist()) == (np.float32, [0, 1])
    expected = [sound / limit for sound in sounds]
    np.testing.assert_allclose(found[0], expected[0], atol=1e-7)
    np.testing.assert_allclose(found[1, :4], expected[1], atol=1e-7)
    np.testing.assert_array_equal(found[1, 4:], 0)
    ((cut, _),) = utils.audio_dataset_from_directory(tmp_path, output_sequence_length=5, **options)
    np.testing.assert_array_equal(cut, found[:, :5])


def test_sounds_at_another_rate(tmp_path):
    # Slow waves keep their values at another rate. Only the ends differ, since nothing lies beyond.
    time = np.arange(400) / 8000
    wave_of = np.sin(2 * np.pi * 200 * time)[:, None]
    for rate in (16000, 6000, 11025):
        new = resampled(wave_of.astype("float32"), 8000, rate)
        assert len(new) == int(np.ceil(400 * rate / 8000))
        there = np.sin(2 * np.pi * 200 * np.arange(len(new)) / rate)
        inner = slice(rate // 400, -rate // 400)
        # A kernel of 6 zero crossings leaves this ripple.
        np.testing.assert_allclose(new[inner, 0], there[inner], atol=0.01)
    assert resampled(wave_of, 8000, 8000) is wave_of
    (tmp_path / "a").mkdir()
    write_wav(tmp_path / "a" / "1.wav", np.zeros((80, 1), int), 2)
    (sounds,) = utils.audio_dataset_from_directory(
        tmp_path, label_mode=None, sampling_rate=16000, verbose=False
    )
    assert sounds.shape == (1, 160, 1)


def test_wrong_sounds(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.wav").write_bytes(b"RIFF no sound")
    for arguments, words in (
        ({"ragged": True}, "ragged"),
        ({"sampling_rate": 0}, "`sampling_rate`"),
        ({"sampling_rate": 0.5}, "`sampling_rate`"),
    ):
        with pytest.raises(ValueError, match=words):
            utils.audio_dataset_from_directory(tmp_path, **arguments)
    with pytest.raises(ValueError, match=r"1\.wav cannot be read"):
        list(utils.audio_dataset_from_directory(tmp_path, verbose=False))
