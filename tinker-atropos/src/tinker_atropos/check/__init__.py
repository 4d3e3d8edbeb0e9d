"""`tinker-atropos check`: is an environment fit to be trained on? It is loaded, built and served as the runner does it,
against the trainer's own inference server with a scripted sampler in the place of a model. Its groups are judged as the
trajectory API and the trainer would. Nothing is trained, and no model is needed.
"""
