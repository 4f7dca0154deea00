"""Read the samples of a run, and open its folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.data.columns import TableX
from labelsieve.data.embedding_cache import EmbeddingModel
from labelsieve.data.labels import read_label_file
from labelsieve.data.read_options import ReadOptions
from labelsieve.data.source import BUILT_IN, TABLES, is_path, load_source
from labelsieve.data.stage import provisional_cache
from labelsieve.errors import InputError
from labelsieve.execute.embed_samples import automatic_model, read_embedding
from labelsieve.models.embed import AUTO, DEFAULT_MODELS, is_local
from labelsieve.progress import SILENT, Note, NoteKind, Progress, join_names
from labelsieve.report.source_state import RunSource
from labelsieve.runfolder import STAGED, RunFolder, fingerprint
from labelsieve.types import LabelledData
from labelsieve.workflow.settings import SelectSettings, SourceSettings, absolute


def read_samples(source: str, settings: SourceSettings, *, progress: Progress = SILENT, **more: Any) -> LabelledData:
    """Read a source with the user's settings and `more` of `ReadOptions`."""
    ignored = settings.ignored
    table = Path(source).suffix.lower() in TABLES if is_path(source) else source.startswith("hf:")
    if ignored and not table:
        raise InputError(f"--ignore-columns is for tables, but {source} has no columns; omit it")
    options = settings.read_options(**more)
    data = load_source(source, options, progress=progress)
    if ignored and data.kind == "pictures":
        raise InputError(f"--ignore-columns is for features, but the samples of {data.name} are pictures; omit it")
    if options.encoding is None and isinstance(data.x, TableX) and data.x.encoding.text is None:
        columns = join_names([column.name for column in data.x.encoding.columns])
        progress.note(Note.of(NoteKind.FEATURES, name=data.name, columns=columns), passing=True)
    return data


def read_to_embed(
    source: str, settings: SelectSettings, progress: Progress, *, recorded: Mapping[str, Any], cache_dir: Path,
    **more: Any,
) -> tuple[LabelledData, str | None]:  # fmt: skip
    """Read a source, and choose the pretrained model that --embed asks for, None for none.

    `recorded` are the settings of a run that exists. Photos to embed are decoded on demand, in a larger size.
    """
    name = settings.embed_name
    if name == AUTO and recorded:
        name = recorded.get("embed")  # a run that exists has made this choice
    if name == AUTO and settings.size is not None:
        name = None  # the user wants small pictures, which a pretrained model would enlarge
    automatic = name == AUTO
    more |= {"size": settings.size, "cache_dir": cache_dir}

    def embeds() -> bool:
        return name is not None and (not automatic or is_local(DEFAULT_MODELS["pictures"]))

    data = read_samples(source, settings, progress=progress, embeds_pictures=embeds, **more)
    check_size(data, settings.size)
    if automatic:
        chosen = automatic_model(data, progress)
        if chosen is None and data.kind == "pictures" and embeds():
            data = read_samples(source, settings, progress=progress, **more)
        return data, chosen
    return data, name


def read_run_samples(run: RunFolder, progress: Progress, *, cache_dir: Path | None = None) -> LabelledData:
    """Read the samples of an existing run again; raise InputError if they changed since."""
    record = run.record()
    about, settings = record.get("data"), record.get("settings", {})
    if about is None or not about.get("source"):
        raise InputError(f"{run.path} does not name its source; run `labelsieve select` first")
    cache_dir = cache_dir or run / STAGED
    with provisional_cache(cache_dir, begun=True) as keep_cache:
        labels = read_label_file(settings["labels"]) if settings.get("labels") else None
        options = ReadOptions.of_run(settings, labels=labels, cache_dir=cache_dir)
        data = load_source(str(RunSource.of(run).path or about["source"]), options, progress=progress)
        if fingerprint(data) != about["fingerprint"]:
            raise InputError(f"{about['source']} changed since {run.path} was started; start another run")
        keep_cache()
    if settings.get("embed"):
        model = EmbeddingModel(settings["embed"], settings.get("embed_revision") or "")
        data = read_embedding(data, model, cache_dir, own_groups=settings.get("group_column") is not None)
    return data


def check_size(data: LabelledData, size: int | None) -> None:
    """Raise InputError if --size has no effect: on samples that are not pictures, and on pictures in an array."""
    if size is None:
        return
    if data.kind != "pictures":
        what = "texts" if data.kind == "text" else "rows of a table"
        raise InputError(f"--size {size} is for pictures, but the samples of {data.name} are {what}; omit it")
    if isinstance(data.x, np.ndarray) and data.x.shape[1:3] != (size, size):
        sides = " x ".join(map(str, data.x.shape[1:3]))
        raise InputError(
            f"--size {size} is for picture files, but {data.name} is an array of {sides} pixels; omit it, or resize "
            "the array"
        )


def absolute_source(source: str) -> str:
    """Return a source with an absolute path, so that later commands find it from any folder."""
    if is_path(source):
        return absolute(source) if Path(source).exists() else source
    if source in BUILT_IN:
        return source
    scheme, _, rest = source.partition(":")
    folder, mark, query = rest.partition("?")
    return f"{scheme}:{absolute(folder)}{mark}{query}" if folder and Path(folder).exists() else source


def default_out(source: str, out: Path | None) -> Path:
    """Return the run folder: as given, or runs/ and the name of the source."""
    if out is not None:
        return Path(out)
    path = Path(source.partition("?")[0].rpartition(":")[2]).resolve()
    name = re.sub(r"[^\w.-]+", "-", path.name if path.is_dir() else path.stem).strip("-.")
    return Path("runs") / (name or "run")


def join_processes(out: Path, device: str) -> Path:
    """Under torchrun, join the other processes: the first one writes `out`, the others use a scratch copy."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return out
    from labelsieve.engine import parallel

    world = parallel.start(device)
    if world.rank:
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
    return world.folder(out)


def one_process_first() -> AbstractContextManager[None]:
    """Under torchrun, let the first process of each machine read and cache the samples before the others."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return nullcontext()
    from labelsieve.engine import parallel

    return parallel.current().one_first()
