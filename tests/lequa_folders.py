"""Small folders in the layout of LeQua 2024's tasks, with classes that can be told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CLASSES = {"T1": 2, "T2": 28, "T3": 5, "T4": 2}
N_FEATURES = 6


def write_task(root, task, n_dev=24, n_test=5, size=30, n_training=120, seed=0):
    """Write ``{task}/public`` with all three parts of the data; give the prevalences of the test bags.

    T3 has labelled bags in place of labelled rows, and its classes lie along a line; in T4 each bag is moved by an
    offset of its own, which is covariate shift.
    """
    rng, n_classes = np.random.default_rng(seed), CLASSES[task]
    folder = Path(root) / task / "public"
    folder.mkdir(parents=True)
    centres = 2 * rng.normal(size=(n_classes, N_FEATURES))
    if task == "T3":
        centres = np.arange(n_classes)[:, None] * np.eye(1, N_FEATURES) * 1.5

    def rows(labels, moved=False):
        offset = rng.normal(scale=0.3, size=N_FEATURES) if moved else 0.0
        return centres[labels] + rng.normal(size=(len(labels), N_FEATURES)) + offset

    def bags(part, n_bags, labelled=False):
        prevalences = rng.dirichlet(np.ones(n_classes), n_bags)
        for i in range(n_bags):
            labels = rng.choice(n_classes, size, p=prevalences[i])
            prevalences[i] = np.bincount(labels, minlength=n_classes) / size
            write_rows(folder / f"{part}_samples/{i}.txt", rows(labels, task == "T4"), labels if labelled else None)
        table = np.column_stack([np.arange(n_bags), prevalences])
        for name in (f"{part}_prevalences.txt", f"dummy_{part}_predictions.txt"):
            write_numbers(folder / name, ["id", *range(n_classes)], table, ".6g")
        return prevalences

    if task == "T3":
        bags("training", 8, labelled=True)
    else:
        labels = np.arange(n_training) % n_classes
        write_rows(folder / "training_data.txt", rows(labels), labels)
    (folder / "label_map.txt").write_text("".join(f"class{c} {c}\n" for c in range(n_classes)))
    bags("dev", n_dev)
    return bags("test", n_test)


def write_rows(path, features, labels=None):
    names = list(range(features.shape[1]))
    if labels is not None:
        features, names = np.column_stack([labels, features]), ["label", *names]
    write_numbers(path, names, features, ".5g")


def write_numbers(path, names, table, form):
    path.parent.mkdir(exist_ok=True)
    lines = [",".join(map(str, names)), *(",".join(format(value, form) for value in row) for row in table.tolist())]
    path.write_text("\n".join(lines) + "\n")
