"""What is counted in texts: words where there are blanks, as ever; letters where there are none."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from labelsieve.data.source import load_source
from labelsieve.data.text import HASHES, UNSPACED_HASHES, TextFeatures, is_unspaced, tokens
from labelsieve.models.choose import named_classifier
from labelsieve.progress import Progress
from labelsieve.selection.estimators import INCV

WORDS = {
    "退款": ["我要退款", "钱还没有退回来", "申请退货退钱", "重复扣款了请退还", "取消订单并退款"],
    "物流": ["快递还没到", "包裹丢失了", "物流信息没有更新", "送错地址了", "快递员没有打电话"],
    "账号": ["忘记密码了", "无法登录账号", "想修改邮箱", "账号被锁定了", "怎么注销账户"],
}
SPACED = [
    "The parcel is late",
    "Où est ma commande ?",
    "пароль не подходит",
    "비밀번호를 잊어버렸어요",
    "see 東京 in spring",
]


def chinese(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(list(WORDS), n).tolist()
    texts = [f"我{rng.integers(1, 29)}号买的东西{''.join(rng.choice(WORDS[y], 2, replace=False))}" for y in labels]
    return texts, labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("退款吗", ["退", "款", "吗", "退款", "款吗", "退款吗"]),
        ("退，iPhone款", ["退", "iphone", "款"]),
        ("ที่", ["ท", "ี", "่", "ที", "ี่", "ที่"]),
        ("ありがとう", None),
        ("ຂອບໃຈ", None),
        ("အာ", None),
        ("អរ", None),
    ],
)
def test_letters_in_a_row_where_there_are_no_blanks(text: str, expected: list[str] | None) -> None:
    assert is_unspaced(text) and text[0] in tokens(text)
    assert expected is None or tokens(text) == expected


def test_texts_with_blanks_are_read_as_ever() -> None:
    before = CountVectorizer(ngram_range=(1, 2)).build_analyzer()
    for text in [*SPACED, ""]:
        assert not is_unspaced(text) and tokens(text) == before(text)
    assert tokens("?") == ["?"] and tokens(" ") == []  # a text without words is a word: a vocabulary is never empty
    own = named_classifier("tfidf").named_steps["tfidfvectorizer"].fit_transform(SPACED)
    usual = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32).fit_transform(SPACED)
    assert own.dtype == np.float32 and (own != usual).nnz == 0
    features = TextFeatures.learn(SPACED)
    counts = HashingVectorizer(n_features=HASHES, ngram_range=(1, 2), alternate_sign=False, norm=None).transform(SPACED)
    seen = np.asarray((counts > 0).sum(axis=0)).ravel()
    assert np.array_equal(features.idf, np.log(6 / (1 + seen)).astype(np.float32) + 1)


def test_wrong_labels_of_chinese_texts_are_found() -> None:
    texts, true = chinese(300)
    given = true.copy()
    for i in range(0, 300, 10):
        given[i] = next(name for name in WORDS if name != true[i])
    incv = INCV(random_state=0).fit(texts, given)
    wrong, found = np.array(given) != np.array(true), np.array(incv.suggested_) != np.array(given)
    assert (wrong & found).sum() >= 27 and (found & ~wrong).sum() <= 3


def test_networks_read_letters_and_earlier_models_do_not() -> None:
    texts, labels = chinese(200)
    features = TextFeatures.learn(texts)
    assert features.idf.shape == (UNSPACED_HASHES,) and TextFeatures.learn(SPACED).idf.shape == (HASHES,)
    new, expected = chinese(50, seed=1)
    kept = TextFeatures(features.idf, features.components)  # as a model file holds them
    rows, known = kept.rows(new), kept.rows(texts)
    nearest = np.array(labels)[np.argmax(rows @ known.T, axis=1)]
    assert np.mean(nearest == np.array(expected)) > 0.9
    # One trained on words goes on to read them.
    counts = HashingVectorizer(n_features=HASHES, ngram_range=(1, 2), alternate_sign=False, norm=None).transform(new)
    found = TextFeatures(np.ones(HASHES, np.float32), np.eye(1, HASHES, int(counts.indices[0]), dtype=np.float32)).rows(
        new
    )
    assert found[0, 0] > 0.5


def test_a_column_of_chinese_texts_is_found(tmp_path: Path) -> None:
    texts, labels = chinese(80)
    rows = [
        "问题,label",
        *(f"{text}第{i}次,{label}" for i, (text, label) in enumerate(zip(texts, labels, strict=True))),
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = io.StringIO()
    data = load_source(str(tmp_path / "t.csv"), progress=Progress(stream=lines))
    assert data.kind == "text" and "column 问题 is read as text" in lines.getvalue()
