"""What the fork server of the Tinker services has imported: torch and the bundled model's code with it.

torch starts its threads at its first work, not when it is imported: none of it may run here.
"""

import gc
import importlib

for name in (
    "tinker_service.service_command",
    "tinker_service.service_server",
    "transformers.models.qwen3.modeling_qwen3",
):
    importlib.import_module(name)
gc.collect()
gc.freeze()
