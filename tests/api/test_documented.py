"""Public functions of ops and activations say in docstrings what they take, return and raise."""

import ast
import inspect
import re
import textwrap

import pytest

import kerascnn

NAMESPACES = {
    "ops": kerascnn.ops,
    "ops.image": kerascnn.ops.image,
    "ops.linalg": kerascnn.ops.linalg,
    "ops.nn": kerascnn.ops.nn,
    "ops.numpy": kerascnn.ops.numpy,
    "activations": kerascnn.activations,
}


def public_functions():
    """Each public function once, under the first of its names."""
    found = {}
    for path, namespace in NAMESPACES.items():
        for name in getattr(namespace, "__all__", vars(namespace)):
            function = inspect.unwrap(getattr(namespace, name))
            if not name.startswith("_") and inspect.isfunction(function):
                found.setdefault(function, f"{path}.{name}")
    return [pytest.param(function, id=name) for function, name in found.items()]


def raises_itself(function):
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def missing_parts(function):
    """The parameters that "Args" does not name, and the sections that are not there."""
    text = inspect.getdoc(function) or ""
    about = re.search(r"^Args:\n((?: {4}.*\n?)+)", text, re.MULTILINE)
    names = re.findall(r"^ {4}([\w, ]+): ", about[1] if about else "", re.MULTILINE)
    described = {name.strip() for several in names for name in several.split(",")}
    missing = [name for name in inspect.signature(function).parameters if name not in described]
    missing += [part for part in ("Returns:\n", ">>> ") if part not in text]
    return missing + (["Raises:"] if raises_itself(function) and "Raises:\n" not in text else [])


@pytest.mark.parametrize("function", public_functions())
def test_a_docstring_says_what_a_caller_needs(function):
    assert not missing_parts(function)


def test_what_is_missing_is_found():
    def silent(x, axis=0):
        raise ValueError(x)

    def vague(x, axis=0):
        """Does something.

        Args:
            x: Input.

        Returns:
            Output.
        """

    assert missing_parts(silent) == ["x", "axis", "Returns:\n", ">>> ", "Raises:"]
    assert missing_parts(vague) == ["axis", ">>> "]
    assert len(public_functions()) > 340
