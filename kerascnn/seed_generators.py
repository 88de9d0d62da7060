"""Generators of random numbers: their states, their seeds, and how an op draws from them.

A generator's state is a variable {seed, counter}. At once, each draw moves the counter on; in a
compiled step every draw has a stream of its own and the counter moves once per step, so that no two
draws and no two steps share numbers, and a seed makes all of them repeatable.
"""

from __future__ import annotations

import random as _python_random
from typing import Any

import numpy as np

from kerascnn import _core, naming, tracing
from kerascnn.distribution import replicas
from kerascnn.ops import dispatch
from kerascnn.variable import Variable, current_scope

Seed = Any  # an integer, a SeedGenerator, or None for the program's generator


class SeedGenerator:
    """A source of random numbers with a state of its own.

    Args:
        seed: An integer from 0 on; None picks one at random (`utils.set_random_seed` fixes it).
        name: By default seed_generator, seed_generator_1, ...

    Raises:
        ValueError: for a seed that is negative or no integer.

    Example:

    >>> import kerascnn as keras
    >>> draw = lambda: keras.random.uniform((2,), seed=keras.random.SeedGenerator(7)).numpy()
    >>> bool((draw() == draw()).all())
    True
    """

    _module_in_configs = "keras.random"

    def __init__(self, seed: int | None = None, name: str | None = None, **kwargs: Any) -> None:
        if kwargs:
            raise ValueError(f"Unrecognized keyword arguments: {kwargs}")
        if seed is None:
            seed = make_default_seed()
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"A seed must be an integer from 0 on. Received: seed={seed!r}")
        self.name = name or naming.auto_name("seed_generator")
        self._initial_seed = int(seed)
        self.state = _state(int(seed), f"{self.name}/seed_generator_state")

    def state_on(self, device_name: str) -> Variable:
        """Returns the state, which moves to the device if it is elsewhere."""
        if self.state.device != device_name:
            seed, counter = (int(v) for v in self.state._held())
            self.state = _state(seed, self.state.path, device_name, counter)
        return self.state

    def next(self, ordered: bool = True) -> int:
        """A new seed, and the counter moved on by one.

        Args:
            ordered: Kept for Keras' signature: all draws are in order.
        """
        seed, counter = (int(v) for v in self.state.numpy())
        self.state.assign(np.array([seed, counter + 1], np.int64))
        return int(np.random.SeedSequence([seed, counter]).generate_state(1)[0])

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        return {"seed": self._initial_seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)


class _GlobalGenerator:
    """The generator for calls without a seed; it has a state on each device that draws."""

    def __init__(self) -> None:
        self.seed: int | None = None
        self.states: dict[str, Variable] = {}

    def state_on(self, device_name: str) -> Variable:
        if self.seed is None:
            self.seed = make_default_seed()
        if device_name not in self.states:
            name = "global_seed_generator_state"
            self.states[device_name] = _state(self.seed, name, device_name)
        return self.states[device_name]

    def restore(self, device_name: str, seed: int, counter: int) -> None:
        """Goes on on a device where a generator of another process was."""
        self.seed = seed
        self.state_on(device_name).assign(np.array([seed, counter], np.int64))

    def reset(self, seed: int) -> None:
        """Starts anew in place, so that programs that are compiled already use the new seed too."""
        self.seed = seed
        for state in self.states.values():
            state.assign(np.array([seed, 0], np.int64))


_global_generator = _GlobalGenerator()


def global_state(device_name: str | None = None) -> Variable:
    """The state of the generator that is used where no seed is given, int64 (2,) {seed, counter}.

    Args:
        device_name: Each device has one; by default that of the current device.
    """
    from kerascnn.device import current

    return _global_generator.state_on(device_name or current())


def global_places() -> dict[str, list[int]]:
    """Returns the seed and the counter of the generator that is used where no seed is given, for
    each device that has drawn from it.
    """
    states = _global_generator.states
    return {device: [int(n) for n in state.numpy()] for device, state in states.items()}


def global_seed() -> int | None:
    """Returns the seed of that generator, or None before its first draw."""
    return _global_generator.seed


def restore_global_places(places: dict[str, list[int]]) -> None:
    """Makes that generator go on where `global_places` found it.

    Args:
        places: What `global_places` returned. Devices that are not there are left out.
    """
    usable = {name for name, is_usable, _ in _core.list_devices() if is_usable}
    for device, (seed, counter) in places.items():
        if device in usable:
            _global_generator.restore(device, int(seed), int(counter))


_num_default_seeds = 0


def num_default_seeds() -> int:
    """Returns how many seeds were taken from Python's generator so far."""
    return _num_default_seeds


def make_default_seed() -> int:
    """A seed from Python's generator, which `utils.set_random_seed` fixes."""
    global _num_default_seeds
    _num_default_seeds += 1
    return _python_random.randint(1, int(1e9))


def reset_global_generator(seed: int) -> None:
    """Starts the generator that is used where no seed is given anew."""
    _global_generator.reset(seed)


def _state(seed: int, path: str, device_name: str | None = None, counter: int = 0) -> Variable:
    *scopes, name = path.split("/")
    with naming.absolute_scope(tuple(scopes)):
        return Variable(
            np.array([seed, counter], np.int64), trainable=False, name=name, device_name=device_name
        )


def draw(name: str, inputs: list[Any], attributes: dispatch.Attributes, seed: Seed) -> Any:
    """Runs or records one op that draws from the state of `seed`."""
    trace = tracing.current()
    like = dispatch.first_tensor(*inputs)
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        # A number is a new generator each time, so every draw with it gives the same numbers.
        rng = dispatch.convert(np.array([int(seed), 0], np.int64), like=like)
        return dispatch.apply_one(name, [*inputs, rng], {**attributes, "stream": 0})
    if seed is not None and not isinstance(seed, SeedGenerator):
        raise ValueError(
            f"`seed` must be an integer, a keras.random.SeedGenerator or None. Received: {seed!r}"
        )
    if seed is not None and (scope := current_scope()) is not None and scope.holds(seed.state.core):
        # The state is a value, which advances in a trace as it does in eager calls.
        return _draw_from(seed.state, name, inputs, attributes)
    if trace is not None:
        if seed is None:
            state = global_state(trace.device)
        else:
            state = seed.state if trace.scratch else seed.state_on(trace.device)
        rng, stream = trace.draw(state)
        stream = replicas.own_stream(stream)
        return dispatch.apply_one(name, [*inputs, rng], {**attributes, "stream": stream})
    where = None if like is None else like.device
    if seed is None:
        state = global_state(where)
    else:
        state = seed.state if where is None else seed.state_on(where)
    streams = tracing.current_streams()
    if streams is not None:
        stream = replicas.own_stream(streams.next_stream(state))
        return dispatch.apply_one(name, [*inputs, state.value], {**attributes, "stream": stream})
    return _draw_from(state, name, inputs, attributes)


def _draw_from(
    state: Variable, name: str, inputs: list[Any], attributes: dispatch.Attributes
) -> Any:
    """Runs an op that draws, and advances the state."""
    rng = state.value
    if _core.is_recording() and isinstance(rng, _core.Tensor):
        # The gradient of dropout reads the state again, which has advanced by then.
        rng = rng.copy()
    result = dispatch.apply_one(name, [*inputs, rng], {**attributes, "stream": 0})
    state.assign(dispatch.apply_one("random_advance", [state.value], {"amount": 1}))
    return result


def split_seed(seed: Seed, count: int) -> list[Seed]:
    """Makes seeds for several draws: of a generator, or several numbers from one."""
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        words = np.random.SeedSequence(int(seed)).generate_state(count)
        return [int(word) for word in words]
    return [seed] * count
