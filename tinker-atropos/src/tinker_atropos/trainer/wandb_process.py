"""W&B in a process of its own: `python -m tinker_atropos.trainer.wandb_process SETTINGS`.

wandb blocks for minutes, and holds up the end of its process, when its server does not answer. Here it may. Points
come as JSON lines on stdin, whose end finishes the run; states go as JSON lines to stdout.
"""

import sys

import orjson


def main() -> None:
    settings = orjson.loads(sys.argv[1])
    try:
        import wandb

        run = wandb.init(**settings, resume="allow", settings=wandb.Settings(silent=True, console="off"))
        run.define_metric("train/step")
        run.define_metric("*", step_metric="train/step")
        _tell(state="offline" if run.offline else "running", url=run.url, runId=run.id)
        for line in sys.stdin.buffer:
            run.log(orjson.loads(line))
        run.finish()
        _tell(state="finished")
    except Exception as error:  # noqa: BLE001 -- the process's edge: the trainer says it once and goes on
        _tell(state="failed", reason=f"{type(error).__name__}: {error}")


def _tell(**state: str | None) -> None:
    sys.stdout.buffer.write(orjson.dumps(state) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
