"""Images and other samples in tar shards: the same as files in folders, in any order."""

import io
import json
import os
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers, utils
from kerascnn.data import Dataset
from kerascnn.utils import jpeg_files

pil_image = pytest.importorskip("PIL.Image")


def image_bytes(rng, ending, height=12, width=10):
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    pil_image.fromarray(pixels).save(stream, "jpeg" if ending == "jpg" else ending)
    return stream.getvalue()


ENDINGS = ("jpg", "png", "webp", "gif", "bmp")


@pytest.fixture
def samples(rng):
    """Twenty images of three classes, in all formats."""
    return [
        {
            "__key__": f"{'abc'[i % 3]}/{i:02}",
            ENDINGS[i % 5]: image_bytes(rng, ENDINGS[i % 5], 8 + i),
            "cls": i % 3,
            "json": {"label": "abc"[i % 3], "object": {"number": str(i % 3)}},
        }
        for i in range(20)
    ]


@pytest.fixture
def shards(samples, tmp_path):
    return utils.write_tar_shards(samples, tmp_path / "train-%03d.tar", samples_per_shard=7)


OPTIONS = {"image_size": (6, 5), "batch_size": 4, "verbose": False}


def in_batches(shards, **options):
    return utils.image_dataset_from_tar(shards, **{**OPTIONS, **options})


def arrays(dataset):
    return [np.concatenate(parts) for parts in zip(*dataset, strict=True)]


def test_the_same_as_a_folder(samples, shards, tmp_path):
    for sample in samples:
        (ending,) = set(sample) & set(ENDINGS)
        path = tmp_path / "folder" / f"{sample['__key__']}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sample[ending])
    pattern = str(tmp_path / "train-{000..002}.tar")
    tar = in_batches(pattern, shuffle=False, class_names=["a", "b", "c"])
    folder = utils.image_dataset_from_directory(tmp_path / "folder", shuffle=False, **OPTIONS)
    assert tar.class_names == folder.class_names
    assert tar.num_classes == 3
    assert tar.element_spec == folder.element_spec
    assert len(tar) == len(folder) == 5
    names = [path.rpartition(": ")[2] for path in tar.file_paths]
    order = [names.index(os.path.relpath(p, tmp_path / "folder")) for p in folder.file_paths]
    for own, expected in zip(arrays(tar), arrays(folder), strict=True):
        np.testing.assert_array_equal(own[order], expected)


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_the_order_depends_on_the_seed_alone(workers, shards):
    def labels(seed):
        dataset = in_batches(shards, seed=seed)
        dataset._workers = workers
        return [arrays(dataset) for _ in range(2)]

    by_default = [arrays(d) for d in [in_batches(shards, seed=3)] for _ in range(2)]
    for own, expected in zip(labels(3), by_default, strict=True):
        np.testing.assert_array_equal(own[0], expected[0])
        np.testing.assert_array_equal(own[1], expected[1])
    assert any((x[1] != y[1]).any() for x, y in zip(labels(3), labels(4), strict=True))
    one, other = labels(3)
    assert (one[1] != other[1]).any()
    assert sorted(one[1]) == sorted(other[1])


@pytest.mark.parametrize(
    ("options", "expected", "names"),
    [
        ({}, [0, 1, 2], ["0", "1", "2"]),
        ({"class_names": ["x", "y", "z", "w"]}, [0, 1, 2], ["x", "y", "z", "w"]),
        ({"label_key": "json", "label_field": "label"}, [0, 1, 2], ["a", "b", "c"]),
        ({"label_key": "json", "label_field": "object.number"}, [0, 1, 2], ["0", "1", "2"]),
        (
            {"label_key": "json", "label_field": "label", "class_names": ["c", "b", "a"]},
            [2, 1, 0],
            ["c", "b", "a"],
        ),
    ],
)
def test_labels(options, expected, names, shards):
    dataset = in_batches(shards, shuffle=False, **options)
    assert dataset.class_names == names
    _, labels = arrays(dataset)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels, np.tile(expected, 7)[:20])
    _, rows = arrays(in_batches(shards, shuffle=False, label_mode="categorical", **options))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, np.eye(len(names))[labels])


def test_images_only(shards):
    for options in ({"label_key": None}, {"label_mode": None}):
        dataset = in_batches(shards, shuffle=False, **options)
        assert dataset.class_names is None
        assert sum(len(images) for images in dataset) == 20
        assert isinstance(next(iter(dataset)), np.ndarray)


def test_whole_numbers_as_pixels(shards):
    floats, _ = arrays(in_batches(shards, shuffle=False, interpolation="lanczos3"))
    numbers, _ = arrays(in_batches(shards, shuffle=False, interpolation="lanczos3", dtype="uint8"))
    assert numbers.dtype == np.uint8
    assert floats.min() < 0 and floats.max() > 255  # what has to be cut off
    np.testing.assert_array_equal(numbers, np.rint(floats).clip(0, 255))


def test_the_methods_of_data_sets(shards):
    dataset = in_batches(shards, shuffle=False)
    images, labels = arrays(dataset)
    np.testing.assert_array_equal(arrays(dataset.take(2))[1], labels[:8])
    np.testing.assert_array_equal(arrays(dataset.repeat(2))[1], np.tile(labels, 2))
    halved = dataset.map(lambda x, y: (x / 2, y))
    np.testing.assert_array_equal(arrays(halved)[0], images / 2)
    np.testing.assert_array_equal(arrays(dataset.unbatch().batch(7))[0], images)
    zipped = Dataset.zip(dataset, dataset.skip(1))
    np.testing.assert_array_equal([y[1][0] for _, y in zipped], labels[4::4])
    assert len(dataset[1][1]) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label_mode": "other"}, "`label_mode` argument must be"),
        ({"label_mode": "binary"}, "exactly 2 class_names"),
        ({"label_key": None, "class_names": ["a"]}, "`class_names` cannot be given"),
        ({"label_key": "json"}, "`label_field` says where"),
        ({"label_field": "label"}, "`label_field` says where"),
        ({"class_names": ["a", "b"]}, "Labels must be from 0 to 1"),
        ({"label_key": "txt"}, r"the sample 'a/00' has no file \.txt, only \.jpg, \.cls, \.json"),
        ({"image_key": "tiff"}, r"has no file \.tiff"),
        ({"on_error": "ignore"}, "`on_error` must be"),
        ({"dtype": "float16"}, "`dtype` must be"),
        ({"label_key": "json", "label_field": "none"}, "no label that can be read"),
        ({"label_key": "json", "label_field": "object"}, "must have a whole number or a name"),
        (
            {"label_key": "json", "label_field": "label", "class_names": ["a"]},
            r"`class_names` lacks labels that samples have: \['b', 'c'\]",
        ),
    ],
)
def test_wrong_arguments(options, words, shards):
    with pytest.raises(ValueError, match=words):
        in_batches(shards, **options)


def test_what_cannot_be_read_is_left_out(samples, tmp_path):
    samples[3]["png"] = samples[3].pop("gif")[:20]  # a file that is cut off
    del samples[4]["cls"]
    samples[5]["cls"] = "\xff".encode("latin-1")
    del samples[6]["png"]
    shards = utils.write_tar_shards(samples, tmp_path / "%d.tar", samples_per_shard=10)
    os.truncate(shards[1], os.path.getsize(shards[1]) - 2048)  # the last file and the end
    with pytest.raises(ValueError, match=r"1\.tar is truncated"):
        in_batches(shards)
    with pytest.raises(ValueError, match=r"the sample 'b/04' has no file \.cls"):
        in_batches(shards[0])
    with pytest.warns(UserWarning, match="left out") as seen:
        dataset = in_batches(shards, on_error="skip", shuffle=False)
        _, labels = arrays(dataset)
    assert len(labels) == 16 - (len(dataset.skipped_files) - 5)
    assert any("rest of" in str(w.message) for w in seen)
    left = " ".join(dataset.skipped_files)
    for name in ("a/03.png", "b/04", "c/05.cls", "a/06", shards[1]):
        assert name in left
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(arrays(dataset)[1]) == len(labels)


def test_hostile_labels_take_no_memory(tmp_path):
    for label, words in (("999999999999", "from 0 to 999999"), ("-1", "from 0 to 999999")):
        sample = {"__key__": "a", "png": b"", "cls": label}
        shards = utils.write_tar_shards([sample], tmp_path / "%d.tar")
        with pytest.raises(ValueError, match=words):
            in_batches(shards)


@pytest.mark.parametrize("shuffle", [False, True])
def test_training_goes_on_in_the_middle_of_an_epoch(shuffle, shards, tmp_path, device):
    class Killed(Exception):
        pass

    class Kill(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and self.model.optimizer.iterations == 8:
                raise Killed

    def fit(seed, *extra):
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((6, 5, 3)), layers.Flatten(), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        dataset = in_batches(shards, shuffle=shuffle, seed=5).map(lambda x, y: (x / 255, y))
        history = model.fit(dataset, epochs=3, verbose=0, callbacks=extra)
        return model.get_weights(), history.history["loss"]

    with keras.device(device):
        whole = fit(3)
        with pytest.raises(Killed):
            fit(3, callbacks.BackupAndRestore(tmp_path / "b", save_freq=1), Kill())
        weights, losses = fit(99, callbacks.BackupAndRestore(tmp_path / "b", save_freq=1))
    assert losses == whole[1]
    for own, expected in zip(weights, whole[0], strict=True):
        np.testing.assert_array_equal(own, expected)


def test_processes_read_their_own_samples_alone(shards, monkeypatch):
    from kerascnn.data import tar_index

    read = []
    monkeypatch.setattr(jpeg_files, "writer_of", lambda reader: None)  # all go through `read`
    whole = tar_index.Place.read
    monkeypatch.setattr(
        tar_index.Place, "read", lambda place: read.append(place.name) or whole(place)
    )
    dataset = in_batches(shards, seed=1)
    parts = []
    for first in (0, 2):
        begun = in_batches(shards, seed=1)._begin_own(lambda _, f=first: slice(f, f + 2), 0)
        parts.append([(batch, size) for batch, size in begun])
    assert len(read) == len(set(read)) == 20
    for (x, y), ((x1, y1), n1), ((x2, y2), n2) in zip(dataset, *parts, strict=True):
        assert n1 == n2 == len(y)
        np.testing.assert_array_equal(np.concatenate([x1, x2]), x)
        np.testing.assert_array_equal(np.concatenate([y1, y2]), y)


# Samples of any kind ------------------------------------------------------------------------------


def test_samples_are_dictionaries(rng, tmp_path):
    numbers, mask = rng.normal(size=(3, 2)), rng.integers(0, 9, (4, 4, 3), dtype=np.uint8)
    sample = {
        "__key__": "a/1",
        "npy": numbers,
        "seg.png": mask,
        "cls": 7,
        "txt": "Wörter",
        "json": {"x": 1},
        "bin": b"\0\1",
        "left.txt": "not asked for",
    }
    shards = utils.write_tar_shards([sample, {**sample, "__key__": "a/2"}], tmp_path / "%d.tar")
    keys = ("npy", ".seg.PNG", "cls", "txt", "json", "bin")
    first, second = Dataset.from_tar(shards, keys)
    assert list(first) == ["__key__", "npy", "seg.png", "cls", "txt", "json", "bin"]
    np.testing.assert_array_equal(first.pop("npy"), numbers)
    np.testing.assert_array_equal(first.pop("seg.png"), mask)
    expected = {"__key__": "a/1", "cls": 7, "txt": "Wörter", "json": {"x": 1}, "bin": b"\0\1"}
    assert first == expected
    assert second["__key__"] == "a/2"
    assert set(next(iter(Dataset.from_tar(shards)))) == set(sample)


def test_samples_are_shuffled_as_a_whole_and_batched(tmp_path):
    samples = ({"__key__": str(i), "npy": np.full(2, i), "txt": f"t{i}"} for i in range(50))
    shards = utils.write_tar_shards(samples, tmp_path / "%02d.tar", samples_per_shard=9)
    dataset = Dataset.from_tar(shards).shuffle(None, seed=1).batch(8)
    found = [sample for batch in dataset for sample in batch["npy"][:, 0].tolist()]
    assert found != sorted(found)
    assert sorted(found) == list(range(50))
    batch = next(iter(dataset))
    assert batch["txt"].tolist() == [f"t{i}" for i in batch["npy"][:, 0]]


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("npy", b"words"),
        ("npy", b""),
        ("npy", b"\x93NUMPY\x01\x00\x05\x00{'a'("),
        ("json", b"{"),
        ("json", b"[" * 100_000),
        ("txt", b"\xff"),
        ("cls", b"\xff"),
        ("png", b"\x89PNG"),
    ],
)
def test_files_that_are_not_what_they_say(ending, content, tmp_path):
    shards = utils.write_tar_shards([{"__key__": "a", ending: content}], tmp_path / "%d.tar")
    with pytest.raises(ValueError, match=rf"0\.tar: a\.{ending} "):
        list(Dataset.from_tar(shards))


def test_arrays_are_bounded_by_their_bytes_and_never_unpickled(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    huge = stream.getvalue().replace(b"(3,)", b"(3333333333333,)")
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    for content in (huge, pickled.getvalue(), stream.getvalue() + b"1"):
        shards = utils.write_tar_shards([{"__key__": "a", "npy": content}], tmp_path / "%d.tar")
        with pytest.raises(ValueError, match=r"0\.tar: a\.npy is no \.npy file, or damaged"):
            list(Dataset.from_tar(shards))


def test_samples_without_a_file(tmp_path):
    samples = [{"__key__": "a", "txt": "1", "cls": 1}, {"__key__": "b", "cls": 1}]
    shards = utils.write_tar_shards(samples, tmp_path / "%d.tar")
    with pytest.raises(ValueError, match=r"the sample 'b' has no file \.txt, only \.cls"):
        Dataset.from_tar(shards)
    dataset = Dataset.from_tar(shards, on_error="skip")
    assert [sample["__key__"] for sample in dataset] == ["a"]
    assert "'b' has no file .txt" in dataset.skipped_files[f"{shards[0]}: b"]
    with pytest.raises(ValueError, match="There are no samples"):
        Dataset.from_tar(shards, "png", on_error="skip")
    for keys in ((), (3,), ""):
        with pytest.raises(ValueError, match="`keys` must be"):
            Dataset.from_tar(shards, keys)
    with pytest.raises(ValueError, match="`on_error` must be"):
        Dataset.from_tar(shards, on_error="no")


# Writing ------------------------------------------------------------------------------------------


def test_other_programs_read_what_is_written(samples, shards):
    found = {}
    for shard in shards:
        with tarfile.open(shard) as file:
            assert all(member.isfile() and member.mtime == 0 for member in file)
            found |= {m.name: file.extractfile(m).read() for m in file}
    expected = {}
    for sample in samples:
        for ending, value in sample.items():
            if ending != "__key__":
                content = value if isinstance(value, bytes) else json.dumps(value).encode()
                expected[f"{sample['__key__']}.{ending}"] = content
    assert found == expected


def test_the_same_samples_make_the_same_bytes(samples, tmp_path):
    written = []
    for name in ("a", "b"):
        paths = utils.write_tar_shards(samples, tmp_path / f"{name}-%d.tar")
        written.append([Path(path).read_bytes() for path in paths])
    assert written[0] == written[1]


def test_pixels_are_encoded(rng, tmp_path):
    pixels = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    (tmp_path / "text").write_text("of a file")
    sample = {"__key__": "a", "png": pixels, "jpg": pixels, "txt": tmp_path / "text"}
    shards = utils.write_tar_shards([sample], tmp_path / "%d.tar")
    (found,) = Dataset.from_tar(shards)
    np.testing.assert_array_equal(found["png"], pixels)
    assert found["jpg"].shape == pixels.shape
    assert found["txt"] == "of a file"


@pytest.mark.parametrize(
    ("sample", "error", "words"),
    [
        ({"txt": ""}, ValueError, 'under "__key__"'),
        (["a"], ValueError, 'under "__key__"'),
        ({"__key__": "a"}, ValueError, "has no files"),
        *(
            ({"__key__": key, "txt": ""}, ValueError, "relative path")
            for key in ("a.b", "", "/a", "../a", "a/../b", "a/", "a\0", ".a")
        ),
        ({"__key__": "a", "TXT": ""}, ValueError, "in lower case"),
        ({"__key__": "a", "b/txt": ""}, ValueError, "in lower case"),
        ({"__key__": "a", 3: ""}, ValueError, "in lower case"),
        ({"__key__": "a", "txt": 1.5}, TypeError, "Received: float"),
        ({"__key__": "a", "txt": np.zeros(3)}, TypeError, "Received: ndarray"),
        ({"__key__": "a", "png": np.zeros((2, 2, 3))}, TypeError, "Pixels must be uint8"),
        ({"__key__": "a", "json": {1j}}, TypeError, "set"),
    ],
)
def test_samples_that_cannot_be_written(sample, error, words, tmp_path):
    with pytest.raises(error, match=words):
        utils.write_tar_shards([{"__key__": "0", "txt": "1"}, sample], tmp_path / "%d.tar")
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_of_the_writer(tmp_path):
    for pattern in ("a.tar", "%d-%d.tar", "%s.tar", "100%-%d.tar"):
        with pytest.raises(ValueError, match="`pattern` must have one place"):
            utils.write_tar_shards([], pattern)
    with pytest.raises(ValueError, match="samples_per_shard must be"):
        utils.write_tar_shards([], "%d.tar", 0)
    with pytest.raises(ValueError, match="no samples"):
        utils.write_tar_shards([], tmp_path / "%d.tar")
    two = [{"__key__": "a", "txt": "1"}] * 2
    with pytest.raises(ValueError, match="Two samples of an archive have the name 'a'"):
        utils.write_tar_shards(two, tmp_path / "%d.tar")
    assert len(utils.write_tar_shards(two, tmp_path / "%d.tar", 1)) == 2
