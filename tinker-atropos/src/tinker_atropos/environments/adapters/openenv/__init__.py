"""Environments that an OpenEnv server plays, by the frames of its WebSocket: their package is not needed."""
