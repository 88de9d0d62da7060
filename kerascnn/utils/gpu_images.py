"""JPEG files of data sets, decoded and resized on a GPU by nvJPEG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerascnn import _core
from kerascnn.data.tar_index import Place
from kerascnn.device import current as current_device
from kerascnn.utils import jpeg_files

if TYPE_CHECKING:
    from kerascnn.utils.image_utils import ImageReader

_LIBRARY = "libnvjpeg.so.13"


def checked_gpu(decoder: str, batch_size: int | None, **unchanged: tuple[Any, Any]) -> str | None:
    """The GPU that decodes, or None for `decoder="cpu"`.

    Args:
        decoder: "cpu" or "gpu".
        batch_size: A GPU decodes whole batches.
        unchanged: Arguments that only the decoders of the CPU know otherwise, by name: what they
            are, and what they have to be.

    Raises:
        DeviceError: where there is no GPU that can be used, or no nvJPEG; says what to do.
        ValueError: for another decoder, arguments that it does not go with, or a CPU in use.
    """
    if decoder not in ("cpu", "gpu"):
        raise ValueError(f'`decoder` must be "cpu" or "gpu". Received: decoder={decoder!r}')
    if decoder == "cpu":
        return None
    if batch_size is None:
        raise ValueError(
            '`decoder="gpu"` decodes batches, and with `batch_size=None` there are none. Give a '
            "`batch_size`; `unbatch()` takes batches apart."
        )
    for name, (value, expected) in unchanged.items():
        if value != expected:
            raise ValueError(
                f'`decoder="gpu"` goes with `{name}={expected!r}` only: nvJPEG makes pixels of '
                f"files as they are, in colors. Received: {name}={value!r}. "
                'With `decoder="cpu"` it works.'
            )
    _core.open_nvjpeg(_LIBRARY)
    in_use = current_device()
    if in_use == "cpu":
        raise ValueError(
            '`decoder="gpu"` decodes on the device that is in use, which is "cpu". Choose a GPU '
            'before, as with `keras.config.set_device("gpu")`, or use `decoder="cpu"`.'
        )
    return in_use


class GpuDecoder:
    """Makes batches of images of JPEG files on a GPU.

    Args:
        reader: Says how images are resized, and on which GPU.
    """

    def __init__(self, reader: ImageReader):
        from kerascnn.utils import image_utils

        self._reader = reader
        self._core = _core.GpuJpegReader(
            int((reader.gpu or "").removeprefix("cuda:")),
            *reader.size,
            reader.dtype,
            reader.data_format == "channels_first",
            image_utils._SMALL,
            image_utils._MAX_EXPANSION,
        )

    def begin(self, rows: int) -> _core.GpuImageBatch:
        """Begins a batch of so many images."""
        return _core.GpuImageBatch(self._core, rows)

    def read(
        self, batch: _core.GpuImageBatch, files: Sequence[str | Place | bytes], first: int
    ) -> list[bool]:
        """Reads the files of the rows from `first` on, and chooses who decodes them.

        Args:
            batch: What `begin` returned.
            files: Paths, places in archives, or what files hold.
            first: The row of the first file.

        Returns:
            For each file whether the GPU decodes it. Others are no plain JPEG files in colors or
            grey, damaged, or cannot be read: the reader makes images of them, or has the words.
        """
        most = jpeg_files.most_pixels()
        sources = [jpeg_files.source_of(file) for file in files]
        taken = batch.read(sources, first, most)
        for i, size in enumerate(taken):
            if isinstance(size, tuple):
                self._core.add_plan(size, 1, *jpeg_files.taps_of(self._reader, *size))
                (taken[i],) = batch.read(sources[i : i + 1], first + i, most)
        return [is_taken is True for is_taken in taken]
