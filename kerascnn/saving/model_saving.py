"""The methods of `Model` for files and configurations."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerascnn import optimizers, serialization

PathLike = str | os.PathLike[str]


class ModelSaving:
    """Mixed into `Model`: saving, loading weights, JSON, how the model was compiled."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __reduce__(self) -> Any:
        """Pickles what a `.keras` file holds; copies are made from that."""
        from kerascnn.saving import archive

        return archive.from_bytes, (archive.to_bytes(self),)

    def save(
        self,
        filepath: PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Writes the model to a file or folder; see `kerascnn.saving.save_model`.

        Args:
            filepath: Ends in ".keras", ".h5" or ".hdf5"; or a folder, with `zipped=False`.
            overwrite: Whether a file of that name may be replaced.
            zipped: False for a folder with the files of a `.keras` archive.
            **kwargs: `include_optimizer`, for ".h5" files.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.save("model.keras")
        >>> keras.saving.load_model("model.keras").count_params()
        3
        """
        from kerascnn import saving

        saving.save_model(self, filepath, overwrite=overwrite, zipped=zipped, **kwargs)

    def save_weights(
        self, filepath: PathLike, overwrite: bool = True, max_shard_size: float | None = None
    ) -> None:
        """Writes all weights; see `kerascnn.saving.save_weights`.

        Args:
            filepath: Ends in ".weights.h5" or ".safetensors"; or in ".weights.json".
            overwrite: Whether a file of that name may be replaced.
            max_shard_size: GiB of arrays in one file, for several beside the JSON one.

        Raises:
            ValueError: for another ending, or a model that is not built.
            FileExistsError: where there is a file and it may not be replaced.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.save_weights("model.weights.h5")
        >>> model.load_weights("model.weights.h5")
        """
        from kerascnn import saving

        saving.save_weights(self, filepath, overwrite=overwrite, max_shard_size=max_shard_size)

    def load_weights(self, filepath: PathLike, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """Reads weights; on an error nothing is changed. See `kerascnn.saving.load_weights`.

        Args:
            filepath: Ends in ".weights.h5", ".weights.json", ".keras", ".safetensors", ".h5" or
                ".hdf5".
            skip_mismatch: Whether layers whose weights do not fit keep what they have.
            **kwargs: `by_name` and `objects_to_skip`.

        Raises:
            ValueError: for weights that don't fit (naming layer and shapes) or a damaged file.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.save_weights("model.weights.h5")
        >>> model.layers[0].kernel.assign([[0.0], [0.0]]) is None
        False
        >>> model.load_weights("model.weights.h5")  # the kernel is what it was
        """
        from kerascnn import saving

        saving.load_weights(self, filepath, skip_mismatch=skip_mismatch, **kwargs)

    def save_pretrained(self, save_directory: PathLike, **kwargs: Any) -> None:
        """Writes the model to a folder in the form of Hugging Face's hub, with a model card.

        See `kerascnn.saving.save_pretrained`; `kerascnn.saving.load_model` reads the folder.

        Args:
            save_directory: The folder; it is made if need be.
            **kwargs: What the card says: `license`, `tags`, `pipeline_tag`, `metrics`, `dataset`
                and `description`.

        Raises:
            ValueError: for a model that is not built, and metrics that are no numbers.

        Example:

        >>> import os, tempfile
        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> folder = os.path.join(tempfile.mkdtemp(), "tiny")
        >>> model.save_pretrained(folder, license="mit", pipeline_tag="tabular-regression")
        >>> keras.saving.load_model(folder).count_params()
        3
        """
        from kerascnn import saving

        saving.save_pretrained(self, save_directory, **kwargs)

    def export(
        self,
        filepath: PathLike,
        format: str | None = None,
        verbose: bool | None = None,
        input_signature: Any = None,
        include_graph: bool = False,
        **kwargs: Any,
    ) -> None:
        """Writes the model for use elsewhere: as ONNX, or as a safetensors file.

        "onnx" is what the model computes, for ONNX Runtime and others that know no layer. Open
        axes stay open, whatever `call` does is in it, and a model of mixed precision computes in
        float16 where this one does, in float32 in place of bfloat16. Weights are constants of the
        file; `kerascnn.models.from_onnx` makes a model of it. It needs the package `onnx`.

        "safetensors" is the weights, and the configuration as JSON under "config" in the file's
        metadata. `kerascnn.saving.load_model` reads it, and other programs find the weights by
        name. With `include_graph` it also has what the model computes, as calls of the core's ops:
        `kerascnn::Model::load` predicts with it in C++, without Python.

        Args:
            filepath: Ends in ".onnx" or ".safetensors".
            format: "onnx" or "safetensors"; by default as the path ends.
            verbose: Whether to print where the model went.
            input_signature: For ONNX, and with `include_graph`: something with `shape` (and
                `dtype`, `name`), such as `keras.InputSpec`, for each input, where the model's own
                inputs are not known or their open axes (None) are to have sizes. A list of them.
            include_graph: For safetensors, whether the file is also for the C++ library.
            **kwargs: For ONNX `opset_version`, from 18 (the default) to 23.

        Raises:
            ValueError: for another format, ending or opset, a model that is not built, and what
                ONNX or a graph without state can't express, with the layer and the op.
            ImportError: for ONNX, without the package `onnx`.

        Example:

        >>> import os, tempfile
        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
        >>> model.export(path)
        >>> keras.saving.load_model(path).count_params()
        3
        """
        from kerascnn.saving import exporting

        path = Path(filepath)
        if format is None:
            format = "onnx" if path.name.endswith(".onnx") else "safetensors"
        if format not in ("onnx", "safetensors"):
            raise ValueError(
                f"Models are exported as 'onnx' or 'safetensors'. Received: format={format!r}"
            )
        wrong = sorted(set(kwargs) - ({"opset_version"} if format == "onnx" else set()))
        if format == "onnx" and include_graph:
            wrong.append("include_graph")
        if format == "safetensors" and input_signature is not None and not include_graph:
            wrong.append("input_signature (without include_graph=True)")
        if wrong:
            raise ValueError(
                f"`export` takes no argument {', '.join(wrong)} for the format {format!r}."
            )
        if not path.name.endswith(f".{format}"):
            raise ValueError(
                f"A model is exported to a file whose name ends in '.{format}', with "
                f"format={format!r}. Received: filepath={str(filepath)!r}"
            )
        if format == "onnx":
            from kerascnn.onnx_files import writing

            writing.export(self, path, input_signature, **kwargs)
        else:
            exporting.export(self, path, include_graph, input_signature)
        if verbose:
            print(f"Saved artifact at '{path}'.")

    def to_json(self, **kwargs: Any) -> str:
        """The configuration as JSON, for `kerascnn.models.model_from_json`.

        Args:
            **kwargs: For `json.dumps`.

        Returns:
            Text.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> import json
        >>> json.loads(model.to_json())["class_name"]
        'Sequential'
        """
        return json.dumps(serialization.serialize_keras_object(self), **kwargs)

    def get_compile_config(self) -> dict[str, Any]:
        """Returns what `compile` was given, as a configuration; {} before `compile`."""
        if not self.compiled:
            return {}
        optimizer = self.optimizer
        if self.dtype_policy.name == "mixed_float16" and hasattr(optimizer, "inner_optimizer"):
            optimizer = optimizer.inner_optimizer  # `compile` will wrap it again
        loss, metrics = self._compile_loss, self._compile_metrics
        return serialization.serialize_keras_object(
            {
                "optimizer": optimizer,
                "loss": self.loss,
                "loss_weights": None if loss is None else loss._user_weights,
                "metrics": None if metrics is None else metrics._user_metrics,
                "weighted_metrics": None if metrics is None else metrics._user_weighted,
                "run_eagerly": self.run_eagerly,
                "steps_per_execution": self.steps_per_execution,
                "jit_compile": False,
            }
        )

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles as a configuration of `get_compile_config` says, and makes optimizer state."""
        from kerascnn.training.trainer import Trainer

        if getattr(type(self), "compile", None) is not Trainer.compile:
            warnings.warn(
                f"{type(self).__name__} has a `compile` of its own, which loading cannot call. "
                "Implement `get_compile_config` and `compile_from_config`, or call `compile` "
                "after loading.",
                stacklevel=2,
            )
            return
        arguments = serialization.deserialize_object(config)
        arguments["optimizer"] = optimizers.get(arguments.get("optimizer") or "rmsprop")
        self.compile(**arguments)
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)
