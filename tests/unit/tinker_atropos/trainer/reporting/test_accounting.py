import time

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from rl_contract.logged_metrics import describe
from rl_contract.prices import TokenPrices
from rl_contract.shared_env import SharedEnvSection
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.data.step_counts import StepCounts
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.reporting.prometheus import TrainerCollector
from tinker_atropos.trainer.reporting.spending import Spending
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.stop_request import beside
from tinker_atropos.trainer.trajectories.api_client import ApiClient, MetricsRecord, Peer
from tinker_atropos.trainer.trajectories.lease import TrainerLease

ENV = SharedEnvSection(total_steps=4, group_size=8, batch_size=64, tokenizer_name="bundled", max_token_length=64)


@pytest.fixture
def bookkeeping() -> Accounting:
    api = ApiClient("http://127.0.0.1:9")
    generator = Generator(CurrentPolicy(), Ledger(), on_failure=print)
    return Accounting(api, TrainerLease(api), LiveStatus(total_steps=4), generator, ENV)


def relayed(**metrics: float) -> MetricsRecord:
    return MetricsRecord(metrics={f"env/{name}": value for name, value in metrics.items()}, source="runner")


async def test_a_stall_because_every_group_is_equal_is_reported_as_such(bookkeeping) -> None:
    status, now = bookkeeping.status, time.monotonic()
    status.relayed(relayed(groups_kept=4, groups_filtered_equal=10))
    bookkeeping.lease.peer = Peer(state="working")
    assert bookkeeping.waiting(None, now + 60) is None
    with bookkeeping.waiting_for_batch():
        status.relayed(relayed(groups_kept=4, groups_filtered_equal=42))
        assert "every one of the last 20 groups had equal scores" in bookkeeping.waiting(None, now + 60)
        status.relayed(relayed(groups_kept=5, groups_filtered_equal=42))
        assert "equal" not in bookkeeping.waiting(None, now + 60)
    sentence = bookkeeping.waiting(("optim_step", now), now + 60)
    assert sentence == "Waiting for the backend for more than 1 min: optim_step."


async def test_the_totals_include_what_the_api_dropped() -> None:
    account = {"received": 12, "trained": 8, "dropped": {"stale": 4}}
    items = {"seen": 12, "trained": 7, "dropped": {"equal": 3}, "under_way": 2, "again": 1, "epoch": 1, "epoch_size": 8}
    answer = {"groups": account, "rollouts": account, "oldest_queued_at": time.time(), "items": items}
    app = Starlette(routes=[Route("/rl/books", lambda _: JSONResponse(answer))])
    async with serve(app, bind("127.0.0.1", 0, "RL_API_URL")) as port:
        api = ApiClient(f"http://127.0.0.1:{port}")
        generator = Generator(CurrentPolicy(), Ledger(), on_failure=print)
        books = Accounting(api, TrainerLease(api), LiveStatus(total_steps=4), generator, ENV)

        async def filled() -> None:
            while not books.books()["dropped"]:
                await api.books()

        assert not any(name.startswith("items/") for name in books.metrics()), "nobody has told yet"
        books.opened(25)
        await beside(filled(), books.keep())
        await api.close()
    assert books.status.oldest_queued_step == 0, "it came before the policy of step 25 was there"
    assert books.books()["dropped"] == {"stale": 4}
    assert set(books.books()) == {"sampled", "evaluation", "cancelled", "trained", "dropped"}
    shown = {name: value for name, value in books.metrics().items() if name.startswith("items/")}
    assert shown == {
        "items/seen": 12, "items/trained": 7, "items/dropped": 3, "items/dropped/equal": 3, "items/under_way": 2,
        "items/again": 1, "items/epoch": 1.5,
    }  # fmt: skip
    assert [name for name in shown if describe(name) is None] == []
    assert books.totals()["trained_rollouts"] == books.totals()["sampled_tokens"] == 0
    assert "dropped_stale" not in books.totals()
    progress = StepCounts(total=4, rebuilds=2, replayed=3)
    scraped = CollectorRegistry()
    scraped.register(TrainerCollector(books.status, generator.totals, progress, books.books, books.spending))
    assert scraped.get_sample_value("rl_trainer_dropped_rollouts_total", {"reason": "stale"}) == 4
    assert scraped.get_sample_value("rl_trainer_sampled_tokens_total", {"purpose": "training"}) == 0
    assert scraped.get_sample_value("rl_trainer_backend_rebuilds_total") == 2
    assert scraped.get_sample_value("rl_trainer_replayed_steps_total") == 3
    assert scraped.get_sample_value("rl_trainer_charged_tokens_total", {"price": "prefill"}) == 0
    assert scraped.get_sample_value("rl_trainer_cost", {"currency": "USD"}) is None, "there are no prices"
    assert scraped.get_sample_value("rl_trainer_paused") == 0
    books.status.standstill.begin("BackendPaused", "short on capacity")
    assert scraped.get_sample_value("rl_trainer_paused") == 1


def test_groups_without_advantage_are_untrained_for_that_reason(bookkeeping) -> None:
    for step in (1, 2):
        bookkeeping.trained(step, TrainingBatch(left_out={"no_advantage": 8, "nothing_generated": 0}), 2.0)
    assert bookkeeping.books()["dropped"] == {"no_advantage": 16}


def test_a_step_says_how_fast_it_was_and_what_it_cost(bookkeeping) -> None:
    bookkeeping.spending = Spending(TokenUse(prefill=5, sample=1_000_000), TokenPrices(0.0, 2.0, 0.0, "EUR"))
    for tokens, seconds in ((100, 2.0), (30, 10.0)):
        bookkeeping.generator.totals.training.add(4, tokens)
        bookkeeping.spending.used.sample += tokens
        bookkeeping.trained(1, TrainingBatch(), seconds)
    metrics = bookkeeping.metrics()
    assert (metrics["tokens/sampled_per_second"], metrics["tokens/trained_per_second"]) == (3.0, 0.0)
    assert (metrics["tokens/prefilled"], metrics["cost/step"]) == (5.0, pytest.approx(30 * 2 / 1e6))
    assert [name for name in metrics if describe(name) is None] == []
    totals, progress = bookkeeping.generator.totals, StepCounts(total=4)
    scraped = CollectorRegistry()
    scraped.register(TrainerCollector(bookkeeping.status, totals, progress, bookkeeping.books, bookkeeping.spending))
    cost = scraped.get_sample_value("rl_trainer_cost", {"currency": "EUR"})
    assert cost == pytest.approx(1_000_130 * 2 / 1e6)
