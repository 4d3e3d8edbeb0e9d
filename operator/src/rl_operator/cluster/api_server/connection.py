"""The API server's address and our credentials: kubeconfig or service account, by the official client's own loaders.

`cluster_context` returns which context and namespace these are.
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config
from kubernetes.aio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, list_kube_config_contexts, load_kube_config

from rl_operator import __version__
from rl_operator.check.name_lists import listed
from rl_operator.operator_errors import OperatorError

MAX_CONNECTIONS = 20
"""Eight of them are watches. Each costs a quarter of a mebibyte: asyncio's read buffer."""


_SERVER_SETTINGS = (
    "host",
    "verify_ssl",
    "disable_strict_ssl_verification",
    "ssl_ca_cert",
    "ca_cert_data",
    "assert_hostname",
    "tls_server_name",
    "proxy",
    "proxy_headers",
    "connection_pool_maxsize",
)
"""The parts of a configuration that are not credentials."""


class ConnectionSettingsError(OperatorError):
    """The kubeconfig or the service account cannot be used: the user must act."""


async def load_configuration(kubeconfig: str = "", context: str = "") -> Configuration:
    """The named kubeconfig; without one, the pod's service account, else the default kubeconfig.

    Raises ConnectionSettingsError with what is wrong and what to do.
    """
    # `type.__call__` skips the class's process-wide default: a configuration belongs to one client.
    configuration = type.__call__(Configuration)
    configuration.connection_pool_maxsize = MAX_CONNECTIONS
    if not kubeconfig and not context:
        try:
            load_incluster_config(client_configuration=configuration)
        except ConfigException:
            pass  # not in a pod
        else:
            return configuration
    path = kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION
    await _load_kubeconfig(configuration, path, context)
    return configuration


async def _load_kubeconfig(configuration: Configuration, path: str, context: str) -> None:
    if not any_file(path):
        raise ConnectionSettingsError(
            f"kubeconfig {path!r} does not exist: name one with --kubeconfig or KUBECONFIG, or run inside a cluster"
        )
    if context and (known := _contexts(path)) and context not in known:
        raise ConnectionSettingsError(f"there is no context {context!r} in kubeconfig {path!r}; it has {listed(known)}")
    try:
        loader = await load_kube_config(path, context or None, configuration, persist_config=False)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        # The loader lets Python's own errors through if the file is not a kubeconfig at all.
        raise ConnectionSettingsError(f"kubeconfig {path!r} cannot be used: {error}") from error
    if hasattr(loader, "exec_plugin_expiry"):
        configuration.refresh_api_key_hook = _plugin_hook(loader)


def _contexts(path: str) -> list[str]:
    """Their names; none if they cannot be read, which loading says better."""
    try:
        return sorted(str(each["name"]) for each in list_kube_config_contexts(path)[0])
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError):
        return []


def any_file(paths: str) -> bool:
    """Whether any of the kubeconfigs that KUBECONFIG lists exists."""
    return any(Path(part).expanduser().is_file() for part in paths.split(":"))


def _plugin_hook(loader: Any) -> Callable[[Configuration], Awaitable[None]]:
    """Call the credential plugin again once its token has expired (the loader knows when)."""

    async def refresh(configuration: Configuration) -> None:
        await loader.load_from_exec_plugin()
        configuration.api_key["BearerToken"] = loader.token

    return refresh


def authorization(configuration: Configuration) -> aiohttp.ClientMiddlewareType:
    """A middleware that puts the current token on every request, so that rotated tokens are picked up."""

    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        token = (await configuration.auth_settings()).get("BearerToken")
        if token:
            request.headers["Authorization"] = token["value"]
        return await handler(request)

    return authorize


def named(program: str) -> aiohttp.ClientMiddlewareType:
    """A middleware that names the calling program. The API server keeps the name with the fields that a call sets, and
    Flux reverts what is set by a program whose name begins with kubectl.
    """

    async def name(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.headers["User-Agent"] = f"{program}/{__version__}"
        return await handler(request)

    return name


def open_session(
    configuration: Configuration,
    *middlewares: aiohttp.ClientMiddlewareType,
    connector: aiohttp.BaseConnector | None = None,
) -> aiohttp.ClientSession:
    """A session with these credentials; on another session's connections if those are given.

    Proxy variables are read here, once: aiohttp would read them, and ~/.netrc, in a thread at every request, which
    costs as much as the request.
    """
    return aiohttp.ClientSession(
        connector=connector or connector_of(configuration),
        connector_owner=connector is None,
        middlewares=(authorization(configuration), *middlewares),
        proxy=configuration.proxy or environment_proxy(str(configuration.host)),
        read_bufsize=2**21,  # an event is one line, and an object may have 1.5 MiB
    )


def connector_of(configuration: Configuration) -> aiohttp.TCPConnector:
    """Connections that trust what the configuration trusts, and present its client certificate if there is one."""
    return aiohttp.TCPConnector(limit=configuration.connection_pool_maxsize, ssl=_tls(configuration))


def _tls(configuration: Configuration) -> ssl.SSLContext:
    """Version 36 of the official client keeps CA certificates in files only, and its context to itself."""
    trusted = getattr(configuration, "ca_cert_data", None)
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=trusted)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def without_credentials(configuration: Configuration) -> Configuration:
    """Where the API server is and how to verify it, without our identity: the API server checks a client certificate
    first, and would treat every caller with a token as its owner.
    """
    bare = type.__call__(Configuration)
    for name in _SERVER_SETTINGS:
        if hasattr(configuration, name):  # the oldest client that we accept knows no ca_cert_data
            setattr(bare, name, getattr(configuration, name))
    return bare


def environment_proxy(server: str) -> str | None:
    """The proxy that HTTPS_PROXY and similar variables name for that URL, unless NO_PROXY excludes it."""
    url = urlsplit(server)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


def request_options(configuration: Configuration) -> dict[str, Any]:
    """The options that aiohttp accepts per request only."""
    options = {"proxy_headers": configuration.proxy_headers, "server_hostname": configuration.tls_server_name}
    return {name: value for name, value in options.items() if value}


SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class ClusterContext:
    name: str
    namespace: str


def cluster_context(name: str = "") -> ClusterContext:
    """The named context; without a name, the pod's (the same order as for connecting), else the current one."""
    if not name and in_cluster():
        return ClusterContext("in-cluster", own_namespace())
    if not any_file(KUBE_CONFIG_DEFAULT_LOCATION):
        return ClusterContext(name or "in-cluster", own_namespace())  # the loader would print its own warning
    try:
        contexts, active = list_kube_config_contexts()
    except (ConfigException, OSError, ValueError, TypeError):
        # None is readable: connecting reports what is wrong.
        return ClusterContext(name or "in-cluster", own_namespace())
    chosen = next((context for context in contexts if context["name"] == name), active)
    return ClusterContext(chosen["name"], chosen["context"].get("namespace") or "default")


def in_cluster() -> bool:
    return SERVICE_ACCOUNT_NAMESPACE.is_file()


def own_namespace() -> str:
    """The namespace of the pod that this process runs in; `default` outside of a cluster."""
    return SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip() if in_cluster() else "default"
