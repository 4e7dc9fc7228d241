"""How models are loaded and called: one module a format, each importing its libraries itself."""
