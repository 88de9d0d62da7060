"""The functions of matrices under Keras' name: `ops.linalg.inv` is `ops.inv`."""

# ruff: noqa: F401 (imported to be found here)

from kerascnn.ops import (
    cholesky,
    cholesky_inverse,
    det,
    eigh,
    inv,
    jvp,
    lstsq,
    lu_factor,
    matrix_rank,
    norm,
    pinv,
    qr,
    solve,
    solve_triangular,
    svd,
)
