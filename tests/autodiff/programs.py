"""Random programs with tapes, and what they mean.

A program is a list of statements, which `run` carries out on a machine. `Machine` is kerascnn, at
once or while a function is compiled. `Meaning` computes with NumPy in float64 what TensorFlow's
tapes mean: each tape has a list of calls and a set of the values that it follows.
"""

from __future__ import annotations

import numpy as np

import kerascnn as keras
from kerascnn import ops

OPS = {"add": 2, "subtract": 2, "multiply": 2, "sin": 1, "cos": 1, "negative": 1}
NUM_INPUTS, NUM_VARIABLES = 2, 3
TRAINABLE = (True, True, False)


class Generator:
    """Draws a program, and tracks as much of the state as it needs to draw only allowed statements.

    Args:
        assigns: Whether variables are assigned to.
        late: Whether tensors are watched after they were used. Tapes that record at once then
            follow them in later calls, but not in gradients of the earlier calls.
    """

    def __init__(self, rng, assigns, late):
        self.rng, self.assigns, self.late = rng, assigns, late
        self.used = set()
        self.tensors = list(range(NUM_INPUTS))  # these may be used
        self.readings = {}  # maps tensors that share a variable's memory to the variable
        self.count = NUM_INPUTS
        self.tapes = []  # what is known of each tape, see `tape`

    def pick(self, items):
        return items[self.rng.integers(len(items))]

    def program(self, length):
        body = self.body(length, depth=0)
        for number, tape in enumerate(self.tapes):
            if tape["persistent"] or not tape["used"]:
                body.append(self.gradient(0, number))
        return body

    def body(self, length, depth):
        return [s for _ in range(length) if (s := self.statement(depth)) is not None]

    def statement(self, depth):
        kinds = ["call"] * 8 + ["read", "gradient", "gradient", "watch", "watch_variable", "stop"]
        kinds += ["tape"] * (3 if depth < 3 else 0) + ["assign"] * (2 if self.assigns else 0)
        kinds += ["reset"] if self.rng.random() < 0.1 else []
        return getattr(self, self.pick(kinds))(depth)

    def new(self):
        self.tensors.append(self.count)
        for number in self.recording():
            self.tapes[number]["made"].append(self.count)
        self.count += 1
        return self.count - 1

    def of_tape(self, tape, kind):
        """Picks something that the tape knows, most of the time."""
        known = [x for x in tape[kind] if x in self.tensors]
        return self.pick(known[-8:] if known and self.rng.random() < 0.85 else self.tensors)

    def operand(self):
        if self.rng.random() < 0.35:
            return ("variable", int(self.rng.integers(NUM_VARIABLES)))
        tensor = self.operand_tensor()
        self.used.add(tensor)
        return ("tensor", tensor)

    def watchable(self):
        tensor = self.operand_tensor()
        return tensor if self.late or tensor not in self.used else None

    def operand_tensor(self):
        # New tensors are picked more often.
        return self.pick(self.tensors[-6:] if self.rng.random() < 0.7 else self.tensors)

    def call(self, depth):
        name = self.pick(list(OPS))
        operands = [self.operand() for _ in range(OPS[name])]
        self.new()
        return ("call", name, operands)

    def read(self, depth):
        variable = int(self.rng.integers(NUM_VARIABLES))
        self.readings[self.new()] = variable
        return ("read", variable)

    def assign(self, depth):
        variable, value = int(self.rng.integers(NUM_VARIABLES)), self.pick(self.tensors)
        # Without compiling a reading shares the variable's memory, which changes.
        self.tensors = [x for x in self.tensors if self.readings.get(x) != variable]
        return ("assign", variable, value) if value in self.tensors else None

    def recording(self):
        return [n for n, t in enumerate(self.tapes) if t["records"]]

    def watch(self, depth):
        if not self.recording():
            return None
        number, tensor = self.pick(self.recording()), self.watchable()
        if tensor is None:
            return None
        self.tapes[number]["watched"].append(tensor)
        return ("watch", number, tensor)

    def watch_variable(self, depth):
        if not self.recording():
            return None
        return ("watch_variable", self.pick(self.recording()), int(self.rng.integers(3)))

    def reset(self, depth):
        if not self.recording():
            return None
        number = self.pick(self.recording())
        self.tapes[number]["used"] = False
        return ("reset", number)

    def tape(self, depth):
        persistent, accessed = self.rng.random() < 0.4, self.rng.random() < 0.8
        watched = [x for _ in range(self.rng.integers(3)) if (x := self.watchable()) is not None]
        tape = {"records": True, "used": False, "persistent": bool(persistent)}
        self.tapes.append({**tape, "watched": watched, "made": []})
        tape, number = self.tapes[-1], len(self.tapes) - 1
        body = [("watch", number, tensor) for tensor in watched]
        body += self.body(int(self.rng.integers(4, 12)), depth + 1)
        tape["records"] = False
        return ("tape", number, bool(persistent), bool(accessed), body)

    def stop(self, depth):
        if not self.recording():
            return None
        number = self.pick(self.recording())
        self.tapes[number]["records"] = False
        # Gradients of this tape would end its recording, which has to go on.
        used = self.tapes[number]["used"]
        self.tapes[number]["used"] = True
        body = self.body(int(self.rng.integers(1, 5)), depth + 1)
        self.tapes[number].update(records=True, used=used)
        return ("stop", number, body)

    def gradient(self, depth, number=None):
        usable = [n for n, t in enumerate(self.tapes) if t["persistent"] or not t["used"]]
        if not usable:
            return None
        number = self.pick(usable) if number is None else number
        tape = self.tapes[number]
        if not tape["persistent"]:
            tape.update(used=True, records=False)
        targets = [self.of_tape(tape, "made") for _ in range(self.rng.integers(1, 3))]
        # A gradient may be its weight itself, so a weight must not change as readings do.
        others = [x for x in self.tensors if x not in self.readings]
        weights = [self.pick(others) if self.rng.random() < 0.3 else None for _ in targets]
        self.used.update(w for w in weights if w is not None)
        sources = [("variable", v) for v in range(NUM_VARIABLES)]
        sources += [("tensor", self.of_tape(tape, kind)) for kind in ("watched", "made")]
        # The gradient of a tensor for itself is 1 in TensorFlow even where nobody watches it.
        sources = [s for s in sources if s[0] == "variable" or s[1] not in targets]
        found = [self.new() for _ in sources]
        return ("gradient", number, targets, weights, sources, found)


def run(program, machine, outputs):
    """Carries out the statements. Each gradient, or None, is appended to the outputs."""
    for statement in program:
        kind, arguments = statement[0], statement[1:]
        if kind == "tape":
            number, persistent, accessed, body = arguments
            with machine.tape(number, persistent, accessed):
                run(body, machine, outputs)
        elif kind == "stop":
            with machine.stopped(arguments[0]):
                run(arguments[1], machine, outputs)
        elif kind == "gradient":
            number, targets, weights, sources, _ = arguments
            found = machine.gradient(number, targets, weights, sources)
            outputs += found
            for gradient in found:
                # `keep` makes a new tensor, because two gradients may or may not be the same one.
                machine.keep(machine.constant(1.0) if gradient is None else gradient)
        else:
            getattr(machine, kind)(*arguments)
    return outputs


class Machine:
    """Runs statements with kerascnn."""

    def __init__(self, inputs, variables):
        self.tensors, self.variables, self.tapes = list(inputs), variables, {}

    def constant(self, value):
        return ops.full((2,), value, "float64")

    def keep(self, tensor):
        self.tensors.append(ops.multiply(tensor, self.constant(1.0)))

    def _operand(self, operand):
        kind, place = operand
        return self.variables[place] if kind == "variable" else self.tensors[place]

    def call(self, name, operands):
        self.tensors.append(getattr(ops, name)(*map(self._operand, operands)))

    def read(self, variable):
        self.tensors.append(self.variables[variable].value)

    def assign(self, variable, value):
        self.variables[variable].assign(self.tensors[value])

    def tape(self, number, persistent, accessed):
        self.tapes[number] = keras.GradientTape(persistent, accessed)
        return self.tapes[number]

    def stopped(self, number):
        return self.tapes[number].stop_recording()

    def reset(self, number):
        self.tapes[number].reset()

    def watch(self, number, tensor):
        self.tapes[number].watch(self.tensors[tensor])

    def watch_variable(self, number, variable):
        self.tapes[number].watch(self.variables[variable])

    def gradient(self, number, targets, weights, sources):
        targets = [self.tensors[x] for x in targets]
        weights = [
            ops.ones_like(t) if w is None else self.tensors[w]
            for w, t in zip(weights, targets, strict=True)
        ]
        return self.tapes[number].gradient(targets, list(map(self._operand, sources)), weights)


class _Tensor:
    def __init__(self, value):
        self.value = value


class _Variable:
    def __init__(self, value, trainable):
        self.value, self.trainable = value, trainable


class _Tape:
    """A tape as TensorFlow means it: a list of calls, and the values that it follows."""

    def __init__(self, meaning, persistent, accessed):
        self.meaning, self.persistent, self.accessed = meaning, persistent, accessed
        self.clear()

    def clear(self):
        self.followed, self.calls = set(), []

    def __enter__(self):
        self.meaning.recording.append(self)

    def __exit__(self, *_):
        if self in self.meaning.recording:
            self.meaning.recording.remove(self)


class _Stopped:
    def __init__(self, tape):
        self.tape = tape

    def __enter__(self):
        self.tape.__exit__()

    def __exit__(self, *_):
        self.tape.__enter__()


class Meaning:
    """Computes what a program means."""

    def __init__(self, inputs, variables):
        self.recording, self.tapes, self.largest = [], {}, 1.0
        self.tensors = [_Tensor(x) for x in inputs]
        self.variables = [_Variable(x, t) for x, t in zip(variables, TRAINABLE, strict=True)]

    def constant(self, value):
        return _Tensor(np.full(2, value))

    def _record(self, value, inputs, backward):
        result = _Tensor(value)
        self.largest = max(self.largest, np.abs(value).max())
        for tape in self.recording:
            followed = [x in tape.followed for x in inputs]
            if any(followed):
                tape.followed.add(result)
                tape.calls.append((result, inputs, followed, backward))
        return result

    def _apply(self, name, *x):
        rules = {
            "add": lambda g: (g, g),
            "subtract": lambda g: (g, self._apply("negative", g)),
            "multiply": lambda g: (
                self._apply("multiply", g, x[1]),
                self._apply("multiply", g, x[0]),
            ),
            "sin": lambda g: (self._apply("multiply", g, self._apply("cos", x[0])),),
            "cos": lambda g: (
                self._apply("multiply", g, self._apply("negative", self._apply("sin", x[0]))),
            ),
            "negative": lambda g: (self._apply("negative", g),),
        }
        value = getattr(np, name)(*(tensor.value for tensor in x))
        return self._record(value, x, rules[name])

    def keep(self, tensor):
        self.tensors.append(self._apply("multiply", tensor, self.constant(1.0)))

    def _read(self, variable):
        for tape in self.recording:
            if tape.accessed and variable.trainable:
                tape.followed.add(variable)
        return self._record(variable.value, (variable,), lambda g: (g,))

    def _operand(self, operand):
        kind, place = operand
        return self._read(self.variables[place]) if kind == "variable" else self.tensors[place]

    def call(self, name, operands):
        self.tensors.append(self._apply(name, *map(self._operand, operands)))

    def read(self, variable):
        self.tensors.append(self._read(self.variables[variable]))

    def assign(self, variable, value):
        self.variables[variable].value = self.tensors[value].value

    def tape(self, number, persistent, accessed):
        self.tapes[number] = _Tape(self, persistent, accessed)
        return self.tapes[number]

    def stopped(self, number):
        return _Stopped(self.tapes[number])

    def reset(self, number):
        self.tapes[number].clear()

    def watch(self, number, tensor):
        self.tapes[number].followed.add(self.tensors[tensor])

    def watch_variable(self, number, variable):
        self.tapes[number].followed.add(self.variables[variable])

    def gradient(self, number, targets, weights, sources):
        tape = self.tapes[number]
        if not tape.persistent:
            tape.__exit__()
        found = {}
        seeds = [self.constant(1.0) if w is None else self.tensors[w] for w in weights]
        for target, seed in zip(targets, seeds, strict=True):
            if self.tensors[target] in tape.followed:
                self._add(found, self.tensors[target], seed)
        for result, inputs, followed, backward in reversed(list(tape.calls)):
            if result not in found:
                continue
            gradients = backward(found[result])
            for x, is_followed, gradient in zip(inputs, followed, gradients, strict=True):
                if is_followed:
                    self._add(found, x, gradient)
        places = [
            self.variables[i] if kind == "variable" else self.tensors[i] for kind, i in sources
        ]
        return [found.get(x) for x in places]

    def _add(self, found, x, gradient):
        found[x] = self._apply("add", found[x], gradient) if x in found else gradient
