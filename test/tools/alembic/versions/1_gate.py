import os
import time

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade():
    gate = os.environ["GATE"]
    open(f"{gate}/started.{os.environ['WHO']}", "w").close()
    while not os.path.exists(f"{gate}/open"):
        time.sleep(0.02)
    op.create_table("by_alembic", sa.Column("id", sa.Integer, primary_key=True))
