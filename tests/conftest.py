"""What all tests share."""

from hypothesis import settings

# Other work on the machine must not decide whether a property holds.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
