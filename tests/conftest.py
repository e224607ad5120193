"""What all tests share: repeatable hypothesis runs without time limits."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "sfumato",
    deadline=None,  # no test asserts a wall time
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sfumato")
