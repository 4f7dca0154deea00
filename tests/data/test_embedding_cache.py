"""Embeddings on disk: appended batch by batch, resumed after a kill, shared by runs beside each other."""

from __future__ import annotations

import io
import os
import signal
import time

import numpy as np
import pytest

from labelsieve.data.columns import texts
from labelsieve.data.embedding_cache import (
    EmbeddedX,
    EmbeddingModel,
    Encoder,
    cache_path,
    embed_to_disk,
    find_embeddings,
)
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData


class Lengths(Encoder):
    """Two numbers per text; counts the texts that it gets, and fails after some of them."""

    batch_size = 4

    def __init__(self, revision="1", fails_after=None, columns=2):
        self.model = EmbeddingModel("lengths", revision)
        self.fails_after, self.columns, self.seen = fails_after, columns, 0

    def encode(self, samples):
        self.seen += len(samples)
        if self.fails_after is not None and self.seen > self.fails_after:
            raise RuntimeError("stopped")
        return np.array([[len(text)] * self.columns for text in samples])


def data_of(count=22, first="a"):
    names = [first * (i + 1) for i in range(count)]
    return LabelledData(
        texts(names), np.zeros(count, dtype=np.int64), ("c",), np.array(list(map(str, range(count)))), "text"
    )


def embedded(folder, encoder, data=None, share=True):
    return embed_to_disk(folder, data or data_of(), encoder, Progress(silent=True), share=share)


def test_rows_are_memory_mapped_and_a_subset_copies_nothing(tmp_path):
    found = embedded(tmp_path / "run" / "staged", Lengths())
    assert found.shape == (22, 2) and isinstance(found.rows, np.memmap)
    assert np.asarray(found)[:, 0].tolist() == list(range(1, 23))
    some = found.subset(np.array([3, 5, 7])).subset(np.array([0, 2]))
    assert isinstance(some, EmbeddedX) and isinstance(some.rows, np.memmap)
    assert some[1].tolist() == [8, 8] and np.asarray(some, dtype=np.float64).dtype == np.float64


def test_a_stopped_embedding_continues_after_its_last_batch(tmp_path):
    staged = tmp_path / "run" / "staged"
    with pytest.raises(RuntimeError):
        embedded(staged, Lengths(fails_after=12))
    path = cache_path(staged, data_of(), EmbeddingModel("lengths", "1"))
    path.write_bytes(path.read_bytes() + b"\0\0\0")  # a part of a row, as a kill may leave it
    again = Lengths()
    found = embedded(staged, again)
    assert again.seen == 22 - 12
    assert np.asarray(found)[:, 1].tolist() == list(range(1, 23))
    assert np.load(path).shape == (22, 2)
    finished = Lengths()
    embedded(staged, finished)
    assert finished.seen == 0


def test_other_samples_and_other_revisions_have_other_files(tmp_path):
    model = EmbeddingModel("lengths", "1")
    paths = {
        cache_path(tmp_path, data_of(), model),
        cache_path(tmp_path, data_of(first="b"), model),
        cache_path(tmp_path, data_of(21), model),
        cache_path(tmp_path, data_of(), EmbeddingModel("lengths", "2")),
        cache_path(tmp_path, data_of(), EmbeddingModel("other", "1")),
    }
    assert len(paths) == 5


def test_a_run_beside_another_one_shares_its_embeddings(tmp_path):
    embedded(tmp_path / "one" / "staged", Lengths())
    second, third = Lengths(), Lengths()
    found = embedded(tmp_path / "two" / "staged", second)
    assert second.seen == 0 and found.shape == (22, 2)
    embedded(tmp_path / "three" / "staged", third, share=False)
    assert third.seen == 22


def test_rows_that_do_not_fit_are_refused(tmp_path):
    class Few(Lengths):
        def encode(self, samples):
            return np.zeros((1, 2))

    class Changing(Lengths):
        def encode(self, samples):
            self.seen += 1
            return np.zeros((len(samples), 1 + self.seen))

    class Missing(Lengths):
        def encode(self, samples):
            return np.full((len(samples), 2), np.nan)

    for i, encoder in enumerate((Few(), Changing(), Missing())):
        with pytest.raises(InputError, match="lengths"):
            embedded(tmp_path / str(i) / "staged", encoder)


def kill_while_embedding(forked, folder, kills, count):
    """Start the embedding, kill it when some more batches are done, and do so again; return the log of all samples."""
    log = folder / "log"

    class Slow(Lengths):
        def encode(self, samples):
            with log.open("a") as file:
                file.write("".join(f"{len(text)}\n" for text in samples))
            time.sleep(0.01)
            return super().encode(samples)

    def embed():
        embedded(folder / "staged", Slow(), data_of(count))
        return 0

    for kill in range(kills):
        before = log.stat().st_size if log.exists() else 0
        process = forked(embed, folder / "said")
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if log.exists() and log.stat().st_size >= before + 20 * (1 + kill % 3):
                break
            time.sleep(0.001)
        else:
            raise AssertionError(f"it finished before it was killed: {(folder / 'said').read_text()}")
        os.kill(process, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert os.waitpid(forked(embed, folder / "said"), 0)[1] == 0, (folder / "said").read_text()
    return [int(line) for line in log.read_text().splitlines()]


def check_kills(forked, folder, kills, count):
    seen = kill_while_embedding(forked, folder, kills, count)
    assert set(seen) == set(range(1, count + 1))
    assert len(seen) - count <= kills * Lengths.batch_size  # only the batch in flight is computed twice
    found = embedded(folder / "staged", Lengths(fails_after=0), data_of(count))
    assert np.asarray(found)[:, 0].tolist() == list(range(1, count + 1))


def test_three_kills_lose_only_the_batch_in_flight(forked, tmp_path):
    check_kills(forked, tmp_path, 3, 400)


@pytest.mark.slow
def test_twenty_kills_lose_only_the_batch_in_flight(forked, tmp_path):
    check_kills(forked, tmp_path, 20, 2000)


def header(shape, dtype="<f4"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        header((22, 0)),
        header((22, 2)).replace(b")", b"("),  # numpy's parser of headers ends with an error of its own
        header((22, 2)) + np.full((22, 2), np.nan, dtype=np.float32).tobytes(),
        header((22, 2), "<i4") + bytes(22 * 8),
        b"\x93NUMPY",
        b"",
    ],
)
def test_a_damaged_file_is_computed_again(tmp_path, content):
    """A run folder may come from another person."""
    staged = tmp_path / "run" / "staged"
    staged.mkdir(parents=True)
    cache_path(staged, data_of(), EmbeddingModel("lengths", "1")).write_bytes(content)
    assert np.asarray(embedded(staged, Lengths()))[:, 0].tolist() == list(range(1, 23))


def test_links_in_run_folders_are_not_followed(tmp_path):
    embedded(tmp_path / "elsewhere" / "one" / "staged", Lengths())
    (tmp_path / "runs" / "linked").mkdir(parents=True)
    (tmp_path / "runs" / "linked" / "staged").symlink_to(tmp_path / "elsewhere" / "one" / "staged")
    mine = Lengths()
    path = cache_path(tmp_path / "runs" / "mine" / "staged", data_of(), mine.model)
    embedded(path.parent, mine)
    assert mine.seen == 22
    path.rename(tmp_path / "moved.npy")
    path.symlink_to(tmp_path / "moved.npy")
    assert find_embeddings(path.parent, 22) is None
    with pytest.raises(OSError, match=r"."):
        embedded(path.parent, Lengths())
