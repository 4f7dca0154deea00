"""The documentation: `make docs`. Builds offline, warnings are errors, no page loads anything from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import labelsieve

project = "labelsieve"
author = "the labelsieve authors"
release = version = labelsieve.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
smartquotes = False  # --labels must stay two dashes

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
    """Put what every command says of itself under the page's own words, so that neither can be out of date."""
    if docname != "command-line":
        return
    from labelsieve.cli.app import COMMANDS, make_app

    commands = make_app()
    pages = [commands[name].generate_docs(usage_name=f"labelsieve {name}", heading_level=2) for name in COMMANDS]
    said = "\n\n".join(pages)
    # cyclopts takes `python -m sphinx` for the program that is documented.
    said = said.replace(" -m sphinx", "")
    # The page has its own table of contents beside it.
    source[0] += re.sub(r"^#+ Table of Contents\n.*?(?=^\*\*Commands)", "", said, flags=re.DOTALL | re.MULTILINE)


def pages_that_exist(app: Any, docname: str, source: list[str]) -> None:
    """The index names pages that other parts of the project write: one that is not there yet is no mistake."""
    if docname == "index":
        there = {page: (Path(app.srcdir) / f"{page}.md").exists() for page in ("reproduction", "scaling", "trust")}
        source[0] = "\n".join(line for line in source[0].splitlines() if there.get(line, True))


def listed(lines: list[str]) -> list[str]:
    """Sections of `name, name : what they are` as lists under their title."""
    text: list[str] = []
    section = False
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        found = re.fullmatch(r"(\w+(?:, \w+)*) : (.+)", line)
        if after.startswith("----"):
            section = True
            text += [f"**{line}**", ""]
        elif section and found:
            text.append(f"* {', '.join(f'`{word}`' for word in found[1].split(', '))}: {found[2]}")
        elif section and line.startswith("    "):
            text.append(f"  {line.strip()}")
        elif not line.startswith("----"):
            text.append(line)
    return text


def plain_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written to be read as they are: code in single quotes, `selected_`, formulas indented."""
    text: list[str] = []
    in_formula = False
    for line in listed(lines):
        formula = what == "module" and line.startswith("    ")
        if formula and not in_formula:
            text += ["::", ""]
        in_formula = formula or (in_formula and not line)
        if not formula:
            line = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)
            line = re.sub(r"(?<![`\w])(\w*[A-Za-z0-9]_)(?![\w`])", r"``\1``", line)
        text.append(line)
    lines[:] = text


def setup(app: Any) -> dict[str, bool]:
    # MathML is drawn by the browser itself: no script, no font from another server.
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("source-read", command_line)
    app.connect("source-read", pages_that_exist)
    app.connect("autodoc-process-docstring", plain_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
