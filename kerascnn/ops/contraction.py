"""Sums of products over named axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerascnn.ops import dispatch, elementwise, reduction, shaping
from kerascnn.ops.diagonals import diagonal
from kerascnn.ops.matrix_products import matrix_product
from kerascnn.symbolic.inference import unequal_sizes
from kerascnn.symbolic.operation import op

__all__ = [
    "einsum",
]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@op
def einsum(subscripts: str, *operands: Any, **kwargs: Any) -> Any:
    """Products of tensors, summed over the axes whose letters the result does not have.

    Products of int8 are summed in int32.

    Args:
        subscripts: Letters for the axes of each operand and, after `->`, of the result (by default
            those that occur once, in alphabetical order); `...` stands for axes without a name. A
            letter that an operand has twice takes its diagonal.
        operands: One tensor for each group of letters. Sizes of 1 are repeated as in NumPy.
        kwargs: Only `optimize`, which has no effect: products are formed from left to right.

    Returns:
        A tensor with the axes of the result, in the dtype that the operands promote to (int32 for
        int8).

    Raises:
        TypeError: for another keyword.
        ValueError: where letters and tensors don't fit.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.einsum.html

    Example:

    >>> from kerascnn import ops
    >>> ops.einsum("ij,jk->ik", ops.ones((2, 3)), ops.ones((3, 4))).shape
    (2, 4)
    >>> ops.einsum("ij->j", [[1, 2], [3, 4]]).numpy().tolist()
    [4, 6]
    >>> ops.einsum("ii->i", [[1, 2], [3, 4]]).numpy().tolist()
    [1, 4]
    """
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(f"einsum does not have the argument(s) {sorted(kwargs)}.")
    tensors = dispatch.operands(*operands)
    if tensors[0].dtype == "int8" and len(tensors) != 2:
        tensors = [dispatch.convert(x, "int32") for x in tensors]
    terms, result = _parse(subscripts, [len(x.shape) for x in tensors])
    pairs = [_diagonals(subscripts, *pair) for pair in zip(tensors, terms, strict=True)]
    tensors, terms = [x for x, _ in pairs], [term for _, term in pairs]
    sizes = _sizes(subscripts, terms, tensors)
    named = [_without_ones(x, term, sizes) for x, term in zip(tensors, terms, strict=True)]
    x, term = named[0]
    for i, (other, other_term) in enumerate(named[1:], 2):
        needed = set(result).union(*(later for _, later in named[i:]))
        x, term = _product(x, term, other, other_term, needed)
    x, term = _summed(x, term, set(result))
    # these axes had size 1 and were left out
    missing = [letter for letter in result if letter not in term]
    x = shaping.reshape(x, (*x.shape, *(1 for _ in missing))) if missing else x
    term += "".join(missing)
    return _in_order(x, term, result)


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Returns the letters of each operand and of the result; `...` gets letters too."""
    if not isinstance(subscripts, str):
        raise TypeError(
            f"einsum: expected a string such as 'ij,jk->ik' first. Received: {subscripts!r}"
        )
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(
            f"einsum: {subscripts!r} names {len(terms)} operands. Received: {len(ranks)}"
        )
    free = [letter for letter in _LETTERS if letter not in text]
    longest = max(
        (rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term),
        default=0,
    )
    if longest > len(free):
        raise ValueError(f"einsum: {subscripts!r} stands for more axes than there are letters.")
    unnamed = "".join(free[:longest])
    named = []
    for term, rank in zip(terms, ranks, strict=True):
        if "..." in term:
            count = rank - len(term) + 3
            term = term.replace("...", unnamed[longest - count :] if count > 0 else "")
        if len(term) != rank or not all(letter in _LETTERS for letter in term):
            raise ValueError(
                f"einsum: {subscripts!r} does not fit operands with {list(ranks)} axes."
            )
        named.append(term)
    if arrow:
        result = right.replace("...", unnamed)
    else:
        letters = [letter for letter in left if letter in _LETTERS]
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        result = unnamed + "".join(once)
    if len(set(result)) != len(result) or not set(result) <= set("".join(named)):
        raise ValueError(
            f"einsum: the result of {subscripts!r} must name letters of the operands, each once."
        )
    return named, result


def _diagonals(subscripts: str, x: Any, term: str) -> tuple[Any, str]:
    """Takes the diagonal of axes with the same letter; it becomes the last axis."""
    while len(set(term)) != len(term):
        letter = next(c for c in term if term.count(c) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        if x.shape[first] != x.shape[second]:
            raise unequal_sizes(
                f"einsum: {letter!r} in {subscripts!r} names axes of sizes {x.shape[first]} and "
                f"{x.shape[second]} of one operand. Received shape: {tuple(x.shape)}",
                x.shape[first],
                x.shape[second],
            )
        x = diagonal(x, 0, first, second)
        term = "".join(c for i, c in enumerate(term) if i not in (first, second)) + letter
    return x, term


def _sizes(subscripts: str, terms: Sequence[str], tensors: Sequence[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            known = sizes.get(letter, 1)
            if 1 not in (known, n) and known != n:
                raise unequal_sizes(
                    f"einsum: {letter!r} in {subscripts!r} has size {known} in one operand and {n} "
                    f"in another. Received shapes: {[tuple(t.shape) for t in tensors]}",
                    known,
                    n,
                )
            sizes[letter] = n if known == 1 else known
    return sizes


def _without_ones(x: Any, term: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """Removes the axes of size 1 that are repeated from an operand."""
    kept = [i for i, n in enumerate(x.shape) if n != 1 or sizes[term[i]] == 1]
    if len(kept) == len(term):
        return x, term
    return shaping.reshape(x, [x.shape[i] for i in kept]), "".join(term[i] for i in kept)


def _summed(x: Any, term: str, needed: set[str]) -> tuple[Any, str]:
    """Sums over the axes that nothing else needs."""
    gone = [i for i, letter in enumerate(term) if letter not in needed]
    if not gone:
        return x, term
    return reduction.sum(x, gone), "".join(letter for letter in term if letter in needed)


def _in_order(x: Any, term: str, wanted: str) -> Any:
    return x if term == wanted else shaping.transpose(x, [term.index(c) for c in wanted])


def _product(a: Any, a_term: str, b: Any, b_term: str, needed: set[str]) -> tuple[Any, str]:
    """Multiplies two operands, and sums over what nothing else needs."""
    a, a_term = _summed(a, a_term, needed | set(b_term))
    b, b_term = _summed(b, b_term, needed | set(a_term))
    a, b = dispatch.operands(a, b)  # int8 is summed in int32
    shared = [c for c in a_term if c in b_term]
    batch = "".join(c for c in shared if c in needed)
    inner = "".join(c for c in shared if c not in needed)
    rows = "".join(c for c in a_term if c not in shared)
    columns = "".join(c for c in b_term if c not in shared)
    result = batch + rows + columns
    if not inner:
        if a.dtype == "int8":
            a, b = (dispatch.convert(x, "int32") for x in (a, b))
        spread = [
            _in_order(x, t, "".join(c for c in result if c in t))
            for x, t in ((a, a_term), (b, b_term))
        ]
        shapes = [
            [dict(zip(sorted(t, key=result.index), x.shape, strict=True)).get(c, 1) for c in result]
            for x, t in zip(spread, (a_term, b_term), strict=True)
        ]
        a, b = (shaping.reshape(x, shape) for x, shape in zip(spread, shapes, strict=True))
        return elementwise.multiply(a, b), result
    sizes = dict(zip(a_term + b_term, (*a.shape, *b.shape), strict=True))
    a, turned_a = _as_matrix(a, a_term, batch, rows, inner, sizes)
    b, turned_b = _as_matrix(b, b_term, batch, inner, columns, sizes)
    product = matrix_product(a, b, turned_a, turned_b)
    return shaping.reshape(product, [sizes[c] for c in result]), result


def _as_matrix(
    x: Any, term: str, batch: str, rows: str, columns: str, sizes: dict[str, int]
) -> tuple[Any, bool]:
    """Returns matrices (batch, rows, columns), or transposed ones if that needs no copy."""
    turned = term == batch + columns + rows and term != batch + rows + columns
    first, second = (columns, rows) if turned else (rows, columns)
    x = _in_order(x, term, batch + first + second)
    shape = [math.prod(sizes[c] for c in part) for part in (batch, first, second)]
    return shaping.reshape(x, shape if batch else shape[1:]), turned
