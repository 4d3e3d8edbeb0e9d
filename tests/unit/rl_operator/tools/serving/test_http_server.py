"""How many connections may wait. On real sockets: test_gateway.py."""

from collections import Counter
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from rl_operator.tools.serving.http_server import (
    MAX_OF_ADDRESS,
    MAX_WAITING,
    MAX_WAITING_OF_ADDRESS,
    WaitingConnections,
)


def test_a_burst_closes_a_connection_for_each_that_is_too_many() -> None:
    """None of them is told to the table as closed before all have come."""
    table = WaitingConnections()
    waiting: dict[H11Protocol, str] = {}
    for number in range(1_500):
        address = str(number % 2 if number < 800 else number % 12)
        connection = cast(H11Protocol, object())
        waiting[connection] = address
        assert table.opened(address, connection)
        former = table.waits(connection)
        if former is not None:
            del waiting[former]
        assert max(Counter(waiting.values()).values()) <= MAX_WAITING_OF_ADDRESS
        assert len(waiting) <= MAX_WAITING
    assert len(waiting) == MAX_WAITING


def test_an_address_has_a_number_of_connections() -> None:
    table = WaitingConnections()
    connections = [cast(H11Protocol, object()) for _ in range(MAX_OF_ADDRESS)]
    assert all(table.opened("a", connection) for connection in connections)
    last = cast(H11Protocol, object())
    assert not table.opened("a", last)
    assert table.opened("b", last)
    for connection in connections[:2]:
        table.closed(connection)
        table.closed(connection)
    assert [table.opened("a", cast(H11Protocol, object())) for _ in range(3)] == [True, True, False]
