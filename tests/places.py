"""Where simulations run in tests that have nothing running them."""

from core.domain.contexts import Context

HERE = Context(name="local", kind="fake", cores=2)
