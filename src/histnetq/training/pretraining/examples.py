"""Rows to learn class scores from, with the labels that they are known to have or that proportions imply."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from histnetq.bags.bags import Bags
from histnetq.bags.checks import used_rows
from histnetq.bags.protocols import APP, Protocol
from histnetq.bags.shared_rows import row_hashes
from histnetq.nn import BagNetwork
from histnetq.training.batches import prepare_rows
from histnetq.training.pretraining.label_recovery import memberships, recover_labels
from histnetq.training.supervision import Supervision

_MOST_NUMBERS = 1 << 28  # in the rows that scores are learned from; of more, some bags and rows are drawn
_CERTAIN = 30.0  # score of the class of a row whose label is known

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Examples:
    """Rows of bags, then labelled ones, each once, with the labels they are taken to have.

    Attributes
    ----------
    rows : Tensor of shape (n_rows, ...)
        Inputs of the encoder.
    labels : (n_rows, n_classes)
        Class probabilities of the rows.
    priors : (n_rows, n_classes)
        Logarithms of the prevalences of the classes among bags' rows, and among labelled ones.
    weights : (n_rows,)
        What each row counts.
    bags : Bags or None
        Bags whose proportions are known.
    entries : (n_entries,)
        The row of each entry of the bags.
    n_recovered : int
        Rows of bags; those after them are labelled.
    """

    def __init__(
        self, rows: Tensor, known_weights: NDArray, labels: Floats, codes: NDArray | None, bags: Bags | None,
        entries: Ints,
    ) -> None:  # fmt: skip
        self.rows, self.labels, self.codes, self.bags, self.entries = rows, labels, codes, bags, entries
        self.weights = np.ones(len(rows))
        self.priors = np.zeros_like(labels)
        n_labelled = len(known_weights)
        n = self.n_recovered = len(rows) - n_labelled
        if bags is not None:
            assert bags.prevalences is not None
            self.members = memberships(bags, entries, n)
            self.weights[:n] = np.asarray(self.members.sum(0))[0] / np.bincount(entries, minlength=n)
            self.priors[:n] = _logarithm(bags.prevalences.mean(0), n)
            self.recover(np.zeros((n, labels.shape[1])), np.arange(len(bags)))
        if n_labelled:
            self.weights[n:] = known_weights / known_weights.mean()
            self.priors[n:] = _logarithm(np.average(labels[n:], axis=0, weights=self.weights[n:]), n_labelled)

    @classmethod
    def of(cls, given: Supervision, network: BagNetwork, rng: np.random.Generator) -> Examples | None:
        """Those of what is given; None where they are too many to be held in memory, a single bag of them even."""
        n_classes = len(given.classes)
        most = _MOST_NUMBERS // (int(np.prod(given.input_shape)) + 8 * n_classes)
        bags, rows = given.bags, given.rows
        used, entries = (np.empty(0, np.int64),) * 2
        if bags is not None:
            order = rng.permutation(len(bags))
            used, entries = used_rows(bags.index, bags.rows.shape[0])
            if len(used) > most:
                few = np.searchsorted(np.cumsum(np.diff(bags.offsets)[order]), most)
                bags = bags[np.sort(order[: max(1, int(few))])]
                used, entries = used_rows(bags.index, bags.rows.shape[0])
            if len(used) > most:
                return None
        known = np.empty(0, np.int64) if rows is None else rng.permutation(np.unique(rows.index))[:most]
        if given.one_pool:  # their labels are found with the bags
            known = np.setdiff1d(known, used)
        chosen, first = np.concatenate([used, known]), bags if rows is None else rows
        assert first is not None
        labels = np.zeros((len(chosen), n_classes))
        if rows is not None:
            assert rows.labels is not None
            labels[np.arange(len(used), len(chosen)), rows.labels[known]] = 1
        codes = None if bags is None or bags.labels is None else bags.labels[used]
        weighed = rows is not None and rows.weights is not None
        weights = np.bincount(rows.index, rows.weights)[known] if weighed else np.ones(len(known))  # type: ignore
        inputs = prepare_rows(network, first, chosen).unflatten(1, given.input_shape)
        return cls(inputs, weights, labels, codes, bags, entries)

    @property
    def n_classes(self) -> int:
        return int(self.labels.shape[1])

    @property
    def unknown(self) -> bool:
        """Whether some rows have no label but the one that proportions imply."""
        return self.bags is not None and (self.codes is None or bool((self.codes < 0).any()))

    def known(self) -> NDArray[np.bool_]:
        """Tell which rows have a label that is known: (n_rows,)."""
        known = np.ones(len(self.rows), bool)
        known[: self.n_recovered] = False if self.codes is None else self.codes >= 0
        return known

    def groups(self) -> Ints:
        """Number the contents of the rows: rows that are the same, of which a label tells of all, share a number."""
        hashes = row_hashes(self.rows.numpy(), np.arange(len(self.rows)))
        found: Ints = np.unique(hashes, return_inverse=True)[1]
        return found

    def part(self, among: Ints) -> tuple[Tensor, ...]:
        """Rows, labels, priors and weights, of sum 1, of some of the examples."""
        some = (self.labels[among], self.priors[among], self.weights[among] / self.weights[among].sum())
        return self.rows[torch.from_numpy(among)], *(torch.as_tensor(a, dtype=self.rows.dtype) for a in some)

    def recover(self, scores: Floats, of_bags: Ints) -> None:
        """Find labels of the rows of some bags, given scores that were learned from other rows.

        Parameters
        ----------
        scores : (n_recovered, n_classes)
            Log-likelihoods of the classes; those of other bags' rows are not read.
        of_bags : (n,)
            Numbers of the bags.
        """
        n = self.n_recovered
        assert self.bags is not None
        assert self.bags.prevalences is not None
        members = self.members[of_bags]
        mine = np.flatnonzero(members.getnnz(0))
        logits = scores + self.priors[:n]
        known, truth = np.empty(0, np.int64), np.empty((0, self.n_classes))
        if self.codes is not None:  # some rows of the bags have labels, and leave the rest of the proportions to others
            known = np.flatnonzero(self.codes >= 0)
            truth = np.eye(self.n_classes)[self.codes[known]]
            logits[known] = _CERTAIN * truth
        self.labels[mine] = recover_labels(members[:, mine], self.bags.prevalences[of_bags], logits[mine])
        self.labels[known] = truth
        # A class that few rows have may be common in bags that share these: its rows count once each.
        self.priors[:n] = _logarithm(np.average(self.labels[:n], axis=0, weights=self.weights[:n]), n)

    def bags_of(
        self, chosen: Ints, among: Ints, sampler: Protocol | None, n_bags: int, rng: np.random.Generator
    ) -> tuple[Bags, Ints]:
        """Give bags of known proportions, and which of some rows each entry is.

        Parameters
        ----------
        chosen : (n,)
            Numbers of bags whose rows are all among these; if there are none, bags are drawn from labelled rows.
        among : (n_among,)
            Numbers of the rows, rising.
        sampler : protocol, optional
            How bags are drawn from labelled rows.
        n_bags : int
            Bags at most.
        rng : Generator
            Source of what is drawn.
        """
        if self.bags is not None:
            few = np.sort(rng.permutation(chosen)[:n_bags])
            where = Bags(np.arange(len(self.rows))[:, None], self.entries, self.bags.offsets)[few]
            return self.bags[few], np.searchsorted(among, where.index)
        codes = self.labels[among].argmax(1)
        weights = None if (self.weights == 1).all() else self.weights[among]
        own = Bags(
            self.rows[torch.from_numpy(among)].numpy(), labels=codes, classes=range(self.n_classes), weights=weights,
            weight_kind="survey",
        )  # fmt: skip
        drawn = row_protocol(sampler).draw(own, n_bags // 2, rng)
        return drawn, drawn.index


def row_protocol(sampler: Protocol | None) -> Protocol:
    """Give the protocol that draws bags from labelled rows: this one, a part of it, or APP."""
    sampler = getattr(sampler, "rows", sampler)
    return sampler if sampler is not None and sampler.draws_from == "rows" else APP()


def _logarithm(prevalences: Floats, n_rows: int) -> Floats:
    """Log prevalences, floored at a tenth of a row."""
    return np.log(np.maximum(prevalences, 0.1 / n_rows))
