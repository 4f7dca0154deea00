"""Random attacks on what is given as a folder: datasets, pretrained models, stored embeddings, and shared decisions.

Each attack starts from a valid folder, damages it or adds hostile files, and runs the command that reads it. Code in a
file would leave a `marker`. The file `outside/secret.csv` has labels that no result may contain.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import random
import resource
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from trust_bend import EXTREMES, bend_file
from trust_generated import command, random_string, snapshot
from trust_runs import TOKENS

CODES = (0, 1, 2)
MOST_MEMORY = 1_500_000  # kilobytes that a command may add to the process
WORDS = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "good", "bad", "fine", "poor", "a"]
EVIL = "open('marker', 'w')\nclass Model: pass\n"


class Payload:
    """Leaves a marker if it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch marker",)


def rows(names: str, count: int = 60) -> str:
    return "id,text,label\n" + "".join(
        f"t{i},{'good fine' if i % 2 else 'bad poor'} {'a' * 40} {i},{names[i % 2]}\n" for i in range(count)
    )


def outside_of(work: Path) -> Path:
    """A folder that no command may read or change."""
    outside = work / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_text(rows("XY"))
    return outside


def special(rng: random.Random, path: Path, outside: Path) -> None:
    """Replace a file with a link, a pipe, a folder or a file that cannot be read; or remove it."""
    kind = rng.randrange(6)
    if kind == 5:
        path.chmod(0)
        return
    path.unlink()
    if kind == 0:
        path.symlink_to(outside / rng.choice(("secret.csv", "new")))
    elif kind == 1:
        path.symlink_to(path.name)
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        path.mkdir()


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)


def readable(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK)
    )


def checked(work: Path, before: dict[str, Any], memory: int) -> None:
    """Nothing outside changed, no code ran, no secret was read, and the memory is bounded."""
    after = snapshot(work / "outside")
    assert after == before, f"changed: {sorted(set(after) ^ set(before))[:3]}"
    assert not Path("marker").exists(), "code of a file ran"
    labels = Path("run/labels.csv")
    if labels.exists():
        given = {line.split(",")[1] for line in labels.read_text().splitlines()}
        assert not given & {"X", "Y"}, "a file outside was read"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown < MOST_MEMORY, f"{grown / 1e6:.1f} GB more memory"


# ---------------------------------------------------------------- datasets


def datasets(rng: random.Random, work: Path, kind: str = "") -> int:
    """A Hugging Face dataset in a folder; one of this `kind` is not damaged."""
    import datasets as library

    outside, folder = outside_of(work), work / "set"
    if (kind or rng.choice(("saved", "files"))) == "saved":
        columns = {"text": [f"{'good' if i % 2 else 'bad'} {i}" for i in range(60)], "label": list("ab" * 30)}
        library.Dataset.from_dict(columns).save_to_disk(folder)
    else:
        folder.mkdir()
        (folder / "train.csv").write_text(rows("ab"))
        (folder / "README.md").write_text(readme("train.csv"))
    for _ in range(0 if kind else rng.choice((1, 1, 2, 3))):
        damage_dataset(rng, folder, outside)
    before, memory = snapshot(outside), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    select = ("select", "hf:set", "--out", "run", "--model", "tfidf", "--iterations", "1")
    with patch.multiple(library.config, HF_DATASETS_CACHE=work / "cache", HF_HUB_OFFLINE=True):
        command(*select, codes=(0,) if kind else CODES)
    checked(work, before, memory)
    return 1


def readme(files: str, key: str = "data_files") -> str:
    return f"---\nconfigs:\n- config_name: default\n  {key}: {json.dumps(files)}\n---\n# A dataset\n"


def damage_dataset(rng: random.Random, folder: Path, outside: Path) -> None:
    secret = f"{outside}/secret.csv"
    away = ("../outside/secret.csv", secret, f"file://{secret}", "x/../../outside/*.csv", "~/secret.csv",
            f"simplecache::file://{secret}", "http://127.0.0.1:9/x.csv", f"/proc/self/root{secret}")  # fmt: skip
    files = readable(folder)
    kind = rng.randrange(9)
    if kind == 0:
        remove(folder / "README.md")
        (folder / "README.md").write_text(readme(rng.choice(away), rng.choice(("data_files", "data_dir"))))
    elif kind == 1 and files:
        special(rng, rng.choice(files), outside)
    elif kind == 2:
        (folder / f"data{len(list(folder.iterdir()))}").symlink_to(outside)
    elif kind == 3:
        (folder / rng.choice(("set.py", "__init__.py", "dataset.py"))).write_text(EVIL)
    elif kind == 4:
        (folder / rng.choice(("train.pkl", "test.arrow", "x.pickle", "dill.pt"))).write_bytes(pickle.dumps(Payload()))
    elif kind == 5 and folder / "state.json" in files:
        named = [{"filename": rng.choice(away)}, {"filename": "../outside/secret.arrow"}]
        state = {"_data_files": named, "_fingerprint": "0", "_format_columns": None, "_format_kwargs": {}}
        state |= {"_format_type": rng.choice((None, "numpy", "custom")), "_output_all_columns": False, "_split": None}
        (folder / "state.json").write_text(json.dumps(state))
    elif kind == 6:
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": [rng.choice(("train", "../outside", secret))]}))
    elif files:
        bend_file(rng.choice(files), rng, TOKENS)


# ---------------------------------------------------------------- pretrained models


@cache
def model_template(process: int, kind: str) -> Path:
    """A small model of random numbers, made once per process."""
    folder = Path(tempfile.mkdtemp(prefix=f"labelsieve-{process}-{kind}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if kind == "static":
        from model2vec import StaticModel
        from tokenizers import Tokenizer, models, pre_tokenizers

        tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        vectors = np.random.default_rng(0).normal(size=(len(WORDS), 6)).astype(np.float32)
        StaticModel(vectors, tokenizer).save_pretrained(str(folder))
        return folder
    from transformers import BertConfig, BertModel, BertTokenizer

    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(folder)
    return folder


def models(rng: random.Random, work: Path, kind: str = "") -> int:
    """A model in a folder; one of this `kind` is not damaged."""
    outside, folder = outside_of(work), work / "model"
    shutil.copytree(model_template(os.getpid(), kind or rng.choice(("static", "bert"))), folder)
    (work / "t.csv").write_text(rows("ab"))
    (work / "evil.py").write_text(EVIL)
    for _ in range(0 if kind else rng.choice((1, 1, 2, 3))):
        damage_model(rng, folder, outside)
    before, memory = snapshot(outside), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    command("select", "t.csv", "--out", "run", "--embed", "model", "--iterations", "1", codes=(0,) if kind else CODES)
    checked(work, before, memory)
    return 1


def damage_model(rng: random.Random, folder: Path, outside: Path) -> None:
    files = readable(folder)
    described = [path for path in files if path.suffix == ".json"]
    kind = rng.randrange(10)
    if kind <= 1 and files:
        special(rng, rng.choice(files), outside)
    elif kind == 2:
        (folder / rng.choice(("pytorch_model.bin", "model.pt", "extra.pkl"))).write_bytes(pickle.dumps(Payload()))
        if rng.random() < 0.5:
            remove(folder / "model.safetensors")
    elif kind == 3:
        (folder / "evil.py").write_text(EVIL)
        change_json(folder / "config.json", {"auto_map": {"AutoModel": "evil.Model", "AutoConfig": "evil.Model"}})
    elif kind == 4:
        entry = {"idx": 0, "name": "0", "path": "", "type": rng.choice(("evil.Model", "os.system"))}
        remove(folder / "modules.json")  # an earlier damage may have replaced it
        (folder / "modules.json").write_text(json.dumps([entry]))
    elif kind == 5:
        size = rng.choice((*EXTREMES, -1, 10**6, 10**9, 10**18))
        names = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "intermediate_size")
        change_json(folder / "config.json", {rng.choice((*names, "max_position_embeddings", "type_vocab_size")): size})
    elif kind == 6:
        remove(folder / "config.json")
        (folder / "config.json").write_text("[" * 100_000 + "]" * 100_000)
    elif kind == 7:
        slow = {"type": "Split", "pattern": {"Regex": r"(a+)+b|(a|aa)+$"}, "behavior": "Isolated", "invert": False}
        change_json(folder / "tokenizer.json", {"pre_tokenizer": slow})
    elif kind == 8 and described:
        bend_file(rng.choice(described), rng, TOKENS)
    elif files:
        bend_file(rng.choice(files), rng, TOKENS)


def change_json(path: Path, changes: dict[str, Any]) -> None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(content, dict):
        path.write_text(json.dumps({**content, **changes}))


# ---------------------------------------------------------------- stored embeddings


def caches(rng: random.Random, work: Path) -> int:
    """Embeddings that do not belong to the samples are computed again: the result is the same as without them."""
    Path("t.csv").write_text(rows("ab"))
    outside = outside_of(work)
    select = ("select", "t.csv", "--embed", "trust_models:embed", "--iterations", "1", "--out")
    command(*select, "runs/first")
    expected = Path("runs/first/labels.csv").read_bytes()
    path = next(Path("runs/first/staged").glob("embeddings-*.npy"))
    array = np.load(path)
    others: list[Any] = [
        array[:-1], array[:, 0], array[None], array[:, :0], array.astype(np.float64), array.astype(">f4"),
        np.zeros((len(array), 2), object), np.full_like(array, np.nan), np.concatenate([array, array]),
    ]  # fmt: skip
    kind = rng.randrange(4)
    if kind == 0:
        np.save(path, rng.choice(others), allow_pickle=True)
    elif kind == 1:
        content = path.read_bytes()
        path.write_bytes(content[: rng.randrange(len(content))])
    elif kind == 2:
        path.write_bytes(pickle.dumps(Payload()))
    else:
        special(rng, path, outside)
    before, memory = snapshot(outside), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    command(*select, "runs/second")
    assert Path("runs/second/labels.csv").read_bytes() == expected, "damaged embeddings were used"
    for name in ("first", "second"):
        command("report", f"runs/{name}", codes=CODES)
    if command(*select, "runs/first", codes=CODES).code == 0:
        assert Path("runs/first/labels.csv").read_bytes() == expected
    checked(work, before, memory)
    return 1


# ---------------------------------------------------------------- decisions of several people


def votes(rng: random.Random, work: Path) -> int:
    """Decisions of several people, undone and redone, are the same after every restart, and in the export."""
    from labelsieve.decisions import Choice, ConflictError, DecisionLog, Resolution
    from labelsieve.errors import InputError
    from labelsieve.labels_csv import read_labels

    Path("t.csv").write_text(rows("ab", 20))
    command("select", "t.csv", "--out", "run", "--model", "tfidf", "--iterations", "1")
    columns, path = read_labels(Path("run/labels.csv")), Path("run/decisions.csv")
    people = ["", *(" ".join(random_string(rng)[:60].split()) for _ in range(3))]  # as the server reads names
    log = DecisionLog(path, columns)
    for _ in range(40):
        row, person, window = rng.randrange(20), rng.choice(people), rng.choice("vw")
        kind = rng.randrange(10)
        try:
            if kind == 0:
                log.undo(window, person)
            elif kind == 1:
                log.redo(window)
            elif kind == 2:
                log.accept(np.arange(rng.randrange(20)), window=window, reviewer=person)
            elif kind == 3:
                expected = decided(log)
                log = DecisionLog(path, columns)
                assert log.not_understood == [], log.not_understood[:1]
                assert decided(log) == expected, "a restart changed the decisions"
            else:
                choice = rng.choice((Choice.KEEP, Choice.RELABEL, Choice.DROP))
                given = int(columns.label[row])
                label = {Choice.KEEP: given, Choice.RELABEL: 1 - given, Choice.DROP: -1}[choice]
                seen = log.version(row, person)
                log.decide([(row, Resolution(choice, label), seen)], window=window, reviewer=person)
        except (InputError, ConflictError):
            continue
    command("export", "run", "--what", "decisions", "--to", "d.csv", codes=CODES)
    command("export", "run", "--what", "cleaned", "--to", "out.csv", codes=CODES)
    return 1


def decided(log: Any) -> tuple[list[int], list[int]]:
    return log.state.tolist(), log.label.tolist()


# ---------------------------------------------------------------- files of labels


def labels(rng: random.Random, work: Path) -> int:
    """Labels from Parquet, JSON Lines or another format, damaged or with odd values: a result or one line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path("t.csv").write_text(rows("ab", 40))
    ids = [f"t{i}" for i in range(40)]
    odd: list[Any] = [None, 1.5, True, "", "a\0", [1], {"a": 1}, float("nan"), 2**60, b"\xff", random_string(rng)]
    values: list[Any] = [rng.choice("ab") for _ in ids]
    for _ in range(rng.choice((0, 1, 3))):
        values[rng.randrange(40)] = rng.choice(odd)
    if rng.random() < 0.3:
        ids = rng.choice((ids[:-1], [*ids[1:], "t1"], [*ids, "other"], list(range(40))))
    values = (values * 2)[: len(ids)]
    name = rng.choice(("l.parquet", "l.jsonl", "l.tsv", "l.csv", "l.txt", "l.npz"))
    try:
        if name == "l.parquet":
            pq.write_table(pa.table({"id": ids, "label": values}), name)
        elif name == "l.npz":
            np.savez(name, id=np.array(ids), label=np.array(values, object))
        elif name == "l.jsonl":
            lines = (json.dumps({"id": id, "label": value}) for id, value in zip(ids, values, strict=True))
            Path(name).write_text("\n".join(lines))
        else:
            mark = "\t" if name == "l.tsv" else rng.choice(",;")
            Path(name).write_text(
                f"id{mark}label\n" + "".join(f"{i}{mark}{v}\n" for i, v in zip(ids, values, strict=True))
            )
    except (pa.ArrowException, TypeError):
        Path(name).write_text(str(values))
    if rng.random() < 0.5:
        bend_file(Path(name), rng, TOKENS)
    outside = outside_of(work)
    if rng.random() < 0.1:
        special(rng, Path(name), outside)
    before, memory = snapshot(outside), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    select = ("select", "t.csv", "--labels", name, "--out", "run", "--model", "tfidf", "--iterations", "1")
    if command(*select, codes=CODES).code == 0:
        command("export", "run", "--what", "cleaned", "--to", "out.csv", codes=CODES)
    assert snapshot(outside) == before and not Path("marker").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MOST_MEMORY
    return 1


def warm_up(attack: Callable[..., int]) -> None:
    """Read every kind of valid folder once."""
    for kind in ("static", "bert"):
        attack("models", 0, kind=kind)
    for kind in ("saved", "files"):
        attack("datasets", 0, kind=kind)


FAMILIES: dict[str, Callable[..., int]] = {
    "datasets": datasets, "models": models, "caches": caches, "votes": votes, "labels": labels,
}  # fmt: skip
