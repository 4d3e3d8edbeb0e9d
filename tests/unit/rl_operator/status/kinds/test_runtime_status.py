from datetime import UTC, datetime

from rl_operator.api.catalog import Catalog
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import FieldsReference, RuntimeStatus
from rl_operator.status.kinds.runtime_status import MAX_WARNINGS, faults_verdict, ready_verdict, runtime_status
from rl_operator.status.kinds.verdict import Readiness

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REFERENCE = FieldsReference(namespace="ops", name="rl-catalog-x")


def status_of(catalog: Catalog) -> RuntimeStatus:
    return runtime_status(
        RuntimeStatus(), ready_verdict("i:1", catalog, ephemeral=False), generation=2, now=NOW, catalog=catalog,
        image_id="sha256:1", fields_ref=REFERENCE,
    )  # fmt: skip


def test_a_backend_that_keeps_nothing_is_warned_of() -> None:
    catalog = Catalog.model_validate({"environments": [{"name": "maze"}]})
    assert ready_verdict("i:1", catalog, ephemeral=False).message == "1 environment in image i:1."
    warned = ready_verdict("i:1", catalog, ephemeral=True)
    assert warned.readiness is Readiness.READY
    assert warned.message.startswith("1 environment in image i:1. Warning: the backend's checkpoints")
    assert "CheckpointLost" in warned.message


def test_names_and_first_lines_are_in_the_status_but_fields_are_not() -> None:
    environments = [
        {"name": "maze", "description": "d" * 500, "fields": [{"name": "a", "type": "int"}]},
        {"name": "maze", "description": "The same name again."},
    ]
    status = status_of(Catalog.model_validate({"environments": environments}))
    assert [(e.name, e.description) for e in status.environments] == [("maze", "The same name again.")]
    assert (status.observed_generation, status.image_id, status.fields_ref) == (2, "sha256:1", REFERENCE)
    assert len(status_of(Catalog.model_validate({"environments": environments[:1]})).environments[0].description) < 130


def test_many_warnings_are_counted() -> None:
    status = status_of(Catalog(warnings=tuple(f"file {n}" for n in range(30))))
    assert len(status.warnings) == MAX_WARNINGS
    assert status.warnings[-1].startswith("and 21 more")


def test_every_fault_is_named() -> None:
    faults = [Refusal(code="Inconsistent", field=f"spec.bounds.env.{name}", hint="no value fits") for name in "ab"]
    verdict = faults_verdict(faults)
    assert verdict.readiness is Readiness.STALLED
    assert verdict.message.splitlines() == ["spec.bounds.env.a: no value fits", "spec.bounds.env.b: no value fits"]
