"""A wheel builds, installs into an environment of its own, and runs the demo there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def call(*arguments: object, **options: object) -> str:
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_the_wheel_installs_and_runs_the_demo(tmp_path: Path) -> None:
    # Built from a copy: a build leaves folders behind, and the checkout may be read-only.
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    call("cp", "-r", ROOT / "labelsieve", source / "labelsieve")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    call(*build, "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("labelsieve-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"labelsieve/py.typed", "labelsieve/cli/app.py", "labelsieve/cli/paper.py"} <= names
    shipped = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "labelsieve").rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    assert shipped <= names, shipped - names

    # The dependencies come from this environment; labelsieve itself only from the wheel.
    venv.create(tmp_path / "clean", with_pip=False)  # the pip of this environment installs into the other one
    python = tmp_path / "clean" / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = call(python, "-I", "-c", "import labelsieve; print(labelsieve.__file__)", cwd=tmp_path, env=environment)
    assert Path(where.strip()).is_relative_to(tmp_path / "clean")
    command = tmp_path / "clean" / "bin" / "labelsieve"
    found = json.loads(call(command, "demo", "--json", "--out", "demo", cwd=tmp_path, env=environment))
    assert found["by_iteration"][-1]["label_precision"] > 0.95
    assert (tmp_path / "demo" / "report.html").exists()
