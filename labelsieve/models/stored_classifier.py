"""Fitted classifiers as plain arrays, which a model file can store without code, and predictions from these arrays.

linear   softmax of x W + b                               tfidf, logistic, edges of many pictures
forest   mean over the leaves that a sample reaches       forest, trees
kernel   a support vector machine with Gaussian kernel    svm, edges
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.edges import AT_ONCE, EdgeFeatures, count_columns
from labelsieve.data.text import weighted_words
from labelsieve.models.choose import EDGES, TEXT
from labelsieve.types import FloatArray, Kind

Arrays = dict[str, NDArray[Any]]
STORABLE: dict[Kind, tuple[str, ...]] = {
    "text": (TEXT,),
    "table": ("logistic", "forest", "trees", "svm"),
    "pictures": (EDGES,),
}
ROWS_PER_BLOCK = 2048  # bounds the memory of predictions


def to_arrays(model: Any, edges: EdgeFeatures | None = None) -> Arrays:
    """Return the arrays of a fitted classifier of `named_classifier`, and of the features of pictures that it reads."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import Pipeline
    from sklearn.svm import SVC

    *preparation, classifier = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    arrays: Arrays = {"known": np.asarray(classifier.classes_, dtype=np.int64)}
    if edges is not None and edges.mean is not None and edges.components is not None:
        arrays |= {"edge_mean": edges.mean, "edge_components": edges.components}
    for step in preparation:
        if isinstance(step, TfidfVectorizer):
            words = "\n".join(step.get_feature_names_out()).encode()
            arrays |= {"words": np.frombuffer(words, np.uint8).copy(), "idf": step.idf_.astype(np.float32)}
            continue
        if isinstance(step, Nystroem):
            arrays |= {"landmarks": step.components_, "normalization": step.normalization_}
            continue
        rest = 0
        if isinstance(step, ColumnTransformer):  # features of texts follow the numbers, and are not scaled
            rest, step = len(step.transformers_[-1][2]), step.named_transformers_["numbers"]
        arrays["mean"] = np.append(step.mean_, np.zeros(rest))
        arrays["scale"] = np.append(step.scale_, np.ones(rest))
    if isinstance(classifier, RandomForestClassifier | ExtraTreesClassifier):
        return arrays | _forest_arrays(classifier)
    if isinstance(classifier, SVC):
        support = classifier.support_vectors_
        single = support.astype(np.float32)  # the features of pictures have this precision
        return arrays | {
            "support": single if np.array_equal(single, support) else support,
            "dual": classifier.dual_coef_, "bias": classifier.intercept_,
            "counts": classifier.n_support_.astype(np.int64), "gamma": np.array([classifier._gamma]),
        }  # fmt: skip
    return arrays | {"weights": classifier.coef_.astype(np.float32), "bias": classifier.intercept_}


def predict_arrays(arrays: Arrays, x: Any, classes: int) -> FloatArray:
    """Return the probability of each class for each sample, [n, classes]; texts, rows of numbers or pictures."""
    found = np.zeros((len(x), classes))
    form = _forest if "roots" in arrays else _kernel if "support" in arrays else _linear
    block = AT_ONCE if x.ndim == 4 else ROWS_PER_BLOCK
    for start in range(0, len(x), block):
        found[start : start + block, arrays["known"]] = form(arrays, _rows(arrays, x[start : start + block]))
    return found


def _rows(arrays: Arrays, samples: Any) -> Any:
    """Return what the last step of the classifier reads."""
    if "words" in arrays:
        return weighted_words(samples, arrays["words"].tobytes().decode().split("\n"), arrays["idf"])
    if samples.ndim == 4:
        rows = EdgeFeatures(arrays.get("edge_mean"), arrays.get("edge_components")).rows(samples)
        return _similarities(arrays, rows) if "landmarks" in arrays else rows
    return (samples - arrays["mean"]) / arrays["scale"] if "mean" in arrays else samples


def _similarities(arrays: Arrays, rows: Any) -> Any:
    """Return the columns of an approximate kernel."""
    from sklearn.metrics.pairwise import rbf_kernel

    return rbf_kernel(rows, arrays["landmarks"]) @ arrays["normalization"].T


def check_arrays(arrays: Arrays, shape: tuple[int, ...], classes: int) -> None:
    """Raise ValueError unless the arrays are those of a classifier for samples of this shape; it is unused for texts.

    Pictures have the channels first, rows of numbers have one axis.
    """
    known = arrays["known"]
    right = len(np.unique(known)) == len(known) >= 2 and known.min() >= 0 and known.max() < classes
    columns = count_columns(*shape) if len(shape) == 3 else shape[0]
    if "edge_mean" in arrays:
        projection = arrays["edge_components"]
        right &= arrays["edge_mean"].shape == (columns,) and projection.ndim == 2 and len(projection) == columns
        columns = projection.shape[-1]
    if "landmarks" in arrays:
        count = len(arrays["landmarks"])
        right &= arrays["landmarks"].shape == (count, columns) and arrays["normalization"].shape == (count, count)
        columns = count
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

    rows = np.asarray(rows, dtype=np.float64)  # in single precision, votes for similar classes can differ
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
