"""Keras' convolutions on PyTorch, in float64 too."""

import pytest


@pytest.fixture(autouse=True)
def contiguous_kernels(monkeypatch):
    """PyTorch's float64 kernels have no gradient for the permuted kernels that Keras gives them.

    Laid out in order the kernels hold the same numbers, so that the gradients can be compared.
    """
    nn = pytest.importorskip("keras.src.backend.torch.nn")
    permuted = nn._transpose_conv_kernel
    monkeypatch.setattr(nn, "_transpose_conv_kernel", lambda k: permuted(k).contiguous())
    monkeypatch.setattr(nn, "_maybe_convert_to_channels_last", lambda x: x.contiguous())
