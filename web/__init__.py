"""The web page of the platform: a client of the public API that answers in HTML. It imports nothing of the platform."""
