"""`labelsieve reproduce ITEM`: a figure or table of the paper, next to the paper's values."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from labelsieve.cli.common import Common
from labelsieve.experiments import ReproduceOptions

Options = Annotated[ReproduceOptions, Parameter(name="*", negative_iterable="")]


def reproduce(
    item: str,
    /,
    *,
    options: Options = ReproduceOptions(),
    common: Common = Common(),
) -> int:
    """Run the missing trainings of a figure or table of the paper, then draw it.

    Parameters
    ----------
    item
        Name of the figure or table. `list` prints all names, `all` runs everything that needs CIFAR-10.
    """
    from labelsieve.experiments import runner

    if item == "list":
        if common.json:
            print(json.dumps([{"item": name, "title": title} for name, title in runner.list_items()]))
        else:
            print("\n".join(f"{name:26}{title}" for name, title in runner.list_items()))
        return 0

    def say(line: str) -> None:
        if not common.json:
            print(line, file=sys.stderr, flush=True)

    if options.seeds is None:
        options = replace(options, seeds=str(common.seed))
    outcome = runner.reproduce(item, options, say=say, progress=common.progress())
    print(json.dumps(outcome) if common.json else "\n".join(outcome["files"]))
    return 0
