from tinker_atropos.trainer.reporting.metrics.metric_warnings import kl_warning, recomputed_warning


def test_recomputed_logprobs_warn_past_a_tenth_of_the_batch() -> None:
    assert recomputed_warning(0, 0) is None
    assert recomputed_warning(1, 10) is None
    sentence = recomputed_warning(2, 10)
    assert sentence is not None
    assert sentence.startswith("more than 10% of the batch (batch/recomputed_logprobs) is not what was sampled here")
    assert sentence == recomputed_warning(10, 10), "it does not change with each batch"


def test_a_warning_past_the_limit() -> None:
    assert kl_warning({"logprobs/kl_v2": 0.05}, 0.05) is None
    assert kl_warning({}, 0.05) is None
    assert "0.07 nats apart" in (kl_warning({"logprobs/kl_v2": 0.07}, 0.05) or "")
