"""utils.Config behaves as Keras' class."""

import copy
import json

import pytest

import kerascnn

keras = pytest.importorskip("keras")


def outcome(action):
    """Returns the result of an action, or the class of its error."""
    try:
        return action()
    except Exception as error:
        return type(error)


def used(module):
    """Uses all methods of a Config and returns what they give."""
    config = module.utils.Config(rate=0.1, name="b")
    config.epochs = 3
    config["seed"] = 7
    config.update({"x": [1, 2]}, y=None)
    seen = [config.epochs, config["rate"], config.get("none"), config.get("none", 5)]
    seen += [list(config), list(config.keys()), list(config.values()), list(config.items())]
    seen += [len(config), "seed" in config, "absent" in config, repr(config), config.to_json()]
    taken = config.as_dict()
    taken["more"] = 1
    seen += ["more" in config, config.pop("x"), config.pop("absent", 4)]
    del config["y"]
    seen += [outcome(lambda: config.absent), outcome(lambda: config["absent"])]
    seen.append(outcome(lambda: config.pop("absent")))
    config.freeze()
    seen.append(config.frozen)
    for change in (
        lambda: setattr(config, "rate", 1),
        lambda: config.__setitem__("rate", 1),
        lambda: config.__delitem__("rate"),
        lambda: config.update(rate=1),
        lambda: config.pop("rate"),
    ):
        seen.append(outcome(change))
    config.unfreeze()
    config.rate = 2
    config.value = object()
    seen += [config.frozen, config.rate, outcome(config.to_json)]
    return seen


def test_it_does_what_keras_does():
    seen = used(kerascnn)
    assert seen == used(keras)
    assert json.loads(kerascnn.utils.Config(a=1).to_json()) == {"a": 1}


def test_errors_name_what_comes_close():
    config = kerascnn.utils.Config(learning_rate=0.1)
    with pytest.raises(AttributeError, match="Did you mean 'learning_rate'"):
        _ = config.learnin_rate
    config.freeze()
    with pytest.raises(ValueError, match="unfreeze"):
        config.epochs = 1


def test_copies_have_values_of_their_own():
    config = kerascnn.utils.Config(a=1)
    other = copy.deepcopy(config)
    other.a = 2
    assert (config.a, other.a) == (1, 2)
