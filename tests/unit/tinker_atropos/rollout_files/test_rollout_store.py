from pathlib import Path

import pytest

from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files.bounded_folder import BoundedFolder
from tinker_atropos.rollout_files.rollout_store import kept_rollouts
from tinker_atropos.settings import load_settings


def test_a_folder_of_a_claim(tmp_path: Path) -> None:
    (tmp_path / "000001-1.jsonl.zst").write_bytes(b"abc")
    store = kept_rollouts(load_settings("trainer", {"RL_ROLLOUTS_DIR": str(tmp_path)}))
    assert isinstance(store, BoundedFolder)
    assert store.names() == {"000001-1.jsonl.zst": 3}


def test_a_bucket_comes_before_the_trainers_own_folder(tmp_path: Path) -> None:
    variables = {"RL_ROLLOUTS_DIR": str(tmp_path), "RL_ROLLOUTS_URL": "s3://rollouts/team-a/sorting-1"}
    assert type(kept_rollouts(load_settings("trainer", variables))).__name__ == "BucketStore"


def test_neither() -> None:
    with pytest.raises(ConfigError, match="RL_ROLLOUTS_DIR or RL_ROLLOUTS_URL must say where the rollouts are"):
        kept_rollouts(load_settings("trainer", {}))
