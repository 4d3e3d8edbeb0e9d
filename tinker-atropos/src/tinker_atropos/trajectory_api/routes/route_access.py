"""Who may call which route, and what is left to an environment that means harm.

Where environments run in pods of their own, this port leaves loopback, and environments may be anybody's code. The
trainer is beside the api, in the same pod: so its routes answer peers on loopback only (the connection's own address;
no header is asked), all others 403.

| route | for | why, and what harm is left |
|---|---|---|
| `GET /` | anybody | says which protocol this is |
| `POST /register-env`, `/disconnect-env` | environments | at most MAX_ENVIRONMENTS numbers; one can say of another that it left |
| `GET /wandb_info`, `/info`, `/status` | environments | names of a W&B project and group, sizes, the step: all of it is told to each of them anyway |
| `GET /status-env` | environments | a pace; one can keep a number alive that is not its own |
| `POST /scored_data`, `/scored_data_list` | environments | groups with any scores, under any number: that is what an environment is; bounded by body, vocabulary, batch and journal |
| `PUT /rl/lease/environment` | environments | at most MAX_LEASES at a time; one can say that it lives or failed |
| `POST /rl/metrics` | environments | any figure, an evaluation's too, but none of the trainer's (`trainer/reporting/relay.py`); at most MAX_METRICS names and METRICS_BODY_BYTES a report, METRICS_KEPT reports |
| `POST /register`, `GET /batch`, `POST /rl/drop`, `/rl/progress` | trainer | would wipe, steal, drop or end the run |
| `PUT /rl/lease/trainer` | trainer | would end the run for everybody |
| `GET /rl/books`, `/rl/metrics`, `/latest_example` | trainer | counts, metrics and rollouts of all environments: no other needs them |

So a hostile environment can spoil, stall or end its own run, which it could by its scores alone, and fill this process
up to its container's limits: connections, POSTs that wait for room (each holds its body) and the rate of requests are
not bounded here. It reaches no key, no other run, and not the trainer's word on what was trained.

An environment in the run's own pod (a bundled one) is on loopback and trusted as the trainer is.
"""  # noqa: E501 -- a table

import ipaddress
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.trajectory_api.messages.bodies import Refusal

Endpoint = Callable[[Request], Awaitable[Response]]


def trainers_only(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """A route that answers the same machine only."""

    async def guarded(request: Request) -> Response:
        if not _is_local(request):
            raise Refusal(
                403,
                "not_local",
                f"{method} {path} is for the run's trainer, which calls it on loopback; this request came from "
                f"{_peer(request)}: an environment has no need of it",
            )
        return await endpoint(request)

    return Route(path, guarded, methods=[method])


def _is_local(request: Request) -> bool:
    return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback


def _peer(request: Request) -> str:
    return request.client.host if request.client else "an unknown address"
