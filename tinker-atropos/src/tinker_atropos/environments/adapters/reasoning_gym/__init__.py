"""reasoning-gym: procedural tasks with graders. task_catalog, task_worker -> the environment.

https://github.com/open-thought/reasoning-gym
"""
