"""Table 1: test accuracy on the clean test set after the last epoch, every method at every setting.

labelsieve reproduce accuracy --data DIR      ResNet-32, 200 epochs; incv-coteaching starts from `selection`'s records
    --methods told-nothing                    what `labelsieve run` does by itself, beside them
"""

from __future__ import annotations

from labelsieve.experiments import paper
from labelsieve.experiments.cells import Cell, Wish, accuracy_cells
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import METHODS, TOLD_NOTHING, Scale
from labelsieve.experiments.summary import Footnotes, by_cell, pick, value_with_spread


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return accuracy_cells(scale, wish)


def table(found: list[Record], scale: Scale) -> str:
    groups = by_cell(found)
    if not groups:
        return "No records yet."
    header = ["method"]
    for noise in scale.table_settings:
        header += [noise.title, "seeds", "paper"]
    notes, rows = Footnotes(), []
    for method in (*METHODS, TOLD_NOTHING):
        if method == TOLD_NOTHING and not any(name == method for name, _ in groups):
            continue
        row = [method]
        for noise in scale.table_settings:
            group = groups.get((method, noise.key), [])
            published = paper.TABLE_1.get(method, {}).get(noise.key)
            if group:
                ours = value_with_spread(pick(group, lambda r: r["results"]["test_accuracy"]), 2, 100)
                row.append(ours + notes.mark(group))
            else:
                row.append("-")
            row.append(str(len(group)))
            row.append("-" if published is None else f"{published[0]:.2f} ± {published[1]:.2f}")
        rows.append(row)
    told_nothing = (
        ", and no `told-nothing`: what `labelsieve run` does by itself, INCV with the fast network and then algorithm 3"
    )
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        "Last epoch, clean test set, in %; mean ± standard deviation over seeds, the paper's over five. Methods of two "
        "networks count the mean of both. The paper has no `standard`"
        f"{told_nothing if any(row[0] == TOLD_NOTHING for row in rows) else ''}."
    )
