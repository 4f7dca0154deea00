from __future__ import annotations

import os
import resource
import signal

import pytest
import torch

from labelsieve.engine import training


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"weights": torch.full((3, 4), value), "count": torch.tensor(7), "half": torch.ones(2, dtype=torch.bfloat16)}


def test_what_was_saved_is_loaded_and_only_the_two_newest_stay(tmp_path):
    for number in range(5):
        training.save_checkpoint(tmp_path, number, tensors(number), {"epoch": number})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000003.safetensors", "000000004.safetensors"]
    number, found, meta = training.newest_checkpoint(tmp_path)
    assert number == 4 and meta == {"epoch": 4}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors(4).items())


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text", "giant header"])
def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(tmp_path, damage):
    for number in range(2):
        path = training.save_checkpoint(tmp_path, number, tensors(number), {"epoch": number})
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[:-5]
    elif damage == "flipped":
        content[-3] ^= 1
    elif damage == "empty":
        content = bytearray()
    elif damage == "text":
        content = bytearray(b"not a checkpoint at all")
    else:
        content[:8] = (2**62).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.warns(training.CheckpointWarning, match="000000001.safetensors is damaged"):
        number, found, meta = training.newest_checkpoint(tmp_path)
    assert number == 0 and meta == {"epoch": 0} and torch.equal(found["weights"], tensors(0)["weights"])


def test_a_changed_description_is_damage_too(tmp_path):
    path = training.save_checkpoint(tmp_path, 0, tensors(1), {"epoch": 3})
    path.write_bytes(path.read_bytes().replace(b'epoch\\": 3', b'epoch\\": 9'))
    with pytest.raises(ValueError, match="checksum"):
        training.load_checkpoint(path)


def test_nothing_there_is_none(tmp_path):
    assert training.newest_checkpoint(tmp_path / "nowhere") is None


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path, tmp_path_factory, forked):
    """A file-size limit plays the full disk: the write fails in the middle, the old file stays, no rubbish is left."""
    training.save_checkpoint(tmp_path, 0, tensors(1), {"epoch": 0})

    def save() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            training.save_checkpoint(tmp_path, 1, {"weights": torch.zeros(100_000)}, {"epoch": 1})
        except OSError as problem:
            print("failed:", problem.strerror)
        return 0

    said = tmp_path_factory.mktemp("said") / "said.txt"
    assert os.waitpid(forked(save, said), 0)[1] == 0
    assert said.read_text().startswith("failed:")
    assert [path.name for path in tmp_path.iterdir()] == ["000000000.safetensors"]
    assert training.newest_checkpoint(tmp_path)[2] == {"epoch": 0}
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096  # the limit was the child's alone
