"""The operator's own Prometheus metrics: few, and each answers a question that an on-call engineer asks.

docs/reference/metrics.md lists them; a test compares.
"""

from prometheus_client import Counter, Gauge, Histogram

# --- read from caches and queues at each scrape (process/process_health.py) ------------------------------------------
RUNS = Gauge("rl_operator_runs", "Runs that exist.", ["phase"])
ACTIVE_RUNS = Gauge("rl_operator_active_runs", "Runs that hold a place of their runtime.", ["runtime"])
QUEUED_RUNS = Gauge("rl_operator_queued_runs", "Runs that wait for a place.", ["runtime"])
ACTIVE_RUNS_LIMIT = Gauge("rl_operator_active_runs_limit", "The runtime's limits.maxActiveRuns.", ["runtime"])
QUEUE_DEPTH = Gauge("rl_operator_queue_depth", "Objects that wait to be reconciled.", ["kind"])
QUEUE_AGE = Gauge("rl_operator_queue_oldest_seconds", "Wait of the object that waits longest.", ["kind"])
WATCH_AGE = Gauge("rl_operator_watch_age_seconds", "Since a watch last brought anything.", ["resource"])
LEADER = Gauge("rl_operator_leader", "1: this process holds the lease, or needs none; 0: it is on standby.")

# --- counted where it happens -------------------------------------------------------------------------------------
RECONCILES = Counter("rl_operator_reconciles_total", "Reconciles, by kind and how they ended.", ["kind", "outcome"])
RECONCILE_SECONDS = Histogram(
    "rl_operator_reconcile_seconds", "Time of one reconcile.", ["kind"], buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60)
)
API_CALLS = Counter("rl_operator_api_calls_total", "Calls to the API server, watches included.", ["verb", "code"])
WATCH_RESTARTS = Counter("rl_operator_watch_restarts_total", "Watches that were opened again.", ["resource", "cause"])
TRAINER_POLLS = Counter("rl_operator_trainer_polls_total", "Questions to trainers, by answer.", ["outcome"])
WANDB_CALLS = Counter("rl_operator_wandb_calls_total", "Queries to W&B, by answer.", ["outcome"])
EVENTS_DROPPED = Counter("rl_operator_events_dropped_total", "Kubernetes Events that were not written.", ["cause"])
