from pathlib import Path

import pytest
from tests.unit.rl_operator.cluster.fake_api import FakeApi, write_kubeconfig

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.connection import ConnectionSettingsError, load_configuration

PLUGIN = """#!/bin/sh
n=$(cat {folder}/calls 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {folder}/calls
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
 "status": {{"token": "token-'$n'", "expirationTimestamp": "2020-01-01T00:00:00Z"}}}}'
"""


async def test_server_and_token_come_from_the_kubeconfig(tmp_path: Path) -> None:
    configuration = await load_configuration(str(write_kubeconfig(tmp_path, "https://example.test:6443")))
    assert configuration.host == "https://example.test:6443"
    assert (await configuration.auth_settings())["BearerToken"]["value"] == "Bearer secret-token"


async def test_a_missing_kubeconfig() -> None:
    with pytest.raises(ConnectionSettingsError, match="'/nope/kubeconfig' does not exist: name one with --kubeconfig"):
        await load_configuration("/nope/kubeconfig")


BROKEN = {"no YAML": "{", "no mapping": "- a", "empty": "", "another document": "kind: Pod", "binary": "\0"}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
async def test_a_file_that_is_not_a_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConnectionSettingsError, match="cannot be used"):
        await load_configuration(str(path))


async def test_a_missing_context(tmp_path: Path) -> None:
    with pytest.raises(ConnectionSettingsError, match="nope"):
        await load_configuration(str(write_kubeconfig(tmp_path, "https://x")), "nope")


@pytest.mark.process
async def test_a_credential_plugin_is_asked_again_when_its_token_has_expired(api: FakeApi, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(PLUGIN.format(folder=tmp_path), encoding="utf-8")
    plugin.chmod(0o700)
    path = write_kubeconfig(tmp_path, api.url)
    user = f'{{"exec": {{"apiVersion": "client.authentication.k8s.io/v1", "command": "{plugin}", "args": []}}}}'
    path.write_text(path.read_text().replace('{"token": "secret-token"}', user), encoding="utf-8")
    async with await ClusterClient.connect(str(path)) as client, client.kopf_session(print) as session:
        for _ in range(2):
            async with session.get(api.url):
                pass
    assert [r.headers["Authorization"] for r in api.requests] == ["Bearer token-2", "Bearer token-3"]
