from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from labelsieve.report.html import Markup, count, el, percent, shorten, shorten_names, text


class Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.said += data


def test_an_element_with_its_attributes():
    assert el("p", "a < b", cls="note", id="x") == '<p class="note" id="x">a &lt; b</p>'
    assert el("p", el("b", "bold"), " & plain") == "<p><b>bold</b> &amp; plain</p>"
    assert el("img", src="a.png", alt="", hidden=True, width=None) == '<img src="a.png" alt="" hidden>'
    assert el("svg", aria_hidden="true", viewBox="0 0 1 1") == '<svg aria-hidden="true" viewBox="0 0 1 1"></svg>'


@given(st.text(), st.text())
def test_text_is_always_escaped(inner, attribute):
    parser = Collector()
    parser.feed(el("p", inner, title=attribute))
    parser.close()
    assert [tag for tag, _ in parser.tags] == ["p"]
    assert set(parser.tags[0][1]) == {"title"}


def test_control_characters_and_lone_surrogates_are_replaced():
    assert text("a\x00b") == "a\ufffdb"
    assert text("tab\tline\n") == "tab\tline\n"
    text("\ud800").encode("utf-8")
    assert isinstance(text("x"), Markup)


def test_numbers_are_formatted_for_readers():
    assert percent(0.384) == "38\u202f%"
    assert percent(0.004) == "0.4\u202f%"
    assert percent(0.999) == "99.9\u202f%"
    assert percent(1.0) == "100\u202f%"
    assert percent(0.0004) == "< 0.1\u202f%" and percent(0.9996) == "> 99.9\u202f%"
    assert percent(0.999, 0) == "> 99\u202f%"
    assert percent(0.0) == "0\u202f%"
    assert percent(None) == percent(float("nan")) == "unknown"
    assert count(1234567) == "1,234,567"
    assert shorten("abcdef", 4) == "abc\u2026"
    assert shorten("abcd", 4) == "abcd"


def test_short_names_are_unique_and_show_the_part_that_differs():
    """Names of many classes share their beginnings and ends."""
    topics = ("refund_of_card_payment", "automatic_top_up", "international_transfer")
    whos = ("by_a_business_account", "by_a_minor_or_guardian")
    names = [f"complaint_or_question_about_{topic}_{who}" for topic in topics for who in whos]
    short = shorten_names(names, 24)
    assert len(set(short)) == len(names) and all(len(name) <= 24 for name in short)
    assert all(topic[:6] in form for form, topic in zip(short[::2], topics, strict=True))
    assert shorten_names(["cat", "dog", "cat"], 24) == ["cat", "dog", "cat"]
