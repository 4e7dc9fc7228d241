"""Where simulations run in tests that have nothing running them."""

from core.domain.executor_config import Context

HERE = Context(name="local", kind="fake", cores=2)
