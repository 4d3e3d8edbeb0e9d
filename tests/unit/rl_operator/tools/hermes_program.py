"""Hermes as it starts, up to the first calls of its model: hermes_program.py RUN, by a Python that has both."""

import json
import sys
import threading
import time

from hermes_cli.plugins import discover_plugins, get_plugin_manager
from model_tools import get_tool_definitions, handle_function_call
from tools.interrupt import set_interrupt
from tools.registry import registry
from tools.skills_tool import skill_view

discover_plugins()
[plugin] = [each for each in get_plugin_manager().list_plugins() if each["key"] == "rl-operator"]
[skill] = get_plugin_manager().list_plugin_skills("rl-operator")


def call(tool, session, **arguments):
    return json.loads(handle_function_call(tool, arguments, session_id=session))


def interrupted_wait(run_id):
    """How long a wait of 240 s takes when the user interrupts it."""
    began, asked = time.monotonic(), {"run_id": run_id, "wait_seconds": 240, "until": "finished"}
    waiter = threading.Thread(target=call, args=("rl_check_status", "a"), kwargs=asked)
    waiter.start()
    set_interrupt(True, waiter.ident)
    waiter.join(60)
    return time.monotonic() - began


drafted = call("rl_select_environment", "a", name="sort_digits")
seen = {
    "plugin": [plugin["enabled"], plugin["source"], plugin["error"]],
    "toolset": registry.get_tool_names_for_toolset("rl"),
    "offered": get_tool_definitions(enabled_toolsets=["rl"], quiet_mode=True),
    "drafted": drafted,
    "own": call("rl_get_current_config", "a", field="group_size"),
    "others": call("rl_get_current_config", "b"),
    "wrong": call("rl_edit_config", "a", field="group_sise", value=4),
    "interrupted_after": interrupted_wait(sys.argv[1]),
    "skill": json.loads(skill_view(f"rl-operator:{skill}")),
}
print(json.dumps(seen))
