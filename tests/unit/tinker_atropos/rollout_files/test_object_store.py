"""Against moto, which speaks S3, and against servers that fail."""

import asyncio
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.tinker_atropos.rollout_files.private_tls import behind_tls, make_certificates

from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files import object_store
from tinker_atropos.rollout_files.object_store import BucketStore, sentence_of
from tinker_atropos.rollout_files.rollout_store import StoreError

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA0123456789", "AWS_SECRET_ACCESS_KEY": "s3cr3t-s3cr3t"}
FIRST, SECOND = "000001-1.jsonl.zst", "000002-1.jsonl.zst"

Opened = Callable[..., BucketStore]


@pytest.fixture
def open_store(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens a store with these variables: the library reads the process's own."""

    def call(endpoint: str, url: str = "s3://rollouts/team-a/sorting-1", **variables: str) -> BucketStore:
        for name in [name for name in os.environ if name.startswith(("AWS_", "RL_ROLLOUTS_"))]:
            monkeypatch.delenv(name)
        for name, value in {"AWS_ENDPOINT_URL": endpoint, **variables}.items():
            monkeypatch.setenv(name, value)
        return BucketStore(url)

    return call


def test_files_are_put_listed_read_and_deleted(s3: str, open_store: Opened) -> None:
    store, other = open_store(s3, **KEYS), open_store(s3, "s3://rollouts/team-a/sorting-2", **KEYS)
    store.put(FIRST, b"one")
    store.put(SECOND, b"two")
    store.put(SECOND, b"two, more")
    store.put("notes.txt", b"somebody's")
    assert store.names() == {FIRST: 3, SECOND: 9}
    assert store.read(SECOND) == b"two, more"
    assert other.names() == {}
    store.delete(FIRST)
    store.delete(FIRST)  # twice is once
    assert store.names() == {SECOND: 9}


def test_a_file_of_many_parts(s3: str, open_store: Opened) -> None:
    store, content = open_store(s3, "s3://rollouts", **KEYS), os.urandom(12_000_000)
    store.put(FIRST, content)
    assert store.read(FIRST) == content


@pytest.mark.parametrize("name", ["000009-1.jsonl.zst", "notes.txt", "../sorting-1/000001-1.jsonl.zst"])
def test_a_file_that_is_not_there(s3: str, open_store: Opened, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        open_store(s3, **KEYS).read(name)


def test_a_bucket_that_is_not_there(s3: str, open_store: Opened) -> None:
    store = open_store(s3, "s3://missing/x", **KEYS)
    for call in (store.names, lambda: store.read(FIRST), lambda: store.put(FIRST, b"")):
        with pytest.raises(StoreError, match=f"in bucket missing of {s3}: NoSuchBucket: The specified bucket does not"):
            call()


class Refusing(http.server.BaseHTTPRequestHandler):
    """Refuses what is put, with the keys in its answer, and cannot list."""

    def do_PUT(self) -> None:
        body = f"<Error><Code>AccessDenied</Code><Message>not {' or '.join(KEYS.values())}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_no_key_is_in_a_sentence(refusing: str, open_store: Opened) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(refusing, **KEYS).put(FIRST, b"")
    told = f"cannot put {FIRST} in bucket rollouts of {refusing}: AccessDenied: not *** or ***"
    assert str(caught.value) == told
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_server_that_fails_is_asked_again_for_a_while(refusing: str, open_store: Opened) -> None:
    with pytest.raises(StoreError, match=r"cannot list files in .*: the server answered 503 Service Unavailable"):
        open_store(refusing, **KEYS).names()


def test_nobody_listens(open_store: Opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(StoreError, match="Connection refused"):
        open_store(f"http://127.0.0.1:{port}", **KEYS).put(FIRST, b"")


def test_a_server_that_is_silent(open_store: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "REQUEST_SECONDS", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(StoreError, match="the server does not answer in time"),
    ):
        open_store(f"http://127.0.0.1:{silent.getsockname()[1]}", **KEYS).put(FIRST, b"")


@pytest.fixture(scope="module")
def certificates(process: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def test_a_certificate_authority_of_ones_own(s3: str, open_store: Opened, certificates: Path) -> None:
    """It is missing at first: what is there later is used without another start."""
    appearing, source = certificates.parent / "appearing.pem", "key ca.crt of ConfigMap lab-ca"
    async with behind_tls(s3, certificates.parent) as url:
        keys = {**KEYS, "RL_ROLLOUTS_CA_FILE": str(appearing), "RL_ROLLOUTS_CA_SOURCE": source}
        store = open_store(url, "s3://rollouts/private", **keys)
        with pytest.raises(StoreError) as caught:
            await asyncio.to_thread(store.names)
        assert str(caught.value) == (
            f"cannot list files in bucket rollouts of {url}: the server's certificate authority is not known, "
            f"there is no {source}: create it, it is read again"
        )
        await asyncio.to_thread(shutil.copy, certificates, appearing)
        await asyncio.to_thread(store.put, FIRST, b"one")
        assert await asyncio.to_thread(store.read, FIRST) == b"one"
        with pytest.raises(StoreError, match=r"the server's certificate is not trusted \(UnknownIssuer\)"):
            await asyncio.to_thread(open_store(url, "s3://rollouts/private", **KEYS).names)


@pytest.mark.parametrize("content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_certificates_that_are_none(open_store: Opened, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ca.crt").write_bytes(content)
    keys = {"RL_ROLLOUTS_CA_FILE": str(tmp_path / "ca.crt"), "RL_ROLLOUTS_CA_SOURCE": "key ca.crt of Secret lab"}
    store = open_store("https://127.0.0.1:1", **KEYS, **keys)
    with pytest.raises(StoreError, match=r"key ca.crt of Secret lab has no certificate in PEM"):
        store.put(FIRST, b"")


@pytest.mark.parametrize(
    ("keys", "missing"),
    [({}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), ({"AWS_ACCESS_KEY_ID": "x"}, "AWS_SECRET_ACCESS_KEY")],
)
def test_a_secret_that_does_not_exist_is_named(open_store: Opened, keys: dict[str, str], missing: str) -> None:
    """Without a Secret the library would ask the machine for an identity; a named one that is missing is a mistake."""
    store = open_store("http://127.0.0.1:1", RL_ROLLOUTS_SECRET="store", **keys)
    with pytest.raises(StoreError, match=f"Secret store does not exist or has no {missing}; a pod that starts later"):
        store.names()


@pytest.mark.parametrize(
    ("endpoint", "url", "complaint"),
    [
        ("", "file:///tmp", "RL_ROLLOUTS_URL is 'file:///tmp'; it must look like s3://bucket/folder"),
        ("", "s3:///x", "RL_ROLLOUTS_URL is 's3:///x'"),
        ("minio:9000", "s3://b", "AWS_ENDPOINT_URL is 'minio:9000'; it must look like https://"),
    ],
)
def test_addresses_that_make_no_sense(open_store: Opened, endpoint: str, url: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(endpoint, url)
    assert complaint in str(caught.value)


@pytest.fixture
def imported(process: None) -> str:
    """What a trainer imports, by the name of the library or none."""
    program = "import sys, tinker_atropos.trainer.trainer_process as _; print('obstore' in sys.modules)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_trainer_without_a_bucket_does_not_load_the_library(imported: str) -> None:
    assert imported == "False"


ANSWERED = "Error performing PUT http://minio:9000/b/x in 5ms - Server returned non-2xx status code: "
FAILED = (
    "Generic S3 error: Error performing PUT http://minio:9000/b/x in 5ms, after 2 retries  - HTTP error: error sending"
)


def body(code: str, message: str) -> str:
    return f"<?xml?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>\n\nDebug source: …"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{ANSWERED}404 Not Found: {body('NoSuchBucket', 'It is not there')}", "NoSuchBucket: It is not there"),
        (f"{ANSWERED}403 Forbidden: {body('AccessDenied', 'No')}", "AccessDenied: No"),
        (f"{ANSWERED}503 Service Unavailable: \n\nDebug source: …", "the server answered 503 Service Unavailable"),
        (f'{FAILED}\n\nsource: Os {{ message: "Connection refused" }}', "Connection refused"),
        (f'{FAILED}\n\nsource: Custom {{ error: "failed to lookup address" }}', "failed to lookup address"),
        (
            f"{FAILED}\n\nsource: reqwest::Error {{ kind: Request, source: TimedOut }}",
            "the server does not answer in time",
        ),
        (
            f"{FAILED}\n\nInvalidCertificate(\n  UnknownIssuer",
            "the server's certificate is not trusted (UnknownIssuer)",
        ),
        (
            "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token - HTTP error: no",
            "there are no keys: name a Secret with them, or give the pod an identity that the store knows",
        ),
        (FAILED, "HTTP error: error sending"),
        ("something new", "something new"),
        ("", ""),
    ],
)
def test_one_sentence(text: str, sentence: str) -> None:
    assert sentence_of(text, ()) == sentence


def test_no_key_is_in_it() -> None:
    text = f"{ANSWERED}403 Forbidden: {body('SignatureDoesNotMatch', 'AKIA0123456789 with s3cr3t-s3cr3t')}"
    said = sentence_of(text, ("AKIA0123456789", "s3cr3t-s3cr3t", "no"))
    assert said == "SignatureDoesNotMatch: *** with ***"


def test_it_is_short_and_one_line() -> None:
    text = ANSWERED + "500 X: " + body("Oh", "a\nb" + "c" * 999)
    assert sentence_of(text, ()) == ("Oh: a b" + "c" * 999)[:300]
