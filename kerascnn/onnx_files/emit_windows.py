"""Emitters of convolution, pooling and resizing, which take and give channels first."""

from __future__ import annotations

from typing import Any

from kerascnn.onnx_files.emit_elements import activate
from kerascnn.onnx_files.emitter import FIRST, REFUSED, Emitter, emits
from kerascnn.ops import resampling
from kerascnn.recordings.recording import Call
from kerascnn.recordings.sizes import Extent, Size, at

_GRADIENT = (
    "it is a gradient. A model that takes gradients in its call can't be exported; export one that "
    "ends before."
)
for _name in (
    *("max_pool2d_grad", "avg_pool2d_grad", "conv2d_wgrad", "batch_norm_grad"),
    *("softmax_grad", "log_softmax_grad", "relu_grad", "leaky_relu_grad", "clipped_relu_grad"),
    *("elu_grad", "sigmoid_grad", "tanh_grad", "gelu_grad", "silu_grad", "softplus_grad"),
    *(
        "resize2d_grad",
        "lstm_grad",
        "gru_grad",
        "sparse_cross_entropy_grad",
        "sparse_softmax_cross_entropy_grad",
    ),
):
    REFUSED[_name] = _GRADIENT


def _pads(e: Emitter, call: Call, spatial: list[Extent], window: list[int]) -> dict[str, Any]:
    """Padding, which follows from the size of an open axis or does not.

    The core has (top, bottom, left, right), ONNX what is before all axes, then what is behind.
    """
    top, bottom, left, right = call.attributes["padding"]
    pads = [top, left, bottom, right]
    if not any(isinstance(n, Size) for n in pads):
        return {"pads": pads} if any(pads) else {}
    strides = call.attributes["strides"]
    points = range(len(next(n for n in pads if isinstance(n, Size)).values))
    for axis in range(2):
        for point in points:
            size, stride = at(spatial[axis], point), strides[axis]
            total = max((-(-size // stride) - 1) * stride + window[axis] - size, 0)
            found = at(pads[axis], point), at(pads[axis + 2], point)
            if found != (total // 2, total - total // 2):
                raise e.error(
                    "its padding depends on the size of an open axis, and not as 'same' does. Give "
                    "this axis a size with `input_signature`."
                )
    return {"auto_pad": "SAME_UPPER"}


def _kernel(e: Emitter, value: int) -> str:
    """The name of a kernel (height, width, in, out) as (out, in, height, width)."""
    array = e.array(value)
    if array is None:
        return e.node("Transpose", [e.plain(value)], perm=[3, 2, 0, 1])
    return e.constant_as(value, array.transpose(3, 2, 0, 1), "kernel of convolution")


@emits("conv2d")
def _conv2d(e: Emitter, call: Call) -> None:
    x, kernel = call.inputs[:2]
    height, width = e.shape(kernel)[:2]
    dilations = call.attributes["dilations"]
    reach = [(n - 1) * d + 1 for n, d in zip((height, width), dilations, strict=True)]  # type: ignore[operator]
    inputs = [e.first(x), _kernel(e, kernel), *(e.plain(b) for b in call.inputs[2:])]
    name = e.node(
        "Conv",
        inputs,
        kernel_shape=[height, width],
        strides=call.attributes["strides"],
        dilations=dilations,
        group=call.attributes["groups"],
        **_pads(e, call, list(e.shape(x)[1:3]), reach),
    )
    output = call.outputs[0]
    e.put(output, activate(e, call, output, name, FIRST), FIRST)


@emits("conv2d_dgrad")
def _transposed(e: Emitter, call: Call) -> None:
    """The transpose of a convolution; what its stride leaves over is ONNX's output padding."""
    x, kernel = call.inputs
    height, width = e.shape(kernel)[:2]
    a = call.attributes
    top, bottom, left, right = a["padding"]
    beyond: list[int] = []
    for axis, (size, before, after) in enumerate(
        zip((height, width), (top, left), (bottom, right), strict=True)
    ):
        shortest = []
        wanted, given = a["input_shape"][1 + axis], e.shape(x)[1 + axis]
        reach = (size - 1) * a["dilations"][axis] + 1  # type: ignore[operator]
        points = len(wanted.values) if isinstance(wanted, Size) else 1
        for point in range(points):
            spread = (at(given, point) - 1) * a["strides"][axis] + reach
            shortest.append(at(wanted, point) - (spread - at(before, point) - at(after, point)))
        if any(n != shortest[0] for n in shortest):
            raise e.error(
                "its size follows from that of an open axis in a way that ONNX does not have. Give "
                "this axis a size with `input_signature`."
            )
        beyond.append(shortest[0])
    name = e.node(
        "ConvTranspose",
        [e.first(x), _kernel(e, kernel)],
        kernel_shape=[height, width],
        strides=a["strides"],
        dilations=a["dilations"],
        group=a["groups"],
        pads=[top, left, bottom, right],
        output_padding=beyond,
    )
    e.put(call.outputs[0], name, FIRST)


@emits("max_pool2d", "avg_pool2d")
def _pool(e: Emitter, call: Call) -> None:
    if any(v in e.program.users for v in call.outputs[1:]):
        raise e.error("the places of the largest elements are wanted, which ONNX counts otherwise.")
    window = call.attributes["window"]
    attributes = _pads(e, call, list(e.shape(call.inputs[0])[1:3]), window)
    if call.op == "avg_pool2d":
        attributes["count_include_pad"] = 0
    name = e.node(
        "MaxPool" if call.op == "max_pool2d" else "AveragePool",
        [e.first(call.inputs[0])],
        kernel_shape=window,
        strides=call.attributes["strides"],
        **attributes,
    )
    e.put(call.outputs[0], name, FIRST)


@emits("resize2d")
def _resize(e: Emitter, call: Call) -> None:
    """By ONNX's op where it is linear, or an axis is open; else by constants.

    Of two equally near pixels the op could take the other one, because its positions are float32.
    ONNX Runtime 1.32 moves transposes behind it and then refuses smaller sizes with a cubic.
    """
    x, method = call.inputs[0], call.attributes["method"]
    antialias = call.attributes["antialias"]
    (batch, *olds, channels), news = e.shape(x), call.attributes["size"]
    is_open = any(isinstance(n, Size) for n in (*olds, *news))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(method)
    name = e.first(x)
    if mode is not None and not antialias and (is_open or mode == "linear"):
        name = e.node(
            "Resize",
            [name, "", "", e.extents((batch, channels, *news))],
            mode=mode,
            coordinate_transformation_mode="half_pixel",
            cubic_coeff_a=-0.75,
        )
    elif is_open:
        raise e.error(
            f"it resizes an open axis with interpolation='{method}'"
            f"{' and antialias=True' if antialias else ''}, for which the file needs the weights. "
            "Give this axis a size with `input_signature`."
        )
    else:
        for axis, (old, new) in enumerate(zip(olds, news, strict=True)):
            if old == new:
                continue
            matrix = resampling.weights(old, new, method, antialias)
            if method == "nearest":
                name = e.node("Gather", [name, e.ints(matrix.argmax(1))], axis=2 + axis)
                continue
            # Rows are multiplied from the left.
            factor = e.file.constant((matrix.T if axis else matrix).astype(e.dtype(x)), "weights")
            name = e.node("MatMul", [name, factor] if axis else [factor, name])
    e.put(call.outputs[0], name, FIRST)
