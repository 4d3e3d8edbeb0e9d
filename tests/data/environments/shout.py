from tinker_atropos.environments.base import Environment, EnvironmentConfig


class ShoutConfig(EnvironmentConfig):
    loudness: int = 11
    priority: float = 0.5


class Shout(Environment[str]):
    """Words in capitals."""

    name = "shout"
    env_config_cls = ShoutConfig

    @classmethod
    def config_init(cls):
        return ShoutConfig(group_size=4), []
