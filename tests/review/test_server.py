from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from labelsieve.errors import InputError
from labelsieve.review.server import bound, in_address, is_loopback, names_of


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.8.8.8", True), ("0.0.0.0", False),
     ("192.168.1.5", False), ("evil.example", False), ("::", False)],
)  # fmt: skip
def test_what_is_this_machine(host, own):
    assert is_loopback(host) is own


def test_the_names_the_page_answers_to():
    assert names_of("127.0.0.1", 80) == {"127.0.0.1:80", "localhost:80", "[::1]:80"}
    assert "192.168.1.5:80" in names_of("192.168.1.5", 80)
    assert "[2001:db8::1]:80" in names_of("2001:DB8:0::1", 80)


@pytest.mark.parametrize("host", ["::", "::1", "0.0.0.0"])
def test_the_printed_address_is_one_the_page_answers_to(host):
    assert f"{in_address(host)}:80" in names_of(host, 80)
    assert in_address(host) in ("[::1]", "127.0.0.1")


def test_on_every_address_the_printed_one_works(runs, tmp_path, serve):
    try:
        bound("::", 0).close()
    except InputError:
        pytest.skip("no IPv6 here")
    server = serve(runs.text(tmp_path, n=12), host="::")
    with urllib.request.urlopen(server.address) as answer:
        assert answer.status == 200


def test_a_taken_port_is_said_and_the_usual_one_is_not_insisted_on():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}.*--port"):
            bound("127.0.0.1", port)
    with bound("127.0.0.1", None) as listener:
        assert listener.getsockname()[1] > 0
    with pytest.raises(InputError, match="outside"):
        bound("127.0.0.1", 99999)


def test_it_serves_stops_and_is_alone(runs, tmp_path, serve):
    run = runs.text(tmp_path, n=12)
    server = serve(run)
    assert server.address.startswith("http://127.0.0.1:") and "token=" in server.address
    with urllib.request.urlopen(server.address) as answer:
        assert answer.status == 200 and b"labelsieve" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(server.address.replace("secret", "other"))
    assert refused.value.code == 403
    refused.value.close()
    with pytest.raises(AssertionError, match="is already being reviewed by process"):
        serve(run)
    server.stop()
    assert not (run / "review.lock").exists()
    serve(run)


def test_a_killed_server_leaves_no_lock_behind(runs, tmp_path, serve):
    run = runs.text(tmp_path, n=12)
    serve(run).kill()
    serve(run)
