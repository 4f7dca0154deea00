"""A short stretch of what `make fuzz` does at length, and every input that ever broke a promise."""

from __future__ import annotations

from pathlib import Path

import pytest
import trust_fuzz as fuzz

KEPT = Path(__file__).parents[1] / "fuzz"
REPLAYS = sorted(path for path in KEPT.rglob("*") if path.is_file() and path.suffix != ".md")
SHORT = {"cifar10n": 100, "checkpoint": 150, "model": 100, "summary.json": 60, "report-run.json": 60,
         "history.jsonl": 60, "decisions.csv": 60, "parquet": 60}  # fmt: skip


@pytest.mark.parametrize("name", fuzz.PARSERS)
@pytest.mark.filterwarnings("ignore")
def test_valid_files_are_read(name: str, tmp_path: Path) -> None:
    """Otherwise the bent ones would be refused for the wrong reason."""
    parser = fuzz.PARSERS[name]
    for number, content in enumerate(fuzz._seeds(name)):
        if name == "csv" and content.startswith(b"path"):
            continue  # its pictures are not there
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / parser.suffix).write_bytes(content)
        parser.parse(folder / parser.suffix)


@pytest.mark.parametrize("name", fuzz.PARSERS)
def test_bent_files_end_in_samples_or_one_sentence(name: str) -> None:
    # Another stretch than the long run's: both together see more.
    found = fuzz.forked(name, SHORT.get(name, 200), start=1_000_000)
    assert found.problems == {} and found.tried > 0


@pytest.mark.parametrize("path", REPLAYS, ids=[f"{path.parent.name}-{path.name}" for path in REPLAYS])
@pytest.mark.filterwarnings("ignore")
def test_what_once_broke_a_promise_keeps_it(path: Path, tmp_path: Path) -> None:
    assert fuzz.attempt(fuzz.PARSERS[path.parent.name], path.read_bytes(), tmp_path) is None


def test_there_is_something_to_replay() -> None:
    assert len(REPLAYS) >= 5
