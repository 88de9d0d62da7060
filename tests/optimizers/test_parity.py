"""Every optimizer is compared with Keras': updates, state, configurations."""

import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kerascnn import ops, optimizers
from kerascnn.optimizers import schedules

from .harness import STEPS, draw, run, run_keras

other = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# There are 20 updates in float32, each with about ten roundings of 6e-8. Keras also computes 1 -
# beta**t in float32, so Adam's scale has only four right digits in the first steps.
RTOL, ATOL = 1e-4, 2e-5

rates = st.floats(1e-3, 0.1)
betas = st.floats(0.5, 0.95)
slow_betas = st.floats(0.9, 0.999)
epsilons = st.sampled_from([1e-7, 1e-4, 1e-2])

# These are Keras' own arguments of each optimizer that change the numbers.
OWN = {
    "SGD": {
        "momentum": st.sampled_from([0.0, 0.5, 0.9]),
        "nesterov": st.booleans(),
    },
    "Adam": {
        "beta_1": betas,
        "beta_2": slow_betas,
        "epsilon": epsilons,
        "amsgrad": st.booleans(),
    },
    "AdamW": {"beta_1": betas, "beta_2": slow_betas, "amsgrad": st.booleans()},
    "Adamax": {"beta_1": betas, "beta_2": slow_betas, "epsilon": epsilons},
    "Nadam": {"beta_1": betas, "beta_2": slow_betas, "epsilon": epsilons},
    "RMSprop": {
        "rho": betas,
        "momentum": st.sampled_from([0.0, 0.5, 0.9]),
        "epsilon": epsilons,
        "centered": st.booleans(),
    },
    "Adagrad": {"initial_accumulator_value": st.floats(0.0, 1.0), "epsilon": epsilons},
    "Adadelta": {"rho": betas, "epsilon": epsilons},
    "Adafactor": {
        "beta_2_decay": st.floats(-1.0, -0.5),
        "clip_threshold": st.floats(0.5, 2.0),
        "relative_step": st.booleans(),
    },
    "Ftrl": {
        "learning_rate_power": st.sampled_from([-0.5, -0.7, 0.0]),
        "initial_accumulator_value": st.floats(0.1, 1.0),
        "l1_regularization_strength": st.sampled_from([0.0, 0.1]),
        "l2_regularization_strength": st.sampled_from([0.0, 0.1]),
        "l2_shrinkage_regularization_strength": st.sampled_from([0.0, 0.1]),
        "beta": st.sampled_from([0.0, 0.5]),
    },
    "Lion": {"beta_1": betas, "beta_2": betas},
    "Lamb": {"beta_1": betas, "beta_2": slow_betas, "epsilon": epsilons},
    "Muon": {
        "adam_beta_1": betas,
        "momentum": betas,
        "nesterov": st.booleans(),
        "ns_steps": st.integers(1, 5),
        "rms_rate": st.sampled_from([None, 0.2]),
        "exclude_embeddings": st.booleans(),
        "exclude_layers": st.sampled_from([None, ["ker"]]),
        "adam_lr_ratio": st.sampled_from([1, 0.5]),
    },
}

# All optimizers have these arguments.
SHARED = st.fixed_dictionaries(
    {},
    optional={
        "use_ema": st.just(True),
        "ema_momentum": st.floats(0.5, 0.99),
        "ema_overwrite_frequency": st.integers(1, 7),
        "gradient_accumulation_steps": st.integers(2, 5),
        "loss_scale_factor": st.sampled_from([0.5, 8.0]),
    },
)
CLIPPING = st.one_of(
    st.just({}),
    st.builds(lambda v: {"clipnorm": v}, st.floats(0.3, 3.0)),
    st.builds(lambda v: {"clipvalue": v}, st.floats(0.3, 3.0)),
    st.builds(lambda v: {"global_clipnorm": v}, st.floats(0.3, 6.0)),
)
DECAY = st.one_of(st.just({}), st.builds(lambda v: {"weight_decay": v}, st.floats(0.01, 0.5)))


@st.composite
def configurations(draw_from, name):
    """Draws the arguments of one optimizer, the variables without decay, and whether there is a
    schedule."""
    arguments = {key: draw_from(value) for key, value in OWN[name].items()}
    arguments |= {**draw_from(SHARED), **draw_from(CLIPPING), **draw_from(DECAY)}
    rate = draw_from(rates)
    return arguments, rate, draw_from(st.booleans()), draw_from(st.sampled_from([None, ["bias"]]))


def make(module, name, arguments, rate, scheduled, excluded):
    if scheduled:
        rate = module.schedules.ExponentialDecay(rate, 5, 0.7)
    optimizer = getattr(module, name)(rate, **arguments)
    if excluded:
        optimizer.exclude_from_weight_decay(var_names=excluded)
    return optimizer


def assert_same_state(own, theirs):
    assert len(own.variables) == len(theirs.variables)
    for a, b in zip(own.variables, theirs.variables, strict=True):
        assert a.shape == tuple(b.shape)
        values = other.ops.convert_to_numpy(b)
        atol = ATOL
        if a.path.endswith("_linear"):
            # Ftrl adds weights times (root of the new accumulator - root of the old) / rate. Each
            # update rounds roots and weights near one, and the error is divided by the rate.
            atol += STEPS * 2**-24 / float(theirs.learning_rate)
        np.testing.assert_allclose(a.numpy(), values, rtol=RTOL, atol=atol, err_msg=a.path)


@pytest.mark.parametrize("name", list(OWN))
@settings(
    max_examples=12,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_twenty_updates(name, device, data):
    configuration = data.draw(configurations(name))
    compiled = data.draw(st.booleans())
    weights, gradients = draw(data.draw(st.integers(0, 2**16)))
    own = make(optimizers, name, *configuration)
    theirs = make(other.optimizers, name, *configuration)
    result = run(own, weights, gradients, device, compiled)
    expected = run_keras(other, theirs, weights, gradients)
    for a, b, path in zip(result, expected, weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL, err_msg=path)
    assert_same_state(own, theirs)
    assert int(np.asarray(own.iterations)) == int(theirs.iterations)
    assert float(np.asarray(own.learning_rate)) == pytest.approx(
        float(theirs.learning_rate), rel=1e-6
    )


@pytest.mark.parametrize("name", [*OWN, "ScheduleFreeAdamW"])
def test_compiled_steps_are_those_at_once(name, device):
    weights, gradients = draw(5)
    compiled, eager = (getattr(optimizers, name)(0.05) for _ in range(2))
    first = run(compiled, weights, gradients, device, compiled=True)
    second = run(eager, weights, gradients, device)
    for a, b in zip(first, second, strict=True):
        # Fused functions round as single ones do. A product with a number may differ in the last
        # bit where the compiler folds it into a neighbour, and 20 steps carry that on.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_schedule_free_adamw_is_that_of_its_paper():
    # This is not compared with Keras on PyTorch. There the new mean needs the old value of the
    # sequence z, which is an alias of the new value.
    weights, gradients = draw(7)
    optimizer = optimizers.ScheduleFreeAdamW(0.02, warmup_steps=4)
    result = run(optimizer, weights, gradients)
    for place, weight in enumerate(weights.values()):
        z = x = y = weight.astype("float64")
        v = np.zeros_like(z)
        for t, of_step in enumerate(gradients, start=1):
            g = of_step[place].astype("float64")
            v = 0.999 * v + 0.001 * g * g
            z = z - 0.02 * min(t / 4, 1) * g / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            x = (1 - 1 / t) * x + z / t
            y = 0.1 * z + 0.9 * x
        np.testing.assert_allclose(result[place], y, rtol=RTOL, atol=ATOL)


def loss_scaled(module):
    return module.LossScaleOptimizer(
        module.Adam(0.05), initial_scale=8.0, dynamic_growth_steps=3, name="scaled"
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_loss_scale_optimizer(device, compiled):
    weights, gradients = draw(11)
    for step in (2, 3, 11):
        gradients[step][1][0] = np.inf if step == 2 else np.nan
    own, theirs = loss_scaled(optimizers), loss_scaled(other.optimizers)
    result = run(own, weights, gradients, device, compiled)
    for a, b in zip(result, run_keras(other, theirs, weights, gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)
    assert_same_state(own, theirs)
    assert int(np.asarray(own.iterations)) == STEPS - 3


def multi(module):
    choice = module.OptimizerMap(module.Adam(0.05))
    choice["(bias|scale)"] = module.SGD(0.1, momentum=0.9)
    return module.MultiOptimizer(choice, name="several")


@pytest.mark.parametrize("compiled", [False, True])
def test_multi_optimizer(device, compiled):
    weights, gradients = draw(13)
    own, theirs = multi(optimizers), multi(other.optimizers)
    result = run(own, weights, gradients, device, compiled)
    for a, b in zip(result, run_keras(other, theirs, weights, gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)
    assert_same_state(own, theirs)


@pytest.mark.parametrize("name", [*OWN, "ScheduleFreeAdamW"])
def test_configurations_are_those_of_keras(name):
    arguments = {"learning_rate": 0.25, "clipnorm": 2.0, "use_ema": True, "name": "o"}
    own = getattr(optimizers, name)(**arguments)
    theirs = getattr(other.optimizers, name)(**arguments)
    assert own.get_config() == theirs.get_config()
    assert type(own).from_config(own.get_config()).get_config() == own.get_config()
    default = getattr(optimizers, name)()
    assert default.get_config() | {"name": ""} == (
        getattr(other.optimizers, name)().get_config() | {"name": ""}
    )
    # What Keras wrote can be read, whichever module it names for the class.
    again = optimizers.deserialize(other.optimizers.serialize(theirs))
    assert type(again) is type(own)
    assert again.get_config() == own.get_config()
    assert optimizers.serialize(own)["module"] == "keras.optimizers"
    assert optimizers.get(optimizers.serialize(own)).get_config() == own.get_config()


def test_configurations_of_what_holds_others():
    for build in (loss_scaled, multi):
        own, theirs = build(optimizers), build(other.optimizers)
        config = optimizers.serialize(own)
        assert optimizers.serialize(optimizers.deserialize(config)).keys() == config.keys()
        again = optimizers.deserialize(other.optimizers.serialize(theirs))
        assert again.get_config().keys() == theirs.get_config().keys()
    scaled = optimizers.deserialize(other.optimizers.serialize(loss_scaled(other.optimizers)))
    assert type(scaled.inner_optimizer) is optimizers.Adam
    assert scaled.initial_scale == 8.0


def test_a_schedule_in_a_configuration():
    own = optimizers.Adam(schedules.CosineDecay(0.1, 10, alpha=0.5), name="a")
    theirs = other.optimizers.Adam(
        other.optimizers.schedules.CosineDecay(0.1, 10, alpha=0.5), name="a"
    )
    assert own.get_config() == theirs.get_config()
    again = optimizers.Adam.from_config(theirs.get_config())
    assert isinstance(again._learning_rate, schedules.CosineDecay)
    assert again.get_config() == own.get_config()
    assert own.variables[0].path == "a/iteration"
    assert len(own.variables) == 1


@pytest.mark.parametrize("name", [n for n in optimizers.__all__ if n[0].isupper()])
def test_signatures_are_those_of_keras(name):
    own = inspect.signature(getattr(optimizers, name).__init__).parameters
    theirs = inspect.signature(getattr(other.optimizers, name).__init__).parameters
    assert list(own) == list(theirs)
    assert {k: p.default for k, p in own.items()} == {k: p.default for k, p in theirs.items()}


def test_paths_of_slots_are_those_of_keras():
    weights, gradients = draw(3, steps=1)
    for name in OWN:
        if name in ("Nadam", "Adafactor"):
            continue  # Keras makes one of their variables outside of the optimizer's name
        own = getattr(optimizers, name)(use_ema=True, name="o")
        theirs = getattr(other.optimizers, name)(use_ema=True, name="o")
        run(own, weights, gradients)
        run_keras(other, theirs, weights, gradients)
        assert [v.path for v in own.variables] == [v.path for v in theirs.variables]


@pytest.mark.parametrize("name", sorted(n for n in dir(other.optimizers) if n[0] != "_"))
def test_every_name_of_keras(name):
    assert hasattr(optimizers, name)


@pytest.mark.parametrize("shape", [(4, 6), (7, 3), (2, 5, 5), (2, 3, 6, 4)])
def test_newton_schulz_iterations(rng, shape):
    x = rng.standard_normal(shape).astype("float32")
    found = optimizers.Muon().zeropower_via_newtonschulz5(ops.convert_to_tensor(x), 5)
    method = other.optimizers.Muon().zeropower_via_newtonschulz5
    expected = other.ops.convert_to_numpy(method(other.ops.convert_to_tensor(x), 5))
    # Fifteen products in float32, of elements below 1.
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=2e-5)
