"""Jobs of work.py that are about optimizers."""

from __future__ import annotations

import contextlib
import functools

import numpy as np

import kerascnn as keras
from kerascnn import _core
from kerascnn.distribution import processes, replicas
from kerascnn.tracing import Trace

if __package__:
    from .layouts import owners_of
    from .work import begun, classifier, ended, interrupted, labelled, numbers, outcome
else:  # of processes that run work.py
    from layouts import owners_of
    from work import begun, classifier, ended, interrupted, labelled, numbers, outcome


def trained(given, epochs=2):
    """What a classifier ends with, for each optimizer that a name stands for."""
    x, y = labelled()
    found = {}
    for name, optimizer in given.items():
        keras.utils.set_random_seed(3)
        model = classifier(optimizer=optimizer)
        history = model.fit(x, y, 16, epochs=epochs, verbose=0)
        found.update({f"{name}_{key}": value for key, value in outcome(model, history).items()})
    return found


def optimizers():
    """Optimizers that look at gradients, or hold others."""
    chosen = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1))
    chosen["kernel"] = keras.optimizers.Adam(0.01)
    given = {
        "scaled": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        "several": keras.optimizers.MultiOptimizer(chosen),
        "gathering": keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        "clipping": keras.optimizers.SGD(0.5, global_clipnorm=0.1),
    }
    return trained(given)


class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """Asks for the number of the step."""

    def __call__(self, step):
        return 0.1 if int(step) < 2 else 0.05

    def get_config(self):
        return {}


def gathering():
    """Updates of every few steps: three epochs of four steps end between two of them."""
    optimizers = keras.optimizers
    chosen = optimizers.OptimizerMap(optimizers.SGD(0.1))
    chosen["kernel"] = optimizers.Adam(0.01, gradient_accumulation_steps=2)
    gathers = functools.partial(optimizers.SGD, gradient_accumulation_steps=3)
    averages = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2}
    given = {
        "adam": optimizers.Adam(0.01, gradient_accumulation_steps=5),
        "clipping": gathers(0.5, global_clipnorm=0.1),
        "averages": gathers(0.1, **averages),
        "schedule": gathers(Halving()),
        "scaled": optimizers.LossScaleOptimizer(gathers(0.1)),
        "several": optimizers.MultiOptimizer(chosen),
        "scaled_loss": gathers(0.1, loss_scale_factor=8.0),
    }
    return trained(given, epochs=3)


class TwoOptimizers(keras.Sequential):
    """Updates some weights twice in a step, and others once."""

    def train_step(self, data):
        x, y = data
        variables = self.trainable_variables
        for optimizer, some in ((self.often, variables), (self.often, variables), (self.rare, [])):
            loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
            some = some or variables[:1]
            optimizer.apply(keras.gradients(loss, some), some)
        return {"loss": loss}


def gathering_by_hand():
    """Several updates in a step of the user's own, steps one by one, and a fit after a fit."""
    x, y = labelled(48)
    targets = x[:, :2] - x[:, 2:4]
    model = TwoOptimizers([keras.Input((6,)), keras.layers.Dense(2)])
    model.often = keras.optimizers.SGD(0.02, gradient_accumulation_steps=3)
    model.rare = keras.optimizers.Adam(0.02, gradient_accumulation_steps=4)
    model.compile("sgd", "mse")
    found = outcome(model, model.fit(x, targets, 12, epochs=2, verbose=0))
    model = classifier(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=3))
    for first in (0, 16, 24, 40):
        model.train_on_batch(x[first : first + 8], y[first : first + 8])
    model.fit(x, y, 12, epochs=1, verbose=0, shuffle=False)
    model.fit(x, y, 20, epochs=2, verbose=0, shuffle=False)
    return {**found, **{f"again_{name}": value for name, value in outcome(model).items()}}


def messages():
    """How many messages two epochs of four steps need more than one does, by optimizer."""
    x, y = labelled(48)
    engine, sent = processes.engine(), []
    if engine is None or keras.config.get_device() != "cpu":
        return {}

    def counted(move):
        return lambda *place: (sent.append(1), move(*place))

    moves = engine.exchange, engine.gather
    _core.set_collectives(engine.name, engine.rank, engine.size, *map(counted, moves))
    found = {}
    for every in (None, 2, 4, 8):
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=every)
        model = classifier(optimizer=optimizer)
        counts = []
        for epochs in (1, 2, 2):
            sent.clear()
            model.fit(x, y, 12, epochs=epochs, verbose=0)
            counts.append(len(sent))
        found[f"every_{every}"] = np.array(counts)
    _core.set_collectives(engine.name, engine.rank, engine.size, *moves)
    return found


def gatherer():
    return classifier(optimizer=keras.optimizers.Adam(0.01, gradient_accumulation_steps=4))


def begun_gathering(folder):
    return begun(folder, gatherer, "gathering")


def ended_gathering(folder):
    return ended(folder, gatherer, "gathering")


def owned_arrays(rank, dtype):
    """What a process gives."""
    # GPUs bring the small ones together, and send the last ones by themselves.
    shapes = ((3, 5), (), (0, 4), (701,), (7, 100), (1,), (20_000,), (9_000, 2))
    arrays = [numbers(*shape, seed=[rank, i]) for i, shape in enumerate(shapes)]
    return [keras.ops.convert_to_tensor(np.asarray(a) * 10.0**rank, dtype) for a in arrays]


def owned():
    """Sums that go to one process each and tensors that come from one: at once and in programs.

    The sums also by all_reduce, and what each process gave.
    """
    size, rank = keras.distribution.num_processes(), keras.distribution.process_id()
    found = {}
    for dtype in ("float32", "float64", "bfloat16"):
        tensors = owned_arrays(rank, dtype)
        whole = {"processes": size, "scale": 1.0, "factor": 0.75}
        results = {"sum": _core.apply("all_reduce", tensors, whole), "given": tensors}
        for case, owners in owners_of(len(tensors), size).items():
            places = {"processes": size, "owners": owners}
            for op, more in (("reduce_to_owners", {"factor": 0.75}), ("broadcast_from_owners", {})):
                results[f"{op}_{case}"] = _core.apply(op, tensors, {**places, **more})
                results[f"{op}_{case}_program"] = in_program(op, tensors, {**places, **more})
        for name, tensors_found in results.items():
            for i, one in enumerate(tensors_found):
                found[f"{dtype} {name} {i}"] = one.numpy().astype(np.float64)
    return found


def in_program(op, tensors, attributes):
    """The results in a program that reads those of the last process only, and runs twice."""
    device = keras.config.get_device()
    with Trace(device) as trace:
        inputs = [trace.graph.input(f"x{i}", list(t.shape), t.dtype) for i, t in enumerate(tensors)]
        found = trace.graph.apply(op, inputs, attributes)
        last = attributes["processes"] - 1
        wanted = found if keras.distribution.process_id() == last else inputs[:1]
        outputs = [keras.ops.multiply(x, 1.0) for x in wanted]
    program = _core.Program.compile(trace.graph, outputs, device)
    for _ in range(2):
        program.run(tensors, 1)
    return program.outputs()


def sharing():
    return keras.distribution.DataParallel(shard_optimizer_state=True).scope()


def averaging(**options):
    average = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2}
    return keras.optimizers.SGD(0.1, momentum=0.9, **average, **options)


def several(first, second):
    """One optimizer for kernels, another one for biases."""
    chosen = keras.optimizers.OptimizerMap(first)
    chosen["kernel"] = second
    return keras.optimizers.MultiOptimizer(chosen)


def some_optimizers():
    o = keras.optimizers
    return {
        "adam": lambda: o.Adam(0.01, global_clipnorm=0.1, gradient_accumulation_steps=3),
        "scaled": lambda: o.LossScaleOptimizer(
            several(averaging(), o.Adafactor(0.01, gradient_accumulation_steps=2))
        ),
    }


def all_optimizers():
    o = keras.optimizers
    return {
        **some_optimizers(),
        "averages": lambda: averaging(gradient_accumulation_steps=2),
        "sgd": lambda: o.SGD(0.1, momentum=0.9, nesterov=True, clipvalue=0.01),
        "amsgrad": lambda: o.Adam(0.01, amsgrad=True, loss_scale_factor=4.0),
        "adamw": lambda: o.AdamW(0.01, weight_decay=0.1, clipnorm=0.1),
        "rmsprop": lambda: o.RMSprop(0.01, momentum=0.5, centered=True),
        "adagrad": lambda: o.Adagrad(0.05),
        "adadelta": lambda: o.Adadelta(1.0),
        "adamax": lambda: o.Adamax(0.01),
        "nadam": lambda: o.Nadam(0.01),
        "ftrl": lambda: o.Ftrl(0.1),
        "lion": lambda: o.Lion(0.01),
        "lamb": lambda: o.Lamb(0.01),
        "muon": lambda: o.Muon(0.01),
        "adafactor": lambda: o.Adafactor(0.01),
        "schedule_free": lambda: o.ScheduleFreeAdamW(0.01),
        "schedule": lambda: o.Adam(Halving()),
        "several": lambda: several(o.Adam(0.01), o.SGD(0.1, gradient_accumulation_steps=2)),
        "scaled_adam": lambda: o.LossScaleOptimizer(o.Adam(0.01, gradient_accumulation_steps=2)),
    }


def constrained(optimizer):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="tanh", kernel_constraint="non_neg"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def shared(makers, epochs):
    """What trainings end with that share their state, and whether it is what others end with."""
    x, y = labelled()
    found = {}
    for name, make in makers.items():
        ends = []
        for block in (contextlib.nullcontext(), sharing()):
            keras.utils.set_random_seed(3)
            with block:
                model = constrained(make())
                history = model.fit(x, y, 16, epochs=epochs, verbose=0)
            ends.append([w.tobytes() for w in model.get_weights()])
        found.update({f"{name}_{key}": value for key, value in outcome(model, history).items()})
        found[f"{name}_same"] = np.array(ends[0] == ends[1])
    return found


def sharded():
    return shared(some_optimizers(), 2)


def sharded_in_messages():
    """Gradients in several messages, of which some are for one process alone."""
    before, replicas._BUCKET_BYTES = replicas._BUCKET_BYTES, 64
    try:
        return shared({"sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9)}, 1)
    finally:
        replicas._BUCKET_BYTES = before


def sharded_all():
    return shared(all_optimizers(), 3)


def sharded_loops():
    """Steps of one's own, compiled or not, and an optimizer that was built without sharing."""
    x, y = labelled(48)
    rank, size = keras.distribution.process_id(), keras.distribution.num_processes()
    model = classifier()
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)

    def step(x, y):
        with keras.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True))
            loss = keras.ops.mean(losses)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    compiled = keras.jit(step)
    for first in range(0, 48, 12):
        rows = np.arange(first, first + 12).reshape(size, -1)[rank]
        with contextlib.nullcontext() if first == 0 else sharing():
            (step if first == 12 else compiled)(x[rows], y[rows])
    return outcome(model)


def state_bytes():
    """Bytes of the optimizer's slots in this process, and of those that one process would have."""
    with sharing():
        model = keras.Sequential([keras.Input((64,)), *[keras.layers.Dense(64) for _ in range(6)]])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.train_on_batch(np.ones((4, 64)), np.ones((4, 64)))
        own = sum(v.core.value.nbytes for v in model.optimizer.variables if v.shape)
    return {"own": np.array(own), "all": np.array(2 * sum(w.nbytes for w in model.get_weights()))}


def shared_files(folder):
    """Files that all processes write together, of a training that shares its state."""
    x, y = labelled()
    number, name = keras.distribution.num_processes(), "{epoch}.keras"
    with sharing():
        make = keras.optimizers.Adam(0.01, gradient_accumulation_steps=3)
        model = classifier(optimizer=keras.optimizers.LossScaleOptimizer(make))
        save = keras.callbacks.ModelCheckpoint(folder / f"of_{number}" / name)
        model.fit(x, y, 16, epochs=1, callbacks=[save], verbose=0)
        model.save(folder / f"of_{number}" / "whole.h5")
        again = keras.models.load_model(folder / f"of_{number}" / "1.keras")
        again.fit(x, y, 16, epochs=1, verbose=0)
    found = {f"again_{name}": value for name, value in outcome(again).items()}
    for name in ("1.keras", "whole.h5"):
        loaded = keras.models.load_model(folder / f"of_{number}" / name)
        state = loaded.optimizer.variables
        found.update({f"{name}_{i}": v.numpy() for i, v in enumerate(state)})
    return found


def resumed_sharing(folder):
    with sharing():
        data = labelled()
        return interrupted(folder, lambda: data[0], lambda: data[1], make=gatherer)


def begun_sharing(folder):
    with sharing():
        return begun(folder, gatherer, "sharing")


def ended_sharing(folder):
    with sharing():
        return ended(folder, gatherer, "sharing")
