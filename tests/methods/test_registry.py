import inspect
import json
import sys

import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import paper
from labelsieve.methods import METHODS, create
from labelsieve.workflow import settings as workflow_settings


def test_the_command_line_and_the_experiments_have_the_same_methods() -> None:
    """Both list the names, because they are needed before torch is imported; incv-posterior is not in table 1."""
    assert tuple(METHODS) == workflow_settings.NETWORK_METHODS
    assert ("auto", "classifier", *METHODS) == workflow_settings.METHODS
    assert tuple(name for name in METHODS if name != "incv-posterior") == paper.METHODS


@pytest.mark.parametrize("name", METHODS)
def test_names_settings_and_citations(name):
    method = create(name)
    assert method.name == name
    assert json.loads(json.dumps(method.settings())) == method.settings()
    assert set(method.settings()) == set(inspect.signature(METHODS[name]).parameters)
    text = sys.modules[METHODS[name].__module__].__doc__ or ""
    assert "Needs" in text
    assert "ails" in text  # the docstring says when the method fails


def test_unknown_names_and_settings():
    with pytest.raises(InputError, match="incv-coteaching, incv-posterior"):
        create("co-teaching")
    with pytest.raises(InputError, match="its settings: noise_ratio, gradual_epochs"):
        create("coteaching", forget=0.2)
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        create("coteaching", noise_ratio=1)
