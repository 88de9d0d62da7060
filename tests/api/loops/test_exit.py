"""At the end of a process nanobind reports the objects that were not released; none may be left."""

import os
import subprocess
import sys

import pytest

PARTS = {
    "jit": """
x = ops.ones((3, 4))
functions = [
    keras.jit(lambda x: ops.scan(lambda c, v: (ops.sin(c + v), c), x[0], x)[0]),
    keras.jit(lambda x: ops.cond(ops.sum(x) > 0, lambda: x, lambda: x * 2.0)),
    keras.jit(
        lambda x: ops.while_loop(
            lambda v: ops.sum(v) < 99.0, lambda v: v * 2.0, x, maximum_iterations=9
        )
    ),
]
for function in functions:
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    gradient = tape.gradient(y, x)

block = keras.remat(functions[0])
@keras.jit
def inside(x):
    with keras.GradientTape() as inner:
        inner.watch(x)
        y = ops.sum(block(x))
    return inner.gradient(y, x)
kept = inside(x)
with keras.GradientTape() as tape:
    tape.watch(x)
    never_taken = functions[0](x) + block(x)[0]
""",
    "a value of a trace that is kept": """
kept = []
def function(x):
    def step(c, v):
        kept.append((c, v, x))
        return c + v, c
    return ops.scan(step, x[0], x)[0]
compiled = keras.jit(function)
compiled(ops.ones((3, 4)))
""",
    "an error in a body": """
compiled = keras.jit(lambda x: ops.scan(lambda c, v: (c[:1], c), x[0], x)[0])
try:
    compiled(ops.ones((3, 4)))
except ValueError as error:
    kept = error
else:
    raise AssertionError
""",
    "custom_gradient": """
@keras.custom_gradient
def doubled(x):
    return x * 2.0, lambda upstream: upstream * 3.0
x = ops.ones(3)
def loss(x):
    return ops.sum(ops.scan(lambda c, _: (doubled(c), None), x, None, 3)[0])
with keras.GradientTape() as tape:
    tape.watch(x)
    y = keras.jit(loss)(x)
with keras.GradientTape() as other:
    other.watch(x)
    z = loss(x)
""",
    "fit": """
inputs = keras.Input((5, 3))
hidden = keras.layers.LSTM(4, return_sequences=True, recurrent_dropout=0.5)(inputs)
hidden = keras.layers.TimeDistributed(keras.layers.BatchNormalization())(hidden)
rows = ops.swapaxes(hidden, 0, 1)
last = ops.fori_loop(0, 3, lambda i, v: ops.sin(v), rows[0])
model = keras.Model(inputs, keras.layers.Dense(1)(last))
model.compile("sgd", "mse")
x, y = np.ones((8, 5, 3)), np.ones((8, 1))
model.fit(x, y, verbose=0)
model.evaluate(x, y, verbose=0)
model.predict(x, verbose=0)
""",
    "train_step": """
class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)
    def call(self, x):
        return ops.scan(lambda c, v: (ops.tanh(self.dense(c) + v), None), x[:, 0],
                        ops.swapaxes(x, 0, 1))[0]
    def train_step(self, data):
        x, y = data
        with keras.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables),
                             self.trainable_variables)
        return {"loss": loss}
model = Model()
model.compile("adam", "mse")
model.fit(np.ones((8, 5, 3)), np.ones((8, 3)), verbose=0)
""",
    "threads that Python's `threading` does not know": """
import _thread
began, never = _thread.allocate_lock(), _thread.allocate_lock()
began.acquire(), never.acquire()
def hold():
    x, layer = ops.ones((3, 4)), keras.layers.Dense(2)
    layer(x)
    began.release()
    never.acquire()
_thread.start_new_thread(hold, ())
began.acquire()
""",
    "what ends fit": """
class Raising(keras.callbacks.Callback):
    def __init__(self, error):
        super().__init__()
        self.error = error
    def on_train_batch_end(self, batch, logs=None):
        raise self.error
def batches():
    while True:
        yield ops.ones((4, 3)), np.ones((4, 1))
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
source = batches()
next(source)
kept = []
for error in (ValueError(), KeyboardInterrupt(), SystemExit()):
    try:
        model.fit(source, steps_per_epoch=3, callbacks=[Raising(error)], verbose=0)
    except BaseException as caught:
        kept.append((caught, caught.__traceback__))
assert [type(e) for e, _ in kept] == [ValueError, KeyboardInterrupt, SystemExit]
try:
    model.fit(np.ones((4, 3)), np.ones((5, 1)), verbose=0)
except ValueError as caught:
    kept.append(caught)
assert len(kept) == 4
""",
}
# These scripts end by what nobody catches: a layer's error, and an exit in the middle of a step.
ENDS = {1: "raise ValueError('of the layer')", 3: "sys.exit(3)"}


def run(source: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys\nimport numpy as np\nimport kerascnn as keras\nfrom kerascnn import ops\n"
            + source,
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "KERASCNN_DEVICE": "cpu"},
    )


@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_left_at_the_end(part):
    """Names of the module keep results, tapes and functions until the interpreter ends."""
    done = run(PARTS[part])
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr


@pytest.mark.parametrize("code", ENDS)
def test_nothing_is_left_where_a_script_breaks_off(code):
    source = f"""
class Last(keras.layers.Layer):
    def call(self, x):
        y = x * 2.0
        {ENDS[code]}
inputs = keras.Input((3,))
class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.last = keras.layers.Dense(2), Last()
    def call(self, x):
        return self.last(self.dense(x))
model = Model()
model.compile("sgd", "mse")
model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
"""
    done = run(source)
    assert done.returncode == code, done.stderr
    assert "leaked" not in done.stderr and ("of the layer" in done.stderr) == (code == 1)
