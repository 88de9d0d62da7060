"""The pickles in PyTorch's files, run by a machine that can make tensors and nothing else.

A pickle is a program: its opcodes push values and call what they name. This machine knows the
opcodes of dictionaries, lists, tuples, texts and numbers, and a table of what PyTorch calls for
tensors. Whatever else a file names is an error, and is neither imported nor looked for. What the
values may take is bounded by the length of the pickle.
Format: https://docs.python.org/3/library/pickletools.html
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

# Bytes of values: these, and so many for each byte of the pickle.
_FREE, _PER_BYTE = 32 << 20, 3
_MEMO_ENTRY, _NUMBER, _CONTAINER, _TENSOR = 100, 40, 80, 400
_MAX_RANK = 64  # of NumPy's arrays
_LARGEST = 1 << 62
_MAX_TEXT = 1 << 20

STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
WAY_OUT = (
    "In PyTorch, save the weights alone: torch.save(model.state_dict(), path), or "
    "safetensors.torch.save_file(model.state_dict(), path)."
)


class ForeignError(ValueError):
    """The file is whole, but holds something that is no tensor; the message says what."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers in a file, which tensors are views of.

    Attributes:
        key: Its name in the file.
        dtype: A name of `kerascnn.dtypes`.
        count: How many numbers the file has under that name.
        begin: Where a view of old files begins,
        size: and how many numbers it has.
    """

    key: str
    dtype: str
    count: int
    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage; offset and strides count numbers. It is inside, which was checked."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _StorageType(NamedTuple):
    dtype: str


class _Callable(NamedTuple):
    call: Callable[..., Any]


def load(content: bytes | memoryview, begin: int = 0) -> tuple[Any, int]:
    """The value of a pickle that begins somewhere in a file, and where it ends.

    Returns:
        Dictionaries, lists, tuples, texts, numbers, True, False, None and `Tensor`s in each other;
        a `torch.Size` is a tuple, a `torch.dtype` its name.

    Raises:
        ForeignError: for a pickle that is made of something else.
        ValueError: for what is no pickle, or is damaged.
    """
    machine = _Machine(memoryview(content), begin)
    try:
        return machine.run(), machine.place
    except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"its pickle is damaged at byte {machine.place} ({reason})") from error


# What pickles of tensors call -----------------------------------------------------------------


def _ordered_dict(*pairs: Any) -> dict[Any, Any]:
    if pairs:
        raise TypeError("an OrderedDict begins with values")
    return {}


def _size(numbers: Any) -> tuple[int, ...]:
    return _whole_numbers(numbers, "a torch.Size")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    """A tensor; what follows says whether it has gradients, and hooks, of which there are none."""
    if not isinstance(storage, Storage):
        raise TypeError("a tensor is a view of something else than a storage")
    shape = _whole_numbers(shape, "the shape of a tensor")
    strides = _whole_numbers(strides, "the strides of a tensor")
    (offset,) = _whole_numbers((offset,), "the offset of a tensor")
    if len(shape) != len(strides) or len(shape) > _MAX_RANK:
        raise ValueError(f"a tensor has {len(shape)} sizes and {len(strides)} strides")
    count = 1
    for n in shape:
        count *= max(n, 1)
    if count > _LARGEST:
        raise ValueError(f"a tensor has the shape {shape}")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if 0 not in shape and last >= storage.size:
        raise ValueError(
            f"a tensor of shape {shape} with strides {strides} reaches the number {last} of a "
            f"storage of {storage.size}"
        )
    return Tensor(storage, offset, shape, strides)


def _parameter(data: Any, *_: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise TypeError("a parameter holds something else than a tensor")
    return data


def _whole_numbers(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, tuple) or any(type(n) is not int for n in values):
        raise TypeError(f"{what} is made of something else than whole numbers")
    if any(not 0 <= n < _LARGEST for n in values):
        raise ValueError(f"{what} has the numbers {values[:8]}")
    return values


def _table() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): _Callable(_ordered_dict),
        ("torch", "Size"): _Callable(_size),
        ("torch._utils", "_rebuild_tensor"): _Callable(_tensor),
        ("torch._utils", "_rebuild_tensor_v2"): _Callable(_tensor),
        ("torch._utils", "_rebuild_parameter"): _Callable(_parameter),
        ("torch._utils", "_rebuild_parameter_with_state"): _Callable(_parameter),
    }
    for name, dtype in STORAGES.items():
        for module in ("torch", "torch.cuda"):
            found[module, name] = _StorageType(dtype)
        found["torch", dtype] = dtype
    return found


_KNOWN = _table()


# The machine ----------------------------------------------------------------------------------


class _Machine:
    """Runs a pickle: a stack, marks in it, and a memo of values by number."""

    def __init__(self, content: memoryview, begin: int) -> None:
        self.content, self.place = content, begin
        self._begin = begin
        self._cost = 0
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []  # what was below each mark
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        content, steps = self.content, _STEPS
        while self.place < len(content):
            opcode = content[self.place]
            self.place += 1
            if opcode == _STOP:
                return self._pop()
            step = steps.get(opcode)
            if step is None:
                self._refuse(opcode)
            step(self)
        raise ValueError(f"its pickle ends in the middle, at byte {len(content)}")

    def _refuse(self, opcode: int) -> NoReturn:
        import pickletools

        found = [code.name for code in pickletools.opcodes if ord(code.code) == opcode]
        if not found:
            raise ValueError(f"its pickle is damaged at byte {self.place} ({opcode:#x})")
        raise ForeignError(f"its pickle has the opcode {found[0]}, which tensors don't need")

    # What opcodes need

    def _bytes(self, count: int) -> bytes:
        if count > len(self.content) - self.place:
            raise ValueError(f"its pickle ends in the middle, at byte {len(self.content)}")
        self.place += count
        return bytes(self.content[self.place - count : self.place])

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _line(self) -> str:
        for end in range(self.place, min(self.place + 500, len(self.content))):
            if self.content[end] == 10:
                text = bytes(self.content[self.place : end]).decode()
                self.place = end + 1
                return text
        raise ValueError(f"its pickle has a name without an end at byte {self.place}")

    def _charge(self, cost: int) -> None:
        self._cost += cost
        if self._cost > _FREE + _PER_BYTE * (self.place - self._begin):
            raise ForeignError("its pickle makes far more values than weights need")

    def _push(self, value: Any, cost: int) -> None:
        self._charge(cost)
        self._stack.append(value)

    def _pop(self) -> Any:
        return self._stack.pop()

    def _popped(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def _since_mark(self) -> list[Any]:
        values, self._stack = self._stack, self._marks.pop()
        return values

    def _push_text(self, count: int, encoding: str = "utf-8") -> None:
        if count > _MAX_TEXT:
            raise ForeignError(f"its pickle has a text of {count} bytes")
        text = self._bytes(count).decode(encoding)
        self._push(text, sys.getsizeof(text))

    # Opcodes

    def _protocol(self) -> None:
        (number,) = self._bytes(1)
        if number > 5:
            raise ValueError(f"its pickle has the protocol {number}; there are those up to 5")

    def _frame(self) -> None:
        self._number("<Q")  # its length is of no use to a reader that has all of the file

    def _mark(self) -> None:
        self._charge(_CONTAINER)
        self._marks.append(self._stack)
        self._stack = []

    def _long(self) -> None:
        (count,) = self._bytes(1)
        self._push(int.from_bytes(self._bytes(count), "little", signed=True), _NUMBER + count)

    def _tuple(self, count: int | None = None) -> None:
        values = self._since_mark() if count is None else self._popped(count)
        self._push(tuple(values), _CONTAINER + 8 * len(values))

    def _put(self, key: int) -> None:
        self._charge(_MEMO_ENTRY)
        self._memo[key] = self._stack[-1]

    def _get(self, key: int) -> None:
        if key not in self._memo:
            raise ValueError(f"its pickle is damaged at byte {self.place} (no value {key})")
        self._push(self._memo[key], 8)

    def _append(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise TypeError("something is appended to what is no list")
        self._charge(16 * len(values))
        target += values

    def _set(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise TypeError("an entry is set in what is no dictionary")
        self._charge(_MEMO_ENTRY * (len(values) // 2))
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Other keys can have hashes that a file chooses: deep tuples, numbers that collide.
            if type(key) is not str and not (type(key) is int and abs(key) < 1 << 31):
                raise ForeignError(f"its pickle has a key of type {type(key).__name__}")
            target[key] = value

    def _global(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise TypeError("a name is no text")
        known = _KNOWN.get((module, name))
        if known is None:
            raise ForeignError(
                f"it needs {module[:200]}.{name[:200]}; only tensors in dictionaries and lists are "
                "read, since everything else in a pickle is code that would run"
            )
        self._push(known, 8)

    def _stack_global(self) -> None:
        self._global(*self._popped(2))

    def _reduce(self) -> None:
        function, arguments = self._popped(2)
        if not isinstance(function, _Callable) or type(arguments) is not tuple:
            raise TypeError("it calls what can't be called")
        self._push(function.call(*arguments), _TENSOR)

    def _build(self) -> None:
        """Drops attributes: a state dict has `_metadata`, the versions of PyTorch's modules."""
        self._pop()
        if type(self._stack[-1]) is not dict:
            raise TypeError("attributes are set on what is no dictionary")

    def _persistent(self) -> None:
        values = self._pop()
        if type(values) is not tuple or len(values) not in (5, 6) or values[0] != "storage":
            raise TypeError("a reference leads to something else than a storage")
        kind, key, count = values[1], values[2], values[4]
        if not isinstance(kind, _StorageType) or type(key) is not str:
            raise TypeError("a storage has no type or no name")
        (count,) = _whole_numbers((count,), "the size of a storage")
        begin, size = 0, count
        if len(values) == 6 and values[5] is not None:
            begin, size = _whole_numbers(values[5][1:], "the view of a storage")
            if begin + size > count:
                raise ValueError(
                    f"a view reaches the number {begin + size} of a storage of {count}"
                )
        self._push(Storage(key, kind.dtype, count, begin, size), _TENSOR)


def _steps() -> dict[int, Callable[[_Machine], None]]:
    """What each opcode does."""
    m = _Machine
    steps: dict[bytes, Callable[[_Machine], None]] = {
        b"\x80": m._protocol,
        b"\x95": m._frame,
        b"(": m._mark,
        b"N": lambda s: s._push(None, 8),
        b"\x88": lambda s: s._push(True, 8),
        b"\x89": lambda s: s._push(False, 8),
        b"K": lambda s: s._push(s._bytes(1)[0], 8),
        b"M": lambda s: s._push(s._number("<H"), _NUMBER),
        b"J": lambda s: s._push(s._number("<i"), _NUMBER),
        b"\x8a": m._long,
        b"G": lambda s: s._push(s._number(">d"), _NUMBER),
        b"X": lambda s: s._push_text(s._number("<I")),
        b"\x8c": lambda s: s._push_text(s._number("<B")),
        # Texts of Python 2.
        b"U": lambda s: s._push_text(s._number("<B"), "latin1"),
        b"T": lambda s: s._push_text(s._number("<I"), "latin1"),
        b"}": lambda s: s._push({}, _CONTAINER),
        b"]": lambda s: s._push([], _CONTAINER),
        b")": lambda s: s._tuple(0),
        b"\x85": lambda s: s._tuple(1),
        b"\x86": lambda s: s._tuple(2),
        b"\x87": lambda s: s._tuple(3),
        b"t": m._tuple,
        b"a": lambda s: s._append([s._pop()]),
        b"e": lambda s: s._append(s._since_mark()),
        b"s": lambda s: s._set(s._popped(2)),
        b"u": lambda s: s._set(s._since_mark()),
        b"q": lambda s: s._put(s._number("<B")),
        b"r": lambda s: s._put(s._number("<I")),
        b"\x94": lambda s: s._put(len(s._memo)),
        b"h": lambda s: s._get(s._number("<B")),
        b"j": lambda s: s._get(s._number("<I")),
        b"c": lambda s: s._global(s._line(), s._line()),
        b"\x93": m._stack_global,
        b"R": m._reduce,
        b"b": m._build,
        b"Q": m._persistent,
    }
    return {opcode[0]: step for opcode, step in steps.items()}


_STOP = ord(".")
_STEPS = _steps()
