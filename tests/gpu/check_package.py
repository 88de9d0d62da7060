"""Checks that the installed kerascnn finds the installed kerascnn-cuda13, without a driver too.

python tests/gpu/check_package.py
"""

import sys
from pathlib import Path

from kerascnn import _core, cuda_package

folder = cuda_package.find()
if folder is None:
    sys.exit(f"{cuda_package.DISTRIBUTION} is not installed")
reasons = [text for name, usable, text in _core.list_devices() if name != "cpu" and not usable]
maps = Path("/proc/self/maps").read_text()
for needed in (f"{folder}/libkerascnn_cuda.so", "libcudart.so.13", "libcudnn.so.9"):
    if needed not in maps:
        sys.exit(f"{needed} was not loaded: {reasons}")
if any("doesn't fit" in reason for reason in reasons):
    sys.exit(f"the two packages are not of one build: {reasons}")
print(f"{folder}/libkerascnn_cuda.so is loaded; {reasons or 'a GPU is usable'}")
