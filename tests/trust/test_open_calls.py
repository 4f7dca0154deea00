"""Only `files.py` opens files: a bare call would follow links in a run folder, or wait for the other end of a pipe."""

from __future__ import annotations

import ast
from pathlib import Path

import labelsieve

PACKAGE = Path(labelsieve.__file__).parent
# Calls that open a file, or write one, by its name.
METHODS = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "tofile",
    "symlink_to",
    "hardlink_to",
    "touch",
}
FUNCTIONS = {
    *("open", "io.open", "os.open", "os.mkfifo", "codecs.open", "gzip.open", "zipfile.ZipFile", "tarfile.open"),
    *("np.load", "np.fromfile", "np.memmap", "np.save", "np.savez", "np.savez_compressed", "np.loadtxt", "np.savetxt"),
    *("pq.read_table", "pq.ParquetFile", "pc.read_csv", "pa.memory_map", "pa.OSFile", "feather.read"),
    *("safe_open", "load_file", "save_file", "torch.load", "torch.save", "Image.open", "pickle.load", "json.load"),
    *("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move", "os.symlink", "os.link"),
}
CHECKED = ("regular_file(", "open_file(", "io.BytesIO(")  # as the first argument: the file was checked, or is none
# Calls that open no file of a user or of a run, each with the reason.
ALLOWED = {
    "bench": "files that the benchmark made",
    "data/make_webvision.py": "writes a new folder",
    "data/cifar_fetch.py": "writes a new folder, from an archive whose checksum is known",
    "data/resources.py": "/proc and /sys",
    "engine/parallel.py: (own / 'staged').symlink_to": "a link from a temporary folder of this process",
    "execute/ray_cluster.py: token.write_text": "a new file with a random name",
    "execute/ray_cluster.py: path.read_text": "the file of the line above",
    "execute/ray_cluster.py: path.with_name(f'{path.name}.{node}').write_text": "a new file with a random name",
    "stopping.py: os.open": "/dev/null",
    "workflow/read.py: Path(os.devnull).open": "/dev/null",
    "cli/results.py: webbrowser.open": "an address",
    "report/__init__.py: files('labelsieve.report').joinpath('style.css').read_text": "a file of the package",
    "review/app.py: static.joinpath('page.html').read_text": "a file of the package",
    "review/app.py: static.joinpath(name).read_bytes": "a file of the package",
    "export/class_folders.py: target.symlink_to": "a new name in a new folder, with --link",
}
# Objects with an `open` of their own, which opens a file with `files.open_file`, and streams of open files.
OBJECTS = ("cls(encoding=encoding)", "style", "self", "pictures", "StagedPictures", "archive")
STREAMS = ("file", "partial")


def bare_calls(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
        if name not in FUNCTIONS and not method:
            continue
        first = ast.unparse(node.args[0]) if node.args else ""
        if first.startswith(CHECKED) or (name in FUNCTIONS and first in STREAMS and name != "open"):
            continue
        if method and ast.unparse(node.func.value) in OBJECTS:
            continue
        found.append(name)
    return found


def test_only_one_module_opens_files() -> None:
    allowed, used = set(ALLOWED), set()
    bare = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if module == "files.py":
            continue
        for name in bare_calls(path):
            place = {module, module.split("/")[0], f"{module}: {name}"} & allowed
            used |= place
            if not place:
                bare.append(f"{module}: {name}")
    assert not bare, "use labelsieve.files: open_file, read_text, regular_file, atomic_file, write_text, copy_file"
    assert allowed == used, "calls that do not exist any more"
