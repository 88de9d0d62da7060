"""The losses and metrics of `compile`, matched with the outputs of the model."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from kerascnn import losses as losses_module
from kerascnn import metrics as metrics_module
from kerascnn import naming, ops, trees
from kerascnn.device import current as current_device
from kerascnn.distribution import replicas
from kerascnn.losses.alignment import ctc
from kerascnn.losses.crossentropy import sparse_categorical_crossentropy
from kerascnn.losses.function_losses import LossFunctionWrapper
from kerascnn.training.device_state import move_to
from kerascnn.training.output_matching import (
    by_output,
    match_targets,
    name_in_logs,
    output_names_of,
    part_of,
    per_output,
)
from kerascnn.training.target_shapes import check_target_shape
from kerascnn.trees import at_path, is_nested, paths


class OutputLoss(NamedTuple):
    """One loss of one output, or of several that its function takes together."""

    path: tuple
    loss: Any
    weight: float | None
    name: str
    tracker: Any  # a Mean of this loss alone, or None in models with a single loss

    @property
    def is_sparse(self) -> bool:
        """Tells whether the targets are class numbers."""
        function = getattr(self.loss, "fn", None)
        return function is sparse_categorical_crossentropy or function is ctc

    @property
    def ignore_class(self) -> int | None:
        return getattr(self.loss, "_fn_kwargs", {}).get("ignore_class")


def _is_binary_or_sparse(y_true: Any, y_pred: Any) -> tuple[bool, bool]:
    is_binary = y_pred.shape[-1] == 1
    is_sparse = len(y_true.shape) < len(y_pred.shape) or (
        y_true.shape[-1] == 1 and y_pred.shape[-1] > 1
    )
    return is_binary, is_sparse


def resolve_loss(identifier: Any, y_true: Any, y_pred: Any) -> Any:
    """Makes a `Loss` of a name, function, class or object; "crossentropy" depends on shapes."""
    if str(identifier).lower() in ("crossentropy", "ce"):
        is_binary, is_sparse = _is_binary_or_sparse(y_true, y_pred)
        if is_binary:
            identifier = "binary_crossentropy"
        else:
            identifier = (
                "sparse_categorical_crossentropy" if is_sparse else "categorical_crossentropy"
            )
    loss = losses_module.get(identifier)
    if not isinstance(loss, losses_module.Loss):
        name = identifier if isinstance(identifier, str) else _object_name(loss)
        loss = LossFunctionWrapper(loss, name=name)
    return loss


def resolve_metric(identifier: Any, y_true: Any, y_pred: Any) -> metrics_module.Metric:
    """Makes a `Metric` of a name, function, class or object; "accuracy" depends on shapes."""
    if str(identifier).lower() in ("accuracy", "acc"):
        is_binary, is_sparse = _is_binary_or_sparse(y_true, y_pred)
        if is_binary:
            identifier_class: type = metrics_module.BinaryAccuracy
        elif is_sparse:
            identifier_class = metrics_module.SparseCategoricalAccuracy
        else:
            identifier_class = metrics_module.CategoricalAccuracy
        metric = identifier_class()
    else:
        metric = metrics_module.get(identifier)
    if not isinstance(metric, metrics_module.Metric):
        metric = metrics_module.MeanMetricWrapper(metric, name=_object_name(metric))
    if isinstance(identifier, str):
        metric.name = identifier
    return metric


def _object_name(obj: Any) -> str:
    if hasattr(obj, "name"):
        return obj.name
    if inspect.isfunction(obj):
        return naming.to_snake_case(obj.__name__)
    return naming.to_snake_case(type(obj).__name__)


class OutputShape:
    """The shape of an output, which outlives its trace."""

    def __init__(self, shape: tuple):
        self.shape = shape


class CompileLoss:
    """The total loss of a model: a loss for each output, weighted and added up.

    Args:
        loss: a loss, or a list or dictionary of them, one for each output.
        loss_weights: numbers in the same form.
        output_names: the names of the model's outputs.
    """

    def __init__(self, loss: Any, loss_weights: Any = None, output_names: list | None = None):
        numbers = trees.flatten(loss_weights)
        if not all(w is None or isinstance(w, (int, float)) for w in numbers):
            raise ValueError(
                "`loss_weights` must be a number, or a list or dictionary of them. Received: "
                f"{loss_weights!r}"
                + (
                    ". It is the third argument of compile(); metrics go by keyword: metrics=[...]"
                    if any(isinstance(w, str) for w in numbers)
                    else ""
                )
            )
        self._user_loss = loss
        self._user_weights = loss_weights
        self.output_names = output_names
        self.losses: list[OutputLoss] = []
        self.output_shapes: Any = None  # the shapes of the model's outputs, for checks of labels
        self._names: list = []
        self._wanted: list[bool] = []
        self.built = False

    @property
    def metrics(self) -> list:
        return [loss.tracker for loss in self.losses if loss.tracker is not None]

    def build(self, y: Any, y_pred: Any) -> None:
        self._names = output_names_of(y_pred, self.output_names)
        given = [
            (path, identifier, weight)
            for path, identifier, weight in self._given(y_pred)
            if identifier is not None
        ]
        if not given:
            raise ValueError(
                "No loss to compute: `loss` in compile() has None for each of the outputs. Give "
                "one of them a loss."
            )
        self._wanted = [
            any(output[: len(path)] == path for path, _, _ in given) for output in paths(y_pred)
        ]
        targets = match_targets(y, y_pred, self._names, self._wanted)
        self.losses = []
        for path, identifier, weight in given:
            y_true = part_of(targets, y_pred, path)
            loss = resolve_loss(identifier, y_true, at_path(y_pred, path))
            name = name_in_logs(path, y_pred, self._names, loss.name)
            tracker = metrics_module.Mean(name=f"{name}_loss") if len(given) > 1 else None
            self.losses.append(OutputLoss(path, loss, weight, name, tracker))
        self.built = True

    def _given(self, y_pred: Any) -> list[tuple[tuple, Any, Any]]:
        """Returns (path, the given loss, its weight) for each loss."""
        found = by_output(self._user_loss, y_pred, self._names, "loss")
        if not is_nested(self._user_weights):
            return [(path, loss, self._user_weights) for path, loss in found]
        weights = by_output(self._user_weights, y_pred, self._names, "loss_weights")
        if [path for path, _ in weights] == [path for path, _ in found]:
            return [(*pair, weight) for pair, (_, weight) in zip(found, weights, strict=True)]
        by_path = dict(weights)
        return [(path, loss, by_path.get(path)) for path, loss in found]

    def targets(self, y: Any, y_pred: Any) -> list[Any]:
        """Returns the target of each loss, in the order of `losses`."""
        matched = match_targets(y, y_pred, self._names, self._wanted)
        return [part_of(matched, y_pred, loss.path) for loss in self.losses]

    def __call__(self, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if y is None:
            raise ValueError("The loss needs targets, but y is None: pass y.")
        if not self.built:
            self.build(y, y_pred)
        self.output_shapes = trees.map_structure(lambda t: OutputShape(tuple(t.shape)), y_pred)
        targets = self.targets(y, y_pred)
        weights = [sample_weight] * len(targets)
        if is_nested(sample_weight):
            weights = self.targets(sample_weight, y_pred)
        total = None
        for loss, y_true, weight in zip(self.losses, targets, weights, strict=True):
            prediction = at_path(y_pred, loss.path)
            value = _call_loss(loss, y_true, prediction, weight)
            if loss.tracker is not None:
                share = replicas.current_share()
                batch = int(trees.flatten(prediction)[0].shape[0])
                samples = batch if share is None else share.samples_of_mean
                loss.tracker.update_state(value, sample_weight=samples)
            if loss.weight is not None:
                value = ops.multiply(value, float(loss.weight))
            total = value if total is None else ops.add(total, value)
        return total


def _of_metric(error: ValueError, metric: Any, y_true: Any, y_pred: Any) -> ValueError:
    """The error of a metric with its name and shapes: those of ops only name the op."""
    if not (hasattr(y_true, "shape") and hasattr(y_pred, "shape")):
        return error
    shapes = tuple(y_true.shape), tuple(y_pred.shape)
    hint = ""
    if metric.name.startswith("sparse_") and shapes[0] == shapes[1]:
        hint = f" For one-hot labels there is '{metric.name.removeprefix('sparse_')}'."
    elif metric.name.startswith("categorical_") and len(shapes[0]) == len(shapes[1]) - 1:
        hint = f" For class numbers there is 'sparse_{metric.name}'."
    return ValueError(
        f"The metric '{metric.name}' can't be computed from targets of shape {shapes[0]} and "
        f"outputs of shape {shapes[1]}: {error}.{hint}"
    )


def _call_loss(loss: OutputLoss, y_true: Any, y_pred: Any, weight: Any) -> Any:
    if not is_nested(y_pred):
        check_target_shape(loss.loss, tuple(y_true.shape), tuple(y_pred.shape))
    value = loss.loss(y_true, y_pred, weight)
    if len(value.shape) != 0:
        raise ValueError(
            f"The loss '{loss.loss.name}' returned values of shape {tuple(value.shape)} instead of "
            "one number. Use a loss with a reduction, such as reduction='sum_over_batch_size'."
        )
    return value


class CompileMetrics:
    """The metrics of `compile`, for each output, and their names in the logs.

    Args:
        metrics: a list of metrics, or a list or dictionary with one or a list for each output.
        weighted_metrics: the same; these take `sample_weight` into account.
        output_names: the names of the model's outputs.
    """

    name = "compile_metrics"

    def __init__(self, metrics: Any, weighted_metrics: Any, output_names: list | None = None):
        for argument, value in (("metrics", metrics), ("weighted_metrics", weighted_metrics)):
            if value and not isinstance(value, (list, tuple, dict)):
                raise ValueError(
                    f"`{argument}` must be a list, tuple, or dictionary, for example "
                    f"{argument}=['accuracy']. Received: {value!r} of type {type(value).__name__}"
                )
        self._user_metrics = metrics
        self._user_weighted = weighted_metrics
        self.output_names = output_names
        self._names: list = []
        # The tuples are (index of the output, metric, whether sample weights count).
        self._entries: list[tuple[int, metrics_module.Metric, bool]] = []
        self.built = False

    @property
    def metrics(self) -> list[metrics_module.Metric]:
        return [metric for _, metric, _ in self._entries]

    @property
    def variables(self) -> list:
        return [variable for metric in self.metrics for variable in metric.variables]

    def build(self, y: Any, y_pred: Any) -> None:
        self._names = output_names_of(y_pred, self.output_names)
        outputs = trees.flatten(y_pred)
        given = [
            (self._for_outputs(self._user_metrics, y_pred, "metrics"), False),
            (self._for_outputs(self._user_weighted, y_pred, "weighted_metrics"), True),
        ]
        wanted = [any(of_all[place] for of_all, _ in given) for place in range(len(outputs))]
        targets = match_targets(y, y_pred, self._names, wanted)
        for of_all, weighted in given:
            for place, identifiers in enumerate(of_all):
                for identifier in identifiers:
                    metric = resolve_metric(identifier, targets[place], outputs[place])
                    # A metric that is given as an object may have been made on another device.
                    move_to(metric.variables, current_device())
                    self._entries.append((place, metric, weighted))
        self.built = True

    def _for_outputs(self, value: Any, y_pred: Any, what: str) -> list[list]:
        outputs = len(trees.flatten(y_pred))
        if not value:
            return [[] for _ in range(outputs)]
        if outputs == 1 and not isinstance(value, dict):
            return [trees.flatten(value)]
        chosen = per_output(value, y_pred, self._names, what)
        return [
            [] if item is None else (list(item) if is_nested(item) else [item]) for item in chosen
        ]

    def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
        if not self.built:
            self.build(y, y_pred)
        if not self._entries:
            return
        outputs = trees.flatten(y_pred)
        wanted = [any(place == p for p, _, _ in self._entries) for place in range(len(outputs))]
        targets = match_targets(y, y_pred, self._names, wanted)
        weights = [sample_weight] * len(outputs)
        if is_nested(sample_weight):
            weights = match_targets(sample_weight, y_pred, self._names, wanted)
        for place, metric, weighted in self._entries:
            weight = weights[place] if weighted else None
            try:
                metric.update_state(targets[place], outputs[place], sample_weight=weight)
            except ValueError as error:
                raise _of_metric(error, metric, targets[place], outputs[place]) from error

    def reset_state(self) -> None:
        for metric in self.metrics:
            metric.reset_state()

    def named(self) -> dict[str, metrics_module.Metric]:
        """Returns the metrics by log name, which has the output's name if there are several."""
        several = len(self._names) > 1
        result: dict[str, metrics_module.Metric] = {}
        uses: dict[str, int] = {}
        for place, metric, weighted in self._entries:
            prefix = f"{self._names[place]}_" if several and self._names[place] else ""
            name = prefix + metric.name
            if name in uses and weighted:
                name = f"{prefix}weighted_{metric.name}"
            count = uses.get(name, 0)
            uses[name] = count + 1
            result[f"{name}_{count}" if count else name] = metric
        return result

    def result(self) -> dict[str, Any]:
        return {name: metric.result() for name, metric in self.named().items()}
