import pytest

from tinker_atropos import errors


@pytest.mark.parametrize(
    ("error", "error_class", "exit_code"),
    [
        (errors.ConfigError, "config", 2),
        (errors.CredentialsError, "credentials", 3),
        (errors.BillingError, "billing", 3),
        (errors.BackendError, "backend", 4),
        (errors.CheckpointLostError, "checkpoint", 1),
        (errors.DivergedError, "diverged", 1),
        (errors.BudgetReachedError, "budget", 1),
        (errors.EnvironmentLostError, "environment", 1),
        (errors.SilenceError, "silence", 1),
        (errors.InternalError, "internal", 1),
    ],
)
def test_class_and_exit_code_match_the_contract(error, error_class, exit_code) -> None:
    assert issubclass(error, errors.RunError)
    assert (error.error_class, error.exit_code) == (error_class, exit_code)


def test_every_direct_subclass_of_error_is_in_the_table_above() -> None:
    named = {"ConfigError", "CredentialsError", "BillingError", "BackendError", "CheckpointLostError", "DivergedError"}
    named |= {"BudgetReachedError", "EnvironmentLostError", "SilenceError", "InternalError"}
    ours = {kind.__name__ for kind in errors.RunError.__subclasses__() if kind.__module__ == errors.__name__}
    assert ours == named
