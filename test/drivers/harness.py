# What psycopg.py and sqlalchemy.py have in common: a line "ACTION NAME" is carried out, and
# answered by one line.
import sys


def work_of(execute, where):
    """What is done under a lock: it writes twice, and waits in between.  "where" counts."""

    def work(connection):
        where["attempts"] += 1
        execute(connection, "INSERT INTO done VALUES (1)")
        execute(connection, "SELECT pg_advisory_xact_lock_shared(1)")
        execute(connection, "INSERT INTO done VALUES (2)")
        return "done"

    return work


def run(actions, state_of):
    for line in sys.stdin:
        action, name = line.split()
        where = {"attempts": 0}
        try:
            answer = actions[action](name, where)
        except Exception as error:
            answer = state_of(error) or repr(error).replace("\n", " ")
        print(answer, where["attempts"], flush=True)
