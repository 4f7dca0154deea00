"""What tests/review and tests/report leave open: column and file names in the review page, its JSON as a page."""

from __future__ import annotations

import csv
import http.client
import importlib.util
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trust_generated as generated

EVIL = (
    '"><img src=x onerror="document.title=\'ran\'">',
    "</script><script>document.title='ran'</script>",
    "{{7*7}}${7*7}",
)

_spec = importlib.util.spec_from_file_location("trust_runs", Path(__file__).parents[1] / "report" / "runs.py")
assert _spec is not None and _spec.loader is not None
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)


@pytest.fixture
def served(tmp_path: Path):
    started = []

    def serve(run: Path) -> str:
        code = "import sys; from labelsieve.review import serve; serve(sys.argv[1], port=0, token='secret-token')"
        log = tmp_path / f"log-{len(started)}"
        with log.open("wb") as out:
            started.append(subprocess.Popen([sys.executable, "-u", "-c", code, str(run)], stdout=out, stderr=out))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if found := re.search(r"http://\S+", log.read_text()):
                return found.group(0)
            time.sleep(0.05)
        raise AssertionError(log.read_text())

    yield serve
    for process in started:
        process.kill()
        process.wait()


def evil_table(folder: Path):
    """Class, column, cell and run name."""
    run = runs.table(folder, classes=EVIL)
    run.update(data={**run.record()["data"], "name": EVIL[0]})
    source = folder / "homes.csv"
    with source.open(newline="") as file:
        rows = list(csv.reader(file))
    with source.open("w", newline="") as file:
        csv.writer(file).writerows(
            [[EVIL[0], EVIL[1], *rows[0][2:]], *([EVIL[1], EVIL[0], *row[2:]] for row in rows[1:])]
        )
    return runs.as_read(run)


def evil_pictures(folder: Path):
    """File and class name; a slash would be another folder."""
    names = tuple(name.replace("/", "_") for name in EVIL)
    return runs.pictures(folder, n=24, classes=(*names, "d"))


def generated_pictures(folder: Path):
    """Class names with control characters, separators and Unicode forms, each with an attack at its end."""
    rng = random.Random(0)
    names = [generated.file_name(rng)[:40] + EVIL[i % 2].replace("/", "_") for i in range(3)]
    return runs.pictures(folder, n=24, classes=(*names, "d"))


@pytest.mark.browser
@pytest.mark.parametrize("make", [evil_table, evil_pictures, generated_pictures])
def test_names_stay_text_in_a_real_browser(make, tmp_path: Path, served, browser) -> None:
    run = make(tmp_path)
    address = served(run.path)
    with browser.new_context() as context:
        page = context.new_page()
        trouble: list[str] = []
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("#neighbours li")
        for key in ("m", "c", "?"):
            page.keyboard.press(key)
            page.wait_for_selector("dialog[open]")
            page.keyboard.press("Escape")
        shown = page.locator("body").inner_text()
        assert "onerror" in shown or "script" in shown, "the name is not shown at all"
        assert page.locator("img[onerror]").count() == 0 and page.locator("script").count() == 3
        assert not page.title().startswith("ran") and trouble == []
        home = re.match(r"http://[^/]+/", address).group(0)
        assert [url for url in asked if not url.startswith(home)] == []
        # Its JSON opened as a page of its own.
        for path in ("api/start", "api/items?at=0&count=4", "api/matrix"):
            page.goto(f"{home}{path}{'&' if '?' in path else '?'}token=secret-token")
            assert page.evaluate("document.contentType") == "application/json" and page.title() == ""


def test_a_foreign_page_gets_nothing(tmp_path: Path, served) -> None:
    """No CORS header, for anybody: what CVE-2026-53656 was about elsewhere."""
    run = runs.text(tmp_path)
    address = served(run.path)
    home = re.match(r"http://[^/]+/", address).group(0)
    host = home.removeprefix("http://").rstrip("/")

    def get(path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", f"/{path}?token=secret-token", headers=headers)
        answer = connection.getresponse()
        expected = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return expected

    for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example"):
        for path in ("", "api/start", "api/picture/0", "api/../api/start", "page/..%2f..%2frun.json"):
            status, headers, _ = get(path, Origin=origin)
            assert status == 403 and not [name for name in headers if name.startswith("access-control")]
    status, headers, body = get("api/start")
    assert status == 200 and not [name for name in headers if name.startswith("access-control")]
    json.loads(body)
    for path in ("page/..%2f..%2frun.json", "page/%2e%2e/app.py", "api/picture/..%2f..%2fetc", "../../etc/passwd"):
        assert get(path)[0] in (400, 403, 404)
