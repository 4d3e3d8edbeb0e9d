"""verifiers v1: tasksets, each with its tasks, rewards and agents, played by our own policy.

taskset_sources -> taskset_catalog read what is installed and import none of it; from verifiers_config
on, the library is there.

https://github.com/PrimeIntellect-ai/verifiers
"""
