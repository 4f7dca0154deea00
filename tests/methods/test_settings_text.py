"""Settings as they are written on a command line; docs/methods.md names them all, with their defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labelsieve.errors import InputError
from labelsieve.methods import METHODS
from labelsieve.methods.settings_text import made, read_setting, read_settings, read_value, written

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50", 50), ("0.5", 0.5), ("-1", -1), ("auto", "auto"), ("None", None), ("null", None), ("True", True),
        ("false", False), ("[[1, 0], [0.5, 0.5]]", [[1, 0], [0.5, 0.5]]), ('"50"', "50"), ("a=b", "a=b"),
        ("NaN", "NaN"), ("-Infinity", "-Infinity"), ("1e999", "1e999"), ("[" * 100_000, "[" * 100_000),
    ],
)  # fmt: skip
def test_a_value(text: str, value: Any) -> None:
    found = read_value(text)
    assert found == value and type(found) is type(value)
    assert read_settings([f"name={text}"]) == {"name": value}
    assert read_setting(written({"name": value})) == ("name", value)


def test_the_order_makes_no_other_record() -> None:
    one, other = read_settings(["b=auto", "a = 2"]), read_settings(["a=2", "b=auto"])
    assert written(one) == written(other) == "a=2 b=auto"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["trust"], "cannot read --set 'trust': write NAME=VALUE, e.g."),
        (["=1"], "cannot read --set '=1'"),
        (["trust="], "cannot read --set 'trust='"),
        (["trust=1", "trust=1"], "--set trust is given twice"),
    ],
)
def test_what_cannot_be_read(texts: list[str], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read_settings(texts)


@pytest.mark.parametrize("name", METHODS)
def test_a_name_that_a_method_does_not_have_is_answered_with_those_it_has(name: str) -> None:
    known = ", ".join(inspect.signature(METHODS[name]).parameters)
    with pytest.raises(InputError) as caught:
        made(name, {"magic": 1, "tricks": 2})
    assert str(caught.value) == f"--set magic, tricks: no setting of {name}: choose from {known}"


@pytest.mark.parametrize("name", METHODS)
def test_a_value_of_the_wrong_kind_is_refused_in_one_line(name: str) -> None:
    for setting in inspect.signature(METHODS[name]).parameters:
        for value in ("much", [1, 2], {"a": 1}):
            with pytest.raises(InputError, match=setting.replace("_", ".")) as caught:  # "noise ratio", too
                made(name, {setting: value})
            assert "\n" not in str(caught.value)


OWN = """
from labelsieve.engine.method import Method, mean_over, sample_losses

class Own(Method):
    def __init__(self, power=2, strict=False):
        if power > 9:
            raise ValueError("at most 9")
        self.power = power
    def loss(self, logits, batch):
        return mean_over(sample_losses(logits, batch) ** self.power, batch.valid[:, None])

class Open(Own):
    def __init__(self, **anything):
        super().__init__(**anything)

class Bare(Method):
    loss = Own.loss
    power = 1

ready = Own()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import sys

    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_written.py").write_text(OWN)
    yield
    sys.modules.pop("own_written", None)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("Own", {"powre": 1}, "--set powre: no setting of own_written:Own: choose from power, strict"),
        ("Own", {"power": "much"}, "--set power=much: a number is needed, such as 2"),
        ("Own", {"power": 10}, "method own_written:Own cannot be made with power=10: at most 9"),
        ("Bare", {"power": 2}, "--set power: no setting of own_written:Bare: it has none"),
        ("ready", {"power": 2}, "--set power: the method own_written:ready is made already: name its class instead"),
    ],
)
def test_what_a_method_of_ones_own_does_not_take(own: None, name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        made(f"own_written:{name}", settings)
    assert str(caught.value) == said


def test_what_is_no_method_is_called_so() -> None:
    with pytest.raises(InputError, match="method json:JSONEncoder is no method"):
        made("json:JSONEncoder", {"magic": 1})


def test_what_it_takes(own: None) -> None:
    for name in ("Own", "Open"):
        method: Any = made(f"own_written:{name}", {"power": 3})
        assert method.power == 3
    assert made("own_written:Bare", {}).networks == 1


@pytest.mark.parametrize("name", METHODS)
def test_the_page_has_every_setting_with_its_default(name: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S.* \| \S.* \|$", section, re.MULTILINE)
    parameters = inspect.signature(METHODS[name]).parameters.values()
    assert [(setting, read_value(default)) for setting, default in told] == [(p.name, p.default) for p in parameters]
