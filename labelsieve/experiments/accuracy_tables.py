"""Section 5.3: tables 1 and 2 and figure 6, the test accuracy of every method.

labelsieve reproduce accuracy --data DIR    table 1; ResNet-32, 200 epochs; incv-coteaching starts from `selection`
    --methods automatic                     the default of `labelsieve run`, for comparison
labelsieve reproduce finish --data DIR      not in the paper: incv-posterior with ResNet-32 and PreAct-ResNet-18
labelsieve reproduce curves --data DIR      figure 6, from the same records
labelsieve reproduce webvision --data DIR   table 2; first 50 classes of the Google subset, Inception-ResNet-v2 at
                                            227 x 227, SGD, 120 epochs, after INCV's 2 x 50 epochs
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np

from labelsieve.experiments import paper, render
from labelsieve.experiments.cells import FINISH, KNOWN_METHODS, accuracy_cells, finish_cells
from labelsieve.experiments.paper import AUTOMATIC, METHODS, SMOKE_NOTE, WEBVISION, Scale
from labelsieve.experiments.records import Record
from labelsieve.experiments.render import Item, markdown, summarise, value_with_spread
from labelsieve.experiments.selection_figures import webvision_not_run

# ---------------------------------------------------------------- table 1


def accuracy_table(found: list[Record], scale: Scale) -> str:
    groups = render.by_cell(found)
    if not groups:
        return render.NO_RECORDS
    automatic = any(method == AUTOMATIC for method, _ in groups)
    header = ["method"]
    for noise in scale.table_noises:
        header += [noise.title, "seeds", "paper"]
    notes, rows = render.Footnotes(), []
    for method in KNOWN_METHODS if automatic else METHODS:
        row = [method]
        for noise in scale.table_noises:
            group = groups.get((method, noise.key), [])
            published = paper.TABLE_1.get(method, {}).get(noise.key)
            measured = "-"
            if group:
                measured = value_with_spread(summarise(group, itemgetter("test_accuracy")), 2, 100) + notes.mark(group)
            row += [measured, str(len(group)), "-" if published is None else f"{published[0]:.2f} ± {published[1]:.2f}"]
        rows.append(row)
    not_in_paper = " or `automatic`, the default of `labelsieve run`" if automatic else ""
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        "Accuracy of the last epoch on the clean test set, in %: mean ± standard deviation over seeds (the paper: "
        "over five). Methods with two networks count the mean of both. The paper does not report `standard`"
        f"{not_in_paper}."
    )


# ---------------------------------------------------------------- figure 6


def curves_table(found: list[Record], scale: Scale) -> str:
    """Show how far each method falls from its highest point to its last epoch, as it memorises noise."""
    groups = render.by_cell(found)
    if not groups:
        return render.NO_RECORDS
    rows = []
    for method in METHODS:
        row = [method]
        for noise in scale.table_noises:
            group = groups.get((method, noise.key))
            if group is None:
                row += ["-", "-"]
                continue
            curve = summarise(group, itemgetter("curve")).mean
            row += [f"{100 * curve.max():.2f}", f"{100 * (curve[-1] - curve.max()):+.2f}"]
        rows.append(row)
    header = ["method"]
    for noise in scale.table_noises:
        header += [f"{noise.title}: highest", "last epoch"]
    return (
        f"{markdown(header, rows)}\n\n"
        "Highest point of the mean curve, in %, and the difference between the last epoch and it. In the figure a "
        "cross marks the paper's last epoch."
    )


def curves_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = render.by_cell(found)
    with render.canvas(path, 2, 2, width=4.2, height=3.0, note=scale.note) as axes:
        for ax, noise in zip(axes.flat, scale.table_noises, strict=True):
            for method in KNOWN_METHODS:
                group = groups.get((method, noise.key))
                if group is None:
                    continue
                curve, colour = summarise(group, itemgetter("curve")), render.COLOUR_OF[method]
                epochs = np.arange(1, len(curve.mean) + 1)
                mean, spread = 100 * curve.mean, 100 * curve.spread
                ax.plot(epochs, mean, color=colour, linewidth=1.2, label=method)
                published = paper.TABLE_1.get(method, {}).get(noise.key)
                if published is not None and scale.name == "paper":
                    ax.plot(epochs[-1:], published[:1], "x", markersize=5, color=colour, clip_on=False)
                if curve.seeds > 1:
                    ax.fill_between(epochs, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
            ax.set_title(noise.title)
            if not ax.lines:
                ax.text(0.5, 0.5, "no records yet", ha="center", va="center", color="#666666", transform=ax.transAxes)
                ax.set(xticks=[], yticks=[])
                continue
            ax.set_xlabel("epoch")
            ax.set_ylabel("test accuracy, %")
        handles, labels = max((ax.get_legend_handles_labels() for ax in axes.flat), key=lambda legend: len(legend[1]))
        if labels:
            if scale.name == "paper":
                handles += axes[0, 0].plot([], [], "x", markersize=5, color="#888888")
                labels.append("paper, last epoch")
            axes[0, 0].legend(handles, labels, frameon=False, fontsize=7)


# ---------------------------------------------------------------- table 2

VALIDATION_SETS = {"webvision": "WebVision", "imagenet": "ILSVRC12"}


def webvision_table(found: list[Record], scale: Scale) -> str:
    groups = {method: group for (method, _), group in render.by_cell(found).items()}
    header = ["method", "seeds"]
    for title in VALIDATION_SETS.values():
        header += [f"{title} top-1", "paper", "top-5", "paper"]
    notes, rows = render.Footnotes(), []
    for method in METHODS:
        group, published = groups.get(method, []), paper.TABLE_2.get(method)
        row = [method + (notes.mark(group) if group else ""), str(len(group))]
        for name in VALIDATION_SETS:
            accuracies = summarise(group, lambda r, n=name: [r[n]["top1"], r[n]["top5"]]) if group else None  # type: ignore[misc]
            for i in range(2):
                at_k = accuracies and accuracies._replace(mean=accuracies.mean[i], spread=accuracies.spread[i])
                row.append(value_with_spread(at_k, 2, 100) if at_k else "-")
                row.append("-" if published is None else f"{published[name][i]:.2f}")
        rows.append(row)
    return f"{markdown(header, rows)}\n{notes.lines()}\n{_webvision_text(found, scale)}"


def _webvision_text(found: list[Record], scale: Scale) -> str:
    if not found:
        return webvision_not_run("webvision")
    counts = found[0]["results"]["pictures"]
    text = (
        f"Last epoch, in %. {counts['training']:,} training pictures, {counts['webvision']:,} and "
        f"{counts['imagenet']:,} validation pictures. Methods with two networks count the mean of both. The paper does "
        "not report `standard`. `coteaching` uses the noise ratio that INCV estimates. `f-correction` uses the most "
        "probable sample of a class as its anchor, because the published percentile suits ten classes, not fifty."
    )
    return f"{SMOKE_NOTE} {text}" if scale.name == "smoke" else text


# ---------------------------------------------------------------- not in the paper: incv-posterior

# Accuracy in % that each network should reach at least, in the order of `Scale.finish_noises`.
FINISH_GOALS = {"resnet32": (92.0, 90.0, 75.0, 91.0, 91.0), "preact-resnet18": (95.5, 94.5, 90.0, 94.5, 94.5)}


def finish_table(found: list[Record], scale: Scale) -> str:
    rows, notes = [], render.Footnotes()
    for network in scale.finish_networks:
        groups = render.by_cell([record for record in found if record["cell"]["network"] == network])
        for place, noise in enumerate(scale.finish_noises):
            group = groups.get((paper.POSTERIOR, noise.key), [])
            if not group:
                continue
            goal = FINISH_GOALS[network][place] if network in FINISH_GOALS else None
            accuracy = value_with_spread(summarise(group, itemgetter("test_accuracy")), 2, 100) + notes.mark(group)
            row = [network, noise.title, accuracy, "-" if goal is None else f"{goal:.1f}", str(len(group))]
            for when in ("before", "after"):
                judged = [record for record in group if when in record["results"]]
                for key in ("auroc", "calibration_error"):
                    values = summarise(judged, lambda r, w=when, k=key: r[w][k]) if judged else None  # type: ignore[misc]
                    row.append("-" if values is None else value_with_spread(values, 3))
            rows.append([*row, f"{np.mean([record['seconds'] for record in group]) / 60:.1f}"])
    if not rows:
        return render.NO_RECORDS
    header = ["network", "noise", "accuracy", "goal", "seeds", "AUROC before", "ECE before", "AUROC after", "ECE after"]
    return (
        f"{markdown([*header, 'minutes'], rows)}\n{notes.lines()}\n"
        "Accuracy of the last epoch on the clean test set, in %, mean of both networks; mean ± standard deviation over "
        "seeds. AUROC and calibration error (ECE) of the suspicion of the labels, before and after the training. "
        "Nothing about the noise is known, and no test label is used. Minutes of the training, without the selection."
    )


ITEMS = (
    Item("finish", "Not in the paper: accuracy and judgement of incv-posterior", FINISH, finish_cells, finish_table),
    Item("accuracy", "Table 1: test accuracy of every method", "accuracy", accuracy_cells, accuracy_table),
    Item("curves", "Figure 6: test accuracy by epoch", "accuracy", accuracy_cells, curves_table, curves_figure),
    Item(
        "webvision",
        "Table 2: top-1 and top-5 accuracy of every method on WebVision",
        "webvision",
        partial(accuracy_cells, kind="webvision"),
        webvision_table,
        scales=WEBVISION,
    ),
)
