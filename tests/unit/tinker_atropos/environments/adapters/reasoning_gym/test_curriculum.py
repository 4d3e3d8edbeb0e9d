import pytest
from pydantic import ValidationError

from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_environment import Curriculum, CurriculumProgress

STEPS = Curriculum(field="max_terms", levels=[2, 3, 5], raise_at=0.75, window=8)


def test_the_level_is_raised_once_the_policy_is_good_at_it():
    progress = CurriculumProgress(STEPS)
    assert not progress.rewarded(0, [1.0] * 7)
    assert not progress.rewarded(0, [0.0] * 4), "the mean of the last 8 is 0.5"
    assert progress.rewarded(0, [1.0] * 8)
    assert (progress.level, progress.fields_at(progress.level)) == (1, {"max_terms": 3})
    assert not progress.rewarded(0, [1.0] * 8), "a group of the earlier level came late"
    assert not progress.rewarded(1, [1.0] * 4), "counting starts again"
    assert progress.rewarded(1, [1.0] * 4)
    assert not progress.rewarded(2, [1.0] * 8), "there is no level after the last"
    assert progress.level == progress.last_level == 2


def test_its_state_outlives_the_process():
    progress = CurriculumProgress(STEPS)
    progress.rewarded(0, [1.0] * 8)
    state = progress.to_state()
    later = CurriculumProgress(STEPS)
    later.restore(state)
    assert later.level == 1
    fewer = CurriculumProgress(STEPS.model_copy(update={"levels": [2, 3]}))
    fewer.restore('{"level": 2}')
    assert fewer.level == 1


def test_without_one_nothing_changes():
    progress = CurriculumProgress(None)
    assert not progress.rewarded(0, [1.0] * 100)
    assert (progress.last_level, progress.fields_at(0), progress.to_state()) == (0, {}, None)


WRONG = {
    "one level": {"levels": [2]},
    "no field": {"field": ""},
    "a threshold above 1": {"raise_at": 1.5},
    "an unknown key": {"level": 3},
    "a tiny window": {"window": 2},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_refused(change):
    with pytest.raises(ValidationError):
        Curriculum.model_validate(STEPS.model_dump() | change)
