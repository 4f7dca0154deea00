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
# Functions of libraries, whatever name the library was imported with.
LIBRARIES = {
    *("ZipFile", "TarFile", "GzipFile", "BZ2File", "LZMAFile", "unpack_archive", "FileIO", "mknod", "run_path", "CDLL"),
    *("copyfile", "copy2", "copytree", "move", "fromfile", "memmap", "open_memmap", "loadtxt", "genfromtxt", "savetxt"),
    *("savez", "savez_compressed", "safe_open", "load_file", "save_file", "imread", "imsave", "savefig"),
    *("read_table", "read_metadata", "read_schema", "ParquetFile", "ParquetWriter", "ParquetDataset", "write_table"),
    *("OSFile", "memory_map", "create_memory_map", "input_stream", "output_stream", "read_feather", "write_feather"),
    *("read_parquet", "read_excel", "read_pickle", "read_json", "to_csv", "to_parquet", "to_excel", "to_pickle"),
    *("load_workbook", "from_path", "from_filelike", "from_pretrained", "load_dataset", "load_from_disk"),
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
    "export/__init__.py: pq.write_table": "a temporary file of atomic_path",
    "export/__init__.py: write_table": "a function of this package",
    "data/huggingface.py: datasets.load_dataset": "check_folder has checked the folder",
    "data/huggingface.py: datasets.load_from_disk": "check_folder has checked the folder",
    "models/embed.py: StaticModel.from_pretrained": "check_model has checked the folder",
    "models/embed.py: AutoModel.from_pretrained": "check_model has checked the folder",
    "models/embed.py: AutoImageProcessor.from_pretrained": "check_model has checked the folder",
    "models/embed.py: AutoConfig.from_pretrained": "check_model has checked the folder",
    "export/class_folders.py: target.symlink_to": "a new name in a new folder, with --link",
}
# Objects with an `open` of their own, which opens a file with `files.open_file`, and streams of open files.
OBJECTS = ("cls(encoding=encoding)", "style", "self", "pictures", "StagedPictures", "archive")
STREAMS = ("file", "partial", "svg", "png")


def bare_calls(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
        function = name in FUNCTIONS or name.rpartition(".")[2] in LIBRARIES
        if not function and not method:
            continue
        first = ast.unparse(node.args[0]) if node.args else ""
        if first.startswith(CHECKED) or (function and first in STREAMS and name != "open"):
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
