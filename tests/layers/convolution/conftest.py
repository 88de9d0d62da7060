"""Lets Keras' convolutions on PyTorch run in float64 too."""

import pytest


@pytest.fixture(autouse=True)
def contiguous_kernels(monkeypatch):
    """Makes the kernels that Keras gives PyTorch contiguous.

    PyTorch's float64 convolutions have no gradient for permuted kernels. Contiguous ones hold the
    same numbers, so that the gradients can be compared.
    """
    nn = pytest.importorskip("keras.src.backend.torch.nn")
    permuted = nn._transpose_conv_kernel
    monkeypatch.setattr(nn, "_transpose_conv_kernel", lambda k: permuted(k).contiguous())
    monkeypatch.setattr(nn, "_maybe_convert_to_channels_last", lambda x: x.contiguous())
