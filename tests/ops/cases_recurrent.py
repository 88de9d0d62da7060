"""Rows of the ops of recurrent layers."""

from __future__ import annotations

import numpy as np

from .case import Bad, Rng, large, normal, row, zeros

# Units, batch and time: some are multiples of what a kernel's blocks, vectors and clusters take,
# and some are not. A state depends on all earlier ones, so errors add up: in float32 over a hundred
# steps, and a GPU rounds a 16-bit state in each of them.
_SIZES = {
    "one_of_each": (1, 1, 1),
    "small": (3, 2, 5),
    "odd": (5, 7, 33),
    "one_row": (1, 28, 128),
    "wide_enough_for_one_block": (3, 6, 64),
    "many_rows": (100, 3, 20),
    "two_steps": (3, 2, 200),
    "long": (3, 130, 16),
}
# These are only run forward, because their float64 differences would take long.
_LARGER = {
    "rows_by_128": (64, 28, 128),
    "units_256": (5, 3, 256),
    "units_300": (19, 3, 300),
    "units_512": (9, 4, 512),
    "many_rows_wide": (150, 2, 130),
    "units_513": (3, 2, 513),
}
# These are twice the tolerances below. With only one number, no larger terms stand beside those
# that cancel in it: it is a sum of up to four terms of about 1, each rounded by 2^-9 in bfloat16,
# so its error may be 2^-7 however small it is.
_ONE_NUMBER = {
    "tolerance": {"float32": 4e-5, "float16": 2.0**-7, "bfloat16": 2.0**-4},
    "least_norm": 0.25,
    "reason": "sums of rounded terms may cancel in the only element",
}
_TOLERANCE = {
    "tolerance": {"float32": 2e-5, "float16": 2.0**-8, "bfloat16": 2.0**-5},
    "reason": "each step rounds the state that all later ones depend on",
}


def _mask(rng: Rng, batch, time):
    """Masks steps at random, and all steps of the first row if there are several rows."""
    mask = rng.random((batch, time)) < 0.7
    if batch > 1:
        mask[0] = False
    return mask


def _kernel(rng: Rng, units, gates):
    return normal(rng, units, gates * units) / np.sqrt(units)


def _lstm(batch, time, units, reverse=False, masked=False):
    def make(rng: Rng):
        states = [normal(rng, batch, units) for _ in range(2)]
        inputs = [normal(rng, batch, time, 4 * units), *states, _kernel(rng, units, 4)]
        inputs += [_mask(rng, batch, time)] if masked else []
        return inputs, {"reverse": reverse, "masked": masked}

    return make


def _gru(batch, time, units, reverse=False, masked=False):
    def make(rng: Rng):
        inputs = [normal(rng, batch, time, 3 * units), normal(rng, batch, units)]
        inputs += [_kernel(rng, units, 3), normal(rng, 3 * units)]
        inputs += [_mask(rng, batch, time)] if masked else []
        return inputs, {"reverse": reverse, "masked": masked}

    return make


def _gradient_inputs(rng: Rng, shape, names, **has):
    """Returns the mask and the gradients that the call has, and its attributes."""
    batch, time, units = shape
    there = {name: has.get(name, name != "masked") for name in names}
    shapes = {"has_outputs": (batch, time, units)}
    inputs = [_mask(rng, batch, time)] if there["masked"] else []
    for name in names[1:]:
        if there[name]:
            inputs.append(normal(rng, *shapes.get(name, (batch, units))))
    return inputs, {"reverse": has.get("reverse", False), **there}


def _lstm_grad(batch, time, units, **has):
    def make(rng: Rng):
        gates = rng.uniform(0.0, 1.0, (batch, time, 4 * units))
        gates[:, :, 2 * units : 3 * units] *= -1.0
        inputs = [_kernel(rng, units, 4), gates]
        inputs += [normal(rng, batch, time, units), normal(rng, batch, units)]
        names = ("masked", "has_last_h", "has_last_c", "has_outputs")
        more, attributes = _gradient_inputs(rng, (batch, time, units), names, **has)
        return inputs + more, attributes

    return make


def _gru_grad(batch, time, units, **has):
    def make(rng: Rng):
        gates = rng.uniform(0.0, 1.0, (batch, time, 4 * units))
        gates[:, :, 2 * units :] *= -1.0
        inputs = [_kernel(rng, units, 3), gates, normal(rng, batch, time, units)]
        names = ("masked", "has_last_h", "has_outputs")
        more, attributes = _gradient_inputs(rng, (batch, time, units), names, **has)
        return inputs + more, attributes

    return make


def _rows(op, make, **options):
    rows = []
    for name, sizes in _SIZES.items():
        tolerance = _ONE_NUMBER if sizes == (1, 1, 1) else _TOLERANCE
        rows.append(row(op, name, make(*sizes), **tolerance, **options))
    for name, sizes in _LARGER.items():
        rows.append(row(op, name, make(*sizes), gradient=False, **_TOLERANCE))
    rows += [
        row(op, "reverse", make(3, 6, 9, reverse=True), **_TOLERANCE, **options),
        row(op, "masked", make(5, 9, 17, masked=True), **_TOLERANCE, **options),
        row(op, "masked_wide", make(5, 9, 130, masked=True), **_TOLERANCE, gradient=False),
        row(
            op,
            "both_wide",
            make(11, 4, 270, reverse=True, masked=True),
            **_TOLERANCE,
            gradient=False,
        ),
        row(op, "both", make(3, 7, 40, reverse=True, masked=True), **_TOLERANCE, **options),
        row(op, "no_steps", make(2, 0, 3), **_TOLERANCE, gradient=False),
        row(op, "no_rows", make(0, 3, 3), **_TOLERANCE, gradient=False),
        large(op, make(65_600, 1, 3)),
        large(op, make(1, 65_600, 3), "long_sequence"),
    ]
    return rows


CASES = [
    *_rows("lstm", _lstm, loss_outputs=(0, 1, 2)),
    row("lstm", "last_h_only", _lstm(4, 3, 6), loss_outputs=(0,), **_TOLERANCE),
    row("lstm", "last_c_only", _lstm(4, 3, 6), loss_outputs=(1,), **_TOLERANCE),
    row("lstm", "outputs_only", _lstm(4, 3, 6), loss_outputs=(2,), **_TOLERANCE),
    *_rows("gru", _gru, loss_outputs=(0, 1)),
    row("gru", "last_h_only", _gru(4, 3, 6), loss_outputs=(0,), **_TOLERANCE),
    row("gru", "outputs_only", _gru(4, 3, 6), loss_outputs=(1,), **_TOLERANCE),
    *_rows("lstm_grad", _lstm_grad),
    row(
        "lstm_grad",
        "outputs",
        _lstm_grad(3, 4, 5, has_last_h=False, has_last_c=False),
        **_TOLERANCE,
    ),
    row(
        "lstm_grad",
        "last_c",
        _lstm_grad(3, 4, 5, has_last_h=False, has_outputs=False),
        **_TOLERANCE,
    ),
    *_rows("gru_grad", _gru_grad),
    row("gru_grad", "outputs", _gru_grad(3, 4, 5, has_last_h=False), **_TOLERANCE),
    row("gru_grad", "last_h", _gru_grad(3, 4, 5, has_outputs=False), **_TOLERANCE),
]


_PLAIN = {"reverse": False, "masked": False}
_MASKED = {"reverse": False, "masked": True}
_LSTM = {"x": zeros(2, 3, 20), "h0": zeros(2, 5), "c0": zeros(2, 5), "kernel": zeros(5, 20)}
_GRU = {"x": zeros(2, 3, 15), "h0": zeros(2, 5), "kernel": zeros(5, 15), "bias": zeros(15)}
_LSTM_GRAD = {"kernel": zeros(5, 20), "gates": zeros(2, 3, 20)}
_LSTM_GRAD |= {"cells": zeros(2, 3, 5), "c0": zeros(2, 5)}
_GRU_GRAD = {"kernel": zeros(5, 15), "gates": zeros(2, 3, 20), "previous": zeros(2, 3, 5)}
_NONE = {**_PLAIN, "has_last_h": False, "has_outputs": False}


def _bad(op, good, error, message, attributes=_PLAIN, **changed):
    return Bad(op, list((good | changed).values()), attributes, error, f"{op}: {message}")


_NO_LAST_C = {**_NONE, "has_last_c": False}
BAD = [
    _bad("lstm", _LSTM, ValueError, "the recurrent kernel must have shape", kernel=zeros(5, 15)),
    _bad("lstm", _LSTM, ValueError, "x must have 20 columns", x=zeros(2, 3, 15)),
    _bad("lstm", _LSTM, ValueError, "x must have 3 axes", x=zeros(2, 20)),
    _bad("lstm", _LSTM, ValueError, "h0 must have shape (2, 5)", h0=zeros(3, 5)),
    _bad("lstm", _LSTM, ValueError, "c0 must have shape (2, 5)", c0=zeros(2, 4)),
    _bad("lstm", _LSTM, TypeError, "all inputs but the mask", h0=zeros(2, 5, dtype="float64")),
    _bad("lstm", _LSTM, TypeError, "the mask must be boolean", _MASKED, mask=zeros(2, 3)),
    _bad(
        "lstm",
        _LSTM,
        ValueError,
        "the mask must have shape (2, 3)",
        _MASKED,
        mask=zeros(3, 2, dtype="bool"),
    ),
    _bad("gru", _GRU, ValueError, "the recurrent kernel must have shape", kernel=zeros(5, 20)),
    _bad("gru", _GRU, ValueError, "the recurrent bias must have shape (15,)", bias=zeros(5)),
    _bad("gru", _GRU, ValueError, "h0 must have shape (2, 5)", h0=zeros(3, 5)),
    _bad(
        "lstm_grad",
        _LSTM_GRAD,
        ValueError,
        "the gates must have 20 columns",
        _NO_LAST_C,
        gates=zeros(2, 3, 15),
    ),
    _bad(
        "lstm_grad",
        _LSTM_GRAD,
        ValueError,
        "the gradient of the outputs must have shape (2, 3, 5)",
        {**_NO_LAST_C, "has_outputs": True},
        outputs=zeros(2, 3, 4),
    ),
    _bad(
        "gru_grad",
        _GRU_GRAD,
        ValueError,
        "the previous states must have shape (2, 3, 5)",
        _NONE,
        previous=zeros(2, 3, 4),
    ),
]
