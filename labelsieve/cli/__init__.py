"""The command line, one function per command: parse options, call `workflow`, print.

This module imports nothing else, so that `labelsieve --help` is fast.
"""

from __future__ import annotations

# The names and the first sentences of their docstrings, which `labelsieve --help` shows.
COMMANDS = {
    "demo": "Find wrong labels in 1,197 embedded digits, 40 % of which were given wrong labels.",
    "theory": "Print the test accuracy, label precision and label recall that the theory predicts for a noise.",
    "corrupt": "Write a CSV file with id, label (some of them wrong) and true.",
    "select": "Find the labels to trust and the suspects.",
    "train": "Train a robust network on the selection of a run.",
    "run": "Select the samples whose labels are probably right, train a model on them and write a report.",
    "predict": "Write id, predicted class and probability of every sample of SOURCE to a CSV file.",
    "plan": "Estimate the time, memory and disk space of a run, from a short measurement of what the run would use.",
    "report": "Write RUN/report.html, one self-contained file: the noise, the confused classes and the suspects.",
    "review": "Serve the review page until Ctrl-C.",
    "export": "Write results of a run to a .csv or .parquet file or to class folders.",
    "reproduce": "Run the missing trainings of a figure or table of the paper, then draw it.",
    "data": "List and merge the classes of a source, fetch CIFAR, or make a small folder in WebVision's layout.",
    "bench": "Measure the training engine, the selection on stored predictions, or the reading of pictures.",
    "version": "Print the versions of labelsieve and of the packages that its numbers depend on.",
}


def overview() -> str:
    """Return the help of `labelsieve` without a command."""
    import textwrap

    lines = [
        "Usage: labelsieve COMMAND",
        "",
        "Find wrong labels in your data, and train networks that do not learn them.",
        "",
    ]
    options = {"--help (-h)": "Display this message, or the options of a command.", "--version": "Display the version."}
    for name, text in {**dict(sorted(COMMANDS.items())), **options}.items():
        lines += textwrap.wrap(text, 79, initial_indent=f"  {name:13}", subsequent_indent=" " * 15)
    return "\n".join(lines)
