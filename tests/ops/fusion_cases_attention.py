"""Calls of attention and its gradients: lengths and sizes around what a tile of a kernel takes."""

from __future__ import annotations

import numpy as np

from .case import normal, row

# (batch, heads, queries, keys, size of queries and keys, size of values), with as many products as
# a kernel for all of them takes.
SIZES = {
    "square": (32, 4, 64, 64, 64, 64),
    "odd": (5, 3, 197, 197, 64, 64),
    "across": (35, 4, 50, 77, 32, 32),
    "longer": (21, 3, 129, 65, 80, 80),
    "wide": (21, 3, 65, 130, 128, 128),
    "tiny": (5000, 7, 5, 3, 8, 8),
    "one_query": (4000, 4, 1, 33, 16, 16),
    "one_key": (4000, 4, 33, 1, 16, 16),
    "narrow_values": (160, 5, 33, 20, 64, 32),
    "unaligned": (160, 5, 33, 20, 20, 20),  # cuDNN takes sizes that are multiples of 8
    "few": (1, 3, 64, 64, 64, 64),
}
# Those that run node by node.
NOT_TAKEN = ("unaligned", "few")


def _attention(
    sizes,
    backward,
    *,
    one_batch=True,
    heads_behind=True,
    is_causal=False,
    scale=0.125,
    bias="",
    mask="",
):
    batch, heads, queries, keys, size, value_size = sizes

    def tensor(rng, length, last):
        lengths = (length, heads) if heads_behind else (heads, length)
        return normal(rng, batch, *lengths, last)

    def make(rng):
        inputs = [tensor(rng, n, d) for n, d in ((queries, size), (keys, size))]
        inputs.append(tensor(rng, keys, value_size))
        if backward:
            inputs.append(tensor(rng, queries, value_size))
        lengths = dict(zip("bhqk", (batch, heads, queries, keys), strict=True))
        if bias:
            numbers = normal(rng, *(n if axis in bias else 1 for axis, n in lengths.items()))
            hides = rng.random(numbers.shape) < 0.2
            hides[..., 0] = False
            inputs.append(np.where(hides, -3e4, numbers))
        if mask:
            sees = rng.random([n if axis in mask else 1 for axis, n in lengths.items()]) < 0.6
            sees[..., 0, :] = False  # this query sees nothing
            inputs.append(sees)
        attributes = {"one_batch": one_batch, "heads_behind": heads_behind}
        return inputs, {**attributes, "is_causal": is_causal, "scale": scale}

    return make


FORMS = {
    "op": {"one_batch": False},
    "heads_before": {"heads_behind": False},
    "op_heads_before": {"one_batch": False, "heads_behind": False},
    "unscaled": {"scale": None},
    "causal": {"is_causal": True},
    "op_causal": {"one_batch": False, "is_causal": True},
    "padding": {"mask": "bk"},
    "mask": {"mask": "bqk"},
    "mask_of_queries": {"mask": "bq"},
    "one_mask": {"mask": "qk", "heads_behind": False},
    "bias": {"bias": "hqk", "one_batch": False},
    "causal_bias": {"bias": "bhqk", "one_batch": False, "is_causal": True},
    "bias_and_mask": {"bias": "hk", "mask": "bqk", "one_batch": False},
}


def _row(name, id):
    form = FORMS.get(id, {})
    sizes = SIZES.get(id, SIZES["across"])
    return row(name, id, _attention(sizes, name == "attention_grad", **form))


# With heads of 64 and up to 256 keys Hopper has an own kernel of gradients, off by default: 32
# queries at a time, 64 keys of each warpgroup.
SHORT = [
    row("attention_grad", id, _attention(sizes, True, **form))
    for id, sizes, form in (
        ("odd", (5, 3, 197, 197, 64, 64), {}),
        ("op", (5, 3, 197, 197, 64, 64), {"one_batch": False}),
        ("heads_before", (7, 3, 197, 130, 64, 64), {"heads_behind": False}),
        ("unscaled", (9, 3, 130, 197, 64, 64), {"scale": None}),
        ("one_warpgroup", (130, 4, 33, 31, 64, 64), {}),
        ("two_warpgroups", (41, 5, 32, 96, 64, 64), {}),
        ("all_keys", (19, 2, 70, 256, 64, 64), {}),
        ("many_queries", (9, 3, 330, 129, 64, 64), {}),
        ("many_heads", (300, 3, 64, 64, 64, 64), {}),
        ("one_query", (4000, 4, 1, 33, 64, 64), {}),
        ("one_key", (4000, 4, 33, 1, 64, 64), {}),
    )
]

# test_attention.py has the values of all of these. cuDNN compiles a kernel for each kind of call,
# so the tests of fusions have few.
GRADIENTS = [_row("attention_grad", id) for id in (*SIZES, *FORMS)]
FORWARD = [_row("attention", id) for id in (*SIZES, *FORMS)]
# What a GPU computes by two products in float32: nothing is added or hidden, and heads are behind.
PRODUCTS = {*SIZES, "op", "unscaled"} - set(NOT_TAKEN)
CASES = [_row(name, id) for name in ("attention", "attention_grad") for id in ("square", "few")]
