"""Ctrl-C interrupts a fit: the tests send a real signal to another process."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

SCRIPT = textwrap.dedent(
    """
    import signal
    import sys
    import numpy as np
    import kerascnn as keras
    from kerascnn import layers

    # A shell has jobs in the background ignore Ctrl-C, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = keras.Sequential([
        keras.Input((28, 28, 1)),
        layers.Conv2D(16, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ])
    model.compile("adam", "sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    x = rng.random((4096, 28, 28, 1), dtype="float32")
    y = rng.integers(0, 10, 4096)
    model.fit(x[:64], y[:64], verbose=0)
    before = int(model.optimizer.iterations.numpy())

    class Tells(keras.callbacks.Callback):
        # There are no hooks of batches, so that steps go on as without a callback.
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                print("ready", file=sys.stderr, flush=True)

    try:
        model.fit(x, y, batch_size=32, epochs=10**6, verbose=VERBOSE, callbacks=[Tells()])
    except KeyboardInterrupt:
        pass
    else:
        sys.exit("fit ended")
    steps = int(model.optimizer.iterations.numpy()) - before
    assert steps > 0, steps
    weights = model.get_weights()
    assert all(np.isfinite(w).all() for w in weights)
    # Nothing goes on behind: the same weights later, and the model trains and predicts.
    keras.config.synchronize()
    assert all((a == b).all() for a, b in zip(weights, model.get_weights()))
    model.fit(x[:64], y[:64], verbose=0)
    assert model.predict(x[:8], verbose=0).shape == (8, 10)
    print("good", flush=True)
    """
)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize("verbose", [0, 2])
def test_ctrl_c_stops_between_steps_and_leaves_the_model_working(verbose, rng):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("VERBOSE", str(verbose))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.3))  # somewhere in a later epoch
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=600)
    finally:
        process.kill()
        process.communicate()
    assert output.splitlines()[-1:] == ["good"], said
    assert process.returncode == 0, said
