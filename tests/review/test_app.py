"""The page over HTTP: what it answers, and above all what it refuses."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from starlette.testclient import TestClient

from labelsieve.decisions import ConflictError, read_decisions
from labelsieve.errors import InputError
from labelsieve.report.samples import Row, Text
from labelsieve.review.app import make_app
from labelsieve.review.neighbours import Neighbours
from labelsieve.review.review_session import Filter, ReviewSession, content
from labelsieve.runfolder import RunFolder

HOST = "127.0.0.1:8765"
TOKEN = "a-good-token"
PATHS = (
    "/",
    "/page/page.js",
    "/api/start",
    "/api/items",
    "/api/picture/0",
    "/api/neighbours/0",
    "/favicon.ico",
    "/x",
)


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    return runs.pictures(tmp_path_factory.mktemp("app"), n=32)


@pytest.fixture
def run(made, tmp_path):
    (made / "decisions.csv").unlink(missing_ok=True)
    return RunFolder.existing(made.path)


@pytest.fixture
def client(run):
    app = make_app(ReviewSession(run), hosts={HOST, "localhost:8765"}, token=TOKEN)
    # raise_server_exceptions: a 500 would be an exception here
    with TestClient(app, base_url=f"http://{HOST}", headers={"X-Labelsieve-Token": TOKEN}) as client:
        yield client


def stranger(client):
    client.headers.pop("X-Labelsieve-Token", None)
    return client


@pytest.mark.parametrize(("why", "expected"), [("leak", "column"), ("random", "random"), ("outcome", "outcomes")])
def test_an_unreliable_run_shows_a_warning_and_disables_bulk_acceptance(runs, tmp_path, why, expected):
    run = runs.pictures(tmp_path, n=16)
    runs.write_suggestions(run, lambda place: 0.95)
    assert ReviewSession(run).start()["warnings"] == [] and ReviewSession(run).start()["bulk"]
    summary = run.read_summary()
    summary["iterations"][0]["estimate"] |= {"trust": "unknown", "why_unknown": why}
    run.write_summary(summary)
    session = ReviewSession(run)
    assert session.start()["bulk"] is False
    assert expected in session.start()["warnings"][0]
    with pytest.raises(InputError, match=rf"^[\w ]*{expected}[\w ]*: .*one by one"):
        session.accept_above(0.5, window="one")
    assert not read_decisions(run / "decisions.csv")


def test_a_changed_or_missing_source_is_reported_before_the_first_sample(runs, tmp_path):
    run = runs.table(tmp_path)
    assert ReviewSession(run).start()["warnings"] == []
    head, *lines = (tmp_path / "homes.csv").read_text().splitlines()
    (tmp_path / "homes.csv").write_text("\n".join([head, *lines[::-1]]) + "\n")
    session = ReviewSession(run)
    assert "homes.csv has changed since" in session.start()["warnings"][0]
    assert session.item(0)["content"]["kind"] == "missing"
    (tmp_path / "homes.csv").unlink()
    assert "homes.csv does not exist" in ReviewSession(run).start()["warnings"][0]


def test_invalid_lines_of_decisions_are_reported_at_the_top(runs, tmp_path):
    run = runs.table(tmp_path)
    (run / "decisions.csv").write_text("id;decision\nnobody;keep\n0;burn\n")
    (said,) = ReviewSession(run).start()["warnings"]
    assert said.startswith("Decisions.csv, line 2: the run has no sample 'nobody' (and 1 more line)")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, ""),
        ({}, "?token="),
        ({}, "?token=wrong"),
        ({}, "?token=a-good-token&token=wrong"),
        ({}, "?token=%ff%fe"),
        ({}, "?" + "&".join(f"a{i}=1" for i in range(200))),
        ({"X-Labelsieve-Token": "wrong"}, ""),
        ({"X-Labelsieve-Token": "wrong"}, f"?token={TOKEN}"),
        ({"X-Labelsieve-Token": "gr\xfcn"}, ""),
        ({"Host": "evil.example"}, f"?token={TOKEN}"),
        ({"Host": "evil.example:8765"}, f"?token={TOKEN}"),
        ({"Host": "127.0.0.1"}, f"?token={TOKEN}"),
        ({"Host": "127.0.0.1:8765.evil.example"}, f"?token={TOKEN}"),
        ({"Host": ""}, f"?token={TOKEN}"),
        ({"Origin": "http://evil.example"}, f"?token={TOKEN}"),
        ({"Origin": "null"}, f"?token={TOKEN}"),
        ({"Origin": ""}, f"?token={TOKEN}"),
        ({"Origin": "https://127.0.0.1:8765"}, f"?token={TOKEN}"),
        ({"Origin": "http://127.0.0.1:9999"}, f"?token={TOKEN}"),
    ],
)
def test_unauthorised_requests_are_refused(client, path, headers, query):
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        sent = {key: value.encode("latin-1") for key, value in headers.items()}
        answer = stranger(client).request(method, path + query, headers=sent)
        assert answer.status_code == 403
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("kept", ["decide", "accept", "undo", "redo"])
def test_a_foreign_page_with_the_token_changes_nothing(client, run, kept):
    body = {"row": 0, "decision": "keep", "version": 0, "count": 5, "window": "w"}
    for origin in ("http://evil.example", "null"):
        answer = client.post(f"/api/{kept}", json=body, headers={"Origin": origin})
        assert answer.status_code == 403
    assert read_decisions(run / "decisions.csv") == []


def test_websockets_are_refused(client):
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/start"):
        pass


@pytest.mark.parametrize("path", PATHS[:-1])
def test_requests_with_the_token_succeed_with_all_headers(client, path):
    for headers in ({}, {"Origin": f"http://{HOST}"}, {"Host": "localhost:8765"}):
        answer = stranger(client).get(f"{path}?token={TOKEN}", headers=headers)
        assert answer.status_code in (200, 204)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_the_page_has_no_inline_script_or_style(client):
    html = client.get("/").text
    assert "TOKEN" not in html and html.count(f"token={TOKEN}") == 5
    assert "<script>" not in html and "<style" not in html and " style=" not in html and " on" + "click=" not in html


def test_pictures_are_served_as_images(client):
    small, large = client.get("/api/picture/0"), client.get("/api/picture/0?size=large")
    assert small.headers["content-type"] == large.headers["content-type"] == "image/webp"
    assert small.content[:4] == b"RIFF"
    assert client.get("/api/picture/9999").status_code == 400


def test_lists_that_the_run_did_not_compute_have_a_reason(runs, tmp_path):
    run = runs.text(tmp_path)
    assert set(ReviewSession(run).start()["not_computed"]) == {"outliers", "no_class"}
    runs.write_suggestions(run, lambda place: 0.95)
    run.update(settings={**run.record()["settings"], "embed": "model"})
    assert not ReviewSession(run).start()["not_computed"]


def test_suggestions_have_probabilities_if_the_run_has_them(runs, tmp_path):
    run = runs.text(tmp_path)
    first = max((row for row in run.read_labels() if row.suggested), key=lambda row: row.suspicion)
    assert ReviewSession(run).start()["judged"] is False
    line = f"{first.id},{first.label},{first.suspicion},{first.suggested},0.875"
    (run / "suggestions.csv").write_text(f"id,label,suspicion,suggested,probability\n{line}\n")
    session = ReviewSession(run)
    assert session.start()["judged"] is True and session.start()["command"] == str(run.path)
    items = session.items(Filter(), 0, 2)["items"]
    assert [item["likely"] for item in items] == [0.875, None]
    (run / "suggestions.csv").write_text(f"id,label,suspicion,suggested,probability\n{line[:-5]}nan\n")
    assert ReviewSession(run).items(Filter(), 0, 1)["items"][0]["likely"] is None  # JSON has no nan


def test_decisions_are_posted_and_stored(client, run):
    items = client.get("/api/items?count=3").json()
    assert items["left"] == items["total"] > 3 and items["decided"] == 0
    suspicion = [item["suspicion"] for item in items["items"]]
    assert suspicion == sorted(suspicion, reverse=True)
    first = items["items"][0]
    sent = {"samples": [{"row": first["row"], "version": 0}], "decision": "suggested", "window": "one"}
    answer = client.post("/api/decide", json=sent).json()
    made = answer["rows"][0]
    assert answer["saved"] is True and made["decision"] == "relabel" and made["label"] == first["suggested"]
    assert answer["left"] == items["total"] - 1
    assert [(d.id, d.decision) for d in read_decisions(run / "decisions.csv")] == [(first["id"], "relabel")]
    again = client.post("/api/decide", json={**sent, "decision": "drop", "window": "two"})
    assert again.status_code == 409
    assert again.json()["version"] == 1 and again.json()["decision"] == "relabel"
    assert client.get("/api/next?from=0").json() == {"at": 1}
    back = client.post("/api/undo", json={"window": "one"}).json()
    assert back["changed"] == 1 and back["rows"][0]["decision"] is None
    assert client.post("/api/undo", json={"window": "one"}).json()["changed"] == 0
    assert client.post("/api/redo", json={"window": "one"}).json()["changed"] == 1


def test_suggestions_are_accepted_after_a_random_sample(runs, tmp_path):
    """With 29 probable suggestions, 20 of them are judged first; the rest follow at once."""
    run = runs.text(tmp_path, n=200)
    runs.write_suggestions(run, lambda place: 0.95 if place < 29 else 0.3)
    session = ReviewSession(run, "anna")
    before = session.check(0.9)
    assert before["groups"]["suggested"]["size"] == before["acceptable"] == 29 and before["noise"] is None
    assert "about 28 of them" in before["expected"]
    with pytest.raises(InputError, match="20 are left"):
        session.accept_above(0.9, window="w")
    sample = session.queues.rows(Filter(check="suggested", confidence=0.9)).tolist()
    assert len(sample) == 20 and sample != sorted(sample)
    session.decide([(sample[0], 0)], "keep", None, window="w", reviewer="anna")
    session.decide([(row, 0) for row in sample[1:]], "suggested", None, window="w", reviewer="anna")
    after = session.check(0.9)
    group = after["groups"]["suggested"]
    assert (group["checked"], group["wrong"], group["right_suggestions"], after["acceptable"]) == (20, 19, 19, 9)
    others = (after["groups"][name] for name in ("other", "rest"))
    model = (29 * 19 / 20 + sum(one["size"] * one["model_wrong"] for one in others)) / 200
    assert after["noise"]["ratio"] == pytest.approx(model, abs=1e-4)
    assert after["noise"]["low"] < model < after["noise"]["high"] and after["noise"]["unchecked"] == pytest.approx(
        171 / 200
    )
    assert session.accept_above(0.9, window="w", reviewer="anna")["accepted"] == 9
    assert session.check(0.9)["groups"]["suggested"]["checked"] == 20  # nobody looked at the nine others
    assert session.undo("w", "anna")["changed"] == 9
    assert ReviewSession(run).check(0.9)["groups"]["suggested"]["checked"] == 20


def test_accepted_suggestions_stay_open_in_a_random_sample(runs, tmp_path):
    """After an acceptance from 0.8 on, the random sample of 0.9 has samples that nobody looked at."""
    run = runs.text(tmp_path, n=200)
    runs.write_suggestions(run, lambda place: 0.95 if place % 2 else 0.85)
    session = ReviewSession(run)
    first = session.queues.rows(Filter(check="suggested", confidence=0.8)).tolist()
    session.decide([(row, 0) for row in first], "suggested", None, window="w")
    session.accept_above(0.8, window="w")
    wanted = Filter(check="suggested", confidence=0.9)
    group = session.check(0.9)["groups"]["suggested"]
    open_at = session.next_open(wanted, 0, 1)
    assert group["checked"] < 20 and session.progress(wanted)["left"] > 0 and open_at is not None
    row = int(session.queues.rows(wanted)[open_at])
    assert session.item(row)["decision"] == "relabel" and session.item(row)["unseen"]
    session.decide([(row, session.item(row)["version"])], "suggested", None, window="w")
    assert not session.item(row)["unseen"] and session.next_open(wanted, 0, 1) != open_at


def test_decisions_of_two_people_are_kept_apart(client, run):
    first, second = (item["row"] for item in client.get("/api/items?count=2").json()["items"])
    for name, decision in (("anna", "keep"), ("ben", "drop")):
        sent = {"samples": [{"row": first, "version": 0}], "decision": decision, "window": name, "reviewer": name}
        answer = client.post("/api/decide", json=sent).json()
    assert answer["rows"][0]["conflict"] and answer["rows"][0]["others"][0]["reviewer"] == "anna"
    agreed = {"samples": [{"row": second, "version": 0}], "decision": "drop"}
    for name in ("anna", "ben"):
        answer = client.post("/api/decide", json={**agreed, "window": name, "reviewer": name}).json()
    assert not answer["rows"][0]["conflict"] and answer["conflicts"] == 1
    queue = client.get("/api/items?show=conflicts&reviewer=anna").json()
    assert [item["row"] for item in queue["items"]] == [first] and queue["items"][0]["decision"] == "keep"
    assert client.get("/api/next?show=conflicts").json() == {"at": 0}
    again = ReviewSession(run)  # as after a restart
    assert again.log.resolution(first).choice.word == "conflict" and again.log.resolution(second).choice.word == "drop"
    assert client.post("/api/undo", json={"window": "new", "reviewer": "carla"}).json()["changed"] == 0
    assert again.undo("new", "ben")["rows"][0]["row"] == second


def test_samples_that_may_fit_no_class_are_listed(runs, tmp_path):
    run = runs.text(tmp_path)
    runs.write_suggestions(run, lambda place: 0.2 if place == 0 else 0.95)
    found = ReviewSession(run).items(Filter("no_class"), 0, 9)["items"]
    assert [item["id"] for item in found] == [runs.suspects_of(run)[0].id] and found[0]["no_class"]


def test_several_samples_are_decided_at_once_or_not_at_all(client, run):
    rows = [item["row"] for item in client.get("/api/items?count=6").json()["items"]]
    samples = [{"row": row, "version": 0} for row in rows]
    client.post("/api/decide", json={**GOOD, "samples": samples[:1]})
    refused = client.post("/api/decide", json={**GOOD, "decision": "drop", "samples": samples})
    assert refused.status_code == 409 and len(read_decisions(run / "decisions.csv")) == 1
    done = client.post("/api/decide", json={**GOOD, "decision": "drop", "samples": samples[1:]}).json()
    assert done["decided"] == 6 and len({row["decision"] for row in done["rows"]}) == 1
    assert client.post("/api/undo", json={"window": "w"}).json()["changed"] == 5


def test_samples_are_sorted_by_class_pair(client):
    items = client.get("/api/items?sort=pair&count=60").json()["items"]
    keys = [(item["given"], item["suggested"], -item["suspicion"]) for item in items]
    assert keys == sorted(keys) and len(keys) > 3


def test_the_matrix_counts_the_open_suspects(client):
    before = client.get("/api/matrix").json()
    total = client.get("/api/items").json()["total"]
    assert sum(cell[2] for cell in before["cells"]) == sum(cell[3] for cell in before["cells"]) == total
    given, suggested, count, _ = before["cells"][0]
    queue = client.get(f"/api/items?given={given}&suggested={suggested}").json()
    assert queue["total"] == count
    client.post("/api/decide", json={**GOOD, "samples": [{"row": queue["items"][0]["row"], "version": 0}]})
    after = {tuple(cell[:2]): cell[3] for cell in client.get("/api/matrix").json()["cells"]}
    assert after[given, suggested] == count - 1


def test_neighbours_are_selected_samples_of_both_classes(client, run):
    item = client.get("/api/items").json()["items"][0]
    groups = client.get(f"/api/neighbours/{item['row']}").json()["groups"]
    assert [group["label"] for group in groups] == [item["given"], item["suggested"]]
    rows = list(run.read_labels())
    classes = client.get("/api/start").json()["classes"]
    for group in groups:
        assert 1 <= len(group["items"]) <= 4
        for near in group["items"]:
            assert rows[near["row"]].verdict == "selected" and rows[near["row"]].label == classes[group["label"]]


ROW = {"row": 0, "version": 0}
GOOD = {"samples": [ROW], "decision": "keep", "window": "w"}
BAD_ROWS = ({"row": -1}, {"row": 10**9}, {"row": 10**30}, {"row": "0"}, {"row": True}, {"row": 0.5}, {"version": None})


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b"x" * 2_000_000,
        *(json.dumps({**GOOD, **bad}).encode() for bad in (
            *({"samples": [ROW, {**ROW, **bad}]} for bad in BAD_ROWS), {"samples": []}, {"samples": [1]},
            {"samples": [ROW] * 999}, {"samples": 1}, {"reviewer": 5}, {"reviewer": "x" * 65},
            {"decision": "burn"}, {"decision": None}, {"decision": ["keep"]}, {"decision": "relabel"},
            {"decision": "relabel", "label": 99}, {"decision": "relabel", "label": "cat"},
            {"window": ""}, {"window": "w" * 65}, {"window": 5}, {"filter": []}, {"filter": {"show": "x"}},
            {"filter": {"given": {}}}, {"filter": {"low": "nan"}}, {"filter": {"low": []}},
            {"filter": {"given": math.inf}}, {"filter": {"given": math.nan}}, {"filter": {"given": 1.5}},
            {"filter": {"low": 10**400}},
        )),
    ],
)  # fmt: skip
def test_invalid_decisions_are_bad_requests(client, body, run):
    answer = client.post("/api/decide", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]
    assert read_decisions(run / "decisions.csv") == []


@pytest.mark.parametrize(
    "path",
    ["/api/items?at=x", "/api/items?at=1e999", "/api/items?low=x", "/api/items?show=<script>", "/api/items?given=1.5",
     "/api/next?from=99999999999999999999", "/api/neighbours/-1", "/api/neighbours/x", "/api/picture/1e9"],
)  # fmt: skip
def test_invalid_queries_are_bad_requests(client, path):
    assert client.get(path).status_code == 400


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/x.js", "/nothing", "/api/"])
def test_unknown_paths_are_not_found(client, path):
    assert client.get(path).status_code == 404


def test_positions_out_of_range_are_clipped(client):
    answer = client.get("/api/items?at=99999&count=9999").json()
    assert answer["at"] == answer["total"] - 1 and len(answer["items"]) == 1
    assert client.get("/api/items?given=0&suggested=0").json()["items"] == []


def test_a_full_disk_is_reported(client, run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labelsieve.decisions.append_line", full)
    row = client.get("/api/items").json()["items"][0]["row"]
    answer = client.post("/api/decide", json={**GOOD, "samples": [{"row": row, "version": 0}]})
    assert answer.status_code == 507 and "No space left" in answer.json()["error"]


def test_a_decision_made_meanwhile_is_not_overwritten_silently(run, monkeypatch):
    """The window is told at worst of a version that is gone, and is refused; never of one it has not seen."""
    session = ReviewSession(run)
    read = session.log.vote

    def slowly(row, reviewer):
        seen = read(row, reviewer)
        monkeypatch.undo()
        session.decide([(row, 0)], "drop", None, window="two")
        return seen

    monkeypatch.setattr(session.log, "vote", slowly)
    seen = session.decision(0)
    assert seen["decision"] is None
    with pytest.raises(ConflictError):
        session.decide([(0, seen["version"])], "keep", None, window="one")


def test_truncated_content_is_marked():
    """A text, the columns beyond those that fit, and a cell that is too long."""
    wide = tuple((f"x{i}", str(i)) for i in range(250))
    row = content(Row(wide))
    assert len(row["cells"]) == 200 and row["more"] == 50
    beside = content(Text("short"), wide)
    assert len(beside["cells"]) == 200 and beside["more"] == 50 and beside["cut"] is False
    assert content(Row(wide[:200]))["more"] == 0
    (long,), (fits,) = content(Row((("a", "x" * 2001),)))["cells"], content(Row((("a", "x" * 2000),)))["cells"]
    assert long[1] == "x" * 2000 + " … (cut)" and fits[1] == "x" * 2000


def test_slow_requests_for_neighbours_do_not_block_other_requests(client, monkeypatch):
    """A person who walks fast leaves many questions behind that wait for its neighbours."""
    found = threading.Event()
    monkeypatch.setattr(Neighbours, "nearest", lambda *_: found.wait(120) and [])
    with ThreadPoolExecutor(61) as windows:
        helps = [windows.submit(client.get, f"/api/neighbours/{i % 32}") for i in range(60)]
        wait(helps, timeout=1)  # until they are all under way
        try:
            assert windows.submit(client.get, "/api/items").result(timeout=60).status_code == 200
        finally:
            found.set()
        assert {help.result().status_code for help in helps} == {200}


def test_neighbours_of_cancelled_requests_are_not_searched(run, monkeypatch):
    looked = []
    monkeypatch.setattr(ReviewSession, "neighbours", lambda _, row: looked.append(row) or {})
    headers = [(b"host", HOST.encode()), (b"x-labelsieve-token", TOKEN.encode())]
    scope = {"type": "http", "method": "GET", "path": "/api/neighbours/0", "query_string": b"", "headers": headers}
    sent = []

    async def gone():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    app = make_app(ReviewSession(run), hosts={HOST}, token=TOKEN)
    with ThreadPoolExecutor(1) as aside:  # the browser of other tests has a loop in this thread
        aside.submit(lambda: asyncio.run(app(scope, gone, send))).result()
    assert looked == [] and sent[0]["status"] == 204


@pytest.mark.parametrize("field", ["reviewer", "window", "decision"])
def test_half_of_a_surrogate_pair_is_refused(client, run, field):
    sent = {"samples": [{"row": 0, "version": 0}], "decision": "drop", "window": "w"} | {field: "\ud800"}
    answer = client.post("/api/decide", content=json.dumps(sent), headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and read_decisions(run / "decisions.csv") == []
