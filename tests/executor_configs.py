"""Executor configurations for tests that run no executor."""

from core.domain.scheduling.executor_config import ExecutorConfig

#: Names that submissions of these tests may give.
ALLOWED = {"resources": ["nvidia.com/gpu"], "queue": ["team-*"]}
LOCAL = ExecutorConfig(name="local", kind="fake", workers=2, allowed=ALLOWED)
