"""SQL: tables, migrations, and the statements of each subject. No other package imports SQLAlchemy."""
