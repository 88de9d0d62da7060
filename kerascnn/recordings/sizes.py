"""Sizes that a recorded graph has as plain numbers, as functions of the sizes of the inputs.

A graph has static shapes. A model is recorded several times with other sizes of the axes that are
left open, and a number that is not the same in all recordings is a polynomial of these sizes, in
which no size has an exponent: `batch * time`, `2 * time + 1`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

# The sizes that an open axis has in recordings: two for the polynomial and one that tests it. Those
# of an axis other than the batch are large at first, for kernels and strides to fit. The third one
# is odd, so that padding that follows from a size is noticed.
BATCHES = (2, 3, 5)
LENGTHS = ((96, 128, 223), (12, 16, 23), (4, 6, 9))


class UnknownSize(ValueError):
    """A size is no polynomial of the sizes of the inputs."""


class Axes:
    """The open axes of a model's inputs, and the sizes that they have in each recording.

    Args:
        names: Of the axes, "batch" or the like first.
        choices: For each axis the two sizes for the polynomials, and the one that tests them.
    """

    def __init__(self, names: Sequence[str], choices: Sequence[tuple[int, int, int]]) -> None:
        self.names = tuple(names)
        corners = list(itertools.product(*((a, b) for a, b, _ in choices)))
        self.points = [*corners, tuple(c for _, _, c in choices)] if names else [()]
        self._terms = [
            term for n in range(len(names) + 1) for term in itertools.combinations(names, n)
        ]
        self._matrix = np.array([self._row(point) for point in self.points], "float64")

    def __iter__(self) -> Iterator[dict[str, int]]:
        """The size of each axis, for each recording."""
        return (dict(zip(self.names, point, strict=True)) for point in self.points)

    def _row(self, point: tuple[int, ...]) -> list[int]:
        sizes = dict(zip(self.names, point, strict=True))
        row = []
        for term in self._terms:
            product = 1
            for name in term:
                product *= sizes[name]
            row.append(product)
        return row

    def fit(self, values: tuple[int, ...]) -> dict[tuple[str, ...], int]:
        """The polynomial with these values in the recordings: factors by the names of a term.

        Raises:
            UnknownSize: where there is none with whole factors.
        """
        count = len(self._terms)
        solved = np.linalg.solve(self._matrix[:count], np.array(values[:count], "float64"))
        factors = np.rint(solved).astype("int64")
        if not np.array_equal(self._matrix.astype("int64") @ factors, np.array(values)):
            sizes = ", ".join(
                f"{value} for {dict(zip(self.names, point, strict=True))}"
                for point, value in zip(self.points, values, strict=True)
            )
            raise UnknownSize(f"a size is no polynomial of the open ones: {sizes}")
        return {t: int(f) for t, f in zip(self._terms, factors, strict=True) if f}


class Size:
    """A number that depends on open axes: its value in each recording."""

    def __init__(self, axes: Axes, values: tuple[int, ...]) -> None:
        self.axes, self.values = axes, values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def __repr__(self) -> str:
        return f"Size{self.values}"

    def polynomial(self) -> dict[tuple[str, ...], int]:
        """See `Axes.fit`."""
        return self.axes.fit(self.values)

    def name(self) -> str | None:
        """The open axis that this is the size of, or None."""
        try:
            terms = list(self.polynomial().items())
        except UnknownSize:
            return None
        return terms[0][0][0] if len(terms) == 1 and len(terms[0][0]) == terms[0][1] == 1 else None


Extent = int | Size
Shape = tuple[Extent, ...]


def merged(axes: Axes, values: Sequence[int]) -> Extent:
    """One number where all recordings have it, else a `Size`."""
    first = values[0]
    return first if all(v == first for v in values) else Size(axes, tuple(values))


def at(extent: Extent, place: int) -> int:
    """The value of a number in one recording."""
    return extent.values[place] if isinstance(extent, Size) else extent


def minus(a: Extent, b: Extent) -> Extent:
    """The difference of two numbers."""
    axes = next((x.axes for x in (a, b) if isinstance(x, Size)), None)
    if axes is None:
        return a - b  # type: ignore[operator]
    return merged(axes, [at(a, i) - at(b, i) for i in range(len(axes.points))])


def plus(a: Extent, b: Extent) -> Extent:
    """The sum of two numbers."""
    axes = next((x.axes for x in (a, b) if isinstance(x, Size)), None)
    if axes is None:
        return a + b  # type: ignore[operator]
    return merged(axes, [at(a, i) + at(b, i) for i in range(len(axes.points))])


def times(extent: Extent, factor: int) -> Extent:
    """A number as often as `factor` says."""
    if not isinstance(extent, Size):
        return extent * factor
    return merged(extent.axes, [n * factor for n in extent.values])
