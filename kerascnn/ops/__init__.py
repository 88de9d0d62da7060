"""Functions of tensors, under the names of `keras.ops`.

Each takes tensors (and computes at once), NumPy arrays, lists and numbers, variables, symbolic
values while a step is traced, and KerasTensors while a model is put together.
"""

# ruff: noqa: F403 (each module says in its __all__ what is public)

from kerascnn.ops import (
    activation,
    arrays,
    bits,
    blocks,
    comparisons,
    contraction,
    control,
    convolution,
    creation,
    crossentropy,
    ctc,
    custom,
    diagonals,
    element_functions,
    elementwise,
    fourier,
    host,
    image,
    indexing,
    joining,
    matrices,
    matrix_products,
    nan_statistics,
    normalization,
    pooling,
    products,
    quantiles,
    ranges,
    real_parts,
    reduction,
    rounding,
    scattering,
    shaping,
    shrinking,
    signals,
    sorting,
    special,
    spectra,
    statistics,
    trigonometry,
    vectorizing,
)
from kerascnn.ops.activation import *
from kerascnn.ops.arrays import *
from kerascnn.ops.bits import *
from kerascnn.ops.blocks import *
from kerascnn.ops.comparisons import *
from kerascnn.ops.contraction import *
from kerascnn.ops.control import *
from kerascnn.ops.convolution import *
from kerascnn.ops.creation import *
from kerascnn.ops.crossentropy import *
from kerascnn.ops.ctc import *
from kerascnn.ops.custom import *
from kerascnn.ops.diagonals import *
from kerascnn.ops.element_functions import *
from kerascnn.ops.elementwise import *
from kerascnn.ops.fourier import *
from kerascnn.ops.host import *
from kerascnn.ops.indexing import *
from kerascnn.ops.joining import *
from kerascnn.ops.matrices import *
from kerascnn.ops.matrix_products import *
from kerascnn.ops.nan_statistics import *
from kerascnn.ops.normalization import *
from kerascnn.ops.pooling import *
from kerascnn.ops.products import *
from kerascnn.ops.quantiles import *
from kerascnn.ops.ranges import *
from kerascnn.ops.real_parts import *
from kerascnn.ops.reduction import *
from kerascnn.ops.rounding import *
from kerascnn.ops.scattering import *
from kerascnn.ops.shaping import *
from kerascnn.ops.shrinking import *
from kerascnn.ops.signals import *
from kerascnn.ops.sorting import *
from kerascnn.ops.special import *
from kerascnn.ops.spectra import *
from kerascnn.ops.statistics import *
from kerascnn.ops.trigonometry import *
from kerascnn.ops.vectorizing import *

__all__ = ["image", "linalg", "nn", "numpy"]
__all__ += activation.__all__
__all__ += arrays.__all__
__all__ += bits.__all__
__all__ += blocks.__all__
__all__ += comparisons.__all__
__all__ += contraction.__all__
__all__ += control.__all__
__all__ += convolution.__all__
__all__ += creation.__all__
__all__ += crossentropy.__all__
__all__ += ctc.__all__
__all__ += custom.__all__
__all__ += diagonals.__all__
__all__ += element_functions.__all__
__all__ += elementwise.__all__
__all__ += fourier.__all__
__all__ += host.__all__
__all__ += indexing.__all__
__all__ += joining.__all__
__all__ += matrices.__all__
__all__ += matrix_products.__all__
__all__ += nan_statistics.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += products.__all__
__all__ += quantiles.__all__
__all__ += ranges.__all__
__all__ += real_parts.__all__
__all__ += reduction.__all__
__all__ += rounding.__all__
__all__ += scattering.__all__
__all__ += shaping.__all__
__all__ += shrinking.__all__
__all__ += signals.__all__
__all__ += sorting.__all__
__all__ += special.__all__
__all__ += spectra.__all__
__all__ += statistics.__all__
__all__ += trigonometry.__all__
__all__ += vectorizing.__all__

# These modules list names that the modules above define.
from kerascnn.ops import linalg, nn, numpy  # noqa: E402
