"""Work that signals disturb, in a process of its own. Each function ends it with an exit status."""

import ctypes
import os
import signal
import sys

import numpy as np

import kerascnn as keras
from kerascnn import layers, ops

PERIOD = 500  # microseconds: 2,000 signals a second
COUNTS = ("total", "outside", "on_alternate", "on_thread", "elsewhere", "other_threads")
TIMERS = {
    "real": (signal.SIGALRM, signal.ITIMER_REAL),
    "prof": (signal.SIGPROF, signal.ITIMER_PROF),
}


def network():
    """Convolutions that Winograd's algorithm takes, strided, in groups; products of two widths."""
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(16, 3, strides=2, groups=4),
            layers.BatchNormalization(),
            layers.Conv2D(16, 1, activation="gelu"),
            layers.Flatten(),
            layers.Dense(300, activation="tanh"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, 0.9), loss)
    return model


class Work:
    """Training, both other loops and single ops, which give the same bits each time."""

    def __init__(self):
        rng = np.random.default_rng(0)
        keras.utils.set_random_seed(0)
        self.x = rng.standard_normal((70, 12, 12, 3), dtype="float32")
        self.y = rng.integers(0, 10, 70)
        self.model = network()
        self.model.optimizer.build(self.model.trainable_variables)
        self.state = [np.array(v) for v in self.variables()]
        # Products of long and short sums, on both sides of what a kernel keeps on the stack, one
        # of them with fewer matrices than there are threads.
        shapes = [((8, 300), (300, 32)), ((130, 900), (900, 70)), ((64, 100), (100, 64))]
        shapes += [((3, 40, 700), (3, 700, 50))]
        self.products = [[self.tensor(rng, s) for s in pair] for pair in shapes]
        # One image for all threads, images for each, and large channels for Winograd's algorithm.
        images = [(1, 48, 48, 8), (16, 20, 20, 8), (4, 32, 32, 64)]
        self.images = [(self.tensor(rng, s), self.tensor(rng, (3, 3, s[-1], 64))) for s in images]
        self.integers = [
            ops.convert_to_tensor(rng.integers(-100, 100, s, dtype="int8"))
            for s in ((64, 300), (300, 64))
        ]

    def tensor(self, rng, shape):
        return ops.convert_to_tensor(rng.standard_normal(shape, dtype="float32"))

    def variables(self):
        return [*self.model.weights, *self.model.optimizer.variables]

    def reset(self):
        for variable, value in zip(self.variables(), self.state, strict=True):
            variable.assign(value)

    def fit(self):
        self.model.fit(self.x, self.y, batch_size=32, epochs=2, shuffle=False, verbose=0)

    def loops(self):
        self.reset()
        self.fit()
        loss = self.model.evaluate(self.x, self.y, batch_size=32, verbose=0)
        return [loss, self.model.predict(self.x, verbose=0), *self.model.get_weights()]

    def single_ops(self):
        results = []
        for a, b in self.products:
            with keras.GradientTape() as tape:
                tape.watch([a, b])
                out = ops.matmul(a, b)
                loss = ops.sum(ops.square(out))
            results += [out, *tape.gradient(loss, [a, b])]
        for x, kernel in self.images:
            for strides in (1, 2):
                with keras.GradientTape() as tape:
                    tape.watch([x, kernel])
                    out = ops.conv(x, kernel, strides=strides, padding="same")
                    loss = ops.sum(ops.square(out))
                results += [out, *tape.gradient(loss, [x, kernel])]
        results.append(ops.matmul(*self.integers))
        return results

    def run(self):
        return [np.array(value) for value in [*self.loops(), *self.single_ops()]]


def same(one, other):
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def check(condition, *what):
    if not condition:
        print(*what, file=sys.stderr, flush=True)
        os._exit(1)


def frames(library, timer, has_own_stack, signals):
    """Counts the stacks of a handler in C; prints the counts where they are not as promised."""
    frames = ctypes.CDLL(library)
    work = Work()
    expected = work.run()
    number, kind = TIMERS[timer]
    check(frames.start(number, kind, ctypes.c_long(PERIOD), has_own_stack) == 0, "no timer")
    rounds = 0
    while frames.count(0) < signals:
        check(same(work.run(), expected), "other results in round", rounds)
        rounds += 1
    frames.stop(number, kind)
    counts = {name: frames.count(i) for i, name in enumerate(COUNTS)}
    right = "on_alternate" if has_own_stack else "on_thread"
    # No other thread takes signals here: ours have them blocked, and NumPy has none.
    check(counts[right] == counts["total"], counts)
    check(counts["outside"] == counts["elsewhere"] == counts["other_threads"] == 0, counts)


def python_handlers(library, signals):
    """The same with a handler in Python, by both timers at once."""
    work = Work()
    expected = work.run()
    seen = dict.fromkeys(TIMERS, 0)

    def count(number, _):
        seen["real" if number == signal.SIGALRM else "prof"] += 1

    for number, kind in TIMERS.values():
        signal.signal(number, count)
        check(ctypes.CDLL(library).has_own_stack(number), "Python doesn't ask for a stack")
        signal.setitimer(kind, PERIOD * 1e-6, PERIOD * 1e-6)
    while min(seen.values()) < signals:
        check(same(work.run(), expected), "other results after", seen)
    for _, kind in TIMERS.values():
        signal.setitimer(kind, 0)


def interruptions(seed, rounds):
    """Interrupts `fit` up to three times in a row, also while it cleans up, at random moments."""
    rng = np.random.default_rng(seed)
    work = Work()
    expected = [np.array(value) for value in work.loops()]
    left = 0

    def interrupt(*_):
        nonlocal left
        if left > 0:
            left -= 1
            raise KeyboardInterrupt

    def fit_until_calm(depth):
        # An interruption between two lines here is for the call around this one.
        while left > 0:
            try:
                if depth > 0:
                    fit_until_calm(depth - 1)
                else:
                    work.model.fit(work.x, work.y, batch_size=8, epochs=10**6, verbose=0)
            except KeyboardInterrupt:
                pass

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    for number in range(rounds):
        work.reset()
        times = int(rng.integers(1, 4))
        left = times
        # The first at any moment of several steps, the others in the midst of what it leads to.
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 3e-2), rng.uniform(1e-4, 2e-3))
        fit_until_calm(times)
        signal.setitimer(signal.ITIMER_REAL, 0)
        weights = work.model.get_weights()
        finite = all(np.isfinite(w).all() for w in weights)
        check(finite, "weights that are not finite after round", number)
        keras.config.synchronize()
        check(same(weights, work.model.get_weights()), "weights changed behind round", number)
        check(same([np.array(v) for v in work.loops()], expected), "another fit after", number)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*[int(a) if a.isdigit() else a for a in arguments])
