"""Downloads from a server on this machine: whole, broken off, refused, silent."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sfumato.data import downloads
from sfumato.data.downloads import download

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cut, self.codes, self.ranges, self.seen = [], [], True, []
        self.released = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/file"

    def handle_error(self, request, client_address):
        pass


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.seen.append(asked)
        if self.path == "/silent":
            self.server.released.wait(30)
            return
        if self.server.codes:
            self.send_error(self.server.codes.pop(0))
            return
        start = int(asked[6:-1]) if asked and self.server.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        body = CONTENT[start:]
        self.wfile.write(body[: self.server.cut.pop(0)] if self.server.cut else body)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 0)
    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=(0.02,))
    thread.start()
    yield running
    running.released.set()
    running.shutdown()
    thread.join()
    running.server_close()


def fetch(server, path, most=10**7, told=None):
    return download(server.url, path, lambda *far: (told or []).append(far), most)


def test_a_file_arrives_whole_and_says_how_far_it_is(server, tmp_path):
    told = [(0, None)]
    assert fetch(server, tmp_path / "file", told=told).read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_broken_connection_goes_on_where_it_broke(server, tmp_path):
    server.cut = [300_000, 100_000]
    assert fetch(server, tmp_path / "file").read_bytes() == CONTENT
    assert server.seen == [None, "bytes=300000-", "bytes=400000-"]


def test_a_later_process_goes_on_where_an_earlier_one_was_killed(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    assert fetch(server, tmp_path / "file").read_bytes() == CONTENT
    assert server.seen == ["bytes=1000-"]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.part").write_bytes(b"other bytes")
    assert fetch(server, tmp_path / "file").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    assert fetch(server, tmp_path / "file").read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.codes = [503, 429]
    assert fetch(server, tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_stays_busy_is_given_up(server, tmp_path):
    server.codes = [503] * 9
    with pytest.raises(OSError, match="gave up after 3 attempts: the answer was 503"):
        fetch(server, tmp_path / "file")
    assert len(server.seen) == 3


def test_a_missing_file_is_asked_for_once(server, tmp_path):
    server.codes = [404]
    with pytest.raises(OSError, match="the answer was 404"):
        fetch(server, tmp_path / "file")
    assert len(server.seen) == 1


def test_too_long_an_answer_is_refused_and_not_kept(server, tmp_path):
    with pytest.raises(OSError, match="longer than 1,000 bytes"):
        fetch(server, tmp_path / "file", most=1000)
    assert not list(tmp_path.iterdir())


def test_silence_is_given_up_soon(server, monkeypatch, tmp_path):
    monkeypatch.setattr(downloads, "CONNECT_SECONDS", 0.1)
    server.url = server.url.replace("/file", "/silent")
    with pytest.raises(OSError, match=r"no connection: nothing within 0\.1 seconds"):
        fetch(server, tmp_path / "file")


def test_no_one_there(server, tmp_path):
    closed = Server()
    closed.server_close()
    with pytest.raises(OSError, match="no connection"):
        fetch(closed, tmp_path / "file")
