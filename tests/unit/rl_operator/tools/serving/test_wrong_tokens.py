from rl_operator.tools.serving.wrong_tokens import MAX_ADDRESSES, MOST_WRONG, WINDOW_SECONDS, WrongTokens


def test_an_address_waits_until_its_window_is_over() -> None:
    time = 100.0
    wrong = WrongTokens(lambda: time)
    for _ in range(MOST_WRONG):
        assert wrong.seconds_to_wait("a") == 0
        wrong.note("a")
    time += 20
    assert (wrong.seconds_to_wait("a"), wrong.seconds_to_wait("b")) == (WINDOW_SECONDS - 20, 0)
    time += WINDOW_SECONDS
    assert wrong.seconds_to_wait("a") == 0
    wrong.note("a")
    assert wrong.seconds_to_wait("a") == 0


def test_so_many_addresses_are_remembered() -> None:
    wrong = WrongTokens(lambda: 0.0)
    for number in range(MAX_ADDRESSES + 1):
        for _ in range(MOST_WRONG):
            wrong.note(str(number))
    assert (wrong.seconds_to_wait("0"), wrong.seconds_to_wait("1")) == (0, WINDOW_SECONDS)
