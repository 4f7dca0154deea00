"""Fitted classifiers as plain arrays, which a model file can store without code, and predictions from these arrays.

linear   softmax of x W + b                               tfidf, logistic
forest   mean over the leaves that a sample reaches       forest, trees
kernel   a support vector machine with Gaussian kernel    svm
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.text import weighted_words
from labelsieve.models.choose import TEXT
from labelsieve.types import FloatArray

Arrays = dict[str, NDArray[Any]]
STORABLE = (TEXT, "logistic", "forest", "trees", "svm")
ROWS_PER_BLOCK = 2048  # bounds the memory of predictions


def to_arrays(name: str, model: Any) -> Arrays:
    """Return the arrays of a fitted classifier of `named_classifier`."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    *preparation, classifier = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    arrays: Arrays = {"known": np.asarray(classifier.classes_, dtype=np.int64)}
    for step in preparation:
        if name == TEXT:
            words = "\n".join(step.get_feature_names_out()).encode()
            arrays |= {"words": np.frombuffer(words, np.uint8).copy(), "idf": step.idf_.astype(np.float32)}
            continue
        rest = 0
        if isinstance(step, ColumnTransformer):  # features of texts follow the numbers, and are not scaled
            rest, step = len(step.transformers_[-1][2]), step.named_transformers_["numbers"]
        arrays["mean"] = np.append(step.mean_, np.zeros(rest))
        arrays["scale"] = np.append(step.scale_, np.ones(rest))
    if name in ("forest", "trees"):
        return arrays | _forest_arrays(classifier)
    if name == "svm":
        return arrays | {
            "support": classifier.support_vectors_, "dual": classifier.dual_coef_, "bias": classifier.intercept_,
            "counts": classifier.n_support_.astype(np.int64), "gamma": np.array([classifier._gamma]),
        }  # fmt: skip
    return arrays | {"weights": classifier.coef_.astype(np.float32), "bias": classifier.intercept_}


def predict_arrays(arrays: Arrays, x: Any, classes: int) -> FloatArray:
    """Return the probability of each class for each sample, [n, classes]; texts or rows of numbers."""
    found = np.zeros((len(x), classes))
    form = _forest if "roots" in arrays else _kernel if "support" in arrays else _linear
    for start in range(0, len(x), ROWS_PER_BLOCK):
        rows = x[start : start + ROWS_PER_BLOCK]
        if "words" in arrays:
            rows = weighted_words(rows, arrays["words"].tobytes().decode().split("\n"), arrays["idf"])
        elif "mean" in arrays:
            rows = (rows - arrays["mean"]) / arrays["scale"]
        found[start : start + ROWS_PER_BLOCK, arrays["known"]] = form(arrays, rows)
    return found


def check_arrays(arrays: Arrays, columns: int, classes: int) -> None:
    """Raise ValueError unless the arrays are those of a classifier for rows of `columns` numbers (0: texts)."""
    known = arrays["known"]
    right = len(np.unique(known)) == len(known) >= 2 and known.min() >= 0 and known.max() < classes
    if "words" in arrays:
        columns = len(arrays["words"].tobytes().decode().split("\n"))
        right &= arrays["idf"].shape == (columns,)
    elif "mean" in arrays:
        right &= arrays["mean"].shape == arrays["scale"].shape == (columns,)
    if "roots" in arrays:
        left, right_child, feature, value = (arrays[name] for name in ("left", "right", "feature", "value"))
        nodes, inner = np.arange(len(left)), left >= 0
        # Children come after their parent, so that every path ends.
        for child in (left, right_child):
            right &= child.shape == nodes.shape and bool(
                (child[inner] > nodes[inner]).all() and (child < len(left)).all()
            )
        right &= feature.shape == arrays["threshold"].shape == nodes.shape and value.shape[1:] == known.shape
        right &= bool((feature >= 0).all() and (feature < np.where(inner, columns, len(value))).all())
        right &= bool((arrays["roots"] >= 0).all() and (arrays["roots"] < len(left)).all())
    elif "support" in arrays:
        count, pairs = len(arrays["support"]), len(known) * (len(known) - 1) // 2
        right &= arrays["support"].shape == (count, columns) and arrays["dual"].shape == (len(known) - 1, count)
        right &= arrays["counts"].shape == known.shape and arrays["bias"].shape == (pairs,)
        right &= bool((arrays["counts"] >= 0).all() and arrays["counts"].sum() == count)
    else:
        rows = 1 if len(known) == 2 else len(known)
        right &= arrays["weights"].shape == (rows, columns) and arrays["bias"].shape == (rows,)
    if not right:
        raise ValueError("its arrays are not those of a classifier")


def softmax(scores: FloatArray) -> FloatArray:
    """Return the probabilities of rows; a single column is the log-odds of the second of two classes."""
    scores = scores[:, None] if scores.ndim == 1 else scores
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _linear(arrays: Arrays, rows: Any) -> FloatArray:
    return softmax(np.asarray(rows @ arrays["weights"].T + arrays["bias"], dtype=np.float64))


def _forest_arrays(forest: Any) -> Arrays:
    """Return the nodes of all trees as one list. `feature` of a leaf is its row in `value`."""
    parts: dict[str, list[Any]] = {name: [] for name in ("left", "right", "feature", "threshold", "value")}
    roots, leaves = [0], 0
    for tree in (estimator.tree_ for estimator in forest.estimators_):
        leaf = tree.children_left < 0
        numbers = np.where(leaf, leaves + np.cumsum(leaf) - 1, tree.feature)
        parts["left"].append(np.where(leaf, -1, tree.children_left + roots[-1]))
        parts["right"].append(np.where(leaf, -1, tree.children_right + roots[-1]))
        parts["feature"].append(numbers)
        parts["threshold"].append(tree.threshold)
        value = tree.value[leaf, 0]
        parts["value"].append((value / value.sum(axis=1, keepdims=True)).astype(np.float32))
        roots.append(roots[-1] + tree.node_count)
        leaves += int(leaf.sum())
    whole = {name: np.concatenate(parts[name]).astype(np.int32) for name in ("left", "right", "feature")}
    rest = {name: np.concatenate(parts[name]) for name in ("threshold", "value")}
    return whole | rest | {"roots": np.array(roots[:-1])}


def _forest(arrays: Arrays, rows: Any) -> FloatArray:
    x = np.asarray(rows, dtype=np.float32)
    left, right, feature, threshold = (arrays[name] for name in ("left", "right", "feature", "threshold"))
    total = np.zeros((len(x), arrays["value"].shape[1]))
    for root in arrays["roots"]:
        node = np.full(len(x), root)
        while len(moving := np.flatnonzero(left[node] >= 0)):
            at = node[moving]
            node[moving] = np.where(x[moving, feature[at]] <= threshold[at], left[at], right[at])
        total += arrays["value"][feature[node]]
    return total / len(arrays["roots"])


def _kernel(arrays: Arrays, rows: Any) -> FloatArray:
    """Votes of all pairs of classes; ties are broken by the distance to the borders, as scikit-learn does."""
    from sklearn.metrics.pairwise import rbf_kernel

    kernel = rbf_kernel(rows, arrays["support"], gamma=float(arrays["gamma"][0]))
    dual, bias, classes = arrays["dual"], arrays["bias"], len(arrays["known"])
    if classes == 2:
        return softmax(kernel @ dual[0] + bias[0])
    ends = np.cumsum(arrays["counts"])
    parts = [slice(end - count, end) for end, count in zip(ends, arrays["counts"], strict=True)]
    votes, confidence = np.zeros((len(rows), classes)), np.zeros((len(rows), classes))
    for pair, (i, j) in enumerate(combinations(range(classes), 2)):
        found = kernel[:, parts[i]] @ dual[j - 1, parts[i]] + kernel[:, parts[j]] @ dual[i, parts[j]] + bias[pair]
        votes[:, i] += found >= 0
        votes[:, j] += found < 0
        confidence[:, i] += found
        confidence[:, j] -= found
    return softmax(votes + confidence / (3 * (np.abs(confidence) + 1)))
