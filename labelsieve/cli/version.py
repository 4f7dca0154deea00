"""labelsieve version"""

from __future__ import annotations

from labelsieve.cli.common import Common


def version(*, common: Common = Common()) -> None:
    """Versions of labelsieve and of what its numbers depend on."""
    from labelsieve.runfolder import versions

    found = versions()
    common.say(*(f"{name} {number}" for name, number in found.items()))
    common.answer(found)
