"""Image files and arrays are read and written as by Keras."""

import builtins
import io
import warnings

import numpy as np
import pytest

import kerascnn
from kerascnn import utils
from kerascnn.preprocessing import image as preprocessing_image

pil_image = pytest.importorskip("PIL.Image")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    keras = pytest.importorskip("keras")

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # Keras passes a mode to Pillow, which Pillow deprecates.
    pytest.mark.filterwarnings("ignore:'mode' parameter:DeprecationWarning"),
]


def pixels(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_arrays_to_images_and_back(channels, data_format, scale, rng):
    shape = (5, 7, channels) if data_format == "channels_last" else (channels, 5, 7)
    x = rng.uniform(3, 200, shape).astype("float32")
    own = utils.array_to_img(x, data_format, scale=scale)
    other = keras.utils.array_to_img(x, data_format, scale=scale)
    assert own.mode == other.mode
    np.testing.assert_array_equal(np.asarray(own), np.asarray(other))
    for dtype in (None, "uint8"):
        back = utils.img_to_array(own, data_format, dtype)
        expected = keras.utils.img_to_array(other, data_format, dtype)
        assert back.dtype == expected.dtype
        np.testing.assert_array_equal(back, expected)


def test_more_than_8_bits():
    x = np.array([[0.0, 70000.0]])[:, :, None]
    img = utils.array_to_img(x, scale=False)
    assert img.mode == "I"
    np.testing.assert_array_equal(utils.img_to_array(img), x)


@pytest.mark.parametrize("ending", ["png", "bmp", "jpg", "jpeg"])
def test_save_and_load(ending, tmp_path, rng):
    path = tmp_path / f"image.{ending}"
    x = pixels(rng, 8, 9, 3)
    utils.save_img(path, x, scale=False)
    loaded = utils.img_to_array(utils.load_img(path))
    np.testing.assert_array_equal(loaded, keras.utils.img_to_array(keras.utils.load_img(path)))
    if ending in ("png", "bmp"):
        np.testing.assert_array_equal(loaded, x)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic", "hamming", "box", "lanczos"])
@pytest.mark.parametrize("color_mode", ["rgb", "rgba", "grayscale"])
def test_loading_with_another_size(color_mode, method, keep, tmp_path, rng):
    path = str(tmp_path / "image.png")
    utils.save_img(path, pixels(rng, 8, 13, 3), scale=False)
    arguments = {
        "color_mode": color_mode,
        "target_size": (6, 5),
        "interpolation": method,
        "keep_aspect_ratio": keep,
    }
    own, other = utils.load_img(path, **arguments), keras.utils.load_img(path, **arguments)
    assert (own.mode, own.size) == (other.mode, other.size)
    np.testing.assert_array_equal(np.asarray(own), np.asarray(other))


def test_what_can_be_loaded(tmp_path, rng):
    path = tmp_path / "image.png"
    x = pixels(rng, 4, 4, 3)
    utils.save_img(path, x, scale=False)
    for form in (path, str(path), str(path).encode(), io.BytesIO(path.read_bytes())):
        np.testing.assert_array_equal(np.asarray(utils.load_img(form)), x)
    stream = io.BytesIO()
    utils.save_img(stream, x, file_format="png", scale=False)
    np.testing.assert_array_equal(np.asarray(utils.load_img(stream)), x)


def test_transparency_does_not_go_into_a_jpeg(tmp_path, rng):
    with pytest.warns(UserWarning, match="does not support RGBA"):
        utils.save_img(tmp_path / "image.jpg", pixels(rng, 4, 4, 4))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda u: u.array_to_img(np.zeros((3, 3))), ValueError, "rank 3"),
        (lambda u: u.array_to_img(np.zeros((3, 3, 2))), ValueError, "Unsupported channel number"),
        (lambda u: u.img_to_array(np.zeros((3,))), ValueError, "Unsupported image shape"),
        (lambda u: u.load_img(3), TypeError, "path-like"),
        (lambda u: u.load_img(an_image(), "blue"), ValueError, "color_mode must be"),
        (lambda u: u.load_img(an_image(), target_size=(2, 2), interpolation="x"), ValueError, "x"),
    ],
)
def test_errors_are_those_of_keras(call, error, words):
    for package in (keras.utils, utils):
        with pytest.raises(error, match=words):
            call(package)


def an_image():
    stream = io.BytesIO()
    pil_image.new("RGB", (4, 4)).save(stream, "png")
    return stream


def test_without_pillow(monkeypatch, tmp_path):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "PIL":
            raise ImportError("no PIL here")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for call in (
        lambda: utils.load_img("x"),
        lambda: utils.array_to_img(np.zeros((2, 2, 3))),
        lambda: utils.image_dataset_from_directory(tmp_path),
    ):
        with pytest.raises(ImportError, match="pip install pillow"):
            call()


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_smart_resize(data_format, rng):
    shape = (2, 9, 14, 3) if data_format == "channels_last" else (2, 3, 9, 14)
    x = rng.uniform(0, 255, shape).astype("float32")
    arguments = {"size": (6, 5), "data_format": data_format}
    own = preprocessing_image.smart_resize(x, **arguments)
    other = keras.preprocessing.image.smart_resize(x, **arguments)
    assert isinstance(own, np.ndarray)
    np.testing.assert_allclose(own, other, atol=1e-3)
    tensor = preprocessing_image.smart_resize(kerascnn.ops.convert_to_tensor(x), **arguments)
    np.testing.assert_array_equal(tensor.numpy(), own)


@pytest.mark.parametrize("order", [1, 2, np.inf])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_normalize(axis, order, rng):
    x = rng.normal(size=(4, 5)).astype("float32")
    x[2] = 0
    expected = keras.utils.normalize(x, axis, order) if axis else None
    own = utils.normalize(x, axis, order)
    if axis:  # Keras treats axis 0 as the last one.
        np.testing.assert_allclose(own, expected, rtol=1e-6)
    tensor = utils.normalize(kerascnn.ops.convert_to_tensor(x), axis, order)
    np.testing.assert_allclose(tensor.numpy(), own, rtol=1e-5, atol=1e-7)


# Folders of images.


@pytest.fixture
def folder(tmp_path, rng):
    """Makes folders with two classes, nested folders, other files, several modes and sizes."""
    for name, count in (("cats", 5), ("dogs", 4)):
        (tmp_path / name / "more").mkdir(parents=True)
        for i in range(count):
            place = (
                tmp_path / name / ("more" if i == 2 else "") / f"{i}.{'png' if i % 2 else 'bmp'}"
            )
            channels = 1 if i == 1 else 3
            utils.save_img(place, pixels(rng, 7 + i, 12 - i, channels), scale=False)
        (tmp_path / name / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def index_of_keras(folder, **arguments):
    from keras.src.utils import dataset_utils

    defaults = {"labels": "inferred", "shuffle": True, "seed": 3, "verbose": False}
    formats = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
    return dataset_utils.index_directory(str(folder), formats=formats, **{**defaults, **arguments})


def read_by_keras(path, size, channels, interpolation, **arguments):
    from keras.src.utils.image_dataset_utils import _load_image_grain

    image = _load_image_grain(path, size, channels, interpolation, "channels_last", **arguments)
    return keras.ops.convert_to_numpy(image)


def test_files_labels_and_pixels_are_those_of_keras(folder):
    dataset = utils.image_dataset_from_directory(
        folder, seed=3, batch_size=4, image_size=(6, 5), verbose=False
    )
    paths, labels, names = index_of_keras(folder)
    assert dataset.file_paths == paths
    assert dataset.class_names == names == ["cats", "dogs"]
    assert len(dataset) == 3
    expected = {p: read_by_keras(p, (6, 5), 3, "bilinear") for p in paths}
    orders = []
    for _ in range(3):
        batches = list(dataset)
        assert [len(x) for x, _ in batches] == [4, 4, 1]
        assert all(x.dtype == np.float32 and y.dtype == np.int32 for x, y in batches)
        images = np.concatenate([x for x, _ in batches])
        found = np.concatenate([y for _, y in batches])
        order = [
            int(np.argmin([np.abs(expected[p] - image).max() for p in paths])) for image in images
        ]
        assert sorted(order) == list(range(9))
        for place, image, label in zip(order, images, found, strict=True):
            np.testing.assert_allclose(image, expected[paths[place]], atol=2e-3)
            assert label == labels[place]
        orders.append(tuple(order))
    assert len(set(orders)) > 1  # Each pass has another order.


@pytest.mark.parametrize("aspect", [None, "crop_to_aspect_ratio", "pad_to_aspect_ratio"])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize(("color_mode", "channels"), [("rgb", 3), ("rgba", 4), ("grayscale", 1)])
def test_reading(color_mode, channels, interpolation, aspect, folder):
    arguments = {} if aspect is None else {aspect: True}
    dataset = utils.image_dataset_from_directory(
        folder,
        shuffle=False,
        color_mode=color_mode,
        interpolation=interpolation,
        image_size=(9, 8),
        label_mode=None,
        verbose=False,
        **arguments,
    )
    (images,) = list(dataset)
    for path, image in zip(dataset.file_paths, images, strict=True):
        expected = read_by_keras(path, (9, 8), channels, interpolation, **arguments)
        np.testing.assert_allclose(image, expected, atol=2e-3)


@pytest.mark.parametrize(
    "interpolation", ["area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"]
)
def test_other_interpolations_keep_what_is_even(interpolation, tmp_path):
    (tmp_path / "a").mkdir()
    utils.save_img(tmp_path / "a" / "x.png", np.full((9, 6, 3), 77, np.uint8), scale=False)
    for size in ((4, 3), (20, 13)):
        dataset = utils.image_dataset_from_directory(
            tmp_path, image_size=size, interpolation=interpolation, batch_size=None, verbose=False
        )
        ((image, label),) = list(dataset)
        np.testing.assert_allclose(image, np.full((*size, 3), 77.0), rtol=1e-6)
        assert label == 0


def test_area_is_the_mean_of_what_is_covered(tmp_path, rng):
    x = pixels(rng, 6, 4, 1)
    utils.save_img(tmp_path / "x.png", x, scale=False)
    dataset = utils.image_dataset_from_directory(
        tmp_path,
        labels=None,
        image_size=(3, 2),
        interpolation="area",
        color_mode="grayscale",
        verbose=False,
    )
    ((image,),) = list(dataset)
    np.testing.assert_allclose(image, x.reshape(3, 2, 2, 2, 1).mean((1, 3)), rtol=1e-6)


def test_forms_of_labels(folder):
    def labels(**arguments):
        dataset = utils.image_dataset_from_directory(
            folder, shuffle=False, image_size=4, verbose=False, **arguments
        )
        return next(iter(dataset))[1]

    np.testing.assert_array_equal(labels(), [0] * 5 + [1] * 4)
    np.testing.assert_array_equal(labels(class_names=["dogs", "cats"]), [0] * 4 + [1] * 5)
    binary = labels(label_mode="binary")
    assert binary.dtype == np.float32
    np.testing.assert_array_equal(binary, [[0.0]] * 5 + [[1.0]] * 4)
    categorical = labels(label_mode="categorical")
    assert categorical.dtype == np.float32
    np.testing.assert_array_equal(categorical, [[1, 0]] * 5 + [[0, 1]] * 4)
    np.testing.assert_array_equal(labels(labels=list(range(9))), range(9))


def test_split(folder, capsys):
    arguments = {"validation_split": 0.3, "seed": 3, "image_size": 4}
    train, validation = utils.image_dataset_from_directory(folder, subset="both", **arguments)
    text = capsys.readouterr().out
    assert "Found 9 files belonging to 2 classes." in text
    assert "Using 7 files for training." in text
    assert "Using 2 files for validation." in text
    paths = index_of_keras(folder)[0]
    assert (train.file_paths, validation.file_paths) == (paths[:7], paths[7:])
    for subset, both in (("training", train), ("validation", validation)):
        alone = utils.image_dataset_from_directory(folder, subset=subset, **arguments)
        assert alone.file_paths == both.file_paths


def test_training_on_a_folder(folder, device):
    with kerascnn.device(device):
        dataset = utils.image_dataset_from_directory(
            folder, image_size=(8, 8), batch_size=4, seed=1, verbose=False
        )
        normalization = kerascnn.layers.Normalization()
        normalization.adapt(x for x, _ in dataset)
        layers = [normalization, kerascnn.layers.Flatten(), kerascnn.layers.Dense(2)]
        model = kerascnn.Sequential([kerascnn.Input((8, 8, 3)), *layers])
        loss = kerascnn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
        history = model.fit(dataset, epochs=2, validation_data=dataset, verbose=0)
        assert np.isfinite(history.history["val_loss"]).all()
        assert model.predict(dataset, verbose=0).shape == (9, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"labels": "all"}, "`labels` argument"),
        ({"labels": [0] * 9, "class_names": ["cats"]}, "only pass `class_names`"),
        ({"labels": [0] * 8}, "lengths of `labels`"),
        ({"labels": None, "class_names": ["cats"]}, "cannot be specified"),
        ({"label_mode": "one_hot"}, "`label_mode` argument"),
        ({"label_mode": "binary", "class_names": ["cats"]}, "exactly 2"),
        ({"class_names": ["birds"]}, "did not match"),
        ({"color_mode": "blue"}, "`color_mode` must be"),
        ({"image_size": (1, 2, 3)}, "Invalid `image_size`"),
        ({"interpolation": "cubic"}, "`interpolation` should be"),
        ({"format": "torch"}, "`format` should be"),
        ({"validation_split": 2, "subset": "both"}, "between 0 and 1"),
        ({"subset": "both"}, "and inversely"),
        ({"validation_split": 0.5}, "and inversely"),
        ({"validation_split": 0.5, "subset": "all", "seed": 1}, "`subset` must be"),
        ({"validation_split": 0.5, "subset": "both"}, "must provide a `seed`"),
        ({"validation_split": 0.01, "subset": "both", "seed": 1}, "No"),
        ({"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True}, "Only one of"),
    ],
)
def test_wrong_arguments(arguments, words, folder):
    with pytest.raises(ValueError, match=words):
        utils.image_dataset_from_directory(folder, **arguments)


def test_folders_and_files_that_are_no_good(folder, tmp_path):
    with pytest.raises(FileNotFoundError):
        utils.image_dataset_from_directory(tmp_path / "nothing")
    (folder / "cats" / "7.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    whole = (folder / "dogs" / "1.png").read_bytes()
    dataset = utils.image_dataset_from_directory(folder, image_size=4, batch_size=3, verbose=False)
    with pytest.raises(ValueError, match=r"7\.png cannot be read as an image"):
        list(dataset)
    (folder / "cats" / "7.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"7\.png cannot be read as an image"):
        list(dataset)
    with pytest.raises(IndexError, match="There are 4 batches"):
        dataset[4]


def test_images_without_folders_of_classes(rng, tmp_path):
    utils.save_img(tmp_path / "1.png", rng.integers(0, 256, (4, 4, 3), "uint8"), scale=False)
    with pytest.raises(ValueError, match="No images found in .*each class has a folder of its own"):
        utils.image_dataset_from_directory(tmp_path, verbose=False)
    dataset = utils.image_dataset_from_directory(tmp_path, labels=None, verbose=False)
    assert len(dataset) == 1
    (tmp_path / "1.png").unlink()
    with pytest.raises(ValueError, match=r"No images found in .*\)\.$"):
        utils.image_dataset_from_directory(tmp_path, labels=None, verbose=False)


def test_names_in_preprocessing():
    assert kerascnn.preprocessing.image_dataset_from_directory is utils.image_dataset_from_directory
    for name in ("array_to_img", "img_to_array", "load_img", "save_img"):
        assert getattr(preprocessing_image, name) is getattr(utils, name)
        assert hasattr(keras.preprocessing.image, name)
