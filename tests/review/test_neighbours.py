from __future__ import annotations

import numpy as np

from labelsieve.labels_csv import Duplicates, read_labels
from labelsieve.report.samples import open_samples
from labelsieve.review.neighbours import Neighbours, bag_of_words, cells_as_numbers, weighted


def neighbours(run):
    columns = read_labels(run / "labels.csv")
    samples = open_samples(run, columns)
    return Neighbours(columns, samples, Duplicates(columns)), columns


def test_texts_with_common_words_are_neighbours(runs, tmp_path):
    near, columns = neighbours(runs.text(tmp_path, n=60))
    for row in range(0, 60, 7):
        mine = near.samples.show(row).text
        shown = near.nearest(row, int(columns.predicted[row]), 1)
        # generated texts of a kind differ in their number alone, and there are two kinds a class
        assert near.samples.show(shown[0]).text.split()[:2] == mine.split()[:2] or columns.predicted[row] != row % 3
        assert row not in shown


def test_rows_with_similar_numbers_are_neighbours(runs, tmp_path):
    near, columns = neighbours(runs.table(tmp_path, n=60))
    row = int(np.flatnonzero(columns.suspect())[0])
    area = float(dict(near.samples.show(row).cells)["area m2"])
    pool = np.flatnonzero((columns.label == columns.suggested[row]) & (columns.verdict == 1))
    shown = near.nearest(row, int(columns.suggested[row]), 3)
    assert set(shown) <= set(pool.tolist()) and len(shown) == 3
    assert all(abs(float(dict(near.samples.show(i).cells)["area m2"]) - area) < 60 for i in shown)


def test_pictures_and_classes_without_selected_samples(runs, tmp_path):
    near, columns = neighbours(runs.pictures(tmp_path, n=24))
    assert near.nearest(0, -1) == []
    columns.verdict[columns.label == 2] = 0
    assert near.nearest(0, 2) == []
    pictures = near.nearest(0, 1)
    features = {row: near.describe(row) for row in np.flatnonzero((columns.label == 1) & (columns.verdict == 1))}
    distance = {row: np.linalg.norm(f - near.describe(0)) for row, f in features.items() if row != 0}
    assert pictures == sorted(distance, key=distance.get)[:4]


def test_descriptions():
    assert bag_of_words("Ja ja JA").max() == np.float32(np.log1p(3))
    numbers = cells_as_numbers((("a", "1.5"), ("b", "x"), ("c", "1e999"), ("d", "")))
    assert numbers[0] == 1.5 and numbers[1] == 0 and numbers[2] == 0 and numbers[3] > 0 and np.isfinite(numbers).all()
    table = np.array([[1, 0, 0, 5], [3, 0, 0, 7], [3, 0, 0, 5]], dtype=np.float32)
    scaled = weighted(table, "table")
    assert np.linalg.norm(scaled[0] - scaled[2]) > np.linalg.norm(scaled[2] - scaled[2])
    assert scaled[1, -1] == 1 and scaled[0, -1] == 0
