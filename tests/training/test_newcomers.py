"""What people who begin with image classifiers pass: errors name it, and a way out that works."""

import re
import warnings

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

IMAGES = np.zeros((6, 4, 4, 1), "float32")
LABELS = np.array([0, 1, 2, 0, 1, 2])


def resized(x):
    return keras.ops.image.resize(x, (4, 4))


def classifier(channels=1, loss="sparse_categorical_crossentropy", metrics=()):
    model = keras.Sequential(
        [
            keras.Input((4, 4, channels)),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("sgd", loss, metrics=list(metrics))
    return model


@pytest.mark.parametrize(
    ("shape", "channels", "text", "way_out"),
    [
        ((4, 4, 1), 1, r"x\[None\]", lambda x: x[None]),
        ((4, 4), 1, r"x\[None, \.\.\., None\]", lambda x: x[None, ..., None]),
        ((6, 16), 1, r"x\.reshape\(-1, 4, 4, 1\)", lambda x: x.reshape(-1, 4, 4, 1)),
        ((6, 3, 4, 4), 3, r"np\.moveaxis\(x, 1, -1\)", lambda x: np.moveaxis(x, 1, -1)),
        ((6, 4, 4, 1), 3, r"np\.repeat\(x, 3, axis=-1\)", lambda x: np.repeat(x, 3, axis=-1)),
        (
            (6, 4, 4, 3),
            1,
            r"x\.mean\(axis=-1, keepdims=True\)",
            lambda x: x.mean(-1, keepdims=True),
        ),
        (
            (6, 5, 7, 1),
            1,
            r"image\.resize\(x, \(4, 4\)\)",
            lambda x: keras.ops.image.resize(x, (4, 4)),
        ),
    ],
)
def test_images_of_another_shape(shape, channels, text, way_out):
    model, x = classifier(channels), np.zeros(shape, "float32")
    with pytest.raises(ValueError, match=f"expected shape=.*found shape=.*{text}"):
        model.predict(x, verbose=0)
    assert model.predict(way_out(x), verbose=0).shape[1] == 3


@pytest.mark.parametrize(
    ("of_model", "of_data", "text"),
    [
        ((8, 8, 1), (6, 9, 7, 1), r"any size begins with keras\.Input\(\(None, None, 1\)\)"),
        (
            (8, None, 3),
            (6, 9, 7, 3),
            r"any such size begins with keras\.Input\(\(None, None, 3\)\)",
        ),
        ((8, 8, 1), (6, 8, 8, 2), r"such data begins with keras\.Input\(\(8, 8, 2\)\)"),
        ((10, 4), (6, 11, 4), r"any such size begins with keras\.Input\(\(None, 4\)\)"),
        ((10,), (6, 11), r"such data begins with keras\.Input\(\(11,\)\)"),
    ],
)
@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_sizes_that_another_input_would_take(kind, of_model, of_data, text):
    def network(shape):
        inputs, layer = keras.Input(shape, name="data"), layers.Activation("relu")
        if kind == "sequential":
            return keras.Sequential([inputs, layer], name="net")
        return keras.Model(inputs, layer(inputs), name="net")

    x = np.zeros(of_data, "float32")
    where = r"Input 0 of layer 'net' \(named 'data'\).*expected shape=.*found shape=.*"
    with pytest.raises(ValueError, match=where + text) as found:
        network(of_model).predict(x, verbose=0)
    shape = re.search(r"keras\.Input\((\(.*\))\)", str(found.value))[1]
    other = tuple(None if n == "None" else int(n) for n in re.findall(r"\w+", shape))
    assert network(other).predict(x, verbose=0).shape == of_data


def test_inputs_in_another_order():
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    model = keras.Model([a, b], layers.concatenate([a, b]), name="net")
    x, y = np.zeros((2, 4), "float32"), np.zeros((2, 3), "float32")
    with pytest.raises(ValueError, match=r"of the shape of 'b': the order is \['a', 'b'\]\.$"):
        model.predict([y, x], verbose=0)
    with pytest.raises(ValueError, match="Pass a list in that order, or a dictionary"):
        model.predict(x, verbose=0)
    assert model.predict({"b": y, "a": x}, verbose=0).shape == (2, 7)


@pytest.mark.parametrize("shape", [(6, 5, 5), (6, 4, 4, 4, 2), (6, 2, 2, 2, 2)])
def test_shapes_without_a_known_way_out(shape):
    with pytest.raises(ValueError, match=r"found shape=\([0-9, ]*\)\.$"):
        classifier().predict(np.zeros(shape, "float32"), verbose=0)


@pytest.mark.parametrize(
    ("x", "y", "error", "text"),
    [
        ([*IMAGES[:5]] * 2, LABELS, ValueError, r"x: 4 in 10 arrays, y: 6\..*pass np\.stack\(x\)"),
        (IMAGES, list(LABELS), TypeError, r"y is a list of int64.*np\.asarray\(y\)"),
        (IMAGES, [*np.eye(3)[LABELS]] * 2, ValueError, r"y: 3 in 12 arrays.*np\.stack\(y\)"),
        (IMAGES, np.where(LABELS, LABELS, np.nan), ValueError, "2 of 6 labels are NaN: leave"),
        (None, None, ValueError, r"y must have an axis of samples.*batch\(32\)"),
    ],
)
def test_data_of_another_form(x, y, error, text):
    if x is None:
        x = keras.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    with pytest.raises(error, match=text):
        classifier().fit(x, y, verbose=0)


def test_pictures_of_pillow():
    picture = pytest.importorskip("PIL.Image").new("L", (4, 4))
    with pytest.raises(TypeError, match=r"Received: Image\. .*np\.asarray\(x\)\[None\]"):
        classifier().predict(picture, verbose=0)
    with pytest.raises(TypeError, match=r"list of images \(Image\)\. .*np\.stack\(\["):
        classifier().predict([picture] * 3, verbose=0)


@pytest.mark.parametrize("loss", ["mse", "binary_crossentropy"])
def test_class_numbers_for_another_loss(loss):
    with pytest.raises(ValueError, match="use the loss 'sparse_categorical_crossentropy'"):
        classifier(loss=loss).fit(IMAGES, LABELS, verbose=0)


@pytest.mark.parametrize(
    ("loss", "metric", "y"),
    [
        ("categorical_crossentropy", "sparse_categorical_accuracy", np.eye(3)[LABELS]),
        ("sparse_categorical_crossentropy", "categorical_crossentropy", LABELS),
    ],
)
def test_a_metric_for_other_targets(loss, metric, y):
    right = metric.removeprefix("sparse_") if metric.startswith("sparse_") else f"sparse_{metric}"
    with pytest.raises(
        ValueError, match=f"metric '{metric}'.*targets of shape.*there is '{right}'"
    ):
        classifier(loss=loss, metrics=[metric]).fit(IMAGES, y, verbose=0)
    classifier(loss=loss, metrics=[right]).fit(IMAGES, y, verbose=0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: keras.Sequential(layers.Flatten(), layers.Dense(3)), "takes its layers as a list"),
        (lambda: keras.Model(input=keras.Input((2,))), r"\['input'\]\. Did you mean 'inputs'\?"),
        (lambda: keras.metrics.get("f1"), "Did you mean 'F1Score' or 'f1_score'"),
    ],
)
def test_models_and_names(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_a_file_that_is_no_image_is_named(tmp_path):
    PIL = pytest.importorskip("PIL")
    (tmp_path / "cat.png").write_text("hello")
    with pytest.raises(PIL.UnidentifiedImageError, match=r"cat\.png holds no image .*\(5 bytes\)"):
        keras.utils.load_img(tmp_path / "cat.png")


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(
    ("activation", "loss", "told"),
    [
        ("softmax", keras.losses.SparseCategoricalCrossentropy, "softmax"),
        ("softmax", keras.losses.CategoricalCrossentropy, "softmax"),
        ("sigmoid", keras.losses.BinaryCrossentropy, "sigmoid"),
        (None, keras.losses.CategoricalCrossentropy, None),
        ("softmax", keras.losses.BinaryCrossentropy, None),
    ],
)
def test_probabilities_that_are_called_logits(activation, loss, told, policy):
    """Keras on TensorFlow warns of the same."""
    inputs = keras.Input((4, 4, 1))
    outputs = layers.Dense(3, activation=activation, dtype=policy)(layers.Flatten()(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss(from_logits=True))
    targets = LABELS if "Sparse" in loss.__name__ else np.eye(3, dtype="float32")[LABELS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(IMAGES, targets, verbose=0)
    texts = [str(w.message) for w in caught]
    if told is None:
        assert not texts
    else:
        assert f"`from_logits=True`, but its `output` was produced by {told}" in texts[0]
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: keras.callbacks.EarlyStopping(patiense=3), r"EarlyStopping\(\).*'patience'"),
        (lambda: keras.callbacks.ModelCheckpoint("x", save_best=True), "'save_best_only'"),
        (lambda: keras.losses.BinaryCrossentropy(from_logit=True), "'from_logits'"),
        (lambda: keras.metrics.F1Score(avarage="macro"), "'average'"),
    ],
)
def test_misspelt_arguments_of_constructors(make, text):
    with pytest.raises(TypeError, match=f"unexpected keyword argument.*{text}|{text}"):
        make()


def test_a_folder_that_is_not_there(tmp_path, monkeypatch):
    """It is still the error that Keras raises."""
    monkeypatch.chdir(tmp_path)
    for read in (
        keras.utils.image_dataset_from_directory,
        keras.utils.text_dataset_from_directory,
        keras.utils.audio_dataset_from_directory,
    ):
        for labels in ("inferred", None):
            with pytest.raises(FileNotFoundError) as caught:
                read("photos/train", labels=labels, label_mode=None if labels is None else "int")
            text = str(caught.value)
            assert "directory='photos/train'" in text and f"is '{tmp_path}'" in text
    (tmp_path / "photos").write_text("")
    with pytest.raises(NotADirectoryError, match="Received a file: directory='photos'"):
        keras.utils.image_dataset_from_directory("photos")
