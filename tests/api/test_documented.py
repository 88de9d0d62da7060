"""Every public name says in its docstring what it is, what it takes, and shows a use of it.

The public names are those of the reference: docs/_extensions/api_pages.py lists them for the site.
That the examples run is tested in test_docstrings.py.
"""

import ast
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import kerascnn

NO_SECTIONS = {
    # These are not made by hand.
    "kerascnn.DeviceError",
    "kerascnn.OutOfMemoryError",
    "kerascnn.Tensor",
}
# Packages of packages, whose own names are those of `utils`; and the module of Keras 2's files.
WITHOUT_A_PAGE = ("datasets", "legacy", "preprocessing")
# What is called to train, use and keep a model. Its examples are worth most.
ENTRY_POINTS = {
    kerascnn.Model: "compile evaluate export fit load_weights predict predict_on_batch profile "
    "quantize save save_pretrained save_weights summary test_on_batch to_json train_on_batch",
    kerascnn.Sequential: "add pop",
    kerascnn.layers.Layer: "add_loss add_weight stateless_call",
    kerascnn.GradientTape: "gradient jacobian watch",
}


def reference():
    """The module that writes the reference, without the packages that are not installed."""
    path = Path(__file__).parents[2] / "docs" / "_extensions" / "api_pages.py"
    spec = importlib.util.spec_from_file_location("api_pages", path)
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    pages.leave_out_what_cannot_be_imported()
    return pages


def public_names():
    """What the reference describes: (name, function or class), each once."""
    pages = reference()
    home = pages.homes()
    for package in pages.PACKAGES:
        module = importlib.import_module(package)
        for name in pages.public_names(module):
            value = getattr(module, name)
            # What is the same under several names is described under one of them.
            path = f"{package}.{name}"
            if callable(value) and home.get(id(value), path) == path:
                yield path, value


def public_members():
    """The methods and properties of public classes: (name, owner, method or property)."""
    seen = set()
    for path, cls in public_names():
        for base in cls.__mro__ if inspect.isclass(cls) else ():
            for name, value in vars(base).items():
                is_ours = base.__module__.startswith("kerascnn") and not name.startswith("_")
                # A name of older versions is there for its error message only.
                if is_ours and (base, name) not in seen and _is_method(cls, name, value):
                    seen.add((base, name))
                    yield f"{path}.{name}", cls, name


def _is_method(cls, name, value):
    if isinstance(value, property):
        return True
    is_function = inspect.isroutine(value) or isinstance(value, (staticmethod, classmethod))
    return is_function and hasattr(cls, name)


NAMES = dict(public_names())


def described(text):
    """The names that "Args" and "Attributes" of a docstring tell about."""
    found = set()
    for about in re.findall(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n)+)", text, re.MULTILINE):
        for names in re.findall(r"^ {4}(\S(?:[^:]|\n)*?):(?: |\n)", about, re.MULTILINE):
            found.update(name.strip(" *`\n") for name in names.split(","))
    return found


def raises_itself(function):
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def missing_parts(value):
    """What the docstring lacks: parameters, "Returns", "Raises" and an example."""
    text = inspect.getdoc(value) or ""
    known = described(text)
    begins_with_a_sentence = re.match(r"[^\s:>].*", text) and not text.startswith("Args:")
    is_class = inspect.isclass(value)
    if is_class:
        # A parameter that a base class describes has the same meaning in all its subclasses.
        for base in value.__mro__:
            known |= described(inspect.getdoc(base) or "")
    missing = [
        name
        for name, parameter in inspect.signature(value).parameters.items()
        if name not in known
        and not name.startswith("_")
        and not (is_class and parameter.kind is parameter.VAR_POSITIONAL)
        and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if not is_class:
        function = inspect.unwrap(value)
        gives_none = inspect.signature(function).return_annotation in (None, "None")
        if not gives_none and "Returns:\n" not in text:
            missing.append("Returns:")
        if raises_itself(function) and "Raises:\n" not in text:
            missing.append("Raises:")
    if not begins_with_a_sentence:
        missing.append("a sentence")
    return missing + ([] if ">>> " in text else [">>>"])


@pytest.mark.parametrize("path", sorted(set(NAMES) - NO_SECTIONS))
def test_a_docstring_says_what_a_caller_needs(path):
    assert not missing_parts(NAMES[path])


@pytest.mark.parametrize("path", sorted(NO_SECTIONS))
def test_what_the_core_defines_has_an_example(path):
    assert ">>> " in NAMES[path].__doc__


def test_every_public_method_and_property_has_a_docstring():
    """It may be that of the class that it belongs to in the first place."""
    silent = []
    for path, cls, name in public_members():
        value = inspect.getattr_static(cls, name)
        text = inspect.getdoc(value if isinstance(value, property) else getattr(cls, name))
        if not text and not any(inspect.getdoc(vars(base).get(name)) for base in cls.__mro__):
            silent.append(path)
    assert not silent


@pytest.mark.parametrize(
    "cls, name", [(cls, name) for cls, names in ENTRY_POINTS.items() for name in names.split()]
)
def test_entry_points_have_examples(cls, name):
    assert ">>> " in inspect.getdoc(getattr(cls, name))


def test_the_reference_leaves_no_public_package_out():
    """What kerascnn offers as a package, or that as one, has a page."""
    listed = reference().PACKAGES
    for name in kerascnn.__all__:
        value = getattr(kerascnn, name)
        if inspect.ismodule(value) and name not in WITHOUT_A_PAGE:
            assert value.__name__ in listed, name


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

    class Part:
        """Does something.

        Args:
            size: See `x`.

        >>> Part(1, 2)
        """

        def __init__(self, size, *, name=None):
            pass

    assert missing_parts(silent) == ["x", "axis", "Returns:", "Raises:", "a sentence", ">>>"]
    assert missing_parts(vague) == ["axis", ">>>"]
    assert missing_parts(Part) == ["name"]
    # A reference that finds nothing would have nothing to find fault with.
    assert len(NAMES) > 850 and len(list(public_members())) > 1000
