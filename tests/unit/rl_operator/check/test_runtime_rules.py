from typing import Any

import pytest
from tests.unit.rl_operator.samples import DEFAULT, TINY, make_runtime

from rl_operator.check.runtime_rules import check_runtime


@pytest.mark.parametrize("runtime", [DEFAULT, TINY], ids=["default", "tiny"])
def test_the_shipped_runtimes_are_valid(runtime: Any) -> None:
    assert check_runtime(runtime) == ()


@pytest.mark.parametrize(
    ("spec", "code", "sentence"),
    [
        (
            {"bounds": {"env": {"total_steps": {"min": 9, "max": 2}}}},
            "Inconsistent",
            'spec.bounds.env.total_steps is {"max":2, "min":9}: no value is at least 9 and at most 2: correct',
        ),
        (
            {"locked": {"env": {"total_steps": 9}}, "bounds": {"env": {"total_steps": {"max": 2}}}},
            "OutOfBounds",
            "spec.locked.env.total_steps is 9: runtime 'lab' allows at most 2",
        ),
        (
            {"defaults": {"trainer": {"seed": 1}}, "bounds": {"trainer": {"seed": {"min": 2}}}},
            "OutOfBounds",
            "spec.defaults.trainer.seed is 1: runtime 'lab' allows at least 2",
        ),
        ({"locked": {"env": {"group_size": 0}}}, "OutOfBounds", "locked.env.group_size is 0: it must be at least 1"),
        ({"defaults": {"trainer": {"learning_rate": 0}}}, "OutOfBounds", "it must be above 0"),
        (
            {"defaults": {"trainer": {"learning_rate": "auto"}}, "bounds": {"trainer": {"learning_rate": {"max": 1}}}},
            "OutOfBounds",
            "what auto comes to is known only once the run has started",
        ),
        ({"locked": {"trainer": {"lora_rank": "16"}}}, "WrongType", "it must be an integer"),
        ({"locked": {"trainer": {"lora_rnk": 16}}}, "UnknownField", "did you mean 'lora_rank'?"),
        ({"bounds": {"trainer": {"lora_rnk": {"min": 1}}}}, "UnknownField", "spec.bounds.trainer.lora_rnk"),
        ({"locked": {"openai": {"base_url": "http://x"}}}, "WiredField", "a value here has no effect: leave it out"),
        ({"defaults": {"trainer": {"checkpoint_dir": "/x"}}}, "WiredField", "spec.defaults.trainer.checkpoint_dir"),
        ({"bounds": {"env": {"api_key": {"min": 1}}}}, "WiredField", "spec.bounds.env.api_key"),
        ({"locked": {"env": {"name": "sk-0123"}}}, "WiredField", "spec.locked.env.name: this looks like a key"),
        ({"locked": {"env": {"batch_size": 10, "group_size": 4}}}, "Inconsistent", "spec.locked.env.batch_size is 10"),
        (
            {"secretEnvironment": [{"name": "s", "key": "a"}, {"name": "s", "key": "WANDB_API_KEY"}]},
            "SecretNotAllowed",
            'spec.secretEnvironment[1] is "s/WANDB_API_KEY"',
        ),
        (
            {"secretEnvironment": [{"name": "s", "key": "A"}, {"name": "t", "key": "A"}]},
            "SecretNotAllowed",
            'spec.secretEnvironment[1] is "t/A": another Secret',
        ),
        (
            {"secretEnvironment": [{"name": "s", "key": "LD_PRELOAD"}]},
            "SecretNotAllowed",
            'spec.secretEnvironment[0] is "s/LD_PRELOAD": a variable of this name',
        ),
        (
            {"backend": {"keySecret": {"name": "t", "key": "k"}}, "secretEnvironment": [{"name": "t", "key": "k"}]},
            "SecretNotAllowed",
            "spec.secretEnvironment[0]",
        ),
        *(
            (
                {
                    "teacher": {"url": "http://t", "keySecret": {"name": "t", "key": "k"}},
                    "secretEnvironment": [{"name": name, "key": key}],
                },
                "SecretNotAllowed",
                f'spec.secretEnvironment[0] is "{name}/{key}": a teacher\'s key goes nowhere but to its address',
            )
            for name, key in (("t", "k"), ("s", "TEACHER_API_KEY"), ("s", "TEACHER_URL"))
        ),
        ({"locked": {"env": {"teacher_url": "http://x"}}}, "WiredField", "spec.locked.env.teacher_url"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "Inconsistent",
            "spec.namespaceSelector.matchExpressions[0]",
        ),
        (
            {
                "rollouts": {"objectStore": {"url": "s3://lab", "secretName": "store"}},
                "secretEnvironment": [{"name": "store", "key": "AWS_ACCESS_KEY_ID"}],
            },
            "SecretNotAllowed",
            'spec.secretEnvironment[0] is "store/AWS_ACCESS_KEY_ID": this key is the trainer\'s',
        ),
        ({"rollouts": {}}, "Inconsistent", "spec.rollouts is {}: name exactly one of persistentVolumeClaim and"),
        (
            {"rollouts": {"persistentVolumeClaim": {"claimName": "a"}, "objectStore": {"url": "s3://lab"}}},
            "Inconsistent",
            "name exactly one of persistentVolumeClaim and objectStore",
        ),
        (
            {"rollouts": {"objectStore": {"url": "s3://lab", "certificateAuthority": {}}}},
            "Inconsistent",
            "spec.rollouts.objectStore.certificateAuthority is {}: name exactly one of configMap and secret",
        ),
        ({"environmentEgress": [{"cidr": "example.com"}]}, "WrongType", 'environmentEgress[0].cidr is "example.com"'),
        ({"resources": {"api": {"limits": {"cpu": "half"}}}}, "WrongType", "spec.resources.api.limits.cpu"),
        ({"resources": {"api": {"limits": {"cpu": -1}}}}, "WrongType", "like 500m, 2 or 1Gi"),
        (
            {"resources": {"trainer": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1000M"}}}},
            "Inconsistent",
            'spec.resources.trainer.requests.memory is "1Gi": a request cannot exceed its limit, which is 1000M',
        ),
    ],
)  # fmt: skip
def test_invalid_runtimes_name_the_fault(spec: dict[str, Any], code: str, sentence: str) -> None:
    [fault] = check_runtime(make_runtime(**spec))
    assert fault.code == code
    assert sentence in fault.sentence


@pytest.mark.parametrize(
    "spec",
    [
        {"resources": {"api": {"requests": {"cpu": "100m", "memory": "1e6"}, "limits": {"cpu": 1, "memory": "1M"}}}},
        {"environmentEgress": [{"cidr": "203.0.113.7/24"}, {"cidr": "2001:db8::/32"}]},
        {"locked": {"env": {"batch_size": 12, "group_size": 4, "anything": [1]}}, "namespaceSelector": {}},
        {"bounds": {"env": {"total_steps": {"min": 2, "max": 2}}}},
        {
            "rollouts": {"objectStore": {"url": "s3://lab", "secretName": "store"}},
            "secretEnvironment": [{"name": "data", "key": "AWS_ACCESS_KEY_ID"}],  # another bucket, of the environment
        },
    ],
)
def test_valid_runtimes_pass(spec: dict[str, Any]) -> None:
    assert check_runtime(make_runtime(**spec)) == ()


@pytest.mark.parametrize(
    ("prices", "hint"),
    [
        ({"prefill": 1, "train": 1}, "name all of prefill, sample and train"),
        ({}, "name prefill, sample and train, or the prices of models"),
    ],
)
def test_half_a_price_list_is_refused(prices: dict[str, Any], hint: str) -> None:
    [refusal] = check_runtime(make_runtime(backend={"prices": prices}))
    assert (refusal.code, refusal.field) == ("Inconsistent", "spec.backend.prices")
    assert hint in refusal.hint
