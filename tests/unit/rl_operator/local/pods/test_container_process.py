from pathlib import Path

from rl_operator.local.pods.container_process import LOG_BYTES, _append


def test_a_log_is_rotated_at_its_size_limit(tmp_path: Path) -> None:
    log = tmp_path / "trainer.log"
    chunk = b"x" * (LOG_BYTES // 4)
    for _ in range(9):
        _append(log, chunk)
    assert log.stat().st_size <= LOG_BYTES
    assert log.with_suffix(".log.1").stat().st_size == LOG_BYTES
    assert {path.name for path in tmp_path.iterdir()} == {"trainer.log", "trainer.log.1"}
