"""Search for the most probable labellings of a sequence of frames, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_ROOT = 0


class _Labellings:
    """A tree of all labellings in a search: each is its parent's labels and one more."""

    def __init__(self) -> None:
        self.parents = [-1]
        self.labels = [-1]
        self._children: dict[tuple[int, int], int] = {}

    def child(self, parent: int, label: int) -> int:
        node = self._children.get((parent, label))
        if node is None:
            node = self._children[parent, label] = len(self.parents)
            self.parents.append(parent)
            self.labels.append(label)
        return node

    def path(self, node: int) -> list[int]:
        path = []
        while node != _ROOT:
            path.append(self.labels[node])
            node = self.parents[node]
        return path[::-1]


def _finite(scale: Any) -> Any:
    """Returns what probabilities are divided by: 1 (a logarithm of 0) if all of them are 0."""
    return scale if np.isfinite(scale) else np.zeros_like(scale)


def _log(probabilities: Array, scale: Any) -> Array:
    with np.errstate(divide="ignore"):  # -inf is intended
        return np.log(probabilities) + scale


class _Search:
    """The labellings kept after a frame: `nodes`, and for each the logarithm of the probability of
    its paths that end in its last label, `by_label`, and in a blank, `by_blank`.

    Probabilities are added up in the dtype of the scores, relative to the largest one.
    """

    def __init__(self, scores: Array, width: int, blank: int) -> None:
        self.width, self.blank = width, blank
        self.tree = _Labellings()
        first = scores[0]
        best = np.argsort(first, kind="stable")[-width:]
        self.nodes = [_ROOT if c == blank else self.tree.child(_ROOT, int(c)) for c in best]
        impossible = np.full_like(first[best], -np.inf)
        self.by_label = np.where(best == blank, impossible, first[best])
        self.by_blank = np.where(best == blank, first[best], impossible)

    def step(self, x: Array) -> None:
        """Advances by a frame with the scores x of all classes."""
        most = max(self.by_label.max(), self.by_blank.max())
        others = np.where(np.arange(len(x)) == self.blank, np.full_like(x, -np.inf), x)
        label_scale = _finite(most + others.max())
        blank_scale = _finite(most + x[self.blank])
        longer = np.exp(self.by_label[:, None] + others - label_scale)
        tails = np.array([self.tree.labels[node] for node in self.nodes])
        labelled = np.flatnonzero(tails >= 0)
        # A repeated label does not change the labelling, unless a blank is in between.
        same = np.zeros_like(self.by_label)
        same[labelled] = longer[labelled, tails[labelled]]
        longer[labelled, tails[labelled]] = 0
        longer += np.exp(self.by_blank[:, None] + others - label_scale)
        self._join(longer, same)
        blanks = np.exp(self.by_label + x[self.blank] - blank_scale)
        blanks += np.exp(self.by_blank + x[self.blank] - blank_scale)
        self._prune(_log(same, label_scale), _log(blanks, blank_scale), _log(longer, label_scale))

    def _join(self, longer: Array, same: Array) -> None:
        """Moves to `same` what a kept labelling gets from one that is a label shorter."""
        places = {node: i for i, node in enumerate(self.nodes)}
        for i, node in enumerate(self.nodes):
            parent = places.get(self.tree.parents[node])
            if parent is not None:
                label = self.tree.labels[node]
                same[i] += longer[parent, label]
                longer[parent, label] = 0

    def _prune(self, by_label: Array, by_blank: Array, longer: Array) -> None:
        """Keeps the best of the labellings and of those that are one label longer."""
        kept = len(self.nodes)
        totals = np.concatenate([np.logaddexp(by_label, by_blank), longer.ravel()])
        chosen = np.flatnonzero(totals > -np.inf)
        if len(chosen) > self.width:
            least = np.partition(totals[chosen], -self.width)[-self.width]
            chosen = chosen[totals[chosen] >= least]
            chosen = chosen[np.argsort(totals[chosen], kind="stable")[-self.width :]]
        rows, labels = np.divmod(chosen - kept, longer.shape[1])
        self.nodes = [
            self.nodes[i] if i < kept else self.tree.child(self.nodes[row], int(label))
            for i, row, label in zip(chosen, rows, labels, strict=True)
        ]
        impossible = np.full_like(longer.ravel(), -np.inf)
        self.by_label = np.concatenate([by_label, longer.ravel()])[chosen]
        self.by_blank = np.concatenate([by_blank, impossible])[chosen]

    def results(self) -> list[tuple[list[int], Any]]:
        scale = _finite(max(self.by_label.max(), self.by_blank.max()))
        totals = _log(np.exp(self.by_label - scale) + np.exp(self.by_blank - scale), scale)
        order = np.argsort(totals, kind="stable")[::-1]
        return [(self.tree.path(self.nodes[i]), totals[i]) for i in order if totals[i] > -np.inf]


def search(scores: Array, width: int, blank: int) -> list[tuple[list[int], Any]]:
    """The most probable labellings with the logarithms of their probabilities, best first.

    None where a score is NaN.

    Args:
        scores: (frames, classes) logarithms of probabilities, at least one frame.
        width: How many labellings are kept from frame to frame.
        blank: The class of the blank.
    """
    if np.isnan(scores).any():
        return []
    last = scores.shape[1] - 1
    # Classes are counted from the last one, so that sorting puts the first of equal classes first.
    beam = _Search(scores[:, ::-1], width, last - blank)
    for x in scores[1:, ::-1]:
        beam.step(x)
    return [([last - label for label in path], score) for path, score in beam.results()]
