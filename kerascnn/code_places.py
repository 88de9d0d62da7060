"""Finds where in the user's code something happens, without running it."""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_NOT_KNOWN = object()
# Code in these modules is not the user's.
_LIBRARIES = ("kerascnn", "numpy", "random", "torch", "keras", "jax", "tensorflow")
# These methods run before a step is recorded.
_BEFORE = ("__init__", "__new__", "build", "get_config", "from_config")


def shown(file: str, number: int) -> str:
    """Returns a line of code in the form that errors show."""
    line = linecache.getline(file, number).strip()
    return f'File "{file}", line {number}' + (f": `{line}`" if line else "")


def methods_of(objects: Iterable[Any]) -> list[FunctionType]:
    """Returns the methods of the user's classes of some objects, except constructors."""
    found = {}
    for obj in objects:
        for cls in type(obj).__mro__:
            if _is_library(cls.__module__) or cls is object:
                continue
            for name, value in vars(cls).items():
                function = _function(value)
                if function is not None and name not in _BEFORE:
                    found[id(function)] = function
    return list(found.values())


def uses_of(
    functions: Iterable[FunctionType], is_meant: Callable[[Any], bool]
) -> list[tuple[str, int]]:
    """The lines, as file and number, that name a certain function of a module.

    Functions of the user's that are named in what is read are read too.

    Args:
        functions: What to read first.
        is_meant: Whether an object is what is looked for.
    """
    waiting, seen = list(functions), set()
    places: dict[tuple[str, int], None] = {}
    while waiting:
        function = waiting.pop(0)
        if id(function) in seen:
            continue
        seen.add(id(function))
        for value, file, number in _named(function, function.__code__):
            if is_meant(value):
                places[file, number] = None
                continue
            inner = _function(value)
            if inner is not None and not _is_library(inner.__module__):
                waiting.append(inner)
    return list(places)


def _function(value: Any) -> FunctionType | None:
    if isinstance(value, (staticmethod, classmethod, MethodType)):
        value = value.__func__
    value = getattr(value, "__wrapped__", value)
    return value if isinstance(value, FunctionType) else None


def _is_library(module: Any) -> bool:
    name = str(module).partition(".")[0]
    return name in _LIBRARIES or name in sys.stdlib_module_names


def _named(function: FunctionType, code: CodeType) -> Iterator[tuple[Any, str, int]]:
    """Yields what a function's code names, if it is known; `a.b.c` works for modules a, b."""
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
    local: dict[str, Any] = {}
    value, imported = _NOT_KNOWN, _NOT_KNOWN
    lines = _lines(code)
    for instruction in dis.get_instructions(code):
        kind, name = instruction.opname, instruction.argval
        before, value = value, _NOT_KNOWN
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = function.__globals__.get(name, _NOT_KNOWN)
        elif kind in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
            value = _contents(cells[name])
        elif kind == "LOAD_FAST":
            value = local.get(name, _NOT_KNOWN)
        elif kind in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            source = imported if kind == "IMPORT_FROM" else before
            value = getattr(source, name, _NOT_KNOWN) if _is_module(source) else _NOT_KNOWN
        elif kind == "IMPORT_NAME":
            imported = value = sys.modules.get(name, _NOT_KNOWN)
        elif kind == "STORE_FAST":
            local[name] = before
        elif kind in ("CACHE", "PRECALL", "NOP"):
            value = before
        if value is not _NOT_KNOWN and not kind.startswith("IMPORT"):
            yield value, code.co_filename, lines.get(instruction.offset, code.co_firstlineno)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(function, constant)


def _lines(code: CodeType) -> dict[int, int]:
    """Returns the line of each instruction, by the instruction's offset."""
    return {
        offset: number
        for start, end, number in code.co_lines()
        if number is not None
        for offset in range(start, end, 2)
    }


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is still empty
        return _NOT_KNOWN


def _is_module(value: Any) -> bool:
    return isinstance(value, ModuleType)
