"""compile, fit, evaluate and predict, mixed into every model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerascnn import metrics as metrics_module
from kerascnn import optimizers
from kerascnn.callbacks.history import History
from kerascnn.device import device as on_device
from kerascnn.distribution import replicas
from kerascnn.layers.state import unique
from kerascnn.metrics.recording import current_recording
from kerascnn.stateless import StatelessTrainer
from kerascnn.tracebacks import filter_traceback, warn
from kerascnn.training.arguments import (
    check_epochs,
    limit_epochs,
    limit_steps,
    make_shuffler,
    standardize_batch_size,
)
from kerascnn.training.compile_utils import CompileLoss, CompileMetrics
from kerascnn.training.data import ArrayData, check_positive_int
from kerascnn.training.eager import current_step
from kerascnn.training.loops import (
    StepRunner,
    Validation,
    run_epochs,
    run_test,
)
from kerascnn.training.prediction import Predictor
from kerascnn.training.shares import SharedPrediction
from kerascnn.training.sources import as_data, unpack_validation_data
from kerascnn.training.step_methods import StepMethods
from kerascnn.training.steps import (
    PREDICT,
    TEST,
    TRAIN,
)
from kerascnn.training.turns import in_turn, trained_by_one_thread

if TYPE_CHECKING:
    from kerascnn.profiler import Profile, StepMemory


class Trainer(StepMethods, StatelessTrainer):
    """Mixed into `Model`: configures, trains and evaluates it.

    The step of each kind is traced through the model's own `call` once per input signature and
    compiled into a program that runs many steps without Python; see `kerascnn.training.steps`.
    """

    loss: Any = None
    steps_per_execution = 1
    history: History

    # Configuration -----------------------------------------------------------------------------

    @filter_traceback
    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: str | bool = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Configures the model for training.

        Compiled again without `loss` (without `metrics` and `weighted_metrics`), the model keeps
        those that it has, as in Keras; `metrics=[]` takes them away.

        Args:
            optimizer: name of an optimizer, or an instance.
            loss: name of a loss, a `Loss`, or a function of `(y_true, y_pred)` that returns one
                value per sample; for several outputs a list or dictionary of them.
            loss_weights: numbers that the outputs' losses are multiplied by, a list or dictionary.
            metrics: a list of names, functions or `Metric` objects; for several outputs a list or
                dictionary. `"accuracy"` means binary, categorical or sparse categorical accuracy,
                by the shapes of targets and outputs.
            weighted_metrics: the same for metrics that take sample weights into account.
            run_eagerly: whether Python runs each step with values, op by op, in place of a compiled
                program: `print`, `if`, NumPy and a debugger then work in `call`, losses, metrics
                and `train_step`. The results are the same to rounding, and training is slower.
            steps_per_execution: how many batches lie between the hooks of callbacks for batches;
                without such hooks as many steps as possible run without a return to Python.
            jit_compile: accepted for compatibility; steps are always compiled.
            auto_scale_loss: whether float16 training scales the loss.

        Raises:
            ValueError: for unknown names or arguments of a wrong form.

        >>> softmax = keras.layers.Dense(3, activation="softmax")
        >>> model = keras.Sequential([keras.Input((4,)), softmax])
        >>> model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        >>> history = model.fit(np.zeros((8, 4)), np.zeros(8, int), epochs=2, verbose=0)
        >>> sorted(history.history)
        ['accuracy', 'loss']
        """
        self._check_initialized()
        check_positive_int("steps_per_execution", steps_per_execution)
        names = getattr(self, "output_names", None)
        self.optimizer = optimizers.get(optimizer)
        scales = isinstance(self.optimizer, optimizers.LossScaleOptimizer)
        if auto_scale_loss and self.dtype_policy.name == "mixed_float16" and not scales:
            self.optimizer = optimizers.LossScaleOptimizer(
                self.optimizer, name="loss_scale_optimizer"
            )
        if loss is not None:
            self._compile_loss = CompileLoss(loss, loss_weights, names)
            self.loss = loss
        if metrics is not None or weighted_metrics is not None:
            self._compile_metrics = CompileMetrics(metrics, weighted_metrics, names)
        if jit_compile and jit_compile != "auto" and run_eagerly:
            jit_compile = False
            warn("`jit_compile` can't be True together with `run_eagerly`; it is taken as False.")
        self.jit_compile = False if jit_compile == "auto" else bool(jit_compile)
        self.run_eagerly = run_eagerly
        self.steps_per_execution = steps_per_execution
        self._compile_arguments = {
            "loss": loss,
            "loss_weights": loss_weights,
            "metrics": metrics,
            "weighted_metrics": weighted_metrics,
            "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution,
            "jit_compile": self.jit_compile,
        }
        self._forget_metrics()
        self.stop_training = False
        with on_device(self._device()):
            self._loss_tracker = metrics_module.Mean(name="loss")
        self._programs = {}
        self.compiled = True

    @property
    def metrics(self) -> list:
        """The loss, what `compile` was given, and metrics that are attributes of the model."""
        return self._found_metrics(self._find_metrics)

    def _find_metrics(self) -> list:
        found = []
        if self.compiled:
            found.append(self._loss_tracker)
            if self._compile_metrics is not None:
                found.append(self._compile_metrics)
            if self._compile_loss is not None:
                found.extend(self._compile_loss.metrics)
        compiled = [] if self._compile_metrics is None else self._compile_metrics.metrics
        parts = (None if self._state is None else self._state.parts) or self._find_parts()
        own = (
            metric
            for layer, metrics in parts.metrics
            # A model inside this one has its own metrics for its own training.
            if layer is self or not isinstance(layer, Trainer)
            for metric in metrics
        )
        known = {id(metric) for metric in (*found, *compiled)}
        found.extend(metric for metric in unique(own) if id(metric) not in known)
        return found

    @property
    def metrics_names(self) -> list[str]:
        """The names of `metrics`, in their order."""
        return [metric.name for metric in self.metrics]

    def reset_metrics(self) -> None:
        """Forgets what the metrics have seen; `fit` does so before each epoch.

        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> loss = model.evaluate(np.ones((4, 1)), np.full((4, 1), 9.0), verbose=0)
        >>> model.reset_metrics()
        >>> float(model.get_metrics_result()["loss"])
        0.0
        """
        for metric in self.metrics:
            metric.reset_state()

    def get_metrics_result(self) -> dict[str, Any]:
        """The metrics' results by name.

        Returns:
            A dictionary of scalar tensors. It is empty within a step whose results nobody reads
            there: a `train_step` may return it all the same.

        >>> dense = keras.layers.Dense(1, kernel_initializer="ones")
        >>> model = keras.Sequential([keras.Input((1,)), dense])
        >>> model.compile("sgd", "mse", metrics=["mae"])
        >>> loss = model.evaluate(np.ones((4, 1)), np.full((4, 1), 3.0), verbose=0)
        >>> {name: float(result) for name, result in model.get_metrics_result().items()}
        {'loss': 4.0, 'mae': 2.0}
        """
        recording, step = current_recording(), current_step()
        is_unseen = recording is not None and not recording.results_on_device
        if is_unseen or (step is not None and not step.returns_results):
            # Nobody reads them within the step; they are read after it has run.
            return {}
        results: dict[str, Any] = {}
        for metric in self.metrics:
            result = metric.result()
            results.update(result if isinstance(result, dict) else {metric.name: result})
        return results

    # Training ------------------------------------------------------------------------------------

    @filter_traceback
    @trained_by_one_thread
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool | None = None,
        class_weight: dict | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> History:
        """Trains the model.

        Args:
            x: array of shape `(num_samples, ...)`; for several inputs a list or dictionary of them.
                NumPy's or another library's: what is on the model's GPU is used where it lies.
                Or what gives batches `(x, y)` or `(x, y, sample_weight)` by itself: a generator, a
                `keras.utils.PyDataset`, a PyTorch DataLoader, another iterable.
            y: targets in the same form as arrays; batches bring their own.
            batch_size: samples per step, 32 by default.
            epochs: the number of the last epoch; without `initial_epoch` how many there are.
            verbose: 0 silent, 1 or `"auto"` a progress bar, 2 one line per epoch.
            callbacks: a list of `keras.callbacks.Callback`. One that overrides hooks of batches
                makes training run step by step, which costs speed.
            validation_split: this last share of the data is used for validation, not for training.
            validation_data: `(x, y)` or `(x, y, sample_weight)` for validation, or what gives
                batches by itself.
            shuffle: whether each epoch of arrays and of a `PyDataset` has a new order, as they have
                by default (`keras.utils.set_random_seed` makes the orders repeat). Generators and
                DataLoaders have an order of their own; only for them True is not the same as None:
                it warns.
            class_weight: weights of the classes, a dictionary from class number to weight.
            sample_weight: weights of the samples, shape `(num_samples,)`.
            initial_epoch: the epoch to begin with, to go on with an earlier training.
            steps_per_epoch: steps of an epoch; the next epoch goes on where the last one ended.
            validation_steps: batches of a validation, all of them by default.
            validation_batch_size: `batch_size` by default.
            validation_freq: validate every so many epochs, or after the epochs of a list (from 1).

        Returns:
            A `History`: its `history` has a list of values for each metric.

        Raises:
            ValueError: before `compile`, and for data or arguments that don't fit.
            TypeError: for data that are no numbers.
            RuntimeError: where another thread trains the model. (`predict` waits for its turn.)
            MemoryError: where a step does not fit on the device; says which batch size would.
            KeyboardInterrupt: on Ctrl-C, at the end of a step: the weights are those of that step.

        >>> x, y = np.ones((40, 8), "float32"), np.zeros(40, "int32")
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model.compile("adam", loss, metrics=["accuracy"])
        >>> history = model.fit(x, y, batch_size=16, epochs=3, validation_split=0.2, verbose=0)
        >>> sorted(history.history), len(history.history["loss"])
        (['accuracy', 'loss', 'val_accuracy', 'val_loss'], 3)
        """
        self._assert_compile_called("fit")
        prepare = self._host_preparation()
        data = as_data(x, y, sample_weight, class_weight, shuffle, prepare)
        if validation_split and validation_data is None:
            if not isinstance(data, ArrayData):
                raise ValueError(
                    f"validation_split needs arrays, not a {data.name}. Pass validation_data."
                )
            data, validation_data = data.split(validation_split)
        if class_weight is not None and isinstance(data, ArrayData):
            # This comes after the split: class weights are for training and not for the validation.
            data.weigh_classes(class_weight)
        check_epochs(epochs, initial_epoch, validation_freq, shuffle)
        validation_batch_size = validation_batch_size or batch_size
        batch_size = standardize_batch_size(batch_size, data, steps_per_epoch, "steps_per_epoch")
        if validation_data is not None:
            validation_data = unpack_validation_data(validation_data, prepare)
        is_shuffled = isinstance(data, ArrayData) and (shuffle is None or shuffle)
        shuffler = make_shuffler() if is_shuffled else None
        feed = self._feed(TRAIN, data, batch_size, shuffler)
        epochs = limit_epochs(epochs)
        steps_per_epoch = limit_steps(steps_per_epoch, feed.num_batches)
        validation = None
        if validation_data is not None:
            size = standardize_batch_size(
                validation_batch_size, validation_data, validation_steps, "validation_steps"
            )
            validation_feed = self._feed(TEST, validation_data, size)
            validation_steps = limit_steps(validation_steps, validation_feed.num_batches)
            validation = Validation(validation_feed, validation_steps, validation_freq)
        feeds = [feed] if validation is None else [feed, validation.feed]
        callback_list = self._callback_list(
            callbacks, verbose, epochs, steps_per_epoch or feed.num_batches, add_history=True
        )
        with self._running(callback_list, *feeds):
            run_epochs(
                self, feed, callback_list, initial_epoch, epochs, steps_per_epoch, validation
            )
        return self.history

    @filter_traceback
    @trained_by_one_thread
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """The loss and the metrics on data, which the model does not learn from.

        Args:
            x: see `fit`.
            y: see `fit`.
            batch_size: samples per step, 32 by default.
            verbose: see `fit`.
            sample_weight: see `fit`.
            steps: how many batches, all of them by default.
            callbacks: see `fit`.
            return_dict: whether to return a dictionary by name.

        Returns:
            The loss; with metrics a list of the loss and the metrics; or a dictionary.

        Raises:
            ValueError: before `compile`, and for data or arguments that don't fit.
            TypeError: for data that are no numbers.

        >>> dense = keras.layers.Dense(1, kernel_initializer="ones")
        >>> model = keras.Sequential([keras.Input((1,)), dense])
        >>> model.compile(loss="mse", metrics=["mae"])
        >>> x, y = np.ones((4, 1)), np.full((4, 1), 3.0)
        >>> model.evaluate(x, y, verbose=0)
        [4.0, 2.0]
        >>> model.evaluate(x, y, verbose=0, return_dict=True)
        {'loss': 4.0, 'mae': 2.0}
        """
        self._assert_compile_called("evaluate")
        data = as_data(x, y, sample_weight, prepare=self._host_preparation())
        size = standardize_batch_size(batch_size, data, steps, "steps")
        with self._finding_metrics_once():
            feed = self._feed(TEST, data, size, once=True)
            steps = limit_steps(steps, feed.num_batches)
            callback_list = self._callback_list(callbacks, verbose, 1, steps or feed.num_batches)
            runner = StepRunner(self, TEST, feed, callback_list, lambda: self.stop_evaluating)
            with self._running(callback_list, feed):
                logs = run_test(self, runner, feed, steps, callback_list)
            return logs if return_dict else self._flatten_metrics_in_order(logs)

    @filter_traceback
    @in_turn
    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        steps: int | None = None,
        callbacks: Any = None,
        *,
        as_tensor: bool = False,
    ) -> Any:
        """The model's outputs for data.

        Args:
            x: see `fit`.
            batch_size: samples per step, 32 by default.
            verbose: see `fit`.
            steps: how many batches, all of them by default.
            callbacks: see `fit`; one that overrides hooks of batches gets the outputs of each.
            as_tensor: whether to return tensors on the model's device instead of NumPy arrays. On a
                GPU the outputs then never come to the host; others take them by DLPack, as in
                `torch.from_dlpack(model.predict(x, as_tensor=True))`.

        Returns:
            An array (or tensor) of shape `(num_samples, ...)`, or the model's structure of them.
            Text is an array of Python's strings.

        Raises:
            ValueError: for data that don't fit the model.
            TypeError: for data that are no numbers.

        >>> dense = keras.layers.Dense(1, kernel_initializer="ones")
        >>> model = keras.Sequential([keras.Input((2,)), dense])
        >>> model.predict(np.array([[1.0, 2.0], [3.0, 4.0]]), verbose=0).tolist()
        [[3.0], [7.0]]
        """
        end = self._host_end()
        if end is not None:
            found = end.model.predict(x, batch_size, verbose, steps, callbacks, as_tensor=as_tensor)
            return end(found, as_tensor)
        data = as_data(x, prepare=self._host_preparation())
        size = standardize_batch_size(batch_size, data, steps, "steps")
        if replicas.local_group() is not None:
            from kerascnn.training.replicated_prediction import is_shared, predict_on_devices

            if is_shared(self, data, size, steps, callbacks):
                return predict_on_devices(self, data, size, steps, verbose, as_tensor)
        shared = SharedPrediction(data, size, steps)
        data, steps = shared.data, shared.steps
        feed = self._feed(PREDICT, data, size, once=True)
        steps = limit_steps(steps, feed.num_batches)
        callback_list = self._callback_list(callbacks, verbose, 1, steps or feed.num_batches)
        with self._running(callback_list, feed):
            found = Predictor(self, feed, callback_list, as_tensor).run(steps)
        return shared.whole(found, as_tensor)

    @trained_by_one_thread
    def profile(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        steps: int | None = None,
    ) -> Profile:
        """Measures which kernels a training step runs, for which layers, and how long each takes.

        The step is run as `fit` runs it, many at a time, with and without the profiler in turns.
        The model is left as it was, to the bit: weights, optimizer, metrics and random state. (One
        that has no weights yet is built.)

        Args:
            x: arrays as for `fit`; one batch is enough.
            y: targets.
            batch_size: samples of a step, 32 by default, and at most as many as there are.
            sample_weight: weights of the samples.
            steps: steps that are enqueued at once; by default up to 64, fewer where they take long.

        Returns:
            A `keras.profiler.Profile`, whose rows are of one step: print it, or take its `rows`,
            `table()`, `save_html(path)` or `save_trace(path)`.

        Raises:
            ValueError: before `compile`, and for data or arguments that don't fit.
            DeviceError: on a GPU without its profiling library (CUPTI); says what to do.
            RuntimeError: where several processes or devices train the model.

        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2, name="last")])
        >>> model.compile("sgd", "mse")
        >>> p = model.profile(np.ones((32, 8), "float32"), np.ones((32, 2), "float32"))
        >>> sorted({row["layer"] for row in p.rows if row["phase"] == "update"})
        ['last']
        """
        from kerascnn.profiler.training import profile_training

        self._assert_compile_called("profile")
        if replicas.active() is not None or replicas.local_group() is not None:
            raise RuntimeError(
                "profile() measures one device of one process, and several train this model now. "
                "Call keras.distribution.set_distribution(None) first, or profile without a "
                "launcher."
            )
        return profile_training(self, x, y, sample_weight, batch_size, steps)

    @filter_traceback
    @in_turn
    def step_memory(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
    ) -> StepMemory:
        """What a training step takes on the device, known before anything of it is allocated.

        The step is planned, not run: only the weights are made, where there are none yet. The
        data is read for its shapes and dtypes, so one sample is enough for any `batch_size`.

        Args:
            x: arrays as for `fit`.
            y: targets.
            batch_size: samples of a step; by default 32, and at most as many as there are.
            sample_weight: weights of the samples.

        Returns:
            A `keras.profiler.StepMemory`: print it, or take its `total`, `weights`,
            `intermediate` and `at_peak`.

        Raises:
            ValueError: before `compile`, and for data or arguments that don't fit.

        >>> model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(500)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((1, 1000), "float32"), np.ones((1, 500), "float32")
        >>> plan = model.step_memory(x, y, batch_size=1 << 16)
        >>> plan.intermediate > (1 << 16) * 500 * 4
        True
        """
        from kerascnn.profiler.training import plan_step_memory

        self._assert_compile_called("step_memory")
        return plan_step_memory(self, x, y, sample_weight, batch_size)

    @filter_traceback
    @trained_by_one_thread
    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: dict | None = None,
        return_dict: bool = False,
    ) -> Any:
        """One step of training on one batch.

        The metrics are reset first. Each new batch size or shape is compiled once.

        Args:
            x: see `fit`; all samples are one batch.
            y: targets.
            sample_weight: weights of the samples.
            class_weight: weights of the classes, a dictionary from class number to weight.
            return_dict: whether to return a dictionary by name.

        Returns:
            The loss and metrics before the update, as `evaluate` returns them.

        Raises:
            ValueError: before `compile`, and for data that don't fit.

        >>> dense = keras.layers.Dense(1, kernel_initializer="ones")
        >>> model = keras.Sequential([keras.Input((1,)), dense])
        >>> model.compile(keras.optimizers.SGD(0.1), "mse")
        >>> x, y = np.ones((4, 1)), np.full((4, 1), 3.0)
        >>> [round(float(model.train_on_batch(x, y)), 3) for _ in range(3)]
        [4.0, 1.44, 0.518]
        """
        self._assert_compile_called("train_on_batch")
        data = ArrayData(self._prepared(x), y, sample_weight)
        logs = self._run_on_batch(TRAIN, data, class_weight)
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    @filter_traceback
    @trained_by_one_thread
    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """The loss and metrics on one batch, which the model does not learn from.

        The metrics are reset first.

        Args:
            x: see `fit`; all samples are one batch.
            y: targets.
            sample_weight: weights of the samples.
            return_dict: whether to return a dictionary by name.

        Returns:
            As `evaluate`.

        Raises:
            ValueError: before `compile`, and for data that don't fit.

        >>> dense = keras.layers.Dense(1, kernel_initializer="ones")
        >>> model = keras.Sequential([keras.Input((1,)), dense])
        >>> model.compile("sgd", "mse", metrics=["mae"])
        >>> logs = model.test_on_batch(np.ones((4, 1)), np.full((4, 1), 3.0), return_dict=True)
        >>> {name: float(value) for name, value in logs.items()}
        {'loss': 4.0, 'mae': 2.0}
        """
        self._assert_compile_called("test_on_batch")
        logs = self._run_on_batch(TEST, ArrayData(self._prepared(x), y, sample_weight))
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    @filter_traceback
    @in_turn
    def predict_on_batch(self, x: Any) -> Any:
        """The model's outputs for one batch.

        Args:
            x: see `fit`; all samples are one batch.

        Returns:
            An array of shape `(num_samples, ...)`, or the model's structure of them.

        Raises:
            ValueError: for data that don't fit the model.

        >>> dense = keras.layers.Dense(1, kernel_initializer="ones")
        >>> model = keras.Sequential([keras.Input((2,)), dense])
        >>> model.predict_on_batch(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[3.0], [7.0]]
        """
        end = self._host_end()
        if end is not None:
            return end(end.model.predict_on_batch(x), as_tensor=False)
        step = self._run_step(PREDICT, ArrayData(self._prepared(x)))
        return step.pack(step.copies_of_outputs())

    def _has_own_step(self, kind: str) -> bool:
        """Tells whether a user's method is the step."""
        name = f"{kind}_step"
        return getattr(type(self), name) is not getattr(Trainer, name)

    def _returns_own_logs(self, kind: str) -> bool:
        """Tells whether a user's method returns results, which the step then has to compute."""
        steps = {TRAIN: "train_step", TEST: "test_step"}
        if kind not in steps:
            return False
        return any(
            getattr(type(self), name) is not getattr(Trainer, name)
            for name in (steps[kind], "compute_metrics", "get_metrics_result")
        )
