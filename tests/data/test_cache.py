"""Elements that are made once: in memory and in files, whatever happens to these."""

import gc
import os
import warnings

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers, utils
from kerascnn.data import Dataset, records, stores
from kerascnn.utils import directory, image_utils

FILES = ("", "a.cache")


@pytest.fixture(params=FILES, ids=["memory", "file"])
def filename(request, tmp_path):
    return request.param and str(tmp_path / request.param)


def counted(dataset):
    """The data set with a list of how often each element was made."""
    made = []
    return dataset.map(lambda x: made.append(int(x)) or x), made


def numbers(dataset):
    return [int(x) for x in dataset]


# Any data set -------------------------------------------------------------------------------------


def test_elements_are_made_once(filename):
    source, made = counted(Dataset.range(6))
    dataset = source.cache(filename)
    assert numbers(dataset.take(2)) == [0, 1]
    assert numbers(dataset) == numbers(dataset) == list(range(6))
    assert made == [0, 1, *range(6)]
    assert numbers(dataset.skip(3)) == [3, 4, 5]
    assert len(dataset) == 6
    if filename:
        again, made = counted(Dataset.range(6))
        assert numbers(again.cache(filename)) == list(range(6))
        assert made == []


def test_the_order_is_that_of_the_first_pass(filename):
    dataset = Dataset.range(20).map(lambda x: x).shuffle(20, seed=1).cache(filename)
    first = numbers(dataset)
    assert first == numbers(dataset) != list(range(20))
    behind = dataset.shuffle(20, seed=2)
    one, other = numbers(behind), numbers(behind)
    assert sorted(one) == sorted(other) == sorted(first)
    assert one != other


def test_a_pass_that_was_left_does_not_change_the_order(filename):
    def dataset():
        return Dataset.range(20).map(lambda x: x).shuffle(20, seed=1).cache(filename)

    expected = numbers(Dataset.range(20).map(lambda x: x).shuffle(20, seed=1))
    left = dataset()
    assert numbers(left.take(3)) == expected[:3]
    assert numbers(left) == expected


def test_of_unknown_length_and_empty(filename):
    dataset = Dataset.from_generator(lambda: iter(range(1100))).cache(filename)
    assert dataset.cardinality() == keras.data.UNKNOWN_CARDINALITY
    assert numbers(dataset) == numbers(dataset) == list(range(1100))
    assert len(dataset) == 1100
    if not filename:
        empty = Dataset.from_generator(lambda: iter([])).cache()
        assert list(empty) == list(empty) == []


def test_two_passes_at_once(filename):
    dataset = Dataset.range(5).map(lambda x: x).cache(filename)
    assert [(int(a), int(b)) for a, b in Dataset.zip(dataset, dataset)] == [
        (i, i) for i in range(5)
    ]
    assert numbers(dataset) == list(range(5))


ELEMENTS = [
    np.arange(6, dtype="int16").reshape(2, 3),
    np.zeros((0, 3)),
    np.float32(1.5),
    np.array([True, False]),
    "Wörter",
    b"\0\1",
    7,
    2.5,
    None,
    True,
    np.array(["a", "ü"], object),
    {"a": np.ones(2), "b": ("x", [np.zeros(1), 1])},
]


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda e: type(e).__name__)
def test_elements_of_all_kinds_come_back(element):
    form, content = records.packed(element)
    assert records.size_of(form) == len(content)
    found = records.unpacked(form, content)
    np.testing.assert_equal(found, element)
    assert type(found) is type(element) or isinstance(element, np.generic)
    if hasattr(element, "dtype"):
        assert found.dtype == element.dtype and found.shape == element.shape


def test_tensors_and_narrow_floats_come_back():
    tensor = keras.ops.cast(keras.ops.convert_to_tensor([1.5, -2.0]), "bfloat16")
    found = records.unpacked(*records.packed(tensor))
    np.testing.assert_array_equal(found, np.asarray(tensor))
    assert found.dtype.name == "bfloat16"


@pytest.mark.parametrize("element", [object(), {1: 2}, np.array([object()], object), 1j])
def test_what_cannot_be_in_a_file(element, tmp_path):
    dataset = Dataset.from_generator(lambda: iter([1, element]))
    with pytest.raises(TypeError, match="kept in a file"):
        list(dataset.cache(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []
    assert len(list(dataset.cache())) == 2


# Files of images ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, rng):
    image = pytest.importorskip("PIL.Image")
    for i in range(22):
        path = tmp_path / "images" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(rng.integers(0, 256, (6, 6, 3), "uint8")).save(path)
    return tmp_path / "images"


@pytest.fixture
def read(monkeypatch):
    """The names of files in the order in which they are decoded."""
    names = []
    whole = image_utils.ImageReader.image_of
    monkeypatch.setattr(
        image_utils.ImageReader,
        "image_of",
        lambda own, content, name: names.append(str(name)) or whole(own, content, name),
    )
    return names


def images_of(folder, **options):
    options = {"image_size": (4, 4), "batch_size": 4, "seed": 3, "dtype": "uint8", **options}
    return utils.image_dataset_from_directory(folder, verbose=False, **options)


def arrays(dataset):
    return [np.concatenate(parts) for parts in zip(*dataset, strict=True)]


def assert_same(one, other):
    for x, y in zip(one, other, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("shuffle", [False, True])
def test_samples_are_decoded_once(shuffle, folder, filename, read):
    expected = arrays(images_of(folder, shuffle=shuffle))
    read.clear()
    dataset = images_of(folder, shuffle=shuffle).cache(filename)
    assert_same(arrays(dataset), expected)
    assert len(read) == len(set(read)) == 22
    assert_same(arrays(dataset), expected)  # also in the order of the first pass
    assert len(read) == 22
    assert dataset.class_names == ["a", "b"]
    if filename:
        assert_same(arrays(images_of(folder, shuffle=shuffle).cache(filename)), expected)
        assert len(read) == 22


def test_each_sample_is_kept_at_once_and_in_any_order(folder, filename, read):
    dataset = images_of(folder).unbatch().cache(filename).shuffle(None, seed=1).batch(4)
    begun = iter(dataset)
    next(begun)
    begun.close()
    for _ in range(3):
        x, y = arrays(dataset)
        assert len(x) == 22
    assert len(read) == len(set(read)) == 22
    again = images_of(folder, shuffle=False)
    assert sorted(zip(x.reshape(22, -1).tolist(), y, strict=True)) == sorted(
        zip(*(a.reshape(22, -1).tolist() if a.ndim > 1 else a for a in arrays(again)), strict=True)
    )
    one, other = arrays(dataset), arrays(dataset)
    assert (one[1] != other[1]).any()


def test_files_that_cannot_be_read_are_noted_in_the_cache(folder, filename, read):
    (folder / "a" / "x.png").write_bytes(b"words")
    for turn in range(2):
        dataset = images_of(folder, on_error="skip").cache(filename)
        with pytest.warns(UserWarning, match="Left out"):
            assert len(arrays(dataset)[1]) == 22
        assert list(dataset.skipped_files) == [str(folder / "a" / "x.png")]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(arrays(dataset)[1]) == 22
        if filename:
            assert len(read) == 23, turn
    with pytest.raises(ValueError, match=r"x\.png cannot be read"):
        arrays(images_of(folder).cache())


def test_of_samples_in_tar_shards(folder, tmp_path, read):
    samples = (
        {"__key__": path.stem, "png": path, "cls": path.parent.name}
        for path in sorted(folder.rglob("*.png"))
    )
    shards = utils.write_tar_shards(samples, tmp_path / "%d.tar", 9)
    options = {"image_size": (4, 4), "batch_size": 4, "seed": 3, "verbose": False}
    for _ in range(2):
        dataset = utils.image_dataset_from_tar(shards, **options).cache(tmp_path / "c")
        assert_same(arrays(dataset), arrays(dataset))
        assert len(read) == 22
        raw = Dataset.from_tar(shards).cache(tmp_path / "raw")
        assert len(list(raw)) == 22
    os.utime(shards[1], ns=(1, 1))
    for cache in (
        lambda: utils.image_dataset_from_tar(shards, **options).cache(tmp_path / "c"),
        lambda: Dataset.from_tar(shards).cache(tmp_path / "raw"),
    ):
        with pytest.raises(ValueError, match="elements of another data set, or files have changed"):
            cache()


def test_a_training_goes_on_exactly(folder, filename, tmp_path):
    class Killed(Exception):
        pass

    class Kill(callbacks.Callback):
        def __init__(self, step):
            super().__init__()
            self.step = step

        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations == self.step:
                raise Killed

    def fit(seed, name, *extra):
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((4, 4, 3)), layers.Flatten(), layers.Dense(2)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        dataset = images_of(folder).cache(name and f"{filename}{name}").shuffle(3, seed=2)
        history = model.fit(dataset, epochs=3, verbose=0, callbacks=extra)
        return [*model.get_weights(), history.history["loss"]]

    whole = fit(3, "whole")
    # In the epoch that fills the cache, and in one behind it.
    for step in (4, 8) if filename else (8,):
        backup = tmp_path / f"backup{step}"
        with pytest.raises(Killed):
            fit(3, step, callbacks.BackupAndRestore(backup, save_freq=1), Kill(step))
        assert_same(fit(99, step, callbacks.BackupAndRestore(backup, save_freq=1)), whole)


# Files that are no good ---------------------------------------------------------------------------


def test_a_file_of_another_source_is_refused(folder, tmp_path):
    path = tmp_path / "c"
    list(images_of(folder).cache(path))
    kept = path.read_bytes()
    for change in (
        lambda: images_of(folder, image_size=(5, 4)),
        lambda: images_of(folder, dtype="float32"),
        lambda: images_of(folder, validation_split=0.5, subset="training"),
        lambda: images_of(folder, seed=4),
        lambda: Dataset.range(3),
    ):
        with pytest.raises(ValueError, match="elements of another data set, or files have changed"):
            change().cache(path)
    os.utime(folder / "a" / "0.png", ns=(1, 1))
    with pytest.raises(ValueError, match="elements of another data set, or files have changed"):
        images_of(folder).cache(path)
    assert path.read_bytes() == kept


def test_each_damage_is_noticed(tmp_path, rng):
    path = tmp_path / "c"
    source = Dataset.from_generator(lambda: iter([np.arange(100), "text", np.ones(50)]))
    expected = [str(x) for x in source.cache(path)]
    whole = path.read_bytes()
    for place in [*range(len(whole) - 32, len(whole)), *rng.integers(len(whole), size=60)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 + int(rng.integers(255))
        path.write_bytes(damaged)
        try:
            found = [str(x) for x in source.cache(path)]
        except ValueError as error:
            assert str(path) in str(error)
        else:  # between elements lie bytes that nobody reads
            assert found == expected
    for size in rng.integers(len(whole), size=20):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="has no elements of a data set, or is damaged"):
            source.cache(path)


def test_a_file_that_is_cut_off_later(tmp_path):
    path = tmp_path / "c"
    dataset = Dataset.from_generator(lambda: (np.ones(5000) for _ in range(5))).cache(path)
    assert len(list(dataset)) == 5
    os.truncate(path, 60_000)
    with pytest.raises(ValueError, match="is truncated"):
        list(dataset)


def test_nothing_is_left_of_what_was_not_finished(folder, tmp_path, monkeypatch):
    # With a thread for each of many cores all images may have been read when the pass is left.
    monkeypatch.setattr(directory, "default_workers", lambda: 1)
    path = tmp_path / "caches" / "c"
    dataset = images_of(folder).cache(path)
    next(iter(dataset))
    assert len(list(path.parent.iterdir())) == 1
    del dataset
    gc.collect()
    assert list(path.parent.iterdir()) == []
    passing = Dataset.from_generator(lambda: iter(range(9))).cache(path)
    begun = iter(passing)
    next(begun)
    assert len(list(path.parent.iterdir())) == 1
    begun.close()
    assert list(path.parent.iterdir()) == []
    list(passing)
    assert [p.name for p in path.parent.iterdir()] == ["c"]


def test_an_error_of_the_source_keeps_nothing(tmp_path):
    def broken():
        yield 1
        raise OSError("no more")

    dataset = Dataset.from_generator(broken).cache(tmp_path / "c")
    for _ in range(2):
        with pytest.raises(OSError, match="no more"):
            list(dataset)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_file_to_its_parent(tmp_path):
    store = stores.FileStore(tmp_path / "c", 3, None)
    store.put(0, "zero")
    child = os.fork()
    if not child:
        try:
            store.put(1, "one")
            is_right = store.get(0) == "zero" and store.get(1) is None
            store.drop()
        finally:
            os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    store.put(1, "one")
    store.put(2, "two")
    assert [store.get(i) for i in range(3)] == ["zero", "one", "two"]
    assert store.is_complete
