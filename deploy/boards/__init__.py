"""The dashboards, panel by panel. Their layout is made in `dashboards.py`."""

from deploy.boards.efficiency import EFFICIENCY
from deploy.boards.feeds import FEEDS
from deploy.boards.health import HEALTH
from deploy.boards.rendering import RENDERING
from deploy.boards.routing import ROUTING

DASHBOARDS = (EFFICIENCY, ROUTING, RENDERING, FEEDS, HEALTH)
