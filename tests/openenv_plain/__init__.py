"""An environment in a few lines of ASGI: it speaks OpenEnv's protocol without the package `openenv`."""
