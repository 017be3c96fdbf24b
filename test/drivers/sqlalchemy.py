# sqlalchemy.py DIRECTORY HOST PORT USER - the code of doc/drivers.md, which is in DIRECTORY.
import sys

directory, host, port, user = sys.argv[1:]
# not this directory, where we have the library's name
sys.path[0] = directory
from code_of_page import locked, locked_session, text  # noqa: E402
from harness import run, work_of  # noqa: E402
from sqlalchemy import create_engine  # noqa: E402

# a pool of one connection, so that it is the same one again
engine = create_engine(f"postgresql+psycopg2://{user}@{host}:{port}/postgres", future=True, pool_size=1, max_overflow=0)


def execute(connection, sql, **args):
    return connection.execute(text(sql), args)


def autocommit(name, where):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        execute(connection, "SELECT zk_lock(:name)", name=name)
        return execute(connection, "SELECT zk_token(:name) IS NOT NULL", name=name).scalar()


def begun(name, where):
    with engine.connect() as connection:
        execute(connection, "SELECT zk_lock(:name)", name=name)
        assert execute(connection, "SELECT zk_token(:name)", name=name).scalar()
        execute(connection, "CALL zk_lock_session(:name)", name=name)


run(
    {
        "locked": lambda name, where: locked(engine, name, work_of(execute, where)),
        "session": lambda name, where: locked_session(engine, name, work_of(execute, where)),
        "autocommit": autocommit,
        "begun": begun,
    },
    lambda error: getattr(getattr(error, "orig", None), "pgcode", None),
)
