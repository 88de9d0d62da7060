"""Jobs of work.py that are about optimizers."""

from __future__ import annotations

import functools

import numpy as np
from work import begun, classifier, ended, interrupted, labelled, outcome

import kerascnn as keras
from kerascnn import _core
from kerascnn.distribution import processes


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


def resumed_gathering(folder):
    data = labelled()
    return interrupted(folder, lambda: data[0], lambda: data[1], make=gatherer)


def begun_gathering(folder):
    return begun(folder, gatherer, "gathering")


def ended_gathering(folder):
    return ended(folder, gatherer, "gathering")
