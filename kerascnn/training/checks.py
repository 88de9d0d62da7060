"""Checks before anything runs that need more than the arrays themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kerascnn.losses.alignment import ctc
from kerascnn.training.compile_utils import CompileLoss
from kerascnn.training.device_arrays import DeviceArray


def check_labels(compile_loss: CompileLoss | None, y: Any, shapes: Any) -> None:
    """Checks the class numbers that sparse losses get: whole numbers from 0 on, below the classes.

    Args:
        compile_loss: the built losses.
        y: the targets, on the host.
        shapes: objects with the shapes of the model's outputs, nested like them.

    Raises:
        ValueError: naming the range expected and what was found.
    """
    if compile_loss is None or not compile_loss.built or y is None:
        return
    for loss, labels, num_classes in _sparse_labels(compile_loss, y, shapes):
        _check_sparse(labels, num_classes, loss)


def label_limits(compile_loss: CompileLoss | None, y: Any, shapes: Any) -> dict[int, int | None]:
    """Returns how many classes there are for each array of class numbers, by the array's `id`.

    `None` stands for labels of which not only the least and the greatest have to be looked at.

    Args:
        compile_loss: the built losses.
        y: the targets, on the host.
        shapes: see `check_labels`.
    """
    limits: dict[int, int | None] = {}
    if compile_loss is None or not compile_loss.built or y is None:
        return limits
    for loss, labels, num_classes in _sparse_labels(compile_loss, y, shapes):
        before = limits.get(id(labels), num_classes)
        is_plain = labels.dtype.kind in "iub" and loss.ignore_class is None
        limits[id(labels)] = min(before, num_classes) if is_plain and before is not None else None
    return limits


def _sparse_labels(compile_loss: CompileLoss, y: Any, shapes: Any) -> Iterator[tuple]:
    """Yields (loss, labels, number of classes) for each loss that takes class numbers."""
    for loss, labels in zip(compile_loss.losses, compile_loss.targets(y, shapes), strict=True):
        if loss.is_sparse and isinstance(labels, (np.ndarray, DeviceArray)):
            axis = loss.loss._fn_kwargs.get("axis", -1)
            output = shapes
            for key in loss.path:
                output = output[key]
            yield loss, labels, int(output.shape[axis])


def _check_sparse(labels: Any, num_classes: int, loss: Any) -> None:
    if isinstance(labels, DeviceArray):
        # Two numbers show that all is well; the host finds out what is wrong.
        is_plain = labels.dtype.kind in "iub" and loss.ignore_class is None and labels.size
        if is_plain and labels.min() >= 0 and labels.max() < num_classes:
            return
        labels = np.asarray(labels)
    name = loss.loss.name
    if loss.ignore_class is not None:
        labels = labels[labels != loss.ignore_class]
    if not labels.size:
        return
    low, high = labels.min(), labels.max()
    if labels.dtype.kind not in "iub":
        whole = np.isfinite(labels).all() and bool((labels == np.floor(labels)).all())
        if np.isnan(low):  # so is then the least of them
            raise ValueError(
                f"The loss '{name}' needs class numbers, whole numbers from 0 to "
                f"{num_classes - 1}. {int(np.isnan(labels).sum())} of {labels.size} labels are "
                "NaN: leave these samples out, or give them a class."
            )
        if not whole:
            raise ValueError(
                f"The loss '{name}' needs class numbers, whole numbers from 0 to "
                f"{num_classes - 1}. Received labels of dtype {labels.dtype} from {low} to {high} "
                "that are not whole. For probabilities of classes use categorical_crossentropy, "
                "for numbers to be predicted mean_squared_error."
            )
    if low < 0 or high >= num_classes:
        wrong = int(((labels < 0) | (labels >= num_classes)).sum())
        if low >= 0:
            way_out = f"Give the last layer {int(high) + 1} units, or number the classes from 0."
        elif loss.loss.fn is ctc:
            way_out = "Number the labels from 1, and pad with 0, which is the blank."
        else:
            way_out = "Number the classes from 0, or pass ignore_class to the loss."
        raise ValueError(
            f"The loss '{name}' needs class numbers from 0 to {num_classes - 1}, as the model's "
            f"output has {num_classes} classes. Received labels from {low} to {high} ({wrong} of "
            f"{labels.size} out of range). {way_out}"
        )
