"""The environments that registered: their numbers, their names, and which of them are present."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from tinker_atropos.trajectory_api.messages.bodies import Refusal
from tinker_atropos.trajectory_api.messages.records import RegisteredEnv
from tinker_atropos.trajectory_api.messages.requests import MAX_ENVIRONMENTS, EnvRegistration

SILENT_SECONDS = 15.0
"""An environment that has not requested its status for this long has left (BaseEnv does so ten times a second)."""


class Roster:
    """`by_index`: an environment's index identifies it (they are started by number, and replaced).

    Otherwise a new one replaces one of the same name that has left.
    """

    def __init__(self, known: Iterable[RegisteredEnv], clock: Callable[[], float], *, by_index: bool = False) -> None:
        self._clock = clock
        self._by_index = by_index
        self._environments = {env.env_id: env for env in known}
        self._seen_at = dict.fromkeys(self._environments, clock())

    def place_of(self, registration: EnvRegistration) -> RegisteredEnv:
        """The number and the name for a registration. Raises Refusal when there are too many."""
        same_name = [env for env in self._environments.values() if env.registration.name == registration.name]
        left = next((env for env in same_name if self._makes_place(env, registration)), None)
        if left is not None:
            return replace(left, connected=True, registration=registration)
        if len(self._environments) >= MAX_ENVIRONMENTS:
            raise Refusal(409, "environments", f"{MAX_ENVIRONMENTS} environments have registered: no more can join")
        return RegisteredEnv(
            env_id=len(self._environments),
            wandb_name=f"{registration.name}_{len(same_name)}",
            connected=True,
            registration=registration,
        )

    def _makes_place(self, env: RegisteredEnv, registration: EnvRegistration) -> bool:
        if self._by_index and registration.index is not None:
            return env.registration.index == registration.index
        return not self.is_live(env)

    def put(self, env: RegisteredEnv) -> None:
        self._environments[env.env_id] = env
        self._seen_at[env.env_id] = self._clock()

    def get(self, env_id: int) -> RegisteredEnv | None:
        return self._environments.get(env_id)

    def seen(self, env_id: int) -> RegisteredEnv:
        """Mark an environment as present, and return it. Raises Refusal for one that never registered."""
        env = self._environments.get(env_id)
        if env is None:
            raise Refusal(404, "env_id", f"env_id {env_id} is not registered; POST /register-env first")
        self._seen_at[env_id] = self._clock()
        return env

    def is_live(self, env: RegisteredEnv) -> bool:
        return env.connected and self._clock() - self._seen_at[env.env_id] <= SILENT_SECONDS

    def live(self) -> list[RegisteredEnv]:
        return [env for env in self._environments.values() if self.is_live(env)]
