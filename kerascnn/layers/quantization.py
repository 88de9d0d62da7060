"""The part of layers that handles quantization: the state, and what runs in place of `call`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerascnn import dtype_policies


class Quantization:
    """The part of `Layer` that knows of quantization; see there.

    A layer that can be quantized implements `quantize`, `quantized_build` and `_int8_call`.
    """

    if TYPE_CHECKING:

        @property
        def path(self) -> str | None: ...

        @property
        def dtype_policy(self) -> dtype_policies.DTypePolicy: ...

    name: str
    built: bool
    call: Any
    _dtype_policy: dtype_policies.DTypePolicy
    _is_quantized = False

    @property
    def quantization_mode(self) -> str | None:
        """How this layer is quantized: "int8", or None where it is not."""
        return self.dtype_policy.quantization_mode

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        """Makes the layer's kernel integers, for inference; see `Model.quantize`.

        Args:
            mode: "int8".
            type_check: Whether layers of subclasses are refused, whose `call` would not run.
            config: A `keras.quantizers.Int8QuantizationConfig`, in place of `mode` or beside it.

        Raises:
            NotImplementedError: for a layer that cannot be quantized.
            ValueError: for another mode, a layer that is not built, and one that is quantized.
        """
        raise NotImplementedError(self._cannot_be_quantized())

    def quantized_build(self, *args: Any, **kwargs: Any) -> None:
        """Makes the weights of a quantized layer; those that can be quantized override it."""
        raise NotImplementedError(self._cannot_be_quantized())

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        """Runs in place of `call` if there is a `quantization_mode`: `_int8_call`.

        Layers that have none compute as always.
        """
        run = getattr(self, f"_{self.quantization_mode}_call", self.call)
        return run(*args, **kwargs)

    def _cannot_be_quantized(self) -> str:
        return f"Layer '{self.name}' ({type(self).__name__}) cannot be quantized."

    def _run_call(self, *args: Any, **kwargs: Any) -> Any:
        """Runs `call`, or what a quantized layer computes in its place."""
        run = self.call if self.quantization_mode is None else self.quantized_call
        return run(*args, **kwargs)

    def _take_policy(self, policy: dtype_policies.DTypePolicy) -> None:
        """Replaces the layer's policy, or the one that a policy map has for it."""
        own = self._dtype_policy
        if isinstance(own, dtype_policies.DTypePolicyMap) and self.path:
            if self.path in own:
                del own[self.path]
            own[self.path] = policy
        else:
            self._dtype_policy = policy
        if policy.quantization_mode is not None and self.built and not self._is_quantized:
            self.quantize(policy.quantization_mode)
