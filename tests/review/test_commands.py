"""The three commands, as the command line calls them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from labelsieve.cli.common import Common
from labelsieve.cli.results import export, report
from labelsieve.errors import InputError
from labelsieve.export import ExportSettings


def test_report_prints_its_path(runs, tmp_path, capsys):
    run = runs.text(tmp_path)
    report(run.path)
    assert capsys.readouterr().out.startswith(f"{run.path}/report.html (")
    report(run.path, suspects=3, common=Common(json=True))
    said = json.loads(capsys.readouterr().out)
    assert said["bytes"] == (run / "report.html").stat().st_size
    assert (run / "report.html").read_text().count('<li class="suspect">') == 3
    with pytest.raises(InputError, match="--suspects"):
        report(run.path, suspects=-1)


def test_export_prints_a_summary(runs, tmp_path, capsys):
    run = runs.text(tmp_path)
    export(run.path, settings=ExportSettings(to=tmp_path / "c.csv"))
    assert re.search(r"c.csv: 60 samples, 0 with another label, 0 dropped", capsys.readouterr().out)
    export(run.path, settings=ExportSettings(what="suspects", to=tmp_path / "s.csv"), common=Common(json=True))
    said = json.loads(capsys.readouterr().out)
    assert said["what"] == "suspects" and said["rows"] > 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_review_prints_its_address_and_stops_on_a_signal(runs, tmp_path, how):
    run = runs.text(tmp_path)
    code = (
        "import sys, pathlib; from labelsieve.cli.results import review\n"
        "sys.exit(review(pathlib.Path(sys.argv[1]), port=0))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run.path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(r"Review page: http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", line)
    process.send_signal(how)
    _, complaints = process.communicate(timeout=120)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGTERM)
    assert "Traceback" not in complaints
    if how == signal.SIGINT:
        assert not (run / "review.lock").exists()
