"""The mode `process`: some items of an environment, answered by a model of an OpenAI-compatible provider and scored by
the environment. No trajectory API, no trainer; nothing is trained.
"""
