"""Writes the pages of the reference: all public names of all public packages, by docstring."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests list the public names by this file too, where Sphinx is not installed
    from sphinx.application import Sphinx

# What each public package is for, in the order of the table of contents.
PACKAGES = {
    "kerascnn": "Names of the package itself",
    "kerascnn.models": "Models",
    "kerascnn.layers": "Layers",
    "kerascnn.ops": "Functions of tensors",
    "kerascnn.ops.image": "Functions of images",
    "kerascnn.activations": "Activations",
    "kerascnn.losses": "Losses",
    "kerascnn.metrics": "Metrics",
    "kerascnn.optimizers": "Optimizers",
    "kerascnn.optimizers.schedules": "Schedules of learning rates",
    "kerascnn.callbacks": "Callbacks",
    "kerascnn.initializers": "Initializers",
    "kerascnn.regularizers": "Regularizers",
    "kerascnn.constraints": "Constraints",
    "kerascnn.data": "Data sets of your own",
    "kerascnn.datasets.digits": "Handwritten digits that are shipped",
    "kerascnn.datasets.mnist": "MNIST",
    "kerascnn.datasets.fashion_mnist": "Fashion-MNIST",
    "kerascnn.datasets.cifar10": "CIFAR-10",
    "kerascnn.datasets.cifar100": "CIFAR-100",
    "kerascnn.applications": "Architectures for images",
    "kerascnn.applications.imagenet_utils": "Pixels and classes of ImageNet",
    "kerascnn.utils": "Utilities",
    "kerascnn.utils.bounding_boxes": "Bounding boxes",
    "kerascnn.random": "Random numbers",
    "kerascnn.config": "Settings",
    "kerascnn.dtype_policies": "Dtype policies",
    "kerascnn.distribution": "Training in several processes",
    "kerascnn.distribution.ray_train": "Training with Ray",
    "kerascnn.mixed_precision": "Mixed precision",
    "kerascnn.quantizers": "Quantizers",
    "kerascnn.saving": "Saving and loading",
    "kerascnn.profiler": "Profiler",
    "kerascnn.visualization": "Pictures",
    "kerascnn.wrappers": "Estimators of scikit-learn",
    "kerascnn.preprocessing.image": "Images, by names of older versions",
    "kerascnn.preprocessing.sequence": "Sequences, by names of older versions",
    "kerascnn.tree": "Nested structures",
    "kerascnn.backend": "The backend",
}

# What packages need to be imported. The site is built with scikit-learn. Ray is large: classes that
# derive from its own are described with others in their place.
NEEDED = {"kerascnn.wrappers": "sklearn", "kerascnn.distribution.ray_train": "ray"}

# Packages with hundreds of names have a page for each family of modules, and one for what no family
# lists.
FAMILIES = {
    "kerascnn.layers": {
        "Core": "layer input_layer input_spec dense einsum_dense embedding reversible_embedding "
        "identity lambda_layer masking wrapper time_distributed",
        "Convolutions": "convolution convolution_transpose depthwise_convolution "
        "separable_convolution",
        "Pooling": "pooling global_pooling adaptive_pooling",
        "Normalization": "batch_normalization group_normalization layer_normalization "
        "rms_normalization spectral_normalization",
        "Activations": "activation activity_regularization",
        "Dropout and noise": "dropout spatial_dropout noise",
        "Shapes": "reshape flatten permute cropping zero_padding up_sampling",
        "Merging": "merge dot_product",
        "Attention": "attention multi_head_attention grouped_query_attention",
        "Recurrent layers": "recurrent",
        "Preprocessing and augmentation": "preprocessing category_encoding",
    },
    "kerascnn.ops": {
        "Elements": "elementwise functions real_parts special",
        "Activations and losses": "activation crossentropy ctc",
        "Layers as functions": "convolution pooling normalization contraction blocks",
        "Creation and conversion": "creation host",
        "Shapes and arrangement": "shaping arrays",
        "Sums and statistics": "reduction statistics",
        "Sorting, indexing and scattering": "sorting quantiles indexing scattering",
        "Matrices": "matrix_products products matrices spectra",
        "Signals": "fourier signals",
        "Control of flow, and ops of your own": "control custom custom_definition",
    },
}


def public_names(module: ModuleType) -> list[str]:
    """Returns what a package offers: its `__all__`, else what it defines itself; no modules."""
    names = getattr(module, "__all__", None)
    if names is None:
        defined = [n for n, v in vars(module).items() if _is_defined_in(v, module.__name__)]
        names = [name for name in defined if not name.startswith("_")]
    return sorted(
        (n for n in names if n != "__version__" and not inspect.ismodule(getattr(module, n))),
        key=lambda name: (name.lower(), name),
    )


def _is_defined_in(value: Any, name: str) -> bool:
    return getattr(value, "__module__", None) == name and callable(value)


def family_of(package: str, value: Any) -> str:
    """Returns the family that the module of a name belongs to."""
    module = (getattr(value, "__module__", None) or "").removeprefix(package + ".").split(".")[0]
    for title, modules in FAMILIES[package].items():
        if module in modules.split():
            return title
    return "More"


def homes() -> dict[int, str]:
    """Returns where each class and function is described, by its identity.

    What several packages offer has one home, which is not the package kerascnn itself if another
    has it too.
    """
    found: dict[int, str] = {}
    for package in [*(p for p in PACKAGES if p != "kerascnn"), "kerascnn"]:
        module = importlib.import_module(package)
        for name in public_names(module):
            value = getattr(module, name)
            own_name = getattr(value, "__name__", name) == name
            if callable(value) and own_name:
                found.setdefault(id(value), f"{package}.{name}")
    return found


def described_elsewhere(value: type, home: dict[int, str]) -> list[str]:
    """Returns the bases of a class whose methods its entry leaves out: public ones and theirs.

    What remains is the class' own and what parts of it that have no entry give it.
    """
    bases = [base for base in value.__mro__[1:] if id(base) in home or not _is_ours(base)]
    return sorted({part.__name__ for base in bases for part in base.__mro__})


def _is_ours(value: type) -> bool:
    return value.__module__.partition(".")[0] == "kerascnn"


def differences() -> list[tuple[str, str, list[str]]]:
    """Returns the entries of docs/differences: page, title, and the names that the title has.

    In code that names several functions of a package, as in `ops.eigh`, `svd`, only the first one
    says the package.
    """
    found = []
    for page in sorted((Path(__file__).parents[1] / "differences").glob("*.md")):
        for title in re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            names: list[str] = []
            for code in re.findall(r"`([A-Za-z_][\w.]*)[`(]", title):
                is_part = "." not in code and names and "." in names[0]
                names.append(f"{names[0].rpartition('.')[0]}.{code}" if is_part else code)
            found.append((page.stem, title, names))
    return found


def leading_to_differences(full_name: str) -> list[str]:
    """Returns the lines of a class or function that lead to how it differs from Keras."""
    from docutils.nodes import make_id

    links = []
    for page, title, names in differences():
        if any(f".{full_name}".endswith(f".{name}") for name in names):
            text = title.replace("`", "")
            links.append(f"`{text} <../../differences/{page}.html#{make_id(text)}>`__")
    return ["", f"   Different from Keras: {'; '.join(links)}."] if links else []


def entry(package: str, name: str, home: dict[int, str]) -> list[str]:
    """Returns the lines that describe a name, or that lead to where it is described."""
    value = getattr(importlib.import_module(package), name)
    full_name = f"{package}.{name}"
    at = home.get(id(value), full_name) if callable(value) else full_name
    if at != full_name:
        return [f"``{full_name}`` is the same as :py:obj:`{at}`."]
    if inspect.isclass(value):
        bases = ", ".join(described_elsewhere(value, home))
        lines = [f".. autoclass:: {full_name}", "   :members:", f"   :inherited-members: {bases}"]
    else:
        lines = [f".. auto{'function' if callable(value) else 'data'}:: {full_name}"]
    return lines + leading_to_differences(full_name)


def page_text(title: str, package: str, names: list[str], home: dict[int, str]) -> str:
    """Returns a page in reStructuredText with an entry for each name."""
    lines = [title, "=" * len(title), "", f".. currentmodule:: {package}", ""]
    for name in names:
        lines += [name, "-" * len(name), "", *entry(package, name, home), ""]
    return "\n".join(lines)


def contents(title: str, text: str, entries: list[str], depth: int = 1) -> str:
    """Returns a page that lists other pages."""
    listed = "\n".join(f"   {entry}" for entry in entries)
    head = f"{title}\n{'=' * len(title)}\n\n{text}\n\n"
    return f"{head}.. toctree::\n   :maxdepth: {depth}\n\n{listed}\n"


def write(path: Path, text: str) -> None:
    """Writes a page unless it is there already: Sphinx reads again what has changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def package_pages(package: str, title: str, home: dict[int, str]) -> dict[str, str]:
    """Returns the pages of a package, by file name. The first one is the package's own."""
    module = importlib.import_module(package)
    names = public_names(module)
    if package not in FAMILIES:
        return {package: page_text(f"{title}: {package}", package, names, home)}
    families = defaultdict(list)
    for name in names:
        families[family_of(package, getattr(module, name))].append(name)
    order = [family for family in [*FAMILIES[package], "More"] if family in families]
    files = {f: f"{package}.{f.split(',')[0].lower().replace(' ', '_')}" for f in order}
    text = (inspect.getdoc(module) or "").partition("\n\n")[0]
    pages = {package: contents(f"{title}: {package}", text, list(files.values()))}
    for family in order:
        pages[files[family]] = page_text(f"{family}: {package}", package, families[family], home)
    return pages


def leave_out_what_cannot_be_imported() -> None:
    """Takes packages from the list that need what is not installed: for tests."""
    for package, needed in NEEDED.items():
        if importlib.util.find_spec(needed) is None:
            del PACKAGES[package]


def import_without_ray() -> None:
    """Imports kerascnn.distribution.ray_train where Ray is not installed."""
    from sphinx.ext.autodoc.mock import mock

    if importlib.util.find_spec("ray") is None:
        with mock(["ray"]):
            importlib.import_module("kerascnn.distribution.ray_train")


def write_pages(app: Sphinx) -> None:
    import_without_ray()
    folder = Path(app.srcdir) / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, str] = {}
    home = homes()
    for package, title in PACKAGES.items():
        pages |= package_pages(package, title, home)
    text = (
        "Every public name, from its docstring. Names, arguments and defaults are those of Keras "
        "3. Examples begin with ``import kerascnn as keras`` and ``import numpy as np``, also "
        "where they don't say so; the tests run all of them."
        " :ref:`One list <genindex>` has all of them, by the alphabet."
    )
    pages["index"] = contents("API", text, list(PACKAGES))
    for name, page in pages.items():
        write(folder / f"{name}.rst", page)
    for path in folder.glob("*.rst"):
        if path.stem not in pages and path.name.removesuffix(".rst") not in pages:
            path.unlink()


def arguments_of_init(
    app: Sphinx, what: str, name: str, value: Any, options: Any, given: str, result: str
) -> tuple[str, str] | None:
    """Shows what `__init__` takes where Sphinx has taken `__new__`, which passes all on."""
    if what != "class" or not (given or "").startswith("(*args"):
        return None
    from sphinx.util.inspect import signature, stringify_signature

    taken = signature(value.__init__, bound_method=True)
    return stringify_signature(taken, show_return_annotation=False, unqualified_typehints=True), ""


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-signature", arguments_of_init)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
