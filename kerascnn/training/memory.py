"""Decides whether data is streamed when memory is short, and explains errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import _core

# Data that takes more than this share of the free memory is streamed, since steps need room as
# well.
RESIDENT_SHARE = 0.5
# Data up to this size is not streamed: the places for chunks would hardly be smaller, and asking
# for the free memory costs more than a prediction for a few samples.
SMALL_BYTES = 16 << 20
# This is the size of a chunk of streamed data, of which two are on the device. It is large enough
# that copies to a GPU run at full speed.
CHUNK_BYTES = 32 << 20
# Data that is used once goes to a GPU in pieces of up to this size, so that steps start when the
# first is there. Smaller data is copied before all steps.
PIECE_BYTES = 8 << 20
_LEAST_BYTES_FOR_PIECES = 1 << 20
# A batch size fits if it needs at most this share of the free memory, as the allocator rounds
# blocks up.
_FITTING_SHARE = 0.9
_MOST_GUESSES = 8  # guesses of the batch size that fits; with linear growth the second is right


class OutOfMemoryError(_core.OutOfMemoryError):
    """A batch size for which the device has not enough memory.

    Attributes:
        requested: bytes asked for.
        allocated: bytes in use.
        cached: bytes that the allocator keeps for reuse.
        free: bytes that are free.
        batch_size: the batch size that does not fit.
        fitting_batch_size: one that would, about the largest; 0 where none does.
    """

    batch_size: int
    fitting_batch_size: int


def fits_on_device(num_bytes: int, device: str) -> bool:
    """Tells whether data of this size fits on the device besides everything else."""
    if num_bytes <= SMALL_BYTES:
        return True
    return num_bytes <= RESIDENT_SHARE * _core.memory_stats(device)["available"]


def piece_batches(bytes_per_batch: int, num_batches: int) -> int:
    """Returns how many batches a piece of data that is used once has: a power of two, or all."""
    most = max(1, PIECE_BYTES // max(1, bytes_per_batch))
    return min(num_batches, 1 << (most.bit_length() - 1))


def chunk_batches(bytes_per_batch: int, num_batches: int, device: str) -> int:
    """Returns how many batches a chunk of streamed data has."""
    room = min(CHUNK_BYTES, int(_core.memory_stats(device)["available"] * RESIDENT_SHARE / 4))
    return max(1, min(num_batches, room // max(1, bytes_per_batch)))


def worth_pieces(num_bytes: int, bytes_per_batch: int, device: str) -> bool:
    """Tells whether data that is used once should not wait until all of it is on the device.

    Not with batches larger than a piece: two places for those would take more than the data.
    """
    is_large = num_bytes >= _LEAST_BYTES_FOR_PIECES and num_bytes >= 2 * bytes_per_batch
    return device != "cpu" and is_large and bytes_per_batch <= PIECE_BYTES


def explain(
    error: Any,
    what: str,
    batch_size: int,
    device: str,
    compile_with: Callable[[int], Any],
) -> OutOfMemoryError:
    """Makes an error with the bytes requested, used and free, and a batch size that would fit.

    Args:
        error: the core's error.
        what: what was being made ready: "training", "evaluation" or "prediction".
        batch_size: the batch size that did not fit.
        device: the device.
        compile_with: compiles the same step for another batch size, without allocating memory.
    """
    try:
        fitting = _fitting_batch_size(batch_size, device, compile_with)
    except _core.OutOfMemoryError:  # for the kernels of any batch size
        fitting = 0
    # A library that got no memory does not say how much it asked for.
    asked = _megabytes(error.requested) if error.requested else "memory for its kernels"
    if fitting:
        advice = f"A batch_size of up to about {fitting} fits."
    else:
        advice = "Not even one sample fits: use a smaller model or smaller inputs."
    result = OutOfMemoryError(
        f"Out of memory on {device}: {what} with batch_size={batch_size} asked for {asked}, "
        f"{_megabytes(error.allocated)} are in use, "
        f"{_megabytes(error.cached)} cached and {_megabytes(error.free)} free. {advice} The model "
        "and its weights are as before."
    )
    for name in ("requested", "allocated", "cached", "free"):
        setattr(result, name, getattr(error, name))
    result.batch_size = batch_size
    result.fitting_batch_size = fitting
    return result


def _fitting_batch_size(batch_size: int, device: str, compile_with: Callable[[int], Any]) -> int:
    """Finds the largest batch that fits, or one a little smaller; 0 if none does."""
    _core.release_cached(device)
    room = _core.memory_stats(device)["available"] * _FITTING_SHARE
    least = _planned_bytes(compile_with(1))
    if least > room:
        return 0
    # A step's memory grows linearly, but other sizes may have other kernels. So each guess is
    # planned, and one that does not fit tells what a sample takes at its size.
    size = max(1, min(16, batch_size // 2))
    needed = _planned_bytes(compile_with(size)) if size > 1 else least
    for _ in range(_MOST_GUESSES):
        per_sample = (needed - least) / (size - 1) if size > 1 else least
        guess = 1 + int((room - least) / per_sample) if per_sample > 0 else batch_size - 1
        size = max(1, min(guess, batch_size - 1))
        needed = _planned_bytes(compile_with(size))
        if needed <= room:
            return size
        if size == 1:
            break
    return 1


def _planned_bytes(step: Any) -> int:
    stats = step.program.stats()
    return stats["least_arena_bytes"] + stats["output_bytes"]


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 20):,.1f} MiB"
