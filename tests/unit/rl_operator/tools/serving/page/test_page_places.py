"""How many requests of the page are open at once."""

import pytest

from rl_operator.tools.serving.page.page_places import PagePlaces
from rl_operator.tools.serving.token_check import TurnedAwayError


def test_places_are_counted_by_caller_and_in_all() -> None:
    places = PagePlaces(most_of_caller=2, most=3)
    with places.taken("ann"), places.taken("ann"):
        with pytest.raises(TurnedAwayError, match="You have 2 requests open"), places.taken("ann"):
            pass
        refused = pytest.raises(TurnedAwayError, match="The page has 3 requests open")
        with places.taken("ben"), refused, places.taken("ben"):
            pass
    with places.taken("ben"), places.taken("ben"):
        pass


def test_a_place_is_given_back_after_a_failure() -> None:
    places = PagePlaces(most_of_caller=1, most=1)
    for _ in range(2):
        with pytest.raises(KeyError), places.taken("ann"):
            raise KeyError
