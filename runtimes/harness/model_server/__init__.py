"""Model server: the sandboxed process that holds the user's model, and the protocol it speaks."""
