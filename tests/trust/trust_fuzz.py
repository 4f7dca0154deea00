"""Files as nobody would write them, for every parser: it ends in samples or in one sentence, in little time and memory.

Valid files are bent: bits turned, parts cut out, doubled, moved, numbers made extreme, and, where a checksum would only
hide the parser behind it, bent inside their container. Everything follows from a parser's name and a number.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import resource
import signal
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from trust_bend import bend, bend_json, bend_safetensors, bend_zip

from labelsieve.errors import InputError
from labelsieve.types import LabelledData

SECONDS = 5.0  # of computing that one small file may take
LONGEST_MESSAGE = 1500

TOKENS = {
    "csv": [b",", b'"', b"\n", b"\r\n", b"\0", b";", b"\t", b"label", b"path", b"text", b"id", b"true", b"nan", b"inf",
            b"1e999", b"\xff\xfe", b"\xef\xbb\xbf", b"../../etc/passwd", b'"' * 3, b"=1+1", b"-" * 40, b"9" * 400],
    "npz": [b"'descr'", b"'|O'", b"'<f8'", b"'shape'", b"(-1,)", b"(9999999999,)", b"()", b"True", b"\x93NUMPY", b"PK",
            b"'<U99999999'", b"{}", b"[('a', '<f8')]", b"\0" * 8],
    "cifar-binary": [b"\0" * 3073, b"\xff" * 3073, b"\0", b"\x0a"],
    "cifar-pickle": [b"cos\nsystem\n", b"c__builtin__\neval\n", b"R", b"b", b"(", b"t", b"}", b"]", b"a", b"s", b"u",
                     b"\x81", b"\x85", b"0", b"2", b"q\x00", b"h\x00", b"r\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 8,
                     b"B\xff\xff\xff\x7f", b"\x8a\xff", b"p99999999999\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n",
                     b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n", b"i", b"o", b"P1\n", b"Q", b"."],
    "checkpoint": [b'"dtype":"F32"', b'"dtype":"BF16"', b'"shape":[0]', b'"shape":[4294967296,4294967296]', b"[0,0]",
                   b'"data_offsets":[0,99999999]', b"__metadata__", b'"meta"', b'"checksum"',
                   b"[" * 3000, b"{}", b"null"],
}  # fmt: skip


@dataclass(frozen=True)
class Parser:
    name: str
    seeds: Callable[[], list[bytes]]
    parse: Callable[[Path], object]
    suffix: str
    fine: tuple[type[BaseException], ...] = (InputError,)
    tokens: str = "csv"
    inside: str = ""  # the container to bend inside of: zip or safetensors
    share: float = 1.0  # of the inputs that scripts/trust.py tries


# ---------------------------------------------------------------- valid files


def _tables() -> list[bytes]:
    return [
        b"id,a,b,label\n" + b"".join(b"s%d,%d,%s,%s\n" % (i, i * i, b"xyz"[i % 3 : i % 3 + 1], b"pq"[i % 2 : i % 2 + 1])
                                     for i in range(12)),
        "text;label\n\"größer; als\nzwei Zeilen\";ja\nkurz;nein\n".encode(),
        b"path,label\na.png,1\nb.png,2\n",
        b"label\ta\ttrue\n1\t0.5\t1\n2\t\t2\n",
    ]  # fmt: skip


def _label_files() -> list[bytes]:
    return [b"id,label\ns0,p\ns1,q\n", b'true,id,label\np,"s,0","line\nbreak"\nq,s1,q\n']


def _npz() -> list[bytes]:
    found = []
    for save in (np.savez, np.savez_compressed):
        for arrays in (
            {"x": np.arange(24.0).reshape(6, 4), "y": np.array(["a", "b"] * 3)},
            {"x": np.zeros((4, 3, 3), dtype=np.uint8), "y": np.arange(4) % 2, "ids": np.arange(4)},
            {"x": np.array(["one text", "two"]), "y": np.array([True, False])},
            {"x": np.asfortranarray(np.ones((2, 3), dtype=">i2")), "y": np.array([1, 2])},
        ):
            out = io.BytesIO()
            save(out, **arrays)
            found.append(out.getvalue())
    return found


def _binary() -> list[bytes]:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (3, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    return [rows.tobytes(), rows[:1].tobytes()]


def _pickles() -> list[bytes]:
    data = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)
    found = []
    for protocol in range(5):
        small = {"data": data[:1], "labels": [1], "filenames": ["a"], "batch_label": "x"}
        found.append(pickle.dumps(small, protocol))
        found.append(pickle.dumps({b"data": data, b"labels": np.array([1, 2, 3]), "n": np.float32(2)}, protocol))
    return found


def _human_labels() -> list[bytes]:
    import torch

    found = []
    for new in (True, False):
        out = io.BytesIO()
        torch.save({"worse_label": np.arange(40) % 10}, out, _use_new_zipfile_serialization=new)
        found.append(out.getvalue())
    return found


def _checkpoints() -> list[bytes]:
    import torch

    from labelsieve.engine import training

    with tempfile.TemporaryDirectory() as folder:
        tensors = {"w": torch.ones(3, 2), "b": torch.zeros(2, dtype=torch.bfloat16), "n": torch.arange(3)}
        return [
            training.save_checkpoint(Path(folder), 1, tensors, {"epoch": 3, "history": [{"loss": [0.5]}]}).read_bytes()
        ]


def _models() -> list[bytes]:
    import torch

    from labelsieve.models.choose import create_network
    from labelsieve.workflow import model_file as modelfile

    states = [create_network("mlp", (2,), 2)().state_dict() for _ in range(2)]
    reader = modelfile.SampleReader(
        "table", (2,), {"centre": np.zeros(2, np.float32), "spread": np.ones(2, np.float32)}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        modelfile.save(path, modelfile.Model("mlp", ("a", "b"), reader, states, "standard"))
        torch.set_num_threads(1)
        return [path.read_bytes()]


def _label_rows() -> list[bytes]:
    head = b"id,label,predicted,probability,loss,verdict,iteration,suspicion,suggested,duplicates,outlier,confidence\n"
    rows = b's0,a,b,0.1,2.3,candidate,0,0.9,b,1,true,0.9\n"s\n1",b,b,0.9,0.1,selected,1,0.1,,1,,0.9\n'
    return [head + rows + b"s2,a,,,,removed,2,0.5,,,,\n"]


def _records() -> list[bytes]:
    stage = {"state": "running", "started": "t", "settings": {"seed": 0}, "versions": {"numpy": "2"}}
    record = {"format": 1, "data": {"source": "x.csv", "samples": 3, "fingerprint": "f"}, "settings": {"seed": 0},
              "stages": {"select": {**stage, "state": "done"}, "train": stage}, "versions": {}, "seed": 0}  # fmt: skip
    return [json.dumps(record, indent=2).encode()]


def _pictures() -> list[bytes]:
    from PIL import Image

    found = []
    pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, kind)
        found.append(out.getvalue())
    return found


def _parquet() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"label": ["a", "b", "a"], "n": [1, 2, 3], "c": ["x", None, "z"]}), out)
    return [out.getvalue()]


def _json_lines() -> list[bytes]:
    rows = [{"label": "ab"[i % 2], "n": i, "c": [None, "x", "caf\u00e9"][i % 3], "d": {"e": [i]}} for i in range(4)]
    return ["".join(json.dumps(row) + "\n" for row in rows).encode()]


# ---------------------------------------------------------------- parsers


def _parse_table(path: Path) -> object:
    from labelsieve.data import table
    from labelsieve.data.read_options import ReadOptions

    return table.load(path, ReadOptions())


def _parse_labels(path: Path) -> object:
    from labelsieve.data.labels import read_label_file

    return read_label_file(path)


def _parse_npz(path: Path) -> object:
    from labelsieve.data import npz

    return npz.load(path)


def _parse_binary(path: Path) -> object:
    from labelsieve.data import cifar

    return cifar.from_binary(path)


def _parse_pickle(path: Path) -> object:
    from labelsieve.data import cifar

    return cifar.from_python(path)


def _parse_human(path: Path) -> object:
    from labelsieve.data import cifar

    return cifar.human_labels(path.parent)


def _parse_checkpoint(path: Path) -> object:
    from labelsieve.engine import training

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training.newest_checkpoint(path.parent)
    return training.load_checkpoint(path)


def _parse_model(path: Path) -> object:
    from labelsieve.types import LabelledData
    from labelsieve.workflow import model_file as modelfile

    model = modelfile.load(path)
    rows = np.zeros((1, model.reader.shape[0]), dtype=np.float32)
    data = LabelledData(rows, np.array([-1]), (), np.array(["0"]), model.reader.kind)
    return model.probabilities(data, device="cpu")


def _parse_label_rows(path: Path) -> object:
    from labelsieve.labels_csv import read_labels
    from labelsieve.runfolder import RunFolder

    list(RunFolder(path.parent).read_labels())
    return read_labels(path, ["a", "b"])


def _parse_record(path: Path) -> object:
    from labelsieve.runfolder import RunFolder

    run = RunFolder(path.parent)
    run.start("select", settings={"seed": 0})
    return run.state("train")


def _parse_summary(path: Path) -> object:
    """The report and the export of a run whose summary, record or history somebody bent."""
    from labelsieve.export import export
    from labelsieve.report import write_report

    for name, content in _run_files().items():
        if name != path.name:
            (path.parent / name).write_bytes(content)
    target = path.parent / "out.csv"
    export(path.parent, what="cleaned", to=target)
    return write_report(path.parent)


@cache
def _run_files() -> dict[str, bytes]:
    summary = {
        "samples": 3, "skipped": 0, "classes": ["a", "b"], "noise_ratio": 0.3,
        "transition_matrix": [[0.7, 0.3], [0.3, 0.7]],
        "label_precision": 0.9, "label_recall": 0.8, "counts": {"candidate": 1, "selected": 1, "removed": 1},
        "by_class": {"a": {"candidate": 1, "selected": 0, "removed": 1}, "b": {"selected": 1}},
        "iterations": [{"iteration": 1, "estimate": {"ratio": 0.3, "low": 0.2, "high": 0.4, "trust": "trustworthy"}}],
        "notes": ["a note"], "measured_label_precision": 0.8, "measured_label_recall": 0.9,
    }  # fmt: skip
    history = [{"stage": "train", "training": "t", "epoch": e, "loss": [1 / (e + 1)], "seconds": 0.1} for e in range(3)]
    return {
        "summary.json": json.dumps(summary).encode(),
        "run.json": _records()[0].replace(b"x.csv", b"digits"),
        "labels.csv": _label_rows()[0],
        "history.jsonl": "".join(json.dumps(line) + "\n" for line in history).encode(),
        "decisions.csv": b"id,decision,label,time\ns0,keep,a,2020-01-01T00:00:00.000+00:00\ns2,drop,,t\n",
    }


def _seed_of(name: str) -> Callable[[], list[bytes]]:
    return lambda: [_run_files()[name]]


def _parse_picture(path: Path) -> object:
    from labelsieve.data.decode import ShorterSide, UnreadablePictureError
    from labelsieve.data.pictures import PictureFiles
    from labelsieve.data.read_pictures import read_pictures

    pictures = PictureFiles(path.parent, [str(path), str(_good_picture())], ShorterSide(16))
    with suppress(UnreadablePictureError):
        pictures.decode(0)
    return read_pictures(
        LabelledData(pictures, np.array([0, 1]), ("a", "b"), np.array(["p", "good"]), "pictures", name="fuzz"), size=16
    )


@cache
def _good_picture() -> Path:
    path = Path(tempfile.mkdtemp(prefix="labelsieve-good-")) / "good.png"
    path.write_bytes(_pictures()[1])
    return path


PARSERS = {
    parser.name: parser
    for parser in (
        Parser("csv", _tables, _parse_table, "input.csv"),
        Parser("npz", _npz, _parse_npz, "input.npz", tokens="npz", inside="zip"),
        Parser("cifar-binary", _binary, _parse_binary, "data_batch_1.bin", tokens="cifar-binary"),
        Parser("cifar-pickle", _pickles, _parse_pickle, "data_batch_1", tokens="cifar-pickle"),
        Parser("cifar10n", _human_labels, _parse_human, "CIFAR-10_human.pt", tokens="cifar-pickle", inside="zip"),
        Parser("checkpoint", _checkpoints, _parse_checkpoint, "000000001.safetensors", (ValueError, OSError),
               "checkpoint", "safetensors"),
        Parser("model", _models, _parse_model, "model.safetensors", tokens="checkpoint", inside="safetensors"),
        Parser("label-file", _label_files, _parse_labels, "labels.csv"),
        Parser("labels.csv", _label_rows, _parse_label_rows, "labels.csv"),
        Parser("run.json", _records, _parse_record, "run.json", tokens="checkpoint", inside="json"),
        Parser("summary.json", _seed_of("summary.json"), _parse_summary, "summary.json", inside="json"),
        Parser("report-run.json", _seed_of("run.json"), _parse_summary, "run.json", inside="json"),
        Parser("history.jsonl", _seed_of("history.jsonl"), _parse_summary, "history.jsonl", inside="jsonl"),
        Parser("decisions.csv", _seed_of("decisions.csv"), _parse_summary, "decisions.csv"),
        Parser("picture", _pictures, _parse_picture, "input.jpg"),
        Parser("parquet", _parquet, _parse_table, "input.parquet", share=0.2),  # each starts a process
        Parser("json-lines", _json_lines, _parse_table, "input.jsonl", inside="jsonl"),
    )
}  # fmt: skip


# ---------------------------------------------------------------- inputs


def make(parser: Parser, number: int) -> bytes:
    """The number-th input of a parser."""
    rng = random.Random(f"{parser.name} {number}")
    content = rng.choice(_seeds(parser.name))
    tokens = TOKENS[parser.tokens]
    if parser.inside == "zip" and zipfile.is_zipfile(io.BytesIO(content)) and rng.random() < 0.7:
        return bend_zip(content, rng, tokens)
    if parser.inside == "safetensors" and rng.random() < 0.6:
        return bend_safetensors(content, rng, tokens)
    if parser.inside == "json" and rng.random() < 0.8:
        return json.dumps(bend_json(json.loads(content), rng)).encode()
    if parser.inside == "jsonl" and rng.random() < 0.8:
        lines = bend_json([json.loads(line) for line in content.splitlines()], rng)
        return b"".join(json.dumps(line).encode() + b"\n" for line in (lines if isinstance(lines, list) else [lines]))
    if parser.tokens == "cifar-pickle" and rng.random() < 0.2:
        return b"\x80\x02" + b"".join(rng.choice(tokens) for _ in range(rng.randrange(1, 30))) + b"."
    return bend(content, rng, tokens)


@cache
def _seeds(name: str) -> list[bytes]:
    return PARSERS[name].seeds()


# ---------------------------------------------------------------- trying


class TooSlowError(BaseException):
    """No `except Exception` may hide it."""


def attempt(parser: Parser, content: bytes, folder: Path) -> str | None:
    """None where the parser keeps its promise, otherwise what went wrong."""
    path = folder / parser.suffix
    path.write_bytes(content)
    marker = folder / "marker"

    def too_slow(*_: Any) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        parser.parse(path)
    except parser.fine as problem:
        if len(str(problem)) > LONGEST_MESSAGE:
            return f"a message of {len(str(problem))} characters"
    except TooSlowError:
        return f"more than {SECONDS:.0f} s"
    except (Exception, RecursionError) as problem:
        return f"{type(problem).__name__}: {problem}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return "it ran what it read" if marker.exists() else None


def limit_memory(extra: int = 3 * 2**30) -> None:
    """So that a file which asks for everything is found out."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + extra, resource.RLIM_INFINITY))


@dataclass
class Found:
    tried: int = 0
    read: float = 0.0
    seconds: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)  # file name to what went wrong


def fuzz(name: str, inputs: int, *, start: int = 0, keep: Path | None = None, limit: bool = False) -> Found:
    """Try `inputs` files. What breaks a promise is kept in `keep`."""
    parser = PARSERS[name]
    found = Found()
    began = time.monotonic()
    _seeds(name)
    with tempfile.TemporaryDirectory(prefix="labelsieve-fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = Path(folder)
        if limit:
            attempt(parser, _seeds(name)[0], work)  # everything is imported before memory is counted
            limit_memory()
        for number in range(start, start + inputs):
            content = make(parser, number)
            problem = attempt(parser, content, work)
            found.tried += 1
            if problem is not None:
                digest = sha256(content).hexdigest()[:16]
                if problem.split(":")[0] not in {message.split(":")[0] for message in found.problems.values()} or limit:
                    found.problems[f"{name}-{digest}"] = problem
                    if keep is not None and len(found.problems) <= 20:
                        (keep / name).mkdir(parents=True, exist_ok=True)
                        (keep / name / digest).write_bytes(content)
    found.seconds = time.monotonic() - began
    return found


def forked(name: str, inputs: int, *, start: int = 0, keep: Path | None = None) -> Found:
    """`fuzz` in a process of its own with limited memory: a crash of it is a finding too."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            found = fuzz(name, inputs, start=start, keep=keep, limit=True)
            os.write(writing, json.dumps([found.tried, found.seconds, found.problems]).encode()[:60000])
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        return Found(0, problems={f"{name}-crash": f"the process ended with {os.waitstatus_to_exitcode(status)}"})
    tried, seconds, problems = json.loads(said)
    return Found(tried, seconds=seconds, problems=problems)
