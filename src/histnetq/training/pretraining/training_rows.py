"""Rows that class scores are learned from, with labels that are known or recovered from proportions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from histnetq.bags.bags import Bags
from histnetq.bags.checks import used_rows
from histnetq.bags.protocols import APP, SamplingProtocol
from histnetq.bags.shared_rows import row_hashes
from histnetq.nn import BagNetwork
from histnetq.training.batches import prepare_rows
from histnetq.training.pretraining.label_recovery import memberships, recover_labels
from histnetq.training.supervision import Supervision

_MOST_NUMBERS = 1 << 28  # largest number of values in the rows; bags and rows are drawn at random to stay below it
_OFTEN = 10  # times that each of few distinct rows must occur on average
_CERTAIN = 30.0  # score of a known label

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class TrainingRows:
    """The rows of all bags, followed by labelled rows, each once, with known or implied labels.

    Attributes
    ----------
    rows : Tensor of shape (n_rows, ...)
        Inputs of the encoder.
    labels : (n_rows, n_classes)
        Class probabilities of the rows.
    priors : (n_rows, n_classes)
        Log prevalences of the classes, among the rows of bags and among the labelled rows.
    weights : (n_rows,)
        Weights of the rows.
    bags : Bags or None
        Bags with known proportions.
    entries : (n_entries,)
        The row of each entry of the bags.
    n_recovered : int
        Number of rows of bags, which come first.
    """

    def __init__(
        self,
        rows: Tensor,
        known_weights: NDArray,
        labels: Floats,
        codes: NDArray | None,
        bags: Bags | None,
        entries: Ints,
    ) -> None:
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
    def of(cls, given: Supervision, network: BagNetwork, rng: np.random.Generator) -> TrainingRows | None:
        """Collect the rows of the training data; return None if even a single bag does not fit in memory."""
        n_classes = len(given.classes)
        most = _MOST_NUMBERS // (int(np.prod(given.input_shape)) + 8 * n_classes)
        bags, rows = given.bags, given.rows
        used, entries = (np.empty(0, np.int64),) * 2
        if bags is not None:
            bags, used, entries = _bags_with_few_rows(bags, most, rng)
            if len(used) > most:
                return None
        known = np.empty(0, np.int64) if rows is None else rng.permutation(np.unique(rows.index))[:most]
        if given.one_pool:  # the bags contain these rows and their labels
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
    def has_implied_labels(self) -> bool:
        """Return whether the labels of some rows are only implied by proportions."""
        return self.bags is not None and (self.codes is None or bool((self.codes < 0).any()))

    def every_bag(self) -> Ints:
        """Return the numbers of all bags."""
        return np.arange(0 if self.bags is None else len(self.bags))

    def known(self) -> NDArray[np.bool_]:
        """Return a mask of the rows with known labels: (n_rows,)."""
        known = np.ones(len(self.rows), bool)
        known[: self.n_recovered] = False if self.codes is None else self.codes >= 0
        return known

    def groups(self) -> Ints:
        """Number the distinct rows; equal rows, which share their label, get the same number: (n_rows,)."""
        hashes = row_hashes(self.rows.numpy(), np.arange(len(self.rows)))
        found: Ints = np.unique(hashes, return_inverse=True)[1]
        return found

    def part(self, among: Ints) -> tuple[Tensor, ...]:
        """Return the inputs, labels, priors and weights (of sum 1) of some rows."""
        some = (self.labels[among], self.priors[among], self.weights[among] / self.weights[among].sum())
        return self.rows[torch.from_numpy(among)], *(torch.as_tensor(a, dtype=self.rows.dtype) for a in some)

    def recover(self, scores: Floats, of_bags: Ints) -> None:
        """Update the labels of the rows of some bags, given scores that were learned from other rows.

        Parameters
        ----------
        scores : (n_recovered, n_classes)
            Log-likelihoods of the classes. Rows outside these bags are ignored.
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
        if self.codes is not None:  # the unlabelled rows must explain the rest of the proportions
            known = np.flatnonzero(self.codes >= 0)
            truth = np.eye(self.n_classes)[self.codes[known]]
            logits[known] = _CERTAIN * truth
        self.labels[mine] = recover_labels(members[:, mine], self.bags.prevalences[of_bags], logits[mine])
        self.labels[known] = truth
        # Each row counts once: a class may be common in many bags only because they share a few rows.
        self.priors[:n] = _logarithm(np.average(self.labels[:n], axis=0, weights=self.weights[:n]), n)

    def has_many_of(self, groups: Ints) -> bool:
        """Return whether distinct rows, numbered by `groups`, occur often, and there are more bags than of them."""
        n_groups, n = int(groups.max()) + 1, self.n_recovered
        enough = self.bags is None or len(self.bags) > n_groups
        n_entries = (0.0 if self.bags is None else float(self.members.sum())) + len(groups) - n
        return n_groups > 1 and enough and n_entries >= _OFTEN * n_groups

    def recover_groups(self, groups: Ints) -> None:
        """Recover the labels of distinct rows, which have the same probabilities in all bags.

        Parameters
        ----------
        groups : (n_rows,)
            Numbers of the distinct rows, from `groups`.
        """
        n = self.n_recovered
        assert self.bags is not None
        assert self.bags.prevalences is not None
        belongs = csr_matrix((np.ones(n), (np.arange(n), groups[:n])), shape=(n, int(groups.max()) + 1))
        logits = np.tile(_logarithm(self.bags.prevalences.mean(0), n), (belongs.shape[1], 1))
        recovered = recover_labels((self.members @ belongs).tocsr(), self.bags.prevalences, logits)
        known = self.known()[:n]
        self.labels[:n][~known] = recovered[groups[:n][~known]]
        if self.codes is not None:
            self.labels[:n][known] = np.eye(self.n_classes)[self.codes[known]]
        self.priors[:n] = _logarithm(np.average(self.labels[:n], axis=0, weights=self.weights[:n]), n)

    def bags_among(
        self, chosen: Ints, among: Ints, sampler: SamplingProtocol | None, n_bags: int, rng: np.random.Generator
    ) -> tuple[Bags, Ints]:
        """Return bags whose rows are all among some rows, and the position in `among` of each entry.

        Parameters
        ----------
        chosen : (n,)
            Numbers of bags with these rows only. Without any bags, bags are drawn from labelled rows.
        among : (n_among,)
            Increasing numbers of the rows.
        sampler : protocol, optional
            Protocol that draws bags from labelled rows.
        n_bags : int
            Largest number of bags.
        rng : Generator
            Source of random numbers.
        """
        if self.bags is not None:
            few = np.sort(rng.permutation(chosen)[:n_bags])
            where = Bags(np.arange(len(self.rows))[:, None], self.entries, self.bags.offsets)[few]
            return self.bags[few], np.searchsorted(among, where.index)
        codes = self.labels[among].argmax(1)
        weights = None if (self.weights == 1).all() else self.weights[among]
        own = Bags(
            self.rows[torch.from_numpy(among)].numpy(),
            labels=codes,
            classes=range(self.n_classes),
            weights=weights,
            weight_kind="survey",
        )
        drawn = row_protocol(sampler).draw(own, n_bags // 2, rng)
        return drawn, drawn.index


def row_protocol(sampler: SamplingProtocol | None) -> SamplingProtocol:
    """Return the protocol that draws bags from labelled rows: the sampler, a part of it, or APP."""
    sampler = getattr(sampler, "rows", sampler)
    return sampler if sampler is not None and sampler.draws_from == "rows" else APP()


def _bags_with_few_rows(bags: Bags, most: int, rng: np.random.Generator) -> tuple[Bags, Ints, Ints]:
    """Draw bags until they have at most `most` rows (at least one bag); return them, their rows and their entries."""
    order = rng.permutation(len(bags))
    used, entries = used_rows(bags.index, bags.rows.shape[0])
    if len(used) > most:
        few = np.searchsorted(np.cumsum(np.diff(bags.offsets)[order]), most)
        bags = bags[np.sort(order[: max(1, int(few))])]
        used, entries = used_rows(bags.index, bags.rows.shape[0])
    return bags, used, entries


def _logarithm(prevalences: Floats, n_rows: int) -> Floats:
    """Return log prevalences, where a prevalence is at least a tenth of a row."""
    return np.log(np.maximum(prevalences, 0.1 / n_rows))
