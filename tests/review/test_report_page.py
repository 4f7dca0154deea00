"""The report in a real browser (beside the review's tests because they share the browser)."""

from __future__ import annotations

import csv

import pytest

from labelsieve.report import write_report

pytestmark = pytest.mark.browser
HOSTILE = (
    '"><img src=x onerror="document.title=\'ran\'">',
    "</script><script>document.title='ran'</script>",
    "</style>'x",
)


def opened(browser, path, **options):
    context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
    page = context.new_page()
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("console", lambda message: page.asked.append(message.text))
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize("kind", ["pictures", "text", "table"])
def test_the_report_works_without_scripts_and_makes_no_requests(runs, tmp_path, browser, kind):
    path = write_report(getattr(runs, kind)(tmp_path))
    page = opened(browser, path, java_script_enabled=False)
    assert page.locator("h1").inner_text().startswith("About")
    assert page.locator("section").count() == 8
    assert page.locator("svg.heat").is_visible() and page.locator("svg.curve").count() == 2
    assert page.locator("li.suspect").count() > 5
    if kind == "pictures":
        sizes = page.locator("li.suspect img").evaluate_all("all => all.map(one => one.naturalWidth)")
        page.locator("li.suspect img").last.scroll_into_view_if_needed()
        assert sizes[0] == 120
    assert [address for address in page.asked if not address.startswith(("file:", "data:"))] == []
    # the style sheet passed the page's own policy
    assert page.locator("h1").evaluate("one => getComputedStyle(one).letterSpacing") != "normal"
    page.context.close()


def test_the_report_works_by_keyboard_in_dark_mode_and_in_print(runs, tmp_path, browser):
    page = opened(browser, write_report(runs.pictures(tmp_path)), color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(21, 24, 27)"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#next"
    page.emulate_media(media="print")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    page.emulate_media(media="screen", color_scheme="light")
    assert page.evaluate(background) == "rgb(251, 250, 247)"
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360  # no sideways scrolling on a telephone
    page.context.close()


@pytest.mark.parametrize("kind", ["pictures", "text", "table"])
def test_axe_finds_no_serious_violations(runs, tmp_path, browser, accessible, kind):
    page = opened(browser, write_report(getattr(runs, kind)(tmp_path)))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        accessible(page)
    page.context.close()


def test_hostile_names_stay_text(runs, tmp_path, browser):
    """As class, cell, column, setting and run name."""
    run = runs.table(tmp_path, classes=HOSTILE)
    run.update(data={**run.record()["data"], "name": HOSTILE[1]}, settings={HOSTILE[0]: HOSTILE[1], "x": [HOSTILE[2]]})
    source = tmp_path / "homes.csv"
    with source.open(newline="") as file:
        rows = list(csv.reader(file))
    with source.open("w", newline="") as file:
        csv.writer(file).writerows([[HOSTILE[0], *rows[0][1:]], *([HOSTILE[1], *row[1:]] for row in rows[1:])])
    run.append_history({"training": HOSTILE[0], "epoch": 1, HOSTILE[1]: 1.0})
    run.append_history({"training": HOSTILE[0], "epoch": 2, HOSTILE[1]: 2.0})
    page = opened(browser, write_report(run))
    assert page.locator("img, script").count() == 0
    assert HOSTILE[0] in page.locator("#suspects").inner_text()
    assert not page.title().startswith("ran") and HOSTILE[1] in page.title()
    assert [expected for expected in page.asked if "Refused" in expected or "violates" in expected] == []
    page.context.close()


def test_a_hostile_file_name(runs, tmp_path, browser):
    name = HOSTILE[0].replace("/", "_")
    run = runs.pictures(tmp_path, n=24, classes=(name, "b", "c", "d"))
    page = opened(browser, write_report(run))
    assert page.locator("li.suspect img").count() == page.locator("img").count() > 0
    assert page.locator("img[onerror]").count() == 0 and not page.title().startswith("ran")
    page.context.close()
