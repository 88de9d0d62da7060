"""kerascnn: Keras-style training of image classifiers over an own C++ and CUDA core.

    import kerascnn as keras

Names, arguments and meaning follow Keras 3. Nothing here asks a GPU driver before the first tensor
or weight is made.
"""

try:
    from kerascnn import _core
except ImportError:
    import sys
    from pathlib import Path

    _folder = Path(__file__).resolve().parent
    if any(_folder.glob("_core.*.so")):
        raise
    # Python looks first where it was started: the checkout may hide the installed package.
    _others = (Path(path or ".").resolve() / "kerascnn" for path in sys.path)
    _installed = next((path for path in _others if any(path.glob("_core.*.so"))), None)
    raise ImportError(
        f"{_folder} holds kerascnn's sources without the compiled core. "
        + (
            f"The installed package is in {_installed}, behind this one."
            if _installed
            else f'Install the package: {sys.executable} -m pip install "{_folder.parent}".'
        )
        + " Start Python in another folder, or with the option -I, which leaves out this one: "
        'python -I -c "import kerascnn"'
    ) from None
from kerascnn import cuda_package
from kerascnn.tensor import Tensor, install_operators

cuda_package.install()
install_operators()

from kerascnn import (  # noqa: E402 (operators first: what follows computes with them)
    activations,
    applications,
    backend,
    callbacks,
    config,
    constraints,
    data,
    datasets,
    distribution,
    dtype_policies,
    former_names,
    initializers,
    layers,
    legacy,
    losses,
    metrics,
    mixed_precision,
    models,
    ops,
    optimizers,
    preprocessing,
    profiler,
    quantizers,
    random,
    regularizers,
    saving,
    tree,
    utils,
    visualization,
    wrappers,
)
from kerascnn.autodiff import (  # noqa: E402
    GradientTape,
    RematScope,
    custom_gradient,
    grad,
    jit,
    remat,
    value_and_grad,
)
from kerascnn.device import device  # noqa: E402
from kerascnn.dtype_policies import DTypePolicy, FloatDTypePolicy  # noqa: E402
from kerascnn.initializers import Initializer  # noqa: E402
from kerascnn.interchange import from_dlpack  # noqa: E402
from kerascnn.layers import Input, InputSpec, Layer  # noqa: E402
from kerascnn.losses import Loss  # noqa: E402
from kerascnn.metrics import Metric  # noqa: E402
from kerascnn.models import Model, Sequential  # noqa: E402
from kerascnn.naming import name_scope  # noqa: E402
from kerascnn.ops import stop_gradient  # noqa: E402
from kerascnn.optimizers import Optimizer  # noqa: E402
from kerascnn.optimizers.clipping import (  # noqa: E402
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from kerascnn.quantizers import Quantizer  # noqa: E402
from kerascnn.regularizers import Regularizer  # noqa: E402
from kerascnn.stateless import StatelessScope  # noqa: E402
from kerascnn.symbolic.function import Function  # noqa: E402
from kerascnn.symbolic.keras_tensor import KerasTensor  # noqa: E402
from kerascnn.symbolic.operation import Operation  # noqa: E402
from kerascnn.training.gradients import gradients  # noqa: E402
from kerascnn.variable import Variable  # noqa: E402
from kerascnn.versions import __version__, show_versions, version  # noqa: E402

former_names.install()
__getattr__ = former_names.module_getattr(__name__)
_core.set_allow_tf32(config.tf32())  # for ops that run at once

DeviceError = _core.DeviceError
OutOfMemoryError = _core.OutOfMemoryError

__all__ = [
    "DTypePolicy",
    "DeviceError",
    "FloatDTypePolicy",
    "Function",
    "GradientTape",
    "Initializer",
    "Input",
    "InputSpec",
    "KerasTensor",
    "Layer",
    "Loss",
    "Metric",
    "Model",
    "Operation",
    "Optimizer",
    "OutOfMemoryError",
    "Quantizer",
    "Regularizer",
    "RematScope",
    "Sequential",
    "StatelessScope",
    "Tensor",
    "Variable",
    "__version__",
    "activations",
    "applications",
    "backend",
    "callbacks",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "config",
    "constraints",
    "custom_gradient",
    "data",
    "datasets",
    "device",
    "distribution",
    "dtype_policies",
    "from_dlpack",
    "global_norm",
    "grad",
    "gradients",
    "initializers",
    "jit",
    "layers",
    "legacy",
    "losses",
    "metrics",
    "mixed_precision",
    "models",
    "name_scope",
    "ops",
    "optimizers",
    "preprocessing",
    "profiler",
    "quantizers",
    "random",
    "regularizers",
    "remat",
    "saving",
    "show_versions",
    "stop_gradient",
    "tree",
    "utils",
    "value_and_grad",
    "version",
    "visualization",
    "wrappers",
]
