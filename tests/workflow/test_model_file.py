"""A model file: the same training writes the same bytes."""

from __future__ import annotations

import json

import torch
from safetensors.torch import load
from safetensors.torch import save as to_bytes

from labelsieve.workflow.model_file import sort_metadata


def test_metadata_come_in_one_order_whatever_the_library_does() -> None:
    tensors = {"b": torch.randn(3, 4), "a": torch.arange(5), "ä": torch.ones(2)}
    metadata = {"format": "1", "about": json.dumps({"classes": ["grün", 'a "b"']}), "more": "x"}
    written = [to_bytes(tensors, metadata=metadata) for _ in range(20)]
    ordered = {sort_metadata(content) for content in written}
    assert len(ordered) == 1
    (content,) = ordered
    found = load(content)
    assert found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name]) for name in tensors)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["__metadata__"] == metadata and list(header["__metadata__"]) == sorted(metadata)
