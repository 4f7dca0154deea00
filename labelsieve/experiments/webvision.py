"""Table 2: top-1 and top-5 accuracy on WebVision's and ILSVRC12's validation sets, every method, real wrong labels.

labelsieve reproduce webvision --data DIR     first 50 classes of the Google subset, Inception-ResNet-v2 at 227 x 227,
                                              SGD, 120 epochs; INCV's 2 x 50 epochs first, which supplement C shows
"""

from __future__ import annotations

from labelsieve.experiments import paper
from labelsieve.experiments.cells import Cell, Wish, accuracy_cells
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import Record
from labelsieve.experiments.settings import METHODS, TRIAL, Scale
from labelsieve.experiments.summary import Footnotes, by_cell, pick, value_with_spread

SETS = (("webvision", "WebVision"), ("imagenet", "ILSVRC12"))


def not_run(item: str) -> str:
    """What a page says where there are no records: there is a reason, and the code is tried all the same."""
    return (
        "**Not run**: the pictures of WebVision and ILSVRC12 were not available. "
        f"`labelsieve reproduce {item} --data DIR` runs it where they are; `--scale smoke` runs the whole of it on "
        "drawn pictures, whose numbers are a trial of the code, not results, and stand nowhere on this page."
    )


def cells(scale: Scale, wish: Wish) -> list[Cell]:
    return accuracy_cells(scale, wish, kind="webvision")


def table(found: list[Record], scale: Scale) -> str:
    groups = {method: group for (method, _), group in by_cell(found).items()}
    header = ["method", "seeds"]
    for _, title in SETS:
        header += [f"{title} top-1", "paper", "top-5", "paper"]
    notes, rows = Footnotes(), []
    for method in METHODS:
        group, published = groups.get(method, []), paper.TABLE_2.get(method)
        row = [method + (notes.mark(group) if group else ""), str(len(group))]
        for name, _ in SETS:
            for i, measure in enumerate(("top1", "top5")):
                if group:
                    ours = pick(group, lambda r, n=name, m=measure: r["results"][n][m])  # type: ignore[misc]
                    row.append(value_with_spread(ours, 2, 100))
                else:
                    row.append("-")
                row.append("-" if published is None else f"{published[name][i]:.2f}")
        rows.append(row)
    return f"{markdown(header, rows)}\n{notes.lines()}\n{_words(found, scale)}"


def _words(found: list[Record], scale: Scale) -> str:
    if not found:
        return not_run("webvision")
    counts = found[0]["results"]["pictures"]
    words = (
        f"Last epoch, in %; {counts['training']:,} training pictures, {counts['webvision']:,} and "
        f"{counts['imagenet']:,} validation pictures. Methods of two networks count the mean of both. The paper has no "
        "`standard` row. `coteaching` is told the noise ratio that INCV estimates; `f-correction` takes the likeliest "
        "sample of a class as its anchor, since the published percentile suits ten classes, not fifty."
    )
    return f"{TRIAL} {words}" if scale.name == "smoke" else words
