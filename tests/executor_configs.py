"""Executor configurations of tests in which no executor runs."""

from core.domain.executor_config import ExecutorConfig

LOCAL = ExecutorConfig(name="local", kind="fake", workers=2)
