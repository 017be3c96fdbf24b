# psycopg.py DIRECTORY HOST PORT USER - the code of doc/drivers.md, which is in DIRECTORY.
import sys

directory, host, port, user = sys.argv[1:]
# not this directory, where we have the driver's name
sys.path[0] = directory
from code_of_page import locked, locked_session, psycopg  # noqa: E402
from harness import run, work_of  # noqa: E402

conninfo = f"host={host} port={port} user={user} dbname=postgres"


def execute(connection, sql, *args):
    return connection.execute(sql, args)


def autocommit(name, where):
    with psycopg.connect(conninfo, autocommit=True) as connection:
        execute(connection, "SELECT zk_lock(%s)", name)
        return execute(connection, "SELECT zk_token(%s) IS NOT NULL", name).fetchone()[0]


def begun(name, where):
    with psycopg.connect(conninfo) as connection:
        execute(connection, "SELECT zk_lock(%s)", name)
        assert execute(connection, "SELECT zk_token(%s)", name).fetchone()[0]
        execute(connection, "CALL zk_lock_session(%s)", name)


run(
    {
        "locked": lambda name, where: locked(conninfo, name, work_of(execute, where)),
        "session": lambda name, where: locked_session(conninfo, name, work_of(execute, where)),
        "autocommit": autocommit,
        "begun": begun,
    },
    lambda error: getattr(error, "sqlstate", None),
)
