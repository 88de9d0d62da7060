"""Holds libkerascnn_cuda.so, the CUDA backend that kerascnn finds by the name of this package."""
