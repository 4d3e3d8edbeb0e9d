"""Rollout files in a bucket of S3, or of a server that speaks its protocol. Importing this loads obstore: 12 MiB."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext, SSLError
from typing import Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from rl_contract.env_vars import (
    AWS_ENDPOINT_URL,
    RL_ROLLOUTS_CA_FILE,
    RL_ROLLOUTS_CA_SOURCE,
    RL_ROLLOUTS_SECRET,
    STORE_KEYS,
)
from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files.rollout_store import StoreError, is_rollout_file

CONNECT_SECONDS: Final = 5
REQUEST_SECONDS: Final = 60
"""Of one try: the largest file in a minute."""

RETRIES: Final = 2
RETRY_SECONDS: Final = 30
"""A call that failed twice again, or for so long, is given up: the next change of a file puts all of it."""

PARTS_AT_ONCE: Final = 2
"""A large file is put in parts of 5 MiB: so many are under way."""


NO_SUCH_FILE: Final = "NoSuchKey"
"""S3's code for a file that is not there; a bucket that is not there is another one."""

_CODE: Final = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]+)</Message>")
_STATUS: Final = re.compile(r"status code: (\d{3}[^:\n]*)")
_CAUSE: Final = re.compile(r'\b(?:message|error): "([^"\n]+)"')
"""In the Rust errors below the first line, such as `message: "Connection refused"`."""

_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)")
_TIMEOUT: Final = re.compile(r"kind: Timeout|TimedOut|timed out", re.IGNORECASE)
_METADATA: Final = re.compile(r"169\.254\.169\.254|169\.254\.170\.\d+|fd00:ec2::")
"""Addresses that clouds give out a pod's or machine's keys at."""

_LONGEST: Final = 300
_SHORTEST_KEY: Final = 8
"""A key that is shorter would be found in ordinary words."""


class BucketStore:
    """Implements `rollout_store.WritableStore`; calls may come from any thread.

    `url`: `s3://BUCKET/FOLDER`. The AWS_* variables name the server, its region and the keys; without keys, those of
    the pod's or the machine's identity are used. Raises ConfigError; nothing is called or read yet.
    """

    def __init__(self, url: str, environ: Mapping[str, str] = os.environ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc:
            raise ConfigError(f"RL_ROLLOUTS_URL is {url!r}; it must look like s3://bucket/folder")
        endpoint = environ.get(AWS_ENDPOINT_URL, "")
        server = urlsplit(endpoint)
        if endpoint and not (server.scheme in ("http", "https") and server.hostname):
            raise ConfigError(f"AWS_ENDPOINT_URL is {endpoint!r}; it must look like https://store.example.com:9000")
        self._where = f"bucket {parts.netloc}" + (f" of {endpoint}" if endpoint else "")
        self._keys = {name: environ[name] for name in STORE_KEYS if environ.get(name)}
        self._secret = environ.get(RL_ROLLOUTS_SECRET, "")
        self._ca_file, self._ca_source = environ.get(RL_ROLLOUTS_CA_FILE, ""), environ.get(RL_ROLLOUTS_CA_SOURCE, "")
        self._bucket, self._folder = parts.netloc, parts.path.strip("/")
        self._plain = endpoint.startswith("http://")

    @cached_property
    def _store(self) -> S3Store:
        """Raises the library's error if half of a key is missing, and StoreError if the authorities are."""
        return S3Store(
            self._bucket,
            prefix=self._folder or None,
            client_options={
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
                "allow_http": self._plain,
                **({"root_certificate": self._authorities()} if self._ca_file else {}),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )

    def _authorities(self) -> bytes:
        """In PEM. A file that appears later is found: whoever calls again reads again."""
        source = self._ca_source or self._ca_file
        try:
            content = Path(self._ca_file).read_bytes()
        except OSError as error:
            missing = f"there is no {source}: create it, it is read again"
            why = missing if isinstance(error, FileNotFoundError) else f"{source} cannot be read: {error.strerror}"
            raise StoreError(f"the server's certificate authority is not known, {why}") from None
        try:
            SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii", "ignore"))
        except (SSLError, ValueError):
            sentence = f"the server's certificate authority is not known, {source} has no certificate in PEM"
            raise StoreError(sentence) from None
        return content

    def names(self) -> dict[str, int]:
        with self._errors("list files"):
            chunks = list(obstore.list(self._store))
        return {each["path"]: each["size"] for chunk in chunks for each in chunk if is_rollout_file(each["path"])}

    def read(self, name: str) -> bytes:
        if not is_rollout_file(name):
            raise FileNotFoundError(name)
        with self._errors(f"read {name}"):
            return bytes(obstore.get(self._store, name).bytes())

    def put(self, name: str, content: bytes) -> None:
        with self._errors(f"put {name}"):
            obstore.put(self._store, name, content, max_concurrency=PARTS_AT_ONCE)

    def delete(self, name: str) -> None:
        with self._errors(f"delete {name}"):
            obstore.delete(self._store, name)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raises FileNotFoundError for a file that is not there, StoreError for all else."""
        if self._secret and len(self._keys) < len(STORE_KEYS):
            missing = " and ".join(name for name in STORE_KEYS if name not in self._keys)
            raise StoreError(
                f"cannot {what} in {self._where}: Secret {self._secret} does not exist or has no {missing}; a pod "
                "that starts later reads it again"
            )
        try:
            yield
        except StoreError as error:
            raise StoreError(f"cannot {what} in {self._where}: {error}") from None
        except (BaseError, OSError) as error:
            if code_of(str(error)) == NO_SUCH_FILE:
                raise FileNotFoundError(what) from None
            # Without its cause: what the library and the server say besides may have a key in it.
            raise StoreError(
                f"cannot {what} in {self._where}: {sentence_of(str(error), self._keys.values())}"
            ) from None


def code_of(text: str) -> str | None:
    """S3's code, if the server answered with one."""
    found = _CODE.search(text)
    return found[1] if found else None


def sentence_of(text: str, keys: Iterable[str]) -> str:
    """Why it failed. No value of `keys` is in it, whatever the server sent back."""
    sentence = " ".join(_why(text).split())[:_LONGEST]
    for key in keys:
        if len(key) >= _SHORTEST_KEY:
            sentence = sentence.replace(key, "***")
    return sentence


def _why(text: str) -> str:
    first = text.split("\n", 1)[0]
    if _METADATA.search(first):
        return "there are no keys: name a Secret with them, or give the pod an identity that the store knows"
    if code := code_of(text):
        message = _MESSAGE.search(text)
        return f"{code}: {message[1]}" if message else code
    if status := _STATUS.search(first):
        return f"the server answered {status[1].strip()}"
    if certificate := _CERTIFICATE.search(text):
        return f"the server's certificate is not trusted ({certificate[1]})"
    if _TIMEOUT.search(text):
        return "the server does not answer in time"
    if cause := _CAUSE.search(text):
        return cause[1]
    return first.rpartition(" - ")[2]
