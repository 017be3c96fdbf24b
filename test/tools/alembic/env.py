# Alembic has no lock of its own: this is where programs take one.
from alembic import context
from sqlalchemy import create_engine, text

with create_engine("postgresql://").connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        connection.execute(text("SELECT pg_advisory_xact_lock(815)"))
        context.run_migrations()
