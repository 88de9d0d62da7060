"""The digits that ship with the package."""

from pathlib import Path

import numpy as np
import pytest

from kerascnn.datasets import digits


def test_standard_split():
    (x_train, y_train), (x_test, y_test) = digits.load_data()
    assert (x_train.shape, y_train.shape) == ((1500, 8, 8), (1500,))
    assert (x_test.shape, y_test.shape) == ((297, 8, 8), (297,))
    for array in (x_train, y_train, x_test, y_test):
        assert array.dtype == np.uint8
        assert array.flags.writeable
        assert array.flags.c_contiguous
    assert (x_train.min(), x_train.max()) == (0, 16)


def test_it_is_the_published_data():
    (x_train, y_train), (x_test, y_test) = digits.load_data()
    labels = np.concatenate([y_train, y_test])
    # UCI publishes these class counts for the test part.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert labels[:10].tolist() == list(range(10))
    # This is the first image, a zero, as it is printed in the source.
    assert x_train[0].tolist() == [
        [0, 0, 5, 13, 9, 1, 0, 0],
        [0, 0, 13, 15, 10, 15, 5, 0],
        [0, 3, 15, 2, 0, 11, 8, 0],
        [0, 4, 12, 0, 0, 8, 8, 0],
        [0, 5, 8, 0, 0, 9, 8, 0],
        [0, 4, 11, 0, 1, 12, 7, 0],
        [0, 2, 14, 5, 10, 12, 0, 0],
        [0, 0, 6, 13, 10, 0, 0, 0],
    ]
    assert int(x_train.sum()) + int(x_test.sum()) == SUM_OF_PIXELS


SUM_OF_PIXELS = 561718


def test_images_look_like_their_labels():
    # Each image is assigned to the nearest class mean. That is right for at least 90 % of real
    # digits, and for 10 % if images and labels do not belong together.
    (x_train, y_train), (x_test, y_test) = digits.load_data()
    means = np.stack([x_train[y_train == k].mean(axis=0).ravel() for k in range(10)])
    distances = ((x_test.reshape(-1, 1, 64).astype(float) - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == y_test).mean() > 0.85


@pytest.mark.parametrize(("fraction", "held_out"), [(0.5, 898), (0.2, 359), (1e-9, 1)])
def test_fraction_holds_out_the_end(fraction, held_out):
    (x_all, y_all), _ = digits.load_data(1e-9)
    (x_train, y_train), (x_test, y_test) = digits.load_data(test_fraction=fraction)
    assert len(x_test) == len(y_test) == held_out
    assert len(x_train) == len(y_train) == 1797 - held_out
    np.testing.assert_array_equal(x_train, x_all[: len(x_train)])
    np.testing.assert_array_equal(y_train, y_all[: len(y_train)])


def test_one_image_stays_for_training():
    (x_train, _), (x_test, _) = digits.load_data(1 - 1e-9)
    assert (len(x_train), len(x_test)) == (1, 1796)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan"), float("inf"), 297])
def test_fraction_out_of_range(fraction):
    with pytest.raises(ValueError, match=r"expected 0 < test_fraction < 1, received"):
        digits.load_data(fraction)


@pytest.mark.parametrize("fraction", ["0.5", True, [0.5], 1j])
def test_fraction_of_wrong_type(fraction):
    with pytest.raises(TypeError, match="expected test_fraction to be a number between 0 and 1"):
        digits.load_data(fraction)


def test_calls_share_nothing():
    (first, _), _ = digits.load_data()
    first[:] = 0
    (second, _), _ = digits.load_data()
    assert second.max() == 16


def test_licence_ships_beside_the_data():
    text = Path(digits.__file__).with_name("digits.txt").read_text(encoding="utf-8")
    for words in ("CC BY 4.0", "10.24432/C50P49", "Alpaydin", "archive.ics.uci.edu", "Changed"):
        assert words in text
