"""The 8x8 handwritten digits that ship with the package, for machines without network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kerascnn.datasets.image_files import Arrays

_FILE = Path(__file__).with_name("digits.npz")
_NUM_TRAIN = 1500


def load_data(test_fraction: float | None = None) -> tuple[Arrays, Arrays]:
    """Loads 1,797 real handwritten digits of 8x8 pixels. Needs no network: they are shipped.

    The images keep the order of their source, and the split is by position, so that it is the
    same everywhere: by default the first 1,500 are for training and the last 297 for testing.

    Args:
        test_fraction: the part of the images, between 0 and 1, to hold out from the end instead
            of the last 297. At least one image stays on each side.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: uint8 images of shape (n, 8, 8) with values
        **0 to 16** (divide by 16, not by 255) and uint8 labels 0 to 9 of shape (n,). The arrays
        are writable and C-contiguous.

    Raises:
        TypeError: `test_fraction` is not a number.
        ValueError: `test_fraction` is not between 0 and 1.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0 (its test part).

    >>> from kerascnn.datasets import digits
    >>> (x_train, y_train), (x_test, y_test) = digits.load_data()
    >>> x_train.shape, x_test.shape, int(x_train.max())
    ((1500, 8, 8), (297, 8, 8), 16)
    """
    with np.load(_FILE, allow_pickle=False) as archive:
        x, y = archive["x"], archive["y"]
    num_train = _NUM_TRAIN if test_fraction is None else _num_train(len(x), test_fraction)
    return (x[:num_train], y[:num_train]), (x[num_train:], y[num_train:])


def _num_train(total: int, test_fraction: float) -> int:
    if isinstance(test_fraction, bool) or not isinstance(
        test_fraction, (int, float, np.integer, np.floating)
    ):
        raise TypeError(
            "digits.load_data: expected test_fraction to be a number between 0 and 1, received "
            f"{test_fraction!r}. Leave it out for the standard split of 1500 and 297 images."
        )
    if not 0 < test_fraction < 1:
        raise ValueError(
            "digits.load_data: expected 0 < test_fraction < 1, received "
            f"{test_fraction}. Leave it out for the standard split of 1500 and 297 images."
        )
    return min(max(total - round(total * float(test_fraction)), 1), total - 1)
