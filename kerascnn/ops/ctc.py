"""Connectionist temporal classification: the loss of sequences without alignment, and decoding.

Graves et al., Connectionist temporal classification: labelling unsegmented sequence data with
recurrent neural networks, 2006. In every frame a model scores the classes, one of which, the blank,
stands for "nothing new"; a path spells the labels that are left of it when repetitions are joined
and blanks dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import _core, dtypes
from kerascnn.ops import (
    activation,
    beam_search,
    dispatch,
    elementwise,
    host,
    joining,
    reduction,
    shaping,
    sorting,
)
from kerascnn.symbolic.operation import op

__all__ = ["ctc_decode", "ctc_loss"]


@op
def ctc_loss(
    target: Any, output: Any, target_length: Any, output_length: Any, mask_index: int = 0
) -> Any:
    """Minus the logarithm of the probability of all paths that spell the target.

    Args:
        target: (samples, most labels) class numbers; what is behind a sample's labels is not read.
        output: (samples, frames, classes) logits, which are not normalized by a softmax.
        target_length: (samples,) integers, how many labels each sample has.
        output_length: (samples,) integers, how many frames each sample has.
        mask_index: The class of the blank.

    Returns:
        (samples,), in float32, or float64 where the output is. Infinite where the frames are too
        few for the labels; the gradient of such a sample is NaN. In a compiled step, which cannot
        raise, a length or a label that is out of range makes its sample's loss NaN.

    Raises:
        ValueError: where the shapes don't fit, or a length, a label or `mask_index` is out of
            range.
        TypeError: for lengths that are no integers.

    Example:

    >>> from kerascnn import ops
    >>> logits = ops.log([[[0.5, 0.5], [0.25, 0.75]]])  # two frames, of a blank and one class
    >>> print(ops.exp(-ops.ctc_loss([[1]], logits, [1], [2])).numpy())  # 1 1, 1 -, - 1
    [0.875]
    """
    output = dispatch.convert(output)
    output = dispatch.convert(output, dtypes.result_type(output.dtype, "float32"))
    operands = [dispatch.convert(x, like=output) for x in (target, target_length, output_length)]
    for x, name in zip(operands[1:], ("target_length", "output_length"), strict=True):
        if not dtypes.is_integer(x.dtype):
            raise TypeError(
                f"ctc_loss: `{name}` must be integers, the number of labels or frames of each "
                f"sample. Received: dtype {x.dtype}. Cast it to int32 first."
            )
    dtype = "int64" if any(x.dtype == "int64" for x in operands) else "int32"
    operands = [output, *(dispatch.convert(x, dtype) for x in operands)]
    losses = dispatch.apply("ctc_loss", operands, {"mask_index": mask_index})[0]
    if all(isinstance(x, _core.Tensor) for x in operands):
        _check_ranges(output.shape, *(np.asarray(x.numpy()) for x in operands[1:]))
    return losses


def _check_ranges(shape: Any, target: Any, target_length: Any, output_length: Any) -> None:
    for lengths, most, name in (
        (target_length, target.shape[1], "target_length"),
        (output_length, shape[1], "output_length"),
    ):
        _check_range(lengths, most, f"ctc_loss: `{name}`")
    labels = target[np.arange(target.shape[1])[None, :] < target_length[:, None]]
    _check_range(labels, shape[2] - 1, "ctc_loss: the labels of `target`")


def _check_range(values: Any, most: int, what: str) -> None:
    if values.size and (values.min() < 0 or values.max() > most):
        raise ValueError(
            f"{what} must be from 0 to {most}. Received: from {values.min()} to {values.max()}"
        )


@op
def ctc_decode(
    inputs: Any,
    sequence_lengths: Any,
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: int | None = 0,
) -> tuple[Any, Any]:
    """The labels that the scores of frames spell.

    `"greedy"` takes the best class of each frame. `"beam_search"` follows the most probable labels
    from frame to frame, adding up all paths that spell the same (Hannun et al., First-pass large
    vocabulary continuous speech recognition using bi-directional recurrent DNNs, 2014). The search
    runs on the host, in NumPy: at once only, not in a compiled step or a functional model.

    Args:
        inputs: (samples, frames, classes) logits, which are not normalized by a softmax.
        sequence_lengths: (samples,) how many frames each sample has.
        strategy: `"greedy"` or `"beam_search"`.
        beam_width: How many labellings the search keeps from frame to frame.
        top_paths: How many labellings the search returns.
        merge_repeated: Whether the greedy strategy joins repetitions of a class. The search always
            does.
        mask_index: The class of the blank; the last one where it is None.

    Returns:
        The labels as int32, (1, samples, frames) or (top_paths, samples, frames), followed by -1;
        and scores in the dtype of `inputs`, at least float32. Greedy: (samples, 1), minus the sum
        of the best logits. Search: (samples, top_paths), the logarithm of the probability, from the
        best on; where there are fewer labellings than asked for, -inf with nothing but -1.

    Raises:
        ValueError: for an unknown strategy, for shapes that don't fit; in the search also for
            lengths or arguments that are out of range, and inside of a trace.

    Example:

    >>> from kerascnn import ops
    >>> logits = ops.log([[[0.1, 0.9], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]]])
    >>> labels, score = ops.ctc_decode(logits, [4])
    >>> labels.numpy().tolist()
    [[[1, 1, -1, -1]]]
    >>> labels, score = ops.ctc_decode(logits, [4], strategy="beam_search", top_paths=2)
    >>> labels.numpy().tolist()  # more paths, less likely each, spell a single 1
    [[[1, -1, -1, -1]], [[1, 1, -1, -1]]]
    >>> print(ops.exp(score).numpy().round(3))
    [[0.529 0.466]]
    """
    if strategy == "greedy":
        return _greedy(inputs, sequence_lengths, merge_repeated, mask_index)
    if strategy == "beam_search":
        return _beam_search(inputs, sequence_lengths, beam_width, top_paths, mask_index)
    raise ValueError(
        f"Invalid strategy {strategy}. Supported values are 'greedy' and 'beam_search'."
    )


def _frames(inputs: Any, sequence_lengths: Any) -> tuple[Any, Any]:
    """Returns the logits in at least float32, and each sample's number of frames as int32."""
    inputs = dispatch.convert(inputs)
    if len(inputs.shape) != 3:
        raise ValueError(
            "ctc_decode: `inputs` must be of shape (samples, frames, classes). Received: "
            f"inputs.shape={tuple(inputs.shape)}"
        )
    inputs = dispatch.convert(inputs, dtypes.result_type(inputs.dtype, "float32"))
    lengths = dispatch.convert(sequence_lengths, "int32", like=inputs)
    if tuple(lengths.shape) != (inputs.shape[0],):
        raise ValueError(
            f"ctc_decode: `sequence_lengths` must be of shape ({inputs.shape[0]},), one for each "
            f"sample of `inputs`. Received: sequence_lengths.shape={tuple(lengths.shape)}"
        )
    return inputs, lengths


def _greedy(
    inputs: Any, sequence_lengths: Any, merge_repeated: bool, mask_index: int | None
) -> tuple[Any, Any]:
    inputs, lengths = _frames(inputs, sequence_lengths)
    frames, classes = inputs.shape[1:]
    mask_index = classes - 1 if mask_index is None else mask_index
    places = np.arange(frames, dtype="int32")[None, :]
    ended = elementwise.greater_equal(places, shaping.expand_dims(lengths, 1))
    labels = elementwise.where(ended, mask_index, reduction.argmax(inputs, -1))
    best = elementwise.where(ended, 0.0, reduction.max(inputs, -1))
    if merge_repeated and frames > 1:
        repeated = elementwise.equal(labels[:, 1:], labels[:, :-1])
        labels = joining.concatenate(
            [labels[:, :1], elementwise.where(repeated, mask_index, labels[:, 1:])], 1
        )
    # Blanks move behind the labels, which keep their order.
    is_blank = elementwise.equal(labels, mask_index)
    order = sorting.argsort(elementwise.where(is_blank, frames, places), -1)
    labels = sorting.take_along_axis(elementwise.where(is_blank, -1, labels), order, -1)
    scores = elementwise.negative(reduction.sum(best, 1, keepdims=True))
    return shaping.expand_dims(labels, 0), scores


@host.at_once
def _beam_search(
    inputs: Any, sequence_lengths: Any, beam_width: int, top_paths: int, mask_index: int | None
) -> tuple[Any, Any]:
    if not (host.is_known(inputs) and host.is_known(sequence_lengths)):
        raise ValueError(
            "ctc_decode: the strategy 'beam_search' runs on the host and cannot be part of a "
            "compiled step or a functional model. Call it on the results of model.predict(), or "
            "use the strategy 'greedy'."
        )
    inputs, lengths = _frames(inputs, sequence_lengths)
    samples, frames, classes = inputs.shape
    counts = np.asarray(lengths.numpy())
    for value, name in ((beam_width, "beam_width"), (top_paths, "top_paths")):
        if value < 1:
            raise ValueError(f"ctc_decode: `{name}` must be at least 1. Received: {value}")
    mask_index = classes - 1 if mask_index is None else mask_index
    if not 0 <= mask_index < classes:
        raise ValueError(
            f"ctc_decode: `mask_index` must be the number of a class, from 0 to {classes - 1}. "
            f"Received: {mask_index}"
        )
    if not frames:
        raise ValueError("ctc_decode: there must be at least 1 frame to search in.")
    _check_range(counts, frames, "ctc_decode: `sequence_lengths`")
    scores = np.asarray(activation.log_softmax(inputs, -1).numpy())
    labels = np.full((top_paths, samples, frames), -1, "int32")
    best = np.full((samples, top_paths), -np.inf, scores.dtype)
    for i in range(samples):
        found = beam_search.search(scores[i, : max(counts[i], 1)], beam_width, mask_index)
        for k, (path, score) in enumerate(found[:top_paths]):
            labels[k, i, : len(path)] = path
            best[i, k] = score
    return dispatch.convert(labels, like=inputs), dispatch.convert(best, like=inputs)
