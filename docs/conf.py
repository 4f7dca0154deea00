"""Sphinx configuration, see `make docs`. The build needs no network, and the pages load nothing from other servers."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import labelsieve

project = "labelsieve"
author = "the labelsieve authors"
release = version = labelsieve.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
smartquotes = False  # keeps the two dashes of --labels

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_title = f"labelsieve {release}"
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"


def inline_math(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block_math(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def command_line(app: Any, docname: str, source: list[str]) -> None:
    """Append the help of every command to the page on the command line."""
    if docname != "command-line":
        return
    from labelsieve.cli.app import COMMANDS, make_app

    commands = make_app()
    pages = [commands[name].generate_docs(usage_name=f"labelsieve {name}", heading_level=3) for name in COMMANDS]
    said = "\n\n".join(pages)
    # cyclopts inserts the name of the running program.
    said = said.replace(" -m sphinx", "")
    # The theme shows a table of contents.
    source[0] += re.sub(r"^#+ Table of Contents\n.*?(?=^\*\*Commands)", "", said, flags=re.DOTALL | re.MULTILINE)


def skip_field(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool:
    """Leave out the fields of named tuples: the docstring of the class lists them."""
    return skip or type(obj).__name__ == "_tuplegetter"


def quote_code(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn `code` and attribute_ names of docstrings into reStructuredText literals, except in examples."""
    in_example = False
    for number, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            line = re.sub(r"(?<![:`])`([^`]+)`(?!`)", r"``\1``", line)
            lines[number] = re.sub(r"(?<![`\w.])(\w*[A-Za-z0-9]_)(?![\w`])", r"``\1``", line)


def setup(app: Any) -> dict[str, bool]:
    # Browsers render MathML without scripts or fonts.
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("source-read", command_line)
    app.connect("autodoc-skip-member", skip_field)
    app.connect("autodoc-process-docstring", quote_code, priority=600)  # after napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
