"""Functions of `kerascnn.ops` in the configurations of functional models, in Keras' form.

Keras has an operation for each function: its class is the function's name in camel case, what comes
under `config` are the arguments that are no tensors, and the rest are the arguments of its call.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from kerascnn import serialization
from kerascnn.ops import control
from kerascnn.ops.custom import CustomOp, find_custom_op
from kerascnn.symbolic.operation import OpCall

# For each module of Keras, these are its functions with the arguments of their operations'
# constructors.
_TABLE = {
    "numpy": """
        abs absolute add all(axis,keepdims) allclose(rtol,atol,equal_nan) amax(axis,keepdims)
        amin(axis,keepdims) angle any(axis,keepdims) append(axis) arange(dtype) arccos arccosh
        arcsin arcsinh arctan arctan2 arctanh argmax(axis,keepdims) argmin(axis,keepdims)
        argpartition(kth,axis) argsort(axis) array(dtype) array_split(indices_or_sections,axis)
        average(axis) bincount(weights,minlength,sparse) bitwise_and bitwise_invert
        bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
        broadcast_to(shape) cbrt ceil clip(x_min,x_max) concatenate(axis) conj conjugate copy
        corrcoef correlate(mode) cos cosh count_nonzero(axis) cross(axisa,axisb,axisc,axis)
        cumprod(axis,dtype) cumsum(axis,dtype) deg2rad diag(k) diagflat(k)
        diagonal(offset,axis1,axis2) diff(n,axis) digitize divide divide_no_nan dot
        dsplit(indices_or_sections) dstack empty_like(dtype) equal exp exp2 expand_dims(axis)
        expm1 fabs flip(axis) fliplr flipud floor floor_divide fmax fmin fmod full(shape,dtype)
        full_like(dtype) gcd geomspace(num,endpoint,dtype,axis) get_item greater greater_equal
        heaviside histogram(bins,range) hsplit(indices_or_sections) hstack hypot i0 imag inner
        isclose(equal_nan) isfinite isin(assume_unique,invert) isinf isnan isneginf isposinf
        isreal kron lcm ldexp left_shift less less_equal
        linspace(num,endpoint,retstep,dtype,axis) log log10 log1p log2 logaddexp logaddexp2
        logical_and logical_not logical_or logical_xor logspace(num,endpoint,base,dtype,axis)
        matmul max(axis,keepdims,initial) maximum mean(axis,keepdims) median(axis,keepdims)
        meshgrid(indexing) min(axis,keepdims,initial) minimum mod moveaxis(source,destination)
        multiply nan_to_num(nan,posinf,neginf) nanargmax(axis,keepdims) nanargmin(axis,keepdims)
        nancumprod(axis,dtype) nancumsum(axis,dtype) nanmax(axis,keepdims)
        nanmean(axis,keepdims) nanmedian(axis,keepdims) nanmin(axis,keepdims)
        nanpercentile(axis,method,keepdims) nanprod(axis,keepdims)
        nanquantile(axis,method,keepdims) nanstd(axis,keepdims) nansum(axis,keepdims)
        nanvar(axis,keepdims) ndim negative nextafter nonzero not_equal ones_like(dtype) outer
        pad(pad_width,mode) percentile(axis,method,keepdims) power prod(axis,keepdims,dtype)
        ptp(axis,keepdims) quantile(axis,method,keepdims) rad2deg ravel real reciprocal
        repeat(repeats,axis) reshape(newshape) right_shift roll(shift,axis) rot90(k,axes)
        round(decimals) searchsorted(side) select sign signbit sin sinc sinh size slogdet
        sort(axis) split(indices_or_sections,axis) sqrt square squeeze(axis) stack(axis)
        std(axis,keepdims) subtract sum(axis,keepdims) swapaxes(axis1,axis2) take(axis)
        take_along_axis(axis) tan tanh tensordot(axes) tile(repeats) trace(offset,axis1,axis2)
        transpose(axes) trapezoid(x,dx,axis) tril(k) triu(k) true_divide trunc
        unique(sorted,return_index,return_inverse,return_counts,axis,size,fill_value)
        unravel_index(shape) vander(N,increasing) var(axis,keepdims) vdot view(dtype)
        vsplit(indices_or_sections) vstack where zeros_like(dtype)
    """,
    "nn": """
        adaptive_average_pool(output_size,data_format)
        adaptive_max_pool(output_size,data_format)
        average_pool(pool_size,strides,padding,data_format) binary_crossentropy(from_logits)
        categorical_crossentropy(from_logits,axis) celu(alpha)
        conv(strides,padding,data_format,dilation_rate)
        conv_transpose(strides,padding,output_padding,data_format,dilation_rate)
        ctc_decode(strategy,beam_width,top_paths,merge_repeated,mask_index) ctc_loss(mask_index)
        depth_to_space(block_size,data_format)
        depthwise_conv(strides,padding,data_format,dilation_rate)
        dot_product_attention(is_causal,flash_attention,attn_logits_soft_cap) elu(alpha)
        fold(output_size,kernel_size,dilation,padding,stride) gelu(approximate) glu(axis)
        hard_shrink(threshold) hard_sigmoid hard_silu hard_tanh leaky_relu(negative_slope)
        log_sigmoid log_softmax(axis) max_pool(pool_size,strides,padding,data_format)
        moments(axes,keepdims,synchronized) normalize(axis,order,epsilon)
        one_hot(num_classes,axis,dtype,sparse) polar psnr(max_val) relu relu6 selu
        separable_conv(strides,padding,data_format,dilation_rate) sigmoid silu
        soft_shrink(threshold) softmax(axis) softplus softsign
        space_to_depth(block_size,data_format) sparse_categorical_crossentropy(from_logits,axis)
        sparse_plus sparse_sigmoid sparsemax(axis) squareplus(b) tanh_shrink
        threshold(threshold,default_value) unfold(kernel_size,dilation,padding,stride)
    """,
    "core": """
        associative_scan(reverse,axis) cast(dtype) cond convert_to_tensor(dtype,sparse,ragged)
        fori_loop(lower,upper,body_fun) map saturate_cast(dtype) scan(length,reverse,unroll)
        scatter(shape) scatter_update(reduction) slice(shape) slice_update stop_gradient switch
        unstack(num,axis) vectorized_map(function) while_loop(cond,body,maximum_iterations)
    """,
    "math": """
        cdist erf erfc erfinv extract_sequences(sequence_length,sequence_stride) fft fft2 ifft2
        in_top_k(k) irfft(fft_length)
        istft(sequence_length,sequence_stride,fft_length,length,window,center) logdet
        logsumexp(axis,keepdims) rfft(fft_length) rsqrt segment_max(num_segments,sorted)
        segment_min(num_segments,sorted) segment_prod(num_segments,sorted)
        segment_sum(num_segments,sorted)
        stft(sequence_length,sequence_stride,fft_length,window,center) top_k(k,sorted)
        view_as_complex view_as_real
    """,
    "linalg": """
        cholesky(upper) cholesky_inverse(upper) det eig eigh inv jvp(has_aux) lstsq(rcond)
        lu_factor matrix_rank(tol) norm(ord,axis,keepdims) pinv(rcond) qr(mode) solve
        solve_triangular(lower) svd(full_matrices,compute_uv)
    """,
}
# These classes have other names.
_CLASSES = {
    "allclose": "AllClose",
    "cdist": "CDist",
    "ctc_decode": "CTCDecode",
    "ctc_loss": "CTCLoss",
    "fft": "FFT",
    "fft2": "FFT2",
    "ifft2": "IFFT2",
    "irfft": "IRFFT",
    "isin": "IsIn",
    "istft": "ISTFT",
    "jvp": "JVP",
    "psnr": "PSNR",
    "rfft": "RFFT",
    "searchsorted": "SearchSorted",
    "stft": "STFT",
    "svd": "SVD",
}


@functools.cache
def _operations() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Returns for each function Keras' module, class, and the arguments in `config`."""
    found = {}
    for module, text in _TABLE.items():
        for row in text.split():
            name, _, arguments = row.rstrip(")").partition("(")
            title = _CLASSES.get(name, "".join(part.capitalize() for part in name.split("_")))
            found[name] = (
                f"keras.src.ops.{module}",
                title,
                tuple(filter(None, arguments.split(","))),
            )
    return found


@functools.cache
def _functions() -> dict[tuple[str, str], str]:
    return {(module, title): name for name, (module, title, _) in _operations().items()}


def module_of(class_name: str) -> str | None:
    """Returns the module of Keras with this operation class, or None."""
    return next((module for module, title in _functions() if title == class_name), None)


def serialize(operation: OpCall, model_name: str) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The configuration of a function's only call, and the arguments of the call.

    Raises:
        ValueError: for a function that Keras has no operation for.
    """
    if isinstance(operation.function, CustomOp):
        return _custom_entry(operation, operation.function), operation._inbound_nodes[0].args
    name = operation.function.__name__
    if operation.function is control.one_of:
        return _choice_entry(operation), operation._inbound_nodes[0].args
    if name not in _operations():
        raise ValueError(
            f"Model '{model_name}' calls ops.{name} outside of a layer, which a configuration "
            "cannot hold. Put it into the `call` of a layer."
        )
    module, title, in_config = _operations()[name]
    node = operation._inbound_nodes[0]
    bound = inspect.signature(operation.function).bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    config = {"name": operation.name}
    config.update({key: arguments[key] for key in in_config if key in arguments})
    entry = {
        "module": module,
        "class_name": title,
        "config": serialization.serialize_keras_object(config),
        "registered_name": title,
    }
    parameters = bound.signature.parameters
    rest: list[Any] = []
    for key, value in arguments.items():
        if key not in in_config:
            rest += value if parameters[key].kind is inspect.Parameter.VAR_POSITIONAL else [value]
    return entry, tuple(rest)


def _custom_entry(operation: OpCall, op: CustomOp) -> dict[str, Any]:
    return {
        "module": "kerascnn.ops",
        "class_name": "CustomOp",
        "config": {"name": operation.name, "op": op.__name__},
        "registered_name": f"{serialization.CUSTOM_OPS}>{op.__name__}",
    }


def _choice_entry(operation: OpCall) -> dict[str, Any]:
    return {
        "module": "kerascnn.ops",
        "class_name": "OneOf",
        "config": {"name": operation.name},
        "registered_name": "OneOf",
    }


def _custom_function(config: dict[str, Any]) -> OpCall:
    function = OpCall(find_custom_op(str(config.get("op"))))
    function.name = str(config.get("name", function.name))
    return function


class _Configured(OpCall):
    """A function with some arguments already given."""

    def __init__(self, function: Any, arguments: dict[str, Any], name: str | None) -> None:
        super().__init__(function)
        self.name = name or self.name
        self._arguments = arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        parameters = inspect.signature(self.function).parameters
        if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()):
            return super().__call__(*args, **{**self._arguments, **kwargs})
        names = [p for p in parameters if p not in self._arguments]
        given = dict(zip(names, args, strict=False))
        return super().__call__(**{**self._arguments, **given, **kwargs})


def deserialize(entry: dict[str, Any]) -> OpCall | None:
    """The function that a configuration describes, None where it describes something else.

    Raises:
        ValueError: for an operation of Keras that is not among the functions here.
    """
    module = str(entry.get("module"))
    if (module, entry.get("class_name")) == ("kerascnn.ops", "CustomOp"):
        return _custom_function(dict(entry["config"]))
    if (module, entry.get("class_name")) == ("kerascnn.ops", "OneOf"):
        choice = OpCall(control.one_of)
        choice.name = str(entry["config"].get("name", choice.name))
        return choice
    if not module.startswith("keras.src.ops."):
        return None
    from kerascnn import ops

    name = _functions().get((module, str(entry.get("class_name"))))
    function = None if name is None else getattr(ops, name, None)
    if function is None:
        raise serialization.DeserializationError(
            f"The operation {entry.get('class_name')!r} of {module} is not available."
        )
    config = serialization.deserialize_object(dict(entry["config"]))
    label = config.pop("name", None)
    return _Configured(function, config, label)
