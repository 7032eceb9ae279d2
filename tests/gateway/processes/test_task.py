"""The share of one process."""

import pickle

from gateway.processes.task import Task, share_of
from gateway.settings.config import Config
from gateway.settings.values import event_endpoint

CONFIG = Config(
    workers=(("http://w1:8000",),),
    kv_events=(event_endpoint("http://w1:8000=tcp://w1:5557"),),
    processes=4,
    admin_key="of-operators",
    index_memory=1000,
    max_bodies=400,
    max_queue=10,
    max_inflight_tokens=2,
)


def test_bounds_are_of_all_together() -> None:
    """Each gets its part, and never nothing."""
    share = share_of(CONFIG, "key")
    assert (share.index_memory, share.max_bodies, share.max_queue) == (250, 100, 2)
    assert share.max_inflight_tokens == 1
    assert share_of(Config(processes=2), "key").max_inflight_tokens is None


def test_no_queue_is_none_in_each() -> None:
    """And a short one is none in no process."""
    assert share_of(Config(processes=2, max_queue=0), "key").max_queue == 0
    assert share_of(Config(processes=2, max_queue=1), "key").max_queue == 1


def test_only_the_parent_asks_it() -> None:
    """The keys of operators are the parent's business."""
    share = share_of(CONFIG, "key")
    assert (share.admin_key, share.metrics_key) == ("key", "key")


def test_a_task_travels() -> None:
    """Whatever is in a configuration, the process gets the same."""
    task = Task(number=1, config=CONFIG, port=8080, path="/run/1.sock")
    assert pickle.loads(pickle.dumps(task)) == task
    assert not task.consumes
    assert Task(number=0, config=CONFIG, port=1, path="x").consumes
