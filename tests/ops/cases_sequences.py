"""Rows of the ops on sequences."""

from __future__ import annotations

import numpy as np

from .case import Bad, Rng, large, normal, row, zeros

# A posterior is the exponential of a sum of logarithms and inherits the sum's float32 rounding: one
# unit in the last place of 20, over about ten frames. On a CPU the recurrences are in float64.
_OPTIONS = {
    "dtypes": ("float64", "float32"),
    "loss_outputs": (0,),
    "tolerance": {"float32": 5e-5},
    "reason": "gradients are exponentials of sums of logarithms",
}


def _ctc(samples, frames, classes, labels, blank=0, dtype="int32", spare=0):
    """Draws lengths with at least as many frames as the labels need, plus `spare`."""

    def make(rng: Rng):
        target = rng.integers(0, max(classes - 1, 1), (samples, labels))
        target += target >= blank
        target_length = rng.integers(0, labels + 1, samples)
        counted = np.arange(1, labels)[None, :] < target_length[:, None]
        repeats = ((target[:, 1:] == target[:, :-1]) & counted).sum(axis=1)
        least = np.maximum(target_length + repeats + spare, 1)
        output_length = rng.integers(least, np.maximum(least, frames) + 1)
        # Labels that do not count may be anything.
        target = np.where(np.arange(labels) < target_length[:, None], target, -7)
        lengths = [x.astype(dtype) for x in (target, target_length, output_length)]
        return [normal(rng, samples, frames, classes), *lengths], {"mask_index": blank}

    return make


def _too_short(rng: Rng):
    target = np.array([[1, 2, 1], [1, 1, 2], [2, 2, 2], [1, 0, 0], [1, 0, 0]], "int32")
    target_length = np.array([3, 3, 3, 1, 0], "int32")
    output_length = np.array([2, 3, 5, 0, 0], "int32")
    return [normal(rng, 5, 5, 4), target, target_length, output_length], {"mask_index": 0}


def _out_of_range(rng: Rng):
    target = np.array([[4, 1], [-1, 1], [1, 4], [1, 1], [1, 1], [1, 1], [1, 1]], "int32")
    target_length = np.array([2, 2, 1, 3, -1, 1, 1], "int32")
    output_length = np.array([5, 5, 5, 5, 5, 6, -1], "int32")
    return [normal(rng, 7, 5, 4), target, target_length, output_length], {"mask_index": 0}


def _blank_as_label(rng: Rng):
    target = np.array([[1, 0, 2], [0, 0, 1]], "int32")
    return [normal(rng, 2, 7, 4), target, *np.array([[3, 3], [7, 6]], "int32")], {"mask_index": 0}


def _wide_target(rng: Rng):
    """There are more states than shared memory holds, and only a few of them count."""
    (logits, target, *lengths), attributes = _ctc(2, 4, 3, 2)(rng)
    target = np.pad(target, [(0, 0), (0, 4000)])
    return [logits, target, *lengths], attributes


def _extreme(rng: Rng):
    logits = 1000.0 * rng.choice([-1, 0, 1], (3, 6, 4))
    logits[0, :, 3] = -np.inf
    target = np.array([[1, 2], [2, 2], [1, 0]], "int32")
    return [logits, target, *np.array([[2, 2, 1], [6, 5, 6]], "int32")], {"mask_index": 0}


_VALUES = {**_OPTIONS, "gradient": False}

CASES = [
    row("ctc_loss", "plain", _ctc(4, 9, 5, 3), **_OPTIONS),
    row("ctc_loss", "two_classes", _ctc(5, 11, 2, 5), **_OPTIONS),
    row("ctc_loss", "blank_last", _ctc(3, 8, 4, 3, blank=3, dtype="int64"), **_OPTIONS),
    row("ctc_loss", "blank_within", _ctc(3, 8, 6, 2, blank=2), **_OPTIONS),
    row("ctc_loss", "no_labels", _ctc(3, 4, 3, 0), **_OPTIONS),
    row("ctc_loss", "one_frame", _ctc(3, 1, 3, 0), **_OPTIONS),
    row("ctc_loss", "one_class", _ctc(2, 4, 1, 0), **_OPTIONS),
    row("ctc_loss", "many_classes", _ctc(2, 7, 71, 3), **_OPTIONS),
    # There are more labels than a warp has lanes.
    row(
        "ctc_loss",
        "many_labels",
        _ctc(2, 90, 12, 40, spare=4),
        **{**_OPTIONS, "tolerance": {"float32": 5e-4, "float64": 1e-11}},
    ),
    row("ctc_loss", "wide_target", _wide_target, **_VALUES),
    row("ctc_loss", "blank_as_label", _blank_as_label, **_OPTIONS),
    row("ctc_loss", "too_short", _too_short, **_VALUES),
    row("ctc_loss", "out_of_range", _out_of_range, **_VALUES),
    # The sums reach thousands.
    row(
        "ctc_loss",
        "extreme",
        _extreme,
        **{**_VALUES, "tolerance": {"float32": 1e-3, "float64": 1e-11}},
    ),
    row("ctc_loss", "empty", _ctc(0, 4, 3, 2), **_VALUES),
    row("ctc_loss", "no_frames", _ctc(0, 0, 3, 2), **_VALUES),
    large("ctc_loss", _ctc(65_600, 3, 3, 1, spare=0)),
]


_X, _LABELS, _LENGTHS = zeros(2, 5, 4), zeros(2, 3, dtype="int32"), zeros(2, dtype="int32")
_FIRST = {"mask_index": 0}


def _bad(error, message, attributes=_FIRST, **changed):
    names = ("output", "target", "target_length", "output_length")
    inputs = dict(zip(names, (_X, _LABELS, _LENGTHS, _LENGTHS), strict=True)) | changed
    return Bad("ctc_loss", list(inputs.values()), attributes, error, f"ctc_loss: {message}")


_WIDE = zeros(2, dtype="int64")

BAD = [
    _bad(ValueError, "the output must have 3 axes", output=zeros(2, 5)),
    _bad(TypeError, "the output must be float32 or float64", output=zeros(2, 5, 4, dtype="int32")),
    _bad(TypeError, "the output must be float32", output=zeros(2, 5, 4, dtype="float16")),
    _bad(ValueError, "there must be at least 1 class", output=zeros(2, 5, 0)),
    _bad(TypeError, "the target must be int32 or int64", target=zeros(2, 3)),
    _bad(ValueError, "the target must have 2 axes", target=_LENGTHS),
    _bad(ValueError, "the target and the output must have the same", target=_LABELS[:1]),
    _bad(ValueError, "the target_length must have shape (2,)", target_length=_LENGTHS[:1]),
    _bad(ValueError, "the output_length must have shape (2,)", output_length=_LABELS),
    _bad(TypeError, "the target and both lengths must have one dtype", output_length=_WIDE),
    _bad(ValueError, "mask_index must be the number of a class, from 0 to 3", {"mask_index": 4}),
    _bad(ValueError, "mask_index must be the number of a class", {"mask_index": -1}),
]
