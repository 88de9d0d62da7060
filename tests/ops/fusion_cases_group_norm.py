"""Calls of group normalization: rows and channels around what blocks and clusters of a GPU take."""

from __future__ import annotations

from .case import normal, row

SWITCH = "KERASCNN_GROUP_NORM_KERNELS"

# The shape of x, whose channels are last, and the number of groups.
SIZES = {
    "usual": ((4, 24, 20, 64), 8),
    "one_group": ((3, 9, 7, 48), 1),
    "pairs": ((5, 6, 11, 16), 8),
    "odd": ((3, 13, 5, 21), 7),
    "odd_members": ((2, 17, 9, 40), 8),  # groups of 5 channels, of which 16 bytes have 4 or 8
    "one_sample": ((1, 31, 24), 3),
    "volumes": ((2, 3, 5, 4, 24), 6),
    "few_rows": ((7, 3, 12), 2),
    "wide": ((2, 8, 8, 1024), 1),
    "many_groups": ((2, 5, 5, 1536), 512),
    "rows_of_one_block": ((3, 255, 32), 4),
    "large_sections": ((20, 67, 140, 32), 2),  # clusters, the last block has fewer rows
    "many_samples": ((300, 17, 64), 8),
}
# Those that no kernel takes: of two rows, and of groups of one or of too many channels.
NOT_TAKEN = {
    "two_rows": ((5, 2, 12), 3),
    "one_channel": ((3, 5, 7, 6), 6),
    "too_wide": ((2, 5, 6, 2050), 1),
    "large_rows": ((1, 190, 180, 64), 1),  # shared memory does not hold them
}


def _group_norm(shape, groups, backward, *, activation="", offset=0.0):
    def make(rng):
        channels = shape[-1]
        inputs = [normal(rng, *shape) + offset, normal(rng, channels), normal(rng, channels)]
        # Weights are float32, whatever is normalized.
        inputs[1:] = [each.astype("float32") for each in inputs[1:]]
        if backward:
            inputs.append(normal(rng, *shape))
        return inputs, {"groups": groups, "epsilon": 1e-3, "activation": activation}

    return make


# Those that only float32 has kernels for: in 16 bits regions are faster.
WIDE_ONLY = ("large_sections",)

FORMS = {
    **{name: {"activation": name} for name in ("relu", "silu", "gelu", "tanh", "softplus")},
    "far_from_zero": {"offset": 20.0},
}
DTYPES = ("float32", "float16", "bfloat16")


def _row(name, id):
    form = FORMS.get(id, {})
    shape, groups = (SIZES | NOT_TAKEN).get(id, SIZES["usual"])
    backward = name == "group_norm_grad"
    return row(name, id, _group_norm(shape, groups, backward, **form), dtypes=DTYPES)


GRADIENTS = [_row("group_norm_grad", id) for id in (*SIZES, *NOT_TAKEN, *FORMS)]
CASES = [
    _row(name, id)
    for name in ("group_norm", "group_norm_grad")
    for id in ("usual", "odd", "few_rows", "one_channel", "silu")
]
