"""The server of the live page: what it answers, whom it rejects, how it ends."""

from __future__ import annotations

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest
from run_folders import make_run, round_event, start_event, write_lines
from serving import served

from polyfed.errors import UsageError
from polyfed.report import serve


def ask(url, path="/", method="GET", host=None):
    """(status, headers, text) of one request."""
    at = urlsplit(url).netloc
    connection = http.client.HTTPConnection(at, timeout=10)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def data(url, version=""):
    return json.loads(ask(url, f"/data?version={version}")[2])


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "a", rounds=10, completed=4, found=None)


def test_the_page_its_script_and_its_data(folder):
    with served(folder) as url:
        status, headers, html = ask(url)
        assert status == 200
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "<script src" not in html, "all that it needs is in it"
        assert "http:" not in html.replace("http://www.w3.org/2000/svg", "")
        found = data(url)
        assert (found["state"], found["round"], found["rounds"]) == ("running", 4, 10)
        assert ask(url, "/etc/passwd")[0] == 404


def test_a_page_that_has_it_all_is_told_nothing_more(folder):
    with served(folder) as url:
        version = data(url)["version"]
        assert data(url, version) == {"version": version}
        write_lines(folder / "events.jsonl", [round_event(5)], mode="a")
        assert data(url, version)["round"] == 5


def test_a_run_that_is_cut_back_and_goes_on_is_followed(folder):
    with served(folder) as url:
        assert data(url)["round"] == 4
        write_lines(folder / "events.jsonl", [start_event(), round_event(1), round_event(2)])
        assert data(url)["round"] == 2
        write_lines(folder / "events.jsonl", [round_event(3)], mode="a")
        assert data(url)["round"] == 3


def test_a_run_that_begins_later(tmp_path):
    with served(tmp_path / "later") as url:
        assert data(url)["state"] == "waiting"
        make_run(tmp_path / "later")
        assert data(url)["state"] == "finished"


def test_a_damaged_file_is_said_and_may_be_mended(folder):
    whole = (folder / "run.json").read_text()
    with served(folder) as url:
        (folder / "run.json").write_text("{")
        assert "run.json: cannot be read" in data(url)["trouble"]
        (folder / "run.json").write_text(whole)
        assert data(url)["state"] == "running"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil:80", ""]
)
@pytest.mark.parametrize("path", ["/", "/data"])
def test_foreign_names_are_rejected(folder, host, path):
    with served(folder) as url:
        status, _, text = ask(url, path, host=host)
    assert status == 403
    assert "pfed-mul" not in text


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "127.0.0.1:8765"])
def test_own_names_are_served(folder, host):
    with served(folder) as url:
        assert ask(url, host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_reading_is_possible(folder, method):
    with served(folder) as url:
        assert ask(url, method=method)[0] == 501


def test_only_this_machine_is_served(folder):
    with served(folder) as url:
        assert urlsplit(url).hostname == "127.0.0.1"


def test_a_port_in_use_is_said_with_the_remedy(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            serve(folder, port)
    assert str(caught.value) == f"port {port} is in use; choose another one with --port."


def test_a_port_that_does_not_exist(folder):
    with pytest.raises(UsageError, match="port 70000 does not exist; choose one from 1024 to 65535 with --port"):
        serve(folder, 70000)


def test_an_interrupt_ends_it_cleanly_and_frees_the_port(folder):
    seen = []

    def interrupt():
        raise KeyboardInterrupt

    serve(folder, 0, on_ready=seen.append, stop_when=interrupt)
    port = urlsplit(seen[0]).port or 0
    with served(folder, port) as url:
        assert urlsplit(url).port == port
