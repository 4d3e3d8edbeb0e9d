"""A real etcd and kube-apiserver on loopback, as envtest starts them: no kubelet, no controllers."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from tests.integration.cluster.admin import AdminClient, ApiError
from tests.integration.cluster.polling import wait_for
from tests.ports import free_port

from rl_operator.api.names import GROUP

HOW_TO_GET = (
    "needs etcd, kube-apiserver and openssl: install envtest's binaries "
    "(https://book.kubebuilder.io/reference/envtest) and set KUBEBUILDER_ASSETS to their folder, or put them on PATH"
)

API_SERVER = "kube-apiserver"
OLDEST_API_SERVER = "kube-apiserver-1.33"

ADMIN, ADMIN_TOKEN = "test-admin", "admin-token"
OPERATOR, OPERATOR_TOKEN = "test-operator", "operator-token"
FORMER, FORMER_TOKEN = "test-former-operator", "former-token"
POWERLESS_TOKEN = "powerless-token"
GUEST, GUEST_TOKEN = "test-guest", "guest-token"
"""Who gets from a test what rights it looks at; the powerless user never has any."""

TOKENS = (
    f"{ADMIN_TOKEN},{ADMIN},1,system:masters",
    f"{OPERATOR_TOKEN},{OPERATOR},2",
    f"{FORMER_TOKEN},{FORMER},3",
    f"{POWERLESS_TOKEN},test-nobody,4",
    f"{GUEST_TOKEN},{GUEST},5",
)

WRITES = ("create", "update", "patch", "delete")
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "users": [OPERATOR], "verbs": ["get", *WRITES]},
        {"level": "None"},
    ],
}

RBAC_GROUP = "rbac.authorization.k8s.io"
RIGHTS = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": f"/apis/{RBAC_GROUP}/v1/clusterroles",
    "ClusterRoleBinding": f"/apis/{RBAC_GROUP}/v1/clusterrolebindings",
    "Role": f"/apis/{RBAC_GROUP}/v1/namespaces/{{namespace}}/roles",
    "RoleBinding": f"/apis/{RBAC_GROUP}/v1/namespaces/{{namespace}}/rolebindings",
}
"""What of examples/operator.yaml the API server needs to know, by kind."""

READERS = "rl-operator-runtime-reader"

OPERATOR_NAMESPACE = "rl-operator"

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

ROOT = Path(__file__).parents[3]


def find_program(name: str) -> str | None:
    """From KUBEBUILDER_ASSETS, else from PATH."""
    return shutil.which(name, path=os.environ.get("KUBEBUILDER_ASSETS")) or shutil.which(name)


def installed_definitions() -> list[dict[str, Any]]:
    """The CRDs of crds/; the policies next to them are another file."""
    files = sorted((ROOT / "crds").glob(f"{GROUP}_*.yaml"))
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]


@dataclass(frozen=True)
class Call:
    """One call of the operator, as the API server's audit log has it."""

    verb: str
    resource: str
    namespace: str
    name: str
    code: int


class ControlPlane:
    """Two users by token: an admin, and the operator with exactly the rights of examples/operator.yaml.

    `api_server` is the program, so that the oldest supported version can be tried too. Policies are not installed.
    """

    def __init__(self, api_server: str = API_SERVER) -> None:
        self._api_server = api_server
        self._folder = Path(tempfile.mkdtemp(prefix="rl-control-plane-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self.port = free_port()
        self.admin = AdminClient("127.0.0.1", self.port, ADMIN_TOKEN)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def api_server_pid(self) -> int:
        return self._processes[self._api_server].pid

    @property
    def etcd_pid(self) -> int:
        return self._processes["etcd"].pid

    def start(self) -> None:
        """With the CRDs, and the operator's rights for the operator's users."""
        self.start_empty()
        self.install_definitions()
        self._grant()

    def start_empty(self) -> None:
        """Nothing of the project is installed."""
        self._write_files()
        self._start_etcd()
        self._start_api_server()

    def revoke(self, token: str) -> None:
        """From now on the API server answers 401 to it."""
        self._write_tokens(*(line for line in TOKENS if not line.startswith(token)))
        self.restart_api_server()

    def accept_all_tokens(self) -> None:
        """Also those that were revoked: a test that is tried again finds what it found at first."""
        self._write_tokens(*TOKENS)
        self.restart_api_server()

    def restart_api_server(self) -> None:
        """Kill it, keep it down for a moment, and start it again with the same etcd."""
        self._kill(self._api_server)
        time.sleep(1)
        self._start_api_server()

    def restart_etcd(self) -> None:
        """Kill it while the API server continues, and start it again with the same objects."""
        self._kill("etcd")
        time.sleep(1)
        self._start_etcd()
        wait_for("etcd is back", self._ready, seconds=60)

    def _kill(self, program: str) -> None:
        process = self._processes.pop(program)
        process.kill()
        process.wait(60)

    # --- the CRDs, as an administrator removes and restores them ---------------------------------------------------
    def remove_definitions(self) -> None:
        """And with them all objects of their kinds."""
        for crd in installed_definitions():
            self.admin.delete(f"{DEFINITIONS}/{crd['metadata']['name']}")
        for crd in installed_definitions():
            wait_for(f"{crd['metadata']['name']} is gone", partial(self._is_gone, crd["metadata"]["name"]))

    def install_definitions(self) -> None:
        crds = installed_definitions()
        for crd in crds:
            self.admin.post(DEFINITIONS, crd)
        for crd in crds:
            version, plural = crd["spec"]["versions"][0]["name"], crd["spec"]["names"]["plural"]
            path = f"/apis/{crd['spec']['group']}/{version}/{plural}"
            wait_for(f"{plural} are served", partial(self.serves, path))

    def stop(self) -> None:
        self.admin.close()
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGKILL)  # nothing in it is worth a graceful end
            process.wait(60)
        shutil.rmtree(self._folder, ignore_errors=True)

    def kubeconfig(self, token: str = OPERATOR_TOKEN, server: str | None = None) -> Path:
        """Write a kubeconfig for that token."""
        return self._kubeconfig(token, {"token": token}, server)

    def certificate_kubeconfig(self) -> Path:
        """Write a kubeconfig for an admin who has a client certificate."""
        pair = {"client-certificate": str(self._client_pair[0]), "client-key": str(self._client_pair[1])}
        return self._kubeconfig("certificate", pair)

    def _kubeconfig(self, name: str, user: dict[str, str], server: str | None = None) -> Path:
        authority = str(self._folder / "pki" / "apiserver.crt")
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {"name": "test", "cluster": {"server": server or self.server, "certificate-authority": authority}}
            ],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = self._folder / f"{name[-40:]}-{(server or 'server').rsplit(':', maxsplit=1)[-1]}.kubeconfig"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    @property
    def serving_pair(self) -> tuple[Path, Path]:
        """The API server's own certificate and key, for tests that play a kubelet."""
        return self._folder / "pki" / "apiserver.crt", self._folder / "pki" / "apiserver.key"

    @property
    def _client_pair(self) -> tuple[Path, Path]:
        return self._folder / "client.crt", self._folder / "client.key"

    def operator_writes(self, namespace: str) -> list[Call]:
        """All writes of the operator in a namespace so far, including refused ones."""
        return [call for call in self.operator_calls(namespace) if call.verb in WRITES]

    def operator_calls(self, namespace: str) -> list[Call]:
        """The reads of single objects, too."""
        lines = (self._folder / "audit.log").read_text(encoding="utf-8").splitlines()
        about = f'"namespace":"{namespace}"'  # most lines belong to other tests: they need not be parsed
        return [call for call in (_call_of(line) for line in lines if about in line) if call.namespace == namespace]

    def _write_files(self) -> None:
        """Users' tokens, what is audited, the key for service accounts' tokens, and an administrator's certificate."""
        self._write_tokens(*TOKENS)
        (self._folder / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY), encoding="utf-8")
        key = self._folder / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        certificate, key = self._client_pair
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", "/O=system:masters/CN=test-certificate", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip

    def _write_tokens(self, *lines: str) -> None:
        (self._folder / "tokens.csv").write_text("\n".join(lines), encoding="utf-8")

    def _start_etcd(self) -> None:
        self._run(
            "etcd", "--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error",
            "--listen-client-urls", self._etcd, "--advertise-client-urls", self._etcd,
            "--listen-peer-urls", f"http://127.0.0.1:{free_port()}",
        )  # fmt: skip

    def _start_api_server(self) -> None:
        folder, key = self._folder, str(self._folder / "service-account.key")
        self._run(
            self._api_server, "--etcd-servers", self._etcd, "--bind-address", "127.0.0.1",
            "--advertise-address", "127.0.0.1", "--secure-port", str(self.port),
            "--cert-dir", str(folder / "pki"), "--token-auth-file", str(folder / "tokens.csv"),
            "--client-ca-file", str(self._client_pair[0]),
            "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
            "--service-account-issuer", "https://test", "--service-account-key-file", key,
            "--service-account-signing-key-file", key, "--disable-admission-plugins", "ServiceAccount",
            "--audit-policy-file", str(folder / "audit-policy.yaml"), "--audit-log-path", str(folder / "audit.log"),
            "--endpoint-reconciler-type", "none",
        )  # fmt: skip
        wait_for(f"{self._api_server} is ready", self._ready, seconds=60)

    def _run(self, program: str, *arguments: str) -> None:
        path = find_program(program)
        assert path, HOW_TO_GET
        with (self._folder / f"{program}.log").open("ab") as log:
            self._processes[program] = subprocess.Popen([path, *arguments], stdout=log, stderr=subprocess.STDOUT)

    def _ready(self) -> bool:
        for process in self._processes.values():
            assert process.poll() is None, f"{process.args!r} ended with {process.returncode}: {self._last_words()}"
        try:
            self.admin.get("/readyz")
        except (OSError, ssl.SSLError, ApiError):
            return False
        return True

    def _last_words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in self._folder.glob("*.log"))

    def _grant(self) -> None:
        """The rights as examples/operator.yaml gives them, to the operator's users. Nobody reads runtimes by being
        there: a test gives its callers what it looks at.
        """
        users = [{"apiGroup": RBAC_GROUP, "kind": "User", "name": name} for name in (OPERATOR, FORMER)]
        for document in yaml.safe_load_all((ROOT / "examples" / "operator.yaml").read_text(encoding="utf-8")):
            collection = RIGHTS.get(document["kind"])
            if collection is None or (document["metadata"]["name"] == READERS and "subjects" in document):
                continue
            if any(subject["kind"] == "ServiceAccount" for subject in document.get("subjects", ())):
                document["subjects"] = users
            namespace = document["metadata"].get("namespace")
            self.admin.post(f"{collection.format(namespace=namespace)}?fieldValidation=Strict", document)

    def _is_gone(self, definition: str) -> bool:
        return self.admin.find(f"{DEFINITIONS}/{definition}") is None

    def serves(self, path: str) -> bool:
        try:
            self.admin.get(path)
        except ApiError as error:
            if error.code not in (404, 429, 503):  # not yet, or storage is (re)initializing
                raise
            return False
        return True


def _call_of(line: str) -> Call:
    entry = json.loads(line)
    subject = entry.get("objectRef", {"resource": entry["requestURI"]})
    resource = "/".join(part for part in (subject["resource"], subject.get("subresource")) if part)
    code = entry["responseStatus"]["code"]
    return Call(entry["verb"], resource, subject.get("namespace", ""), subject.get("name", ""), code)
