"""Emitters of products of matrices, and what can't be exported."""

from __future__ import annotations

from kerascnn.onnx_files.emit_elements import activate
from kerascnn.onnx_files.emitter import PLAIN, REFUSED, Emitter, emits
from kerascnn.recordings.recording import Call

_LOSS = "it is a loss. Export the model without it, and compute the loss from its outputs."
REFUSED.update(
    {
        **dict.fromkeys(
            ("sparse_cross_entropy", "sparse_softmax_cross_entropy", "ctc_loss"), _LOSS
        ),
        **dict.fromkeys(
            ("random_uniform", "random_normal", "random_bernoulli", "dropout", "random_advance"),
            "it draws random numbers, which other runtimes draw otherwise. Give them to the model "
            "as an input.",
        ),
        **dict.fromkeys(
            ("fft", "rfft", "irfft"),
            "runtimes have its counterpart for few dtypes and sizes. Compute it outside of the "
            "model, and give the result to it as an input.",
        ),
        "custom_op": "it runs code of its own. Compose it of functions of keras.ops.",
        "all_reduce": "it adds up over processes. Export from a single process.",
        "reduce_to_owners": "it trains. Export what predicts.",
        "broadcast_from_owners": "it trains. Export what predicts.",
        "take_batch": "it reads a data set.",
        "put_batch": "it writes to a data set.",
        "sgd_update": "it trains. Export what predicts.",
        "adam_update": "it trains. Export what predicts.",
    }
)


@emits("dense")
def _dense(e: Emitter, call: Call) -> None:
    names = [e.plain(v) for v in call.inputs]
    output = call.outputs[0]
    e.put(output, activate(e, call, output, e.node("Gemm", names), PLAIN), PLAIN)


def _factor(e: Emitter, value: int, transposed: bool) -> str:
    if not transposed:
        return e.plain(value)
    rank = e.rank(value)
    order = [*range(rank - 2), rank - 1, rank - 2]
    array = e.array(value)
    if array is not None:
        return e.constant_as(value, array.transpose(order), "transposed matrix")
    return e.node("Transpose", [e.plain(value)], perm=order)


@emits("matmul", "integer_matmul")
def _matmul(e: Emitter, call: Call) -> None:
    a, b = call.inputs
    names = [
        _factor(e, a, call.attributes["transpose_a"]),
        _factor(e, b, call.attributes["transpose_b"]),
    ]
    op = "MatMul" if call.op == "matmul" else "MatMulInteger"
    e.put(call.outputs[0], e.node(op, names))
