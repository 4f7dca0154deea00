"""Settings as text. docs/methods.md lists all settings with their defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labelsieve.errors import InputError
from labelsieve.methods import METHODS, create
from labelsieve.methods.custom_method import format_settings, read_setting, read_settings, read_value

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
    assert read_setting(format_settings({"name": value})) == ("name", value)


def test_the_order_does_not_matter() -> None:
    one, other = read_settings(["b=auto", "a = 2"]), read_settings(["a=2", "b=auto"])
    assert format_settings(one) == format_settings(other) == "a=2 b=auto"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["trust"], "--set 'trust': write NAME=VALUE"),
        (["=1"], "cannot read --set '=1'"),
        (["trust="], "cannot read --set 'trust='"),
        (["trust=1", "trust=1"], "--set trust"),
    ],
)
def test_invalid_settings_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read_settings(texts)


@pytest.mark.parametrize("name", METHODS)
def test_unknown_settings_are_refused_with_the_known_ones(name: str) -> None:
    known = ", ".join(inspect.signature(METHODS[name]).parameters)
    with pytest.raises(InputError) as caught:
        create(name, magic=1, tricks=2)
    assert "magic, tricks" in str(caught.value) and known in str(caught.value)


@pytest.mark.parametrize("name", METHODS)
def test_values_of_the_wrong_type_are_refused(name: str) -> None:
    for setting in inspect.signature(METHODS[name]).parameters:
        for value in ("much", [1, 2], {"a": 1}):
            with pytest.raises(InputError, match=setting.replace("_", ".")) as caught:  # "noise ratio", too
                create(name, **{setting: value})
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
    ("name", "settings", "parts"),
    [
        ("Own", {"powre": 1}, ("powre", "power, strict")),
        ("Own", {"power": "much"}, ("power=much", "number")),
        ("Own", {"power": 10}, ("power=10", "at most 9")),
        ("Bare", {"power": 2}, ("power", "none")),
        ("ready", {"power": 2}, ("power", "instance")),
    ],
)
def test_settings_that_a_custom_method_refuses(
    own: None, name: str, settings: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        create(f"own_written:{name}", **settings)
    assert all(part in str(caught.value) for part in (name, *parts))


def test_other_classes_are_refused() -> None:
    with pytest.raises(InputError, match="json:JSONEncoder is not a method"):
        create("json:JSONEncoder", magic=1)


def test_settings_of_custom_methods(own: None) -> None:
    for name in ("Own", "Open"):
        method: Any = create(f"own_written:{name}", power=3)
        assert method.power == 3
    assert create("own_written:Bare").networks == 1


@pytest.mark.parametrize("name", METHODS)
def test_the_page_has_every_setting_with_its_default(name: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S.* \| \S.* \|$", section, re.MULTILINE)
    parameters = inspect.signature(METHODS[name]).parameters.values()
    assert [(setting, read_value(default)) for setting, default in listed] == [(p.name, p.default) for p in parameters]
