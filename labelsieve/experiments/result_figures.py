"""Sections 5.2 and 5.3: the labels that INCV selects (figures 4 and 5, supplement C), and the accuracy of every method.

labelsieve reproduce selection --data DIR         figure 4; 4 settings x 4 iterations x 2 halves of ResNet-32, 50 epochs
labelsieve reproduce cifar10-errors --data DIR    figure 5; INCV on CIFAR-10 with its own labels
labelsieve reproduce webvision-errors --data DIR  supplement C, from the selection that `webvision` starts from
labelsieve reproduce accuracy --data DIR          table 1; ResNet-32, 200 epochs; incv-coteaching needs `selection`
    --methods automatic                           the default of `labelsieve run`, for comparison
labelsieve reproduce finish --data DIR            not in the paper: incv-posterior with ResNet-32 and PreAct-ResNet-18
labelsieve reproduce curves --data DIR            figure 6, from the records of table 1
labelsieve reproduce webvision --data DIR         table 2; first 50 classes of the Google subset, Inception-ResNet-v2 at
                                                  227 x 227, SGD, 120 epochs, after INCV's 2 x 50 epochs
"""

from __future__ import annotations

import textwrap
from functools import partial
from pathlib import Path

import numpy as np

from labelsieve.experiments import paper, render
from labelsieve.experiments.cells import FINISH, KNOWN_METHODS, accuracy_cells, finish_cells, selection_cells
from labelsieve.experiments.evaluate import judgement_results
from labelsieve.experiments.paper import AUTOMATIC, METHODS, WEBVISION, Noise, Scale
from labelsieve.experiments.records import Record, load, load_arrays
from labelsieve.experiments.render import Item, Summary, markdown, summarise
from labelsieve.selection.finalize import with_learnt_labels

MEASURES = {"label_precision": "LP", "label_recall": "LR"}

# ---------------------------------------------------------------- figure 4


def by_iteration(group: list[Record], measure: str) -> Summary:
    """Summarise a measure over seeds, as arrays with one value per iteration."""
    return Summary.of([[step[measure] for step in record["results"]["by_iteration"]] for record in group])


def selection_table(found: list[Record], scale: Scale) -> str:
    notes, rows, groups = render.Footnotes(), [], render.by_noise(found, scale.table_noises)
    for noise, group in groups:
        measured = {measure: by_iteration(group, measure) for measure in (*MEASURES, "selected")}
        for k in range(group[0]["cell"]["iterations"]):
            row = [noise.title + notes.mark(group) if k == 0 else "", str(k + 1)]
            for measure, published in zip(MEASURES, paper.FIGURE_4[noise.key][k], strict=True):
                row += [measured[measure].at(k).text(3), f"{published:.3f}"]
            rows.append([*row, f"{measured['selected'].mean[k]:,.0f}"])
    header = ["noise", "iteration", "LP", "paper", "LR", "paper", "selected"]
    estimates = ", ".join(
        f"{noise.title}: {summarise(group, 'noise_ratio_estimate').text(3)}" for noise, group in groups
    )
    differences = ", ".join(f"{name} {gap:+.3f} at {title}" for name, gap, title in largest_differences(groups))
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        f"Largest difference from the paper after the last iteration: {differences}. "
        f"The values of the paper are read from its plot. {render.seeds_text([g for _, g in groups])} per setting. "
        f"Noise ratio estimated by Eq. 4 after iteration 1: {estimates}."
    )


def largest_differences(groups: list[tuple[Noise, list[Record]]]) -> list[tuple[str, float, str]]:
    """For each measure, return the mean after the last iteration that differs most from the paper's."""
    largest = []
    for i, (measure, name) in enumerate(MEASURES.items()):
        differences = []
        for noise, group in groups:
            last = group[0]["cell"]["iterations"] - 1
            published = paper.FIGURE_4[noise.key][last][i]
            differences.append((name, float(by_iteration(group, measure).mean[last]) - published, noise.title))
        largest.append(max(differences, key=lambda difference: abs(difference[1])))
    return largest


def selection_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = render.by_noise(found, scale.table_noises)
    with render.canvas(path, 1, 2, height=3.0, note=scale.note) as axes:
        for column, (measure, name) in enumerate(MEASURES.items()):
            ax = axes[0, column]
            iterations: list[int] = []
            for colour, (noise, group) in zip(render.COLOURS, groups, strict=False):
                lines = by_iteration(group, measure)
                iterations = list(range(1, len(lines.mean) + 1))
                ax.errorbar(
                    iterations, lines.mean, yerr=lines.spread, marker="o", markersize=4, color=colour, label=noise.title
                )
                published = [pair[column] for pair in paper.FIGURE_4[noise.key]][: len(iterations)]
                ax.plot(iterations, published, "--", color=colour, alpha=0.6)
            ax.set_title(name)
            ax.set_xlabel("iteration")
            ax.set_xticks(iterations)
        axes[0, 0].plot([], [], "--", color="#888888", label="paper")
        axes[0, 0].legend(frameon=False, fontsize=8)


# ---------------------------------------------------------------- figure 5 and supplement C

NAME_WIDTH = 24  # characters of a concept's name per line; some concepts have five names


def shown_selection(found: list[Record]) -> Record:
    """Return the record that a gallery shows: of the longest trainings the one with the lowest seed."""
    group = next(iter(render.by_cell(found).values()))
    return min(group, key=lambda record: int(record["cell"]["seed"]))


def _suspects_table(record: Record, given_column: str, name: str) -> str:
    results = record["results"]
    rows = [
        [str(s[name]), s["given"], s["suggested"], f"{s['suspicion']:.4f}", f"{s['loss']:.2f}"]
        for s in results["suspects"]
    ]
    candidate, selected, removed = results["verdicts"]
    return (
        f"{markdown(['training picture', given_column, 'suggested', 'suspicion', 'loss'], rows)}\n\n"
        f"INCV selected {selected:,} labels, removed {removed:,} and left {candidate:,} as candidates. Eq. 4 estimates "
        f"that {100 * results['noise_ratio_estimate']:.1f} % of the labels are wrong. This is an upper bound, because "
        f"errors of the network count as wrong labels{''.join('; ' + words for words in render.deviations([record]))}."
    )


def cifar10_errors_table(found: list[Record], scale: Scale) -> str:
    return _suspects_table(shown_selection(found), "given", "index")


def suspects_figure(
    found: list[Record], scale: Scale, results: Path, path: Path, *, columns: int = 8, width: float = 1.15,
    height: float = 1.5,
) -> None:  # fmt: skip
    """Draw the suspects of a selection; width and height are those of one picture."""
    record = shown_selection(found)
    pictures = load_arrays(results, record)["suspect_pictures"]
    rows = max(1, -(-len(pictures) // columns))
    with render.canvas(path, rows, columns, width=width, height=height, note=scale.note) as axes:
        for ax in axes.flat:
            ax.axis("off")
        for ax, picture, suspect in zip(axes.flat, pictures, record["results"]["suspects"], strict=False):
            ax.imshow(picture)
            names = (textwrap.wrap(suspect[key], NAME_WIDTH, max_lines=2) for key in ("given", "suggested"))
            ax.set_title("\n→ ".join(map("\n".join, names)), fontsize=7)


def webvision_not_run(item: str) -> str:
    """The text of a WebVision item without records."""
    return (
        "**Not run**: the pictures of WebVision and ILSVRC12 were not available. "
        f"`labelsieve reproduce {item} --data DIR` runs it. `--scale smoke` runs the same code on generated pictures; "
        "its numbers are not results and are not on this page."
    )


def webvision_errors_table(found: list[Record], scale: Scale) -> str:
    if not found:
        return webvision_not_run("webvision-errors")
    record = shown_selection(found)
    text, results = _suspects_table(record, "labelled", "id"), record["results"]
    if record["noise"]["measured_ratio"] is None:
        return text
    selected_wrong = 1 - results["by_iteration"][-1]["label_precision"]
    return (
        f"{text}\n{100 * record['noise']['measured_ratio']:.1f} % of all labels are wrong, "
        f"{100 * results['suspects_wrong']:.0f} % of the labels shown and {100 * selected_wrong:.1f} % of the selected "
        "ones."
    )


# ---------------------------------------------------------------- table 1


def accuracy_table(found: list[Record], scale: Scale) -> str:
    groups = render.by_cell(found)
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
            measured = summarise(group, "test_accuracy").text(2, 100) + notes.mark(group)
            row += [measured, str(len(group)), "-" if published is None else f"{published[0]:.2f} ± {published[1]:.2f}"]
        rows.append(row)
    not_in_paper = " or `automatic`, the default of `labelsieve run`" if automatic else ""
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        "Accuracy of the last epoch on the clean test set, in %: mean ± standard deviation over seeds (the paper: "
        "over five). For methods with two networks, the mean of both. The paper does not report `standard`"
        f"{not_in_paper}."
    )


# ---------------------------------------------------------------- figure 6


def curves_table(found: list[Record], scale: Scale) -> str:
    """Show how far each method falls from its highest point to its last epoch, as it memorises noise."""
    groups, rows = render.by_cell(found), []
    for method in METHODS:
        row = [method]
        for noise in scale.table_noises:
            group = groups.get((method, noise.key))
            if group is None:
                row += ["-", "-"]
                continue
            curve = summarise(group, "curve").mean
            row += [f"{100 * curve.max():.2f}", f"{100 * (curve[-1] - curve.max()):+.2f}"]
        rows.append(row)
    header = ["method"]
    for noise in scale.table_noises:
        header += [f"{noise.title}: highest", "last epoch"]
    return (
        f"{markdown(header, rows)}\n\n"
        "Highest accuracy of the mean curve, in %, and the difference between the last epoch and this value. In the "
        "figure, a cross marks the accuracy of the last epoch in the paper."
    )


def curves_figure(found: list[Record], scale: Scale, results: Path, path: Path) -> None:
    groups = render.by_cell(found)
    rows = len(scale.table_noises) // 2
    with render.canvas(path, rows, 2, width=4.2, height=3.0, note=scale.note) as axes:
        for ax, noise in zip(axes.flat, scale.table_noises, strict=True):
            for method in KNOWN_METHODS:
                group = groups.get((method, noise.key))
                if group is None:
                    continue
                curve, colour = summarise(group, "curve"), render.COLOUR_OF[method]
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
        row = [method + notes.mark(group), str(len(group))]
        for name in VALIDATION_SETS:
            for i, measure in enumerate(("top1", "top5")):
                row.append(summarise(group, name, measure).text(2, 100))
                row.append("-" if published is None else f"{published[name][i]:.2f}")
        rows.append(row)
    table = f"{markdown(header, rows)}\n{notes.lines()}\n"
    if not found:
        return table + webvision_not_run("webvision")
    counts = found[0]["results"]["pictures"]
    return (
        f"{table}Last epoch, in %. {counts['training']:,} training pictures, {counts['webvision']:,} and "
        f"{counts['imagenet']:,} validation pictures. For methods with two networks, the mean of both. The paper does "
        "not report `standard`. `coteaching` uses the noise ratio that INCV estimates. `f-correction` uses the most "
        "probable sample of a class as its anchor, because the published percentile suits ten classes, not fifty."
    )


# ---------------------------------------------------------------- not in the paper: incv-posterior

# Accuracy in % that each network should reach at least, in the order of `Scale.finish_noises`.
FINISH_GOALS = {"resnet32": (92.0, 90.0, 75.0, 91.0, 91.0), "preact-resnet18": (95.5, 94.5, 90.0, 94.5, 94.5)}


def finish_table(found: list[Record], scale: Scale) -> str:
    """A row for each network and noise, and for each choice of settings and epochs that was run."""
    rows, notes = [], render.Footnotes()
    with_views = any("predict_accuracy" in record["results"] for record in found)  # not in older records
    for network in scale.finish_networks:
        goals = dict(zip(scale.finish_noises, FINISH_GOALS.get(network, ()), strict=False))
        for noise in (*scale.finish_noises, *scale.finish_more_noises):
            same = [r for r in found if r["cell"]["network"] == network and render.noise_of(r) == noise]
            goal = goals.get(noise)
            for group in _by_settings(same):
                accuracy = summarise(group, "test_accuracy").text(2, 100) + notes.mark(group)
                row = [network, noise.title, accuracy, "-" if goal is None else f"{goal:.1f}", str(len(group))]
                for when in ("before", "after"):
                    judged = [record for record in group if when in record["results"]]
                    row += [summarise(judged, when, key).text(3) for key in ("auroc", "calibration_error")]
                row.append(f"{np.mean([record['seconds'] for record in group]) / 60:.1f}")
                row.append(", ".join(dict.fromkeys(str(record["commit"])[:7] for record in group)))
                if with_views:
                    views = [record for record in group if "predict_accuracy" in record["results"]]
                    row.append(f"{summarise(views, 'predict_accuracy').text(2, 100)} ({len(views)})" if views else "-")
                rows.append(row)
    header = [
        "network", "noise", "accuracy", "goal", "seeds", "AUROC before", "ECE before", "AUROC after", "ECE after",
        "minutes", "commits", *["accuracy of `predict` (seeds)"] * with_views,
    ]  # fmt: skip
    of_views = (
        "`predict` averages over two views of a picture; the first accuracy is that of the picture alone "
        "(-: the record is older). "
    )
    return (
        f"{markdown(header, rows)}\n{notes.lines()}\n"
        "Accuracy of the last epoch on the clean test set, in %, mean of the networks; mean ± standard deviation over "
        f"seeds. {of_views * with_views}AUROC and calibration error (ECE) of the suspicion of the labels, before and "
        "after the training. The values after it are computed from the losses in the .npz file of a record, if it has "
        "them. Nothing about the noise is known, and no test label is used. Minutes of the training, without the "
        "selection; trainings that share a GPU take longer. Commits of the trainings, in the order of the seeds if "
        "they differ."
    )


def repeat_judgement(record: Record, results: Path) -> Record:
    """The record with the judgement after the training computed again from the stored losses.

    Unchanged without stored losses (earlier versions, missing .npz files), or if the selection was run
    again since.
    """
    source = record["results"].get("selection")
    first = load(results, source["id"]) if source else None
    if first is None or first["hashes"]["arrays"] != source["arrays"]:
        return record
    if not all((results / f"{each['id']}.npz").is_file() for each in (first, record)):
        return record
    suspicion, arrays = load_arrays(results, first)["suspicion"], load_arrays(results, record)
    probability = np.exp(-arrays["label_loss"].astype(np.float64))
    judged = with_learnt_labels(suspicion.astype(np.float64), 1 - probability)
    after = record["results"]["after"] | judgement_results(arrays["label_wrong"], judged)
    return {**record, "results": {**record["results"], "after": after}}


def _by_settings(found: list[Record]) -> list[list[Record]]:
    """Groups of records with the same settings and epochs; those of the protocol first."""
    groups: dict[str, list[Record]] = {}
    for record in found:
        groups.setdefault("; ".join(render.deviations([record])), []).append(record)
    return [groups[words] for words in sorted(groups)]


ITEMS = (
    Item(
        "selection",
        "Figure 4: label precision and recall of INCV by iteration",
        "selection",
        selection_cells,
        selection_table,
        selection_figure,
    ),
    Item(
        "cifar10-errors",
        "Figure 5: suspicious labels in CIFAR-10",
        "errors",
        partial(selection_cells, kind="errors"),
        cifar10_errors_table,
        suspects_figure,
    ),
    Item(
        "webvision-errors",
        "Supplement C: suspicious labels in WebVision",
        "webvision-selection",
        partial(selection_cells, kind="webvision-selection"),
        webvision_errors_table,
        partial(suspects_figure, columns=6, width=1.6, height=2.4),
        WEBVISION,
    ),
    Item(
        "finish",
        "Not in the paper: accuracy of incv-posterior, and its assessment of the labels",
        FINISH,
        finish_cells,
        finish_table,
        repeat=repeat_judgement,
    ),
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
