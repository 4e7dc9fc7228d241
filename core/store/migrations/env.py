"""Alembic's entry: the connection is handed in by core/store/migrate.py."""

from alembic import context

from core.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
