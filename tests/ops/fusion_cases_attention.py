"""Calls of attention and its gradients: lengths and sizes around what a tile of a kernel takes."""

from __future__ import annotations

from .case import normal, row

# (batch, heads, queries, keys, size of queries and keys, size of values)
SIZES = {
    "square": (2, 3, 64, 64, 64, 64),
    "odd": (3, 2, 197, 197, 64, 64),
    "across": (2, 3, 50, 77, 32, 32),
    "longer": (2, 2, 129, 65, 80, 80),
    "wide": (1, 2, 65, 130, 128, 128),
    "small": (1, 1, 5, 3, 8, 8),
    "narrow_values": (2, 2, 33, 20, 64, 32),
    "unaligned": (2, 2, 20, 33, 20, 20),  # which cuDNN takes no heads of
}


def _attention(sizes, backward, *, one_batch=True, heads_behind=True, is_causal=False, scale=0.125):
    batch, heads, queries, keys, size, value_size = sizes

    def tensor(rng, length, last):
        lengths = (length, heads) if heads_behind else (heads, length)
        return normal(rng, batch, *lengths, last)

    def make(rng):
        inputs = [tensor(rng, n, d) for n, d in ((queries, size), (keys, size))]
        inputs.append(tensor(rng, keys, value_size))
        if backward:
            inputs.append(tensor(rng, queries, value_size))
        attributes = {"one_batch": one_batch, "heads_behind": heads_behind}
        return inputs, {**attributes, "is_causal": is_causal, "scale": scale}

    return make


def _cases():
    forms = {
        "op": {"one_batch": False},
        "heads_before": {"heads_behind": False},
        "op_heads_before": {"one_batch": False, "heads_behind": False},
        "unscaled": {"scale": None},
        "causal": {"is_causal": True},
        "op_causal": {"one_batch": False, "is_causal": True},
    }
    rows = []
    for backward, name in ((False, "attention"), (True, "attention_grad")):
        for id, sizes in SIZES.items():
            rows.append(row(name, id, _attention(sizes, backward)))
        for id, form in forms.items():
            sizes = SIZES["odd" if id == "op" else "across"]
            rows.append(row(name, id, _attention(sizes, backward, **form)))
    return rows


CASES = _cases()
