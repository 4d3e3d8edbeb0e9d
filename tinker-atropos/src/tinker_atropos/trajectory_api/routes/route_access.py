"""Who may call which route, and what harm a hostile environment can still do.

If environments run in their own pods, this port is not limited to loopback, and environments may be untrusted code.
The trainer is in the same pod as the api: so its routes only accept peers on loopback (by the connection's own
address, not a header); all others get a 403.

| route | for | why, and what harm is left |
|---|---|---|
| `GET /` | anyone | says which protocol this is |
| `POST /register-env`, `/disconnect-env` | environments | at most MAX_ENVIRONMENTS numbers; one can report that another has left |
| `GET /wandb_info`, `/info`, `/status` | environments | names of a W&B project and group, sizes, the step: each of them gets all of it anyway |
| `GET /status-env` | environments | a pace; one can keep another's number alive |
| `POST /scored_data`, `/scored_data_list` | environments | groups with any scores, under any number: that is an environment's purpose; bounded by body, vocabulary, batch and journal |
| `PUT /rl/lease/environment` | environments | at most MAX_LEASES at a time; one can report that it is alive or failed |
| `POST /rl/metrics` | environments | any metric, including an evaluation's, but none of the trainer's (`trainer/reporting/relay.py`); at most MAX_METRICS names and METRICS_BODY_BYTES per report, METRICS_KEPT reports |
| `POST /register`, `GET /batch`, `POST /rl/drop`, `/rl/progress` | trainer | would wipe, steal, drop or end the run |
| `PUT /rl/lease/trainer` | trainer | would end the run for everyone |
| `GET /rl/books`, `/rl/metrics`, `/latest_example` | trainer | counts, metrics and rollouts of all environments: no other client needs them |

So a hostile environment can spoil, stall or end its own run, which it could do by its scores alone, and drive this
process to its container's limits: connections, POSTs that wait for room (each holds its body) and the request rate are
not bounded here. It cannot reach any key, another run, or the trainer's record of what was trained.

An environment in the run's own pod (a bundled one) is on loopback and trusted as the trainer is. What is beside an
environment in its pod, but is none (an OpenEnv server), is kept out by the path (`environments_path.py`).
"""  # noqa: E501 -- a table

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.environments_path import is_loopback
from tinker_atropos.trajectory_api.messages.bodies import Refusal

Endpoint = Callable[[Request], Awaitable[Response]]


def trainers_only(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """A route that answers the same machine only."""

    async def guarded(request: Request) -> Response:
        if not is_loopback(request.scope):
            raise Refusal(
                403,
                "not_local",
                f"{method} {path} is for the run's trainer, which calls it on loopback; this request came from "
                f"{_peer(request)}: an environment has no need of it",
            )
        return await endpoint(request)

    return Route(path, guarded, methods=[method])


def _peer(request: Request) -> str:
    return request.client.host if request.client else "an unknown address"
