"""What a step of training, evaluation or prediction does; models of your own override it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from kerascnn import ops, tracing, trees
from kerascnn.distribution import replicas
from kerascnn.metrics.recording import current_recording
from kerascnn.tracebacks import warn
from kerascnn.training.eager import current_step
from kerascnn.training.gradients import current_trace, last_gradients, zero_grad
from kerascnn.training.machinery import StepMachinery
from kerascnn.utils.batch_parts import unpack_x_y_sample_weight


class StepMethods(StepMachinery):
    """The part of `Trainer` that a step runs, with the losses and metrics of `compile`."""

    def train_step(self, data: Any) -> dict[str, Any]:
        """One step of training: forward, loss, metrics, gradients, update.

        This is traced, not run with values, unless the model was compiled with `run_eagerly=True`:
        use `keras.ops`. A model of your own may override it
        and return a dictionary of scalars; these become the logs.

        Args:
            data: one batch: `x`, `(x, y)` or `(x, y, sample_weight)` as `fit` was given it (with
                `train_on_batch` always the last); `keras.utils.unpack_x_y_sample_weight` takes
                it apart, `keras.gradients` differentiates.

        Returns:
            A dictionary of scalars by name.

        >>> class Model(keras.Sequential):
        ...     def train_step(self, data):
        ...         x, y = data
        ...         loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
        ...         gradients = keras.gradients(loss, self.trainable_variables)
        ...         self.optimizer.apply(gradients, self.trainable_variables)
        ...         return {"error": loss}
        >>> model = Model([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> model.compile("sgd")
        >>> model.fit(np.ones((4, 1)), np.full((4, 1), 3.0), verbose=0).history
        {'error': [4.0]}
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=True)
        loss = self._compute_loss(x, y, y_pred, sample_weight, training=True)
        self._track_loss(loss, x)
        if self.optimizer is not None:
            with tracing.part("loss"):
                loss = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables
        if variables:
            self.optimizer.apply(last_gradients(loss, variables), variables)
        else:
            warn(
                f"The model '{self.name}' does not have any trainable weights: fit changes nothing "
                "but metrics. Set `trainable = True` on the layers to be trained."
            )
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data: Any) -> dict[str, Any]:
        """One step of evaluation: forward, loss and metrics. A model of your own may override it.

        It is traced as `train_step` is.

        Args:
            data: one batch, as for `train_step`.

        Returns:
            A dictionary of scalars by name.

        >>> class Model(keras.Sequential):
        ...     def test_step(self, data):
        ...         x, y = data
        ...         return {"largest_error": keras.ops.max(keras.ops.abs(self(x) - y))}
        >>> model = Model([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> model.compile()
        >>> model.evaluate(np.ones((2, 1)), np.array([[1.0], [5.0]]), verbose=0, return_dict=True)
        {'largest_error': 4.0}
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        loss = self._compute_loss(x, y, y_pred, sample_weight, training=False)
        self._track_loss(loss, x)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data: Any) -> Any:
        """One step of prediction: the outputs of one batch. A model of your own may override it.

        It is traced as `train_step` is.

        Args:
            data: one batch, as for `train_step`; targets are not used.

        Returns:
            What `predict` joins over the batches: a tensor (batch, ...), or a structure of them.

        >>> class Classifier(keras.Sequential):
        ...     def predict_step(self, data):
        ...         return keras.ops.argmax(super().predict_step(data), axis=-1)
        >>> model = Classifier([keras.Input((3,)), keras.layers.Activation("softmax")])
        >>> model.predict(np.array([[0.0, 2.0, 1.0], [4.0, 0.0, 0.0]]), verbose=0).tolist()
        [1, 0]
        """
        x, _, _ = unpack_x_y_sample_weight(data)
        return self(x, training=False)

    def zero_grad(self) -> None:
        """Forgets what `loss.backward()` found for this model's weights; see `keras.gradients`.

        >>> class Model(keras.Sequential):
        ...     def train_step(self, data):
        ...         x, y = data
        ...         self.zero_grad()
        ...         loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
        ...         loss.backward()
        ...         gradients = [v.value.grad for v in self.trainable_variables]
        ...         self.optimizer.apply(gradients, self.trainable_variables)
        ...         return {"error": loss}
        >>> model = Model([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> model.compile("sgd")
        >>> model.fit(np.ones((4, 1)), np.full((4, 1), 3.0), verbose=0).history
        {'error': [4.0]}
        """
        zero_grad(self.weights)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """The total loss of a batch: that of `compile` plus what layers add; it may be overridden.

        Args:
            x: inputs of the batch, which the losses of `compile` don't read.
            y: targets.
            y_pred: the model's outputs for `x`.
            sample_weight: weights of the samples, or None.
            training: whether the step trains.

        Returns:
            A scalar tensor.

        Raises:
            ValueError: where there is no loss at all, and for targets that don't fit the outputs.

        >>> class Model(keras.Sequential):
        ...     def compute_loss(self, *args, **kwargs):
        ...         return 10.0 * super().compute_loss(*args, **kwargs)
        >>> model = Model([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> model.compile("sgd", "mse")
        >>> model.evaluate(np.ones((2, 1)), np.full((2, 1), 3.0), verbose=0)
        40.0
        """
        losses = []
        if self._compile_loss is not None:
            losses.append(self._compile_loss(y, y_pred, sample_weight))
            if current_step() is not None:
                # A loss that is not built before the first step learns the number of classes there.
                self._check_targets(trees.map_structure(_on_host, y))
        losses.extend(ops.sum(loss) for loss in getattr(self, "losses", []))
        if not losses:
            raise ValueError(
                "No loss to compute. Pass `loss` to compile(), for example "
                "model.compile(optimizer='adam', loss='sparse_categorical_crossentropy')."
            )
        total = losses[0]
        for loss in losses[1:]:
            total = ops.add(total, loss)
        return total

    def _compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool) -> Any:
        """Calls `compute_loss`, which has no `training` argument in older models."""
        parameters = inspect.signature(self.compute_loss).parameters
        with tracing.part("loss"):
            if "training" in parameters or any(
                p.kind is p.VAR_KEYWORD for p in parameters.values()
            ):
                return self.compute_loss(x, y, y_pred, sample_weight, training=training)
            return self.compute_loss(x, y, y_pred, sample_weight)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Updates the metrics of `compile` and returns all results. A model may override it.

        Args:
            x: inputs of the batch, which the metrics of `compile` don't read.
            y: targets.
            y_pred: the model's outputs for `x`.
            sample_weight: weights of the samples, or None.

        Returns:
            A dictionary of scalars by name, which become the logs; see `get_metrics_result`.

        >>> class Model(keras.Sequential):
        ...     def compute_metrics(self, x, y, y_pred, sample_weight=None):
        ...         results = super().compute_metrics(x, y, y_pred, sample_weight)
        ...         return {**results, "mean_output": keras.ops.mean(y_pred)}
        >>> model = Model([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> model.compile("sgd", "mse")
        >>> model.evaluate(np.ones((2, 1)), np.full((2, 1), 3.0), verbose=0, return_dict=True)
        {'loss': 4.0, 'mean_output': 1.0}
        """
        with tracing.part("metrics"):
            if self._compile_metrics is not None:
                self._compile_metrics.update_state(y, y_pred, sample_weight)
            return self.get_metrics_result()

    def _track_loss(self, loss: Any, x: Any) -> None:
        with tracing.part("metrics"):
            self._add_to_loss_tracker(loss, x)

    def _add_to_loss_tracker(self, loss: Any, x: Any) -> None:
        first = next(leaf for leaf in trees.flatten(x) if leaf is not None)
        share = replicas.current_share()
        samples = int(first.shape[0]) if share is None else share.samples_of_mean
        self._loss_tracker.update_state(loss, sample_weight=samples)
        step = current_step()
        if step is not None:
            step.note_loss(self._loss_tracker.total.value)
        recording = current_recording()
        if recording is not None and self._state is not None:
            # The sum stays NaN or infinite, so counting the finite steps takes one small op.
            finite = ops.cast(ops.isfinite(self._loss_tracker.total.value), "float32")
            graph = current_trace().graph
            before = graph.read(self._state.finite_steps.core)
            graph.assign(self._state.finite_steps.core, ops.add(before, finite))
            recording.notes_finite_loss = True


def _on_host(target: Any) -> Any:
    return None if target is None else np.asarray(target)
