"""Runs random models in a process of its own: `python model_child.py models SEED BEGIN END FOLDER`.

What is said is what `child.py` says. The models in corpus/models.jsonl come first.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

# Norm of a difference to the norm of the values: sums of some hundred float32 terms in two orders,
# through up to eight layers and two steps of training.
_NEAR = 2e-5
# Where a model enlarges rounding more than that, neither may be this many times further from
# float64 than the other, plus the bound above.
_CHANCE = 30
_KEYS = ("outputs", "losses", "weights", "outputs after training")


def distance(a: Any, b: Any) -> float:
    """The norm of a difference to the norm of the second; infinite where only one is no number."""
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    if a.shape != b.shape:
        return float("inf")
    known = np.isfinite(b)
    if not np.array_equal(known, np.isfinite(a)):
        return float("inf")
    scale = float(np.linalg.norm(b[known]))
    return float(np.linalg.norm(a[known] - b[known])) / (scale if scale > 1e-6 else 1.0)


def ran(
    model: Any,
    random_models: Any,
    description: dict[str, Any],
    seed: int,
    values: list[Any] | None = None,
) -> dict[str, Any]:
    """What a compiled model computes from given weights: outputs, losses and weights."""
    model.set_weights(random_models.new_weights(model, seed) if values is None else values)
    given = random_models.data(description, tuple(model.output_shape))
    result = {"outputs": np.asarray(model.predict(given["x"], verbose=0))}
    result["losses"], weights = random_models.train(model, given)
    result["weights"] = np.concatenate([w.reshape(-1) for w in weights]) if weights else []
    result["outputs after training"] = np.asarray(model.predict(given["x"], verbose=0))
    return result


def shaken(description: dict[str, Any], library: Any) -> dict[str, Any]:
    """What a model computes when its weights are changed by a few roundings."""
    from fuzzing import random_models

    seed = description["seed"]
    model = compiled(description, library)
    values = random_models.new_weights(model, seed)
    rng = np.random.default_rng(seed + 1)
    changed = [(v * (1 + rng.uniform(-3e-7, 3e-7, v.shape))).astype("float32") for v in values]
    return ran(model, random_models, description, seed, changed)


def compiled(
    description: dict[str, Any], library: Any, policy: str | None = None, **options: Any
) -> Any:
    from fuzzing import random_models

    model = random_models.build(description, library, policy)
    random_models.compile_model(model, library, description, **options)
    return model


def apart(a: dict[str, Any], b: dict[str, Any], exact: Any) -> str:
    """How two results differ by more than rounding; `exact` makes what float64 gives."""
    far = [key for key in _KEYS if not distance(a[key], b[key]) < _NEAR]
    if not far:
        return ""
    wide = exact()
    for key in far:
        first, second = distance(a[key], wide[key]), distance(b[key], wide[key])
        if np.isinf(second) and (np.isinf(first) or first < _NEAR):
            # An overflow of float32; or a NaN of the other's alone, as that of the slope of a
            # norm at 0 in Keras.
            continue
        low = min(first, second)
        if max(first, second) > _NEAR + _CHANCE * low:
            return f"{key}: {first:.2g} from float64, the other {second:.2g}"
    return ""


def only_rounding(received: dict[str, Any], expected: dict[str, Any], few: dict[str, Any]) -> bool:
    """Tells whether results differ no more than those of weights that differ by roundings."""
    spreads = {key: distance(few[key], received[key]) for key in _KEYS}
    for key in _KEYS:
        if max(spreads.values()) > _CHANCE * _NEAR and not np.all(np.isfinite(expected[key])):
            continue  # roundings decide what comes out, and whether that is a number
        if distance(received[key], expected[key]) > _NEAR + _CHANCE * spreads[key]:
            return False
    return True


def check(
    description: dict[str, Any], models: tuple[Any, Any], libraries: tuple[Any, Any], folder: Path
) -> str:
    """What is wrong with a model, "" where nothing is.

    Raises:
        Refused: where both refuse data that they took the shape of.
    """
    from fuzzing import random_models

    here, there = models
    own, _ = libraries
    a, b = random_models.configuration(here), random_models.configuration(there)
    if a != b:
        return f"configuration: {first_difference(a, b)}"
    shapes = [[tuple(w.shape) for w in m.weights] for m in models]
    if shapes[0] != shapes[1]:
        return f"weights {shapes[0]}, with Keras {shapes[1]}"
    for model, library in zip(models, libraries, strict=True):
        random_models.compile_model(model, library, description)
    seed = description["seed"]

    def exact() -> dict[str, Any]:
        return ran(compiled(description, own, "float64"), random_models, description, seed)

    try:
        expected = ran(there, random_models, description, seed)
    except Exception as error:
        try:
            ran(here, random_models, description, seed)
        except (ValueError, TypeError) as own_error:
            if str(own_error):
                raise random_models.Refused from own_error
        return f"only Keras refuses its data: {type(error).__name__}: {error!s:.500}"
    received = ran(here, random_models, description, seed)
    fault = apart(received, expected, exact)
    if fault and not only_rounding(received, expected, shaken(description, own)):
        return f"from Keras: {fault}"
    eager = compiled(description, own, run_eagerly=True)
    fault = apart(received, ran(eager, random_models, description, seed), exact)
    return (
        f"steps by Python: {fault}"
        if fault
        else check_files(description, models, libraries, folder)
    )


def check_files(
    description: dict[str, Any], models: tuple[Any, Any], libraries: tuple[Any, Any], folder: Path
) -> str:
    """What is wrong with a model that is saved and loaded, "" where nothing is."""
    from fuzzing import random_models

    here, there = models
    own, keras = libraries
    x = random_models.data(description, tuple(here.output_shape))["x"]
    ending = ".h5" if description["seed"] % 4 == 0 else ".keras"
    for model, library in ((here, own), (here, keras), (there, own)):
        if ending == ".h5" and library is keras:
            continue  # Keras on PyTorch builds optimizers of such files without variables
        other = random_models.saved_and_loaded(model, library, folder / f"model{ending}")
        outputs = np.asarray(other.predict(x, verbose=0))
        before = np.asarray(model.predict(x, verbose=0))
        if not distance(outputs, before) < 1e-3:
            return f"loaded by {library.__name__}: {distance(outputs, before):.2g} apart"
        a, b = random_models.configuration(other), random_models.configuration(here)
        if ending == ".h5":
            a, b = (random_models.without_build_shapes(c) for c in (a, b))
        if library is own and a.get("config") != b.get("config"):
            return f"loaded configuration: {first_difference(a, b)}"
    return ""


def first_difference(a: Any, b: Any, place: str = "") -> str:
    """Where two nested structures differ first."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            found = first_difference(a.get(key, "(none)"), b.get(key, "(none)"), f"{place}.{key}")
            if found:
                return found
        return ""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            found = first_difference(x, y, f"{place}[{i}]")
            if found:
                return found
        return ""
    return "" if a == b and type(a) is type(b) else f"{place}: {a!r:.200} and {b!r:.200}"


def run_case(given: Any, libraries: tuple[Any, Any], folder: Path) -> tuple[str, str, Any]:
    """Runs a description, or draws one with a generator. Returns outcome, fault and description."""
    from fuzzing import random_models

    description: Any = given
    try:
        if isinstance(given, Random):
            description, models = random_models.draw(given, libraries)
        else:
            description = json.loads(json.dumps(given))
            dtype = "int32" if description["words"] else "float32"
            builders = tuple(
                random_models.Builder(library, description["input"], dtype) for library in libraries
            )
            for node in description["nodes"]:
                random_models.both(node, builders)  # type: ignore[arg-type]
            models = tuple(b.model(description["sequential"]) for b in builders)  # type: ignore[assignment]
        return "compared", check(description, models, libraries, folder), description
    except random_models.Refused:
        return "refused", "", description
    except random_models.Differs as error:
        return "differs", f"{error}", error.description or description


def main(kind: str, seed: int, begin: int, end: int, folder: Path) -> None:
    import keras

    import kerascnn
    from fuzzing import child

    child.take_stdout()
    warnings.simplefilter("ignore")
    keras.config.disable_traceback_filtering()
    libraries = (kerascnn, keras)
    kept = Path(__file__).with_name("corpus") / f"{kind}.jsonl"
    models = [json.loads(s) for s in kept.read_text().splitlines()] if kept.exists() else []
    for case in range(begin, len(models) + end):
        number = case - len(models)
        given = models[case] if number < 0 else Random(f"{kind} {seed} {number}")
        label = f"{kind} {seed} {number}"
        child.say({"case": label, "number": case})
        start = time.process_time()
        description = None
        for library in libraries:
            library.utils.clear_session()
        try:
            outcome, fault, description = run_case(given, libraries, folder)
        except Exception as error:
            outcome = type(error).__name__
            fault = "".join(traceback.format_exception(error)[-5:])[-2500:]
            description = getattr(error, "description", None)
        if fault and description is not None:
            label += f" {json.dumps(description)}"
        entry = {"done": label, "outcome": outcome, "fault": fault}
        child.say({**entry, "slow": time.process_time() - start})


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != here]
    sys.path.insert(0, str(here.parent))
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["KERAS_BACKEND"] = "torch"
    arguments = sys.argv[1:]
    main(arguments[0], *(int(a) for a in arguments[1:4]), Path(arguments[4]))
