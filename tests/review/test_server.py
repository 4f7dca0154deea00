from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from labelsieve.decisions import append_decision
from labelsieve.errors import InputError
from labelsieve.review import in_address, is_loopback, names_of, open_listener
from labelsieve.review import serve as review_page
from labelsieve.review.app import refusal_reason


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.8.8.8", True), ("0.0.0.0", False),
     ("192.168.1.5", False), ("evil.example", False), ("::", False)],
)  # fmt: skip
def test_local_addresses_are_recognised(host, own):
    assert is_loopback(host) is own


def test_accepted_host_names():
    assert names_of("127.0.0.1", 8765) == {"127.0.0.1:8765", "localhost:8765", "[::1]:8765"}
    bare = {"127.0.0.1", "localhost", "[::1]"}  # a browser leaves the usual port out
    assert names_of("127.0.0.1", 80) == {"127.0.0.1:80", "localhost:80", "[::1]:80"} | bare
    assert "192.168.1.5:80" in names_of("192.168.1.5", 80)
    assert "[2001:db8::1]:80" in names_of("2001:DB8:0::1", 80)


@pytest.mark.parametrize(("port", "host", "message"), [
    (80, "localhost", None), (80, "localhost:80", None), (80, "evil.example", "not the address of the page"),
    (8765, "localhost", "not the address of the page"),
])  # fmt: skip
def test_the_default_port_can_be_omitted(port, host, message):
    headers = [(b"host", host.encode()), (b"origin", b"http://" + host.encode()), (b"x-labelsieve-token", b"t")]
    refused = refusal_reason({"headers": headers}, names_of("127.0.0.1", port), "t")
    assert refused is None if message is None else message in refused


@pytest.mark.parametrize("host", ["::", "::1", "0.0.0.0"])
def test_the_printed_address_works(host):
    assert f"{in_address(host)}:80" in names_of(host, 80)
    assert in_address(host) in ("[::1]", "127.0.0.1")


def test_the_printed_address_works_if_the_server_listens_on_all_addresses(runs, tmp_path, serve):
    try:
        open_listener("::", 0).close()
    except InputError:
        pytest.skip("no IPv6 here")
    server = serve(runs.text(tmp_path, n=12), host="::")
    with urllib.request.urlopen(server.address) as answer:
        assert answer.status == 200


def test_a_used_port_is_reported_and_the_default_port_is_replaced():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}.*--port"):
            open_listener("127.0.0.1", port)
    with open_listener("127.0.0.1", None) as listener:
        assert listener.getsockname()[1] > 0
    with pytest.raises(InputError, match="outside"):
        open_listener("127.0.0.1", 99999)


def test_two_servers_started_together_use_different_ports():
    with open_listener("127.0.0.1", None) as one, open_listener("127.0.0.1", None) as two:
        assert one.getsockname() != two.getsockname()
        with pytest.raises(InputError, match="cannot listen"):
            open_listener("127.0.0.1", one.getsockname()[1])


def test_a_server_serves_stops_and_locks_its_run(runs, tmp_path, serve):
    run = runs.text(tmp_path, n=12)
    server = serve(run)
    assert server.address.startswith("http://127.0.0.1:") and "token=" in server.address
    with urllib.request.urlopen(server.address) as answer:
        assert answer.status == 200 and b"labelsieve" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(server.address.replace("secret", "other"))
    assert refused.value.code == 403
    refused.value.close()
    with pytest.raises(AssertionError, match="already in review by process"):
        serve(run)
    server.stop()
    assert not (run / "review.lock").exists()
    serve(run)


def test_a_killed_server_leaves_no_lock_behind(runs, tmp_path, serve):
    run = runs.text(tmp_path, n=12)
    serve(run).kill()
    serve(run)


def test_a_lock_of_another_machine_is_reported_with_a_remedy(runs, tmp_path, serve):
    run = runs.text(tmp_path, n=12)
    lock = run / "review.lock"
    lock.write_text('{"pid": 7, "host": "another-machine"}')
    with pytest.raises(InputError) as refused:
        review_page(run)
    assert "process 7 on another-machine" in str(refused.value) and f"delete {lock}" in str(refused.value)
    lock.unlink()
    serve(run)


def test_a_read_only_folder_is_reported(runs, tmp_path):
    run = runs.text(tmp_path, n=12)
    (run / "review.lock").mkdir()  # cannot be opened, as in a folder without rights; also for root
    with pytest.raises(InputError, match=r"decisions cannot be saved"):
        review_page(run)


def test_errors_while_the_lock_is_held_are_not_reported_as_a_held_lock(runs, tmp_path):
    run = runs.text(tmp_path, n=12)
    append_decision(run / "decisions.csv", "nobody", "keep", "praise")  # reported before the page is served

    def broken(_):
        assert (run / "review.lock").exists()
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        review_page(run, note=broken)
    assert not (run / "review.lock").exists()
