"""All tools, in the order in which an agent meets them."""

from collections.abc import Mapping
from typing import Final

from rl_operator.tools.calls import (
    rl_check_status,
    rl_edit_config,
    rl_get_current_config,
    rl_get_logs,
    rl_get_results,
    rl_health_check,
    rl_list_environments,
    rl_list_runs,
    rl_select_environment,
    rl_start_training,
    rl_stop_training,
    rl_test_inference,
)
from rl_operator.tools.tool import Tool

TOOLS: Final[tuple[Tool, ...]] = (
    *rl_list_environments.TOOLS,
    *rl_select_environment.TOOLS,
    *rl_get_current_config.TOOLS,
    *rl_edit_config.TOOLS,
    *rl_test_inference.TOOLS,
    *rl_start_training.TOOLS,
    *rl_check_status.TOOLS,
    *rl_get_logs.TOOLS,
    *rl_stop_training.TOOLS,
    *rl_get_results.TOOLS,
    *rl_list_runs.TOOLS,
    *rl_health_check.TOOLS,
)
BY_NAME: Final[Mapping[str, Tool]] = {tool.name: tool for tool in TOOLS}
