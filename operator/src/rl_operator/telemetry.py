"""The operator's own Prometheus metrics: few, and each answers a question that somebody on call asks."""

from prometheus_client import Counter, Gauge, Histogram

RECONCILES = Counter("rl_operator_reconciles_total", "Reconciles, by kind and how they ended.", ["kind", "outcome"])
RECONCILE_SECONDS = Histogram(
    "rl_operator_reconcile_seconds", "Time of one reconcile.", ["kind"], buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60)
)
QUEUE_DEPTH = Gauge("rl_operator_queue_depth", "Objects that wait to be reconciled.", ["kind"])
API_CALLS = Counter("rl_operator_api_calls_total", "Calls to the API server, watches included.", ["method", "code"])
WATCH_RESTARTS = Counter("rl_operator_watch_restarts_total", "Watches that were opened again.", ["resource", "cause"])
TRAINER_POLLS = Counter("rl_operator_trainer_polls_total", "Questions to trainers, by answer.", ["outcome"])
EVENTS_DROPPED = Counter("rl_operator_events_dropped_total", "Kubernetes Events that were not written.", ["cause"])
