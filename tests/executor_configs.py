"""Executor configurations for tests that run no executor."""

from core.domain.executor_config import ExecutorConfig

LOCAL = ExecutorConfig(name="local", kind="fake", workers=2)
