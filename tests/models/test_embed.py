"""Names of pretrained models: folders without code and pickles, functions, and clear refusals of everything else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import labelsieve
from labelsieve.errors import InputError
from labelsieve.models.embed import check_model, fetch_model, find_model, is_local, load_encoder

WORDS = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "the", "card", "is", "lost", "where", "money"]
SENTENCES = ["the card is lost", "where is the money"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def test_a_static_model_reads_texts(static_model):
    rows = labelsieve.embed(SENTENCES, str(static_model), device="cpu")
    assert rows.shape == (2, 6) and rows.dtype == np.float32
    assert not np.allclose(rows[0], rows[1])


def test_a_transformer_reads_texts(bert):
    rows = labelsieve.embed(SENTENCES, str(bert), device="cpu")
    assert rows.shape == (2, 16) and np.isfinite(rows).all()


def test_a_vision_transformer_reads_pictures(dinov2):
    pictures = [Image.new("RGB", (40, 30), colour) for colour in ("red", "green", "blue")]
    rows = labelsieve.embed(pictures, str(dinov2), device="cpu")
    assert rows.shape == (3, 16)
    arrays = np.stack([np.asarray(picture) for picture in pictures])
    assert np.allclose(labelsieve.embed(arrays, str(dinov2), device="cpu"), rows, atol=1e-5)


def test_a_model_for_other_samples_is_refused(static_model, dinov2):
    with pytest.raises(InputError, match="pictures"):
        load_encoder(str(static_model), "pictures")
    with pytest.raises(InputError, match="texts"):
        load_encoder(str(dinov2), "text")
    with pytest.raises(InputError, match="numeric features"):
        load_encoder(str(static_model), "table")


def test_the_revision_changes_with_the_weights(static_model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(static_model, copy)
    first, second = load_encoder(str(static_model), "text").model, load_encoder(str(copy), "text").model
    assert first.revision == second.revision
    from safetensors.numpy import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    save_file({name: array + 1 for name, array in weights.items()}, copy / "model.safetensors")
    assert load_encoder(str(copy), "text").model.revision != first.revision


@pytest.fixture
def broken(static_model, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(static_model, copy)
    return copy


@pytest.mark.parametrize("content", [{"auto_map": {"AutoModel": "x.Y"}}, [{"idx": 0, "type": "x.Y"}]])
def test_a_model_with_its_own_code_is_refused(broken, content):
    (broken / "modules.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"code \(modules.json\)"):
        load_encoder(str(broken), "text")


@pytest.mark.parametrize(
    "module", ["models.LSTM", "models.CNN", "sentence_transformer.modules.lstm.LSTM", "models.BoW"]
)
def test_modules_whose_sizes_are_not_checked_are_refused(broken, module):
    entry = {"idx": 0, "name": "0", "path": "", "type": f"sentence_transformers.{module}"}
    (broken / "modules.json").write_text(json.dumps([entry]))
    with pytest.raises(InputError, match=rf"modules.json has .*{module}"):
        check_model(broken, "model")


@pytest.mark.parametrize(
    "module", ["models.Transformer", "base.modules.dense.Dense", "sentence_transformer.modules.pooling.Pooling"]
)
def test_modules_whose_sizes_are_checked_are_read(broken, module):
    (broken / "modules.json").write_text(json.dumps([{"idx": 0, "type": f"sentence_transformers.{module}"}]))
    check_model(broken, "model")


def test_settings_that_replace_the_checked_sizes_are_refused(broken):
    settings = broken / "sentence_bert_config.json"
    settings.write_text(json.dumps({"max_seq_length": 128, "config_args": {}}))
    check_model(broken, "model")
    settings.write_text(json.dumps({"config_args": {"num_hidden_layers": 10**6}}))
    with pytest.raises(InputError, match="config_args"):
        check_model(broken, "model")


def test_a_pickle_is_refused(broken):
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model.bin is a pickle"):
        load_encoder(str(broken), "text")


def test_a_truncated_file_is_refused(broken):
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match=r"model.safetensors is damaged"):
        check_model(broken, "here")


@pytest.mark.parametrize("content", ["", '{"version": "1.0", "trunc', "[" * 100_000])
def test_a_truncated_description_is_refused_by_its_name(broken, content):
    (broken / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=r"tokenizer.json is damaged"):
        load_encoder(str(broken), "text")


@pytest.mark.parametrize("name", ["", "./no/such/folder", "a/b/c", "texts.csv", "~/models"])
def test_a_name_that_hugging_face_cannot_have_is_not_offered_for_download(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.csv").write_text("a file")
    with pytest.raises(InputError, match="neither a folder nor a Hugging Face name"):
        find_model(name)


def test_a_folder_without_weights_and_one_that_does_not_fit_are_refused(broken):
    (broken / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder(str(broken), "text").encode(["a text"])
    (broken / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights"):
        check_model(broken, "here")


def test_a_model_that_is_not_here_is_named_with_the_command_that_fetches_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert not is_local("someone/missing-model")
    with pytest.raises(InputError, match="labelsieve data fetch model someone/missing-model"):
        find_model("someone/missing-model")


def test_without_a_network_nothing_is_fetched(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="check the network") as problem:
        fetch_model("someone/missing-model", tmp_path / "model")
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "samples",
    [
        "text", {"a": ["text"]}, pd.DataFrame({"a": ["text"]}), np.array([["text"]]), np.zeros((2, 3)), [1, 2],
        ["text", None], np.zeros((2, 5, 5, 3)), None,
    ],
    ids=str,
)  # fmt: skip
def test_other_samples_than_texts_and_pictures_are_refused(samples):
    with pytest.raises(InputError, match="list of texts"):
        labelsieve.embed(samples, lambda found: [[len(found)]] * len(found))


def test_texts_in_any_sequence_are_embedded():
    for texts in (["a", "abc"], np.array(["a", "abc"]), pd.Series(["a", "abc"]), iter(["a", "abc"])):
        assert labelsieve.embed(texts, lambda found: [[len(text)] for text in found]).tolist() == [[1], [3]]


def test_a_function_is_an_encoder():
    rows = labelsieve.embed(["a", "abc"], lambda texts: [[len(text), 1] for text in texts])
    assert rows.tolist() == [[1, 1], [3, 1]]
    with pytest.raises(InputError, match="missing_module:f"):
        load_encoder("missing_module:f", "text")


def test_hostile_files_in_the_folder_of_a_model(broken, tmp_path, monkeypatch):
    """Names that are not text are read; a pipe is refused instead of waiting for its other end."""
    before = load_encoder(str(broken), "text").model.revision
    Path(os.fsdecode(bytes(broken) + b"/\xff.json")).write_text("{}")
    assert load_encoder(str(broken), "text").model.revision != before
    (tmp_path / "evil.py").write_text("open('marker', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (broken / "router_config.json").write_text(json.dumps({"types": {"query_0": "evil.Model"}}))
    load_encoder(str(broken), "text")
    assert not Path("marker").exists()
    (broken / "tokenizer.json").unlink()
    os.mkfifo(broken / "tokenizer.json")
    with pytest.raises(InputError, match=r"tokenizer.json is a pipe"):
        load_encoder(str(broken), "text")


def test_more_layers_than_weights_are_refused_but_names_of_classes_are_not(broken):
    config = {"num_hidden_layers": 1, "label2id": {"CD player": 485, "cassette player": 482}}
    (broken / "config.json").write_text(json.dumps(config))
    check_model(broken, "model")
    for hostile in (
        {"vision_config": {"num_hidden_layers": 10**6}},
        {"depths": [1, 1, 10_000, 1]},
        {"depths": [10_000, -9_999]},
        {"depths": [10**400, 1.5]},
        {"num_block_repeats": [1] * 10_000},
        {"depth_coefficient": 1e6},
    ):
        (broken / "config.json").write_text(json.dumps(hostile))
        with pytest.raises(InputError, match=r"config\.json"):
            check_model(broken, "model")


@pytest.mark.parametrize(
    ("file", "sizes"),
    [
        ("config.json", {"vocab_size": 10**9}),
        ("config.json", {"intermediate_size": 10**9}),
        ("config.json", {"hidden_size": 10**8}),
        ("2_Dense/config.json", {"in_features": 10**6, "out_features": 10**6, "bias": True}),
    ],
)
def test_networks_much_larger_than_their_weights_are_refused(bert, tmp_path, file, sizes):
    """The library would give random values to the numbers that the weights do not have."""
    from safetensors.numpy import save_file

    copy = tmp_path / "bert"
    shutil.copytree(bert, copy)
    save_file({"other": np.zeros(64, np.float32), "more": np.zeros(64, np.float32)}, copy / "model.safetensors")
    (copy / file).parent.mkdir(exist_ok=True)
    content = json.loads((copy / file).read_text()) if (copy / file).is_file() else {}
    (copy / file).write_text(json.dumps(content | sizes))
    with pytest.raises(InputError, match=r"config\.json") as problem:
        load_encoder(str(copy), "text").encode(SENTENCES)
    assert "\n" not in str(problem.value)


def test_fetching_a_model_does_not_replace_other_files(tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("downloaded"))
    (tmp_path / "config.json").write_text("mine")
    with pytest.raises(InputError, match="--to"):
        fetch_model("name/model", tmp_path)
