"""A few generated attacks; `make trust` runs 100,000 strings and thousands of trees, tables, runs and folders."""

from __future__ import annotations

import pytest
import trust_generated as generated

FOLDERS = [("datasets", 8), ("models", 8), ("caches", 1), ("votes", 1), ("labels", 8)]


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    generated.warm_up()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("family", "count"), [("strings", 1), ("trees", 4), ("tables", 6), ("runs", 6), *FOLDERS])
def test_nothing_is_lost_and_nothing_hangs(family: str, count: int) -> None:
    for name in {"datasets": ["datasets"], "models": ["model2vec", "sentence_transformers"]}.get(family, []):
        pytest.importorskip(name)
    options = {"count": 300} if family == "strings" else {}
    tally = generated.attacks(family, range(count), generated.Tally(), **options)
    assert tally.problems == {} and tally.attacks == count
