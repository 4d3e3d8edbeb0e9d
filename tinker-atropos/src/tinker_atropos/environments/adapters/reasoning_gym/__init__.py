"""reasoning-gym: procedural tasks with graders. task_source -> task_worker -> items -> the environment.

https://github.com/open-thought/reasoning-gym
"""
