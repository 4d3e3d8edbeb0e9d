"""`python -m rl_operator`: the operator process.

Exit codes: 0 stopped by a signal; 2 bad flags or kubeconfig; 3 the cluster cannot be served (not reachable, access
refused, CRDs missing, port taken); 4 the lease belongs to another process (process/leading.py); 1 anything else.
"""

import asyncio
import gc
import logging
import sys
from typing import Final

from rl_operator.cluster.api_server.connection import ConnectionSettingsError
from rl_operator.errors import OperatorError
from rl_operator.process.log_format import configure_logging
from rl_operator.process.operator_process import run_operator
from rl_operator.settings import OperatorSettings

log = logging.getLogger("rl_operator")

JSON_DEPTH: Final = 12_000
"""The API server accepts settings nested 10,000 deep. With Python's own limit, one unreadable run would make every
list fail: any user could stop the operator. Reading them takes 2 MiB of stack.
"""

SWITCH_SECONDS: Final = 0.0005
"""How long a thread may compute before another one has its turn: the loop waits that long, at each of its calls, while
a large document is checked (`reconcile/off_loop.py`), and so does the thread that renews the lease.
"""

GC_THRESHOLDS: Final = (20_000, 20, 50)
"""What a reconcile allocates is freed with it and has no cycles: collecting as often as Python does by default costs
a tenth of the operator's time. What the imports allocated is not scanned again.
"""


def main() -> int:
    settings = OperatorSettings.from_command_line(sys.argv[1:])
    configure_logging(settings.log_format, settings.log_level)
    prepare_interpreter()
    code = 0
    try:
        asyncio.run(run_operator(settings))
    except* ConnectionSettingsError as errors:
        code = _explain(errors, 2)
    except* OperatorError as errors:
        code = _explain(errors, 3)
    return code


def prepare_interpreter() -> None:
    sys.setrecursionlimit(JSON_DEPTH)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _explain(errors: BaseExceptionGroup[OperatorError], code: int) -> int:
    for error in errors.exceptions:
        log.error("%s", error)
    return code


if __name__ == "__main__":
    sys.exit(main())
