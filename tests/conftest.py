"""What all tests share."""

import importlib.util
import os
import sys
from pathlib import Path

# The tests prove the installed package. `python -m pytest` puts the checkout first on the import
# path, and the kerascnn/ folder there has no compiled core.
_CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _CHECKOUT]

# Tests that compare with Keras run it on PyTorch where that is installed, else on JAX.
os.environ.setdefault("KERAS_BACKEND", "torch" if importlib.util.find_spec("torch") else "jax")
