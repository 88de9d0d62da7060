"""The progress bar writes what Keras' writes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kerascnn

keras = pytest.importorskip("keras")
MODULES = (kerascnn, keras)

numbers = st.one_of(st.floats(-2, 2), st.sampled_from([0.0, 1e-3, 2e-4, 1234.5, float("nan")]))


class Clock:
    """A clock that moves a little with each look at it."""

    def __init__(self, tick):
        self.now, self.tick = 1000.0, tick

    def time(self):
        self.now += self.tick
        return self.now


def output(module, clock, target, updates, options):
    with pytest.MonkeyPatch.context() as patch:
        written = []
        # Ours can't be set back.
        is_ours = module is kerascnn
        looks = (
            "kerascnn.utils.progbar.time.perf_counter"
            if is_ours
            else "keras.src.utils.progbar.time.time"
        )
        patch.setattr(looks, clock.time)
        patch.setattr("sys.stdout.write", lambda text: written.append(text))
        bar = module.utils.Progbar(target, **options)
        for how, step, values in updates:
            getattr(bar, how)(step, values)
        return "".join(written)


def plain(text):
    """Removes color codes, whose order does not matter to terminals."""
    return re.sub(r"\x1b\[\d+m", "", text)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([None, 1, 5, 12, 4000]),
    st.lists(
        st.tuples(
            st.sampled_from(["update", "add"]),
            st.integers(1, 4),
            st.lists(st.tuples(st.sampled_from("abc"), numbers), max_size=3),
        ),
        max_size=6,
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "width": st.integers(1, 30),
            "verbose": st.sampled_from([0, 1, 2]),
            "interval": st.sampled_from([0.0, 0.05, 10.0]),
            "stateful_metrics": st.just(["a"]),
            "unit_name": st.just("sample"),
        },
    ),
    st.sampled_from([1e-5, 0.004, 0.7, 90.0]),
)
def test_bars_are_those_of_keras(target, updates, options, tick):
    ours, theirs = (plain(output(m, Clock(tick), target, updates, options)) for m in MODULES)
    assert ours == theirs


def test_which_values_are_averaged():
    for module in MODULES:
        bar = module.utils.Progbar(10, verbose=0, stateless_metrics=["mean"])
        bar.update(1, [("mean", 1.0), ("last", 1.0)])
        bar.update(4, [("mean", 5.0), ("last", 5.0)])
        shown = {name: total / count for name, (total, count) in bar._values.items()}
        assert shown == {"mean": 4.0, "last": 5.0}
        with pytest.raises(ValueError):
            module.utils.Progbar(3, stateful_metrics=["a"], stateless_metrics=["b"])


def test_colors(capsys):
    bar = kerascnn.utils.Progbar(2)
    bar.update(1)
    bar.update(2, [("loss", np.float32(0.5))])
    text = capsys.readouterr().out
    assert "\x1b[32m" in text and text.endswith(" - loss: 0.5000\n")
