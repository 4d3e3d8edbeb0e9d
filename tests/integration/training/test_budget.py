"""A run stops, its weights saved, before another step would cost more than it may, and goes on with a higher budget."""

import json

PRICES = json.dumps({"prefill": 1000, "sample": 1000, "train": 1000, "currency": "EUR"})
BUDGET = 2.0
"""A step of the scripted environment uses a few hundred tokens of each kind: less than 1 EUR."""


async def test_a_run_stops_before_its_budget_is_passed_and_continues_with_a_higher_one(
    half, scripted_environment
) -> None:
    config = half.write_config(env={"total_steps": 100_000}, tinker={"save_checkpoint_interval": 100_000})
    api = await half.start_api()
    first = await half.start_trainer(config, RL_PRICES=PRICES, RL_BUDGET=str(BUDGET))
    await half.ready(first)
    async with scripted_environment():
        assert await first.exit_code(60) == 1, first.log
    stopped = half.result
    cost, trained = stopped["cost"], stopped["stepsTrained"]
    assert stopped["error"]["class"] == "budget", stopped
    assert (
        f"of the budget of {BUDGET:.2f} EUR (spec.budget) are spent after {trained} steps"
        in stopped["error"]["message"]
    )
    assert trained > 2
    assert stopped["statePath"].endswith(f"attempt-1-step-{trained:06d}")
    assert stopped["checkpoint"].get("expiresAt") is None
    assert BUDGET / 2 < cost["amount"] <= BUDGET, "it neither stops much too early nor too late"
    assert (cost["currency"], cost["budget"]) == ("EUR", BUDGET)
    await half.stop_api(api)

    await half.start_api()
    spent = {"RL_SPENT": str(cost["amount"]), "RL_SPENT_STEPS": str(trained)}
    second = await half.start_trainer(config, RL_ATTEMPT="2", RL_PRICES=PRICES, RL_BUDGET=str(2 * BUDGET), **spent)
    await half.ready(second)
    async with scripted_environment():
        await half.reached(second, trained + 1)
        status = await half.status(second)
        assert status["cost"]["budget"] == 2 * BUDGET
        assert cost["amount"] < status["cost"]["amount"] <= 2 * BUDGET
        assert await second.exit_code(60) == 1, second.log
    assert half.result["fromStep"] == trained
    assert cost["amount"] < half.result["cost"]["amount"] <= 2 * BUDGET
