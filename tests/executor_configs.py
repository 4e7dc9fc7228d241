"""Where simulations run in tests that have nothing running them."""

from core.domain.executor_config import ExecutorConfig

LOCAL = ExecutorConfig(name="local", kind="fake", workers=2)
