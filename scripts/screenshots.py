"""Update the screenshots of the documentation: .venv/bin/python scripts/screenshots.py (about two minutes).

Runs the tutorials of docs/tutorials up to their reports, opens each report and review page in a headless Chromium and
writes docs/images/ with a reduced number of colours, under 150 KB per image. The output of the commands is printed, so
that you can compare it with the tutorials. The tutorials with pretrained models need data and models that are not part
of this repository; run their commands yourself and pass the run folder:

    .venv/bin/python scripts/screenshots.py photos --run runs/photos
    .venv/bin/python scripts/screenshots.py sentences --run runs/banking77
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
# Parts of the report to show for each tutorial.
PARTS = {"pictures": ("top", "mistakes", "suspects"), "tables": ("mistakes",), "text": ("suspects",)}
PRETRAINED = {"photos": ("suspects",), "sentences": ("suspects",)}
LARGEST = 150_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
COMMAND = [sys.executable, "-u", "-m", "labelsieve"]


def follow(tutorial: str) -> Path:
    """Run a tutorial without the review in the current folder and return its run folder."""
    text = (DOCS / "tutorials" / f"{tutorial}.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    run = ""
    for kind, block in re.findall(r"^```(python|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if kind == "python":
            exec(compile(block, f"{tutorial}.md", "exec"), names)
            continue
        for line in block.splitlines():
            arguments = shlex.split(line)[1:]
            if arguments[0] == "review":
                run = arguments[1]
                continue
            print(f"$ {line}", flush=True)
            subprocess.run([*COMMAND, *arguments], check=True, stderr=subprocess.DEVNULL)
    return Path(run).absolute()


@contextlib.contextmanager
def review(run: Path) -> Iterator[str]:
    """Serve a review page and yield its address."""
    server = subprocess.Popen([*COMMAND, "review", str(run), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        if found is None:
            raise SystemExit("the review page did not start")
        yield found.group(0)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


def save(taken: bytes, name: str) -> None:
    """Write a PNG with the largest number of colours that fits the size limit."""
    from PIL import Image

    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    for colours in (256, 128, 64, 32):
        packed = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
        if packed.tell() < LARGEST:
            break
    else:
        raise SystemExit(f"{name} is {packed.tell():,} bytes, {LARGEST:,} are allowed")
    (DOCS / "images" / name).write_bytes(packed.getvalue())
    print(f"docs/images/{name}: {packed.tell():,} bytes", flush=True)


def notebook_cell(run: Path) -> str:
    """Return a page with the HTML that a notebook shows for the result of `labelsieve.run`."""
    from labelsieve.runfolder import RunFolder
    from labelsieve.workflow.run import RunResult

    result = RunResult(run.relative_to(Path.cwd()), RunFolder(run).read_summary(), {}, "")
    style = "body {font: 14px sans-serif; margin: 16px} pre {background: #f5f5f5; padding: 8px}"
    return f'<style>{style}</style><pre>result = labelsieve.run("fabrics")\nresult</pre>{result._repr_html_()}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutorials", nargs="*", choices=[*PARTS, *PRETRAINED, []], help="which ones; all without any")
    parser.add_argument("--run", type=Path, help="run folder of photos or sentences")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    chosen = parser.parse_args()
    from playwright.sync_api import sync_playwright

    own = None if chosen.run is None else chosen.run.absolute()
    if own is None and set(chosen.tutorials) & set(PRETRAINED):
        raise SystemExit("photos and sentences need --run")
    (DOCS / "images").mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chosen.chromium, args=FLAGS)
        for tutorial in chosen.tutorials or PARTS:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                run = follow(tutorial) if own is None else own
                page = browser.new_page(viewport={"width": 1200, "height": 900})
                page.goto(f"file://{run}/report.html")
                for part in (PARTS | PRETRAINED)[tutorial]:
                    if part != "top":
                        page.evaluate(f"document.getElementById('{part}').scrollIntoView({{behavior: 'instant'}})")
                    save(page.screenshot(), f"report-{tutorial}-{part}.png")
                if tutorial == "pictures":
                    page = browser.new_page(viewport={"width": 1000, "height": 700})
                    page.set_content(notebook_cell(run))
                    save(page.screenshot(), "notebook.png")
                with review(run) as address:
                    page = browser.new_page(viewport={"width": 1200, "height": 800})
                    page.goto(address)
                    page.wait_for_selector("body[data-ready]")
                    page.wait_for_load_state("networkidle", timeout=120_000)  # all pictures are loaded
                    page.wait_for_timeout(500)
                    save(page.screenshot(), f"review-{tutorial}.png")
                    for key, selector, name in (("a", "#bulk", "accept"), ("g", ".tile", "grid")):
                        if tutorial == "pictures":
                            page.keyboard.press(key)
                            page.wait_for_selector(selector)
                            page.wait_for_timeout(500)
                            save(page.screenshot(), f"review-{name}.png")
                            page.keyboard.press("Escape")
        browser.close()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
