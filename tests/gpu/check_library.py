"""Loads a freshly linked libkerascnn_cuda.so, which must work on a machine without a driver.

python tests/gpu/check_library.py <folder with libkerascnn.so and libkerascnn_cuda.so>
"""

import ctypes
import os
import sys
from pathlib import Path


def main(folder: Path) -> None:
    # With RTLD_LAZY a symbol that nobody defines would not be noticed.
    library = ctypes.CDLL(str(folder / "libkerascnn_cuda.so"), mode=os.RTLD_NOW)
    plugin = library.kerascnn_cuda_plugin
    plugin.restype = ctypes.c_void_p
    if not plugin():
        sys.exit("kerascnn_cuda_plugin() returned null")
    maps = Path("/proc/self/maps").read_text()
    for needed in ("libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9"):
        if needed not in maps:
            sys.exit(f"{needed} was not loaded with libkerascnn_cuda.so")
    if "libcufft.so.12" in maps:
        sys.exit("libcufft was loaded with libkerascnn_cuda.so, which opens it on first use")
    if "libcuda.so" in maps:
        sys.exit("loading libkerascnn_cuda.so loaded the driver")
    print(f"{folder / 'libkerascnn_cuda.so'} loads without the driver")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
