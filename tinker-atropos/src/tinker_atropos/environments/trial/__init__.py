"""The mode `process`: some items of an environment, answered by a model of an OpenAI-compatible provider and scored by
the environment. There is no trajectory API and no trainer; nothing is trained.
"""
