"""The command line, one function per command: parse options, call `workflow`, print.

This module imports nothing else, so that `labelsieve --help` is fast.
"""

from __future__ import annotations

# The names and the first sentences of their docstrings, which `labelsieve --help` shows.
COMMANDS = {
    "demo": "Find wrong labels in 1,197 built-in pictures of handwritten digits. About 40 % of their labels are wrong.",
    "theory": "Print the test accuracy, label precision and label recall that the theory predicts for a noise pattern.",
    "corrupt": "Write a CSV file (columns id, label and true) in which some labels are replaced with wrong ones.",
    "select": "Select the samples whose labels are probably right and list the suspects.",
    "train": "Train the model of a run, using its selection.",
    "run": "Select the samples whose labels are probably right, train a model and write a report.",
    "predict": "Write the id, the predicted class and its probability for every sample of SOURCE to a CSV file.",
    "plan": "Estimate the time, memory and disk space of a run from a short measurement.",
    "report": "Write RUN/report.html, a single file with the estimated noise, the confused classes and the suspects.",
    "review": "Start a web server for the review page.",
    "export": "Write results of a run to a .csv or .parquet file or to class folders.",
    "reproduce": "Reproduce a figure or table of the paper. Only missing experiments are run.",
    "data": "List or merge classes, download CIFAR or a pretrained model, or create a small data set like WebVision.",
    "bench": "Measure the speed of the training engine, of the selection, or of reading pictures.",
    "version": "Print the versions of labelsieve and of the packages that affect its results.",
}


def overview() -> str:
    """Return the help of `labelsieve` without a command."""
    import textwrap

    lines = [
        "Usage: labelsieve COMMAND",
        "",
        "Find wrong labels in your data and train models that are robust to them.",
        "",
    ]
    options = {"--help (-h)": "Display this message, or the options of a command.", "--version": "Display the version."}
    for name, text in {**dict(sorted(COMMANDS.items())), **options}.items():
        lines += textwrap.wrap(text, 79, initial_indent=f"  {name:13}", subsequent_indent=" " * 15)
    return "\n".join(lines)
