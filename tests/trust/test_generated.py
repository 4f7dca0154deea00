"""A few generated attacks; `make trust` runs 100,000 strings and thousands of trees, tables and damaged runs."""

from __future__ import annotations

import pytest
import trust_generated as generated


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    generated.warm_up()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("family", "count"), [("strings", 1), ("trees", 4), ("tables", 6), ("runs", 6)])
def test_nothing_is_lost_and_nothing_hangs(family: str, count: int) -> None:
    options = {"count": 300} if family == "strings" else {}
    tally = generated.attacks(family, range(count), generated.Tally(), **options)
    assert tally.problems == {} and tally.attacks == count
