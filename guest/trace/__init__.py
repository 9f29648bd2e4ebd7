"""The tasks of a trace: every operation of a training step, logged and hashed.
May import `training` and below."""
