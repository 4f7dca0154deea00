"""Every hostile file: nothing it holds runs, nothing outside is touched, the message is a line."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
import trust_hostile as hostile

from labelsieve import files
from labelsieve.data import cifar_fetch
from labelsieve.decisions import append_decision
from labelsieve.errors import InputError
from labelsieve.runfolder import RunFolder


@pytest.mark.parametrize("case", hostile.CASES, ids=[case.name.replace(" ", "-") for case in hostile.CASES])
@pytest.mark.filterwarnings("default")
def test_nothing_runs_and_the_message_is_a_line(
    case: hostile.Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))  # as `python -m labelsieve` does
    hostile.survive(case, folder, lambda: capsys.readouterr().err)


def test_an_archive_that_escapes_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`data fetch` takes the members it knows by their last name and writes them where it wants."""
    folder = tmp_path / "deep" / "to"
    folder.mkdir(parents=True)
    made = tmp_path / "made.tar.gz"
    with tarfile.open(made, "w:gz") as archive:
        for name in ("../../escaped.bin", "/escaped.bin", "x/../../../data_batch_1.bin"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"evil"))
        for name, to in (("data_batch_2.bin", "../../../escaped-link"), ("batches.meta.txt", "/etc/passwd")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, to
            archive.addfile(link)
        device = tarfile.TarInfo("data_batch_3.bin")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
    monkeypatch.setitem(cifar_fetch.ARCHIVES, "cifar10", ("made.tar.gz", cifar_fetch._md5(made)))
    monkeypatch.setattr(cifar_fetch.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="wrong checksum"):
        cifar_fetch.fetch(folder, official=tmp_path.as_uri() + "/")
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == [
        Path("deep"), Path("deep/to"), Path("made.tar.gz")
    ]  # fmt: skip
    assert not Path("/escaped.bin").exists()


@pytest.mark.parametrize("name", ["decisions.csv", "history.jsonl"])
def test_a_link_among_the_files_that_grow_is_not_followed(tmp_path: Path, name: str) -> None:
    """A class called `$(rm -rf ~)` and a decisions.csv that leads to ~/.profile would make a fine trap."""
    run = RunFolder(tmp_path / "run")
    run.update(stages={})
    (tmp_path / "profile").write_text("export A=1\n")
    (run.path / name).symlink_to(tmp_path / "profile")
    with pytest.raises(InputError, match="is a link"):
        if name == "decisions.csv":
            append_decision(run / "decisions.csv", "$(touch marker)", "keep", "$(touch marker)")
        else:
            run.append_history({"stage": "select"})
    assert (tmp_path / "profile").read_text() == "export A=1\n"


@pytest.mark.parametrize("name", ["decisions.csv", "history.jsonl"])
def test_a_pipe_among_the_files_that_grow_is_refused(tmp_path: Path, name: str) -> None:
    """A line that is written to a pipe is lost."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="not a regular file"):
        files.append_line(tmp_path / name, "a line")


def test_a_link_called_as_a_half_written_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "profile"
    victim.write_text("export A=1\n")
    (tmp_path / f".run.json.{os.getpid()}.partial").symlink_to(victim)
    files.write_text(tmp_path / "run.json", "{}")
    assert victim.read_text() == "export A=1\n"
    assert not (tmp_path / "run.json").is_symlink() and (tmp_path / "run.json").read_text() == "{}"


def test_a_line_that_fits_only_in_part_is_not_half_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "decisions.csv"
    files.append_line(path, "first")
    real, calls = files.os.write, []

    def nearly_full(descriptor: int, content: bytes) -> int:
        calls.append(content)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(descriptor, content[:3])

    monkeypatch.setattr(files.os, "write", nearly_full)
    with pytest.raises(OSError, match="No space left"):
        files.append_line(path, "second")
    assert path.read_bytes() == b"first\n"
