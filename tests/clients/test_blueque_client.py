"""The package `blueque` as its users run it: client, listener, forking runner, schedule. Skipped where it is not."""

import json
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest

import support

blueque = pytest.importorskip("blueque")

PROGRAM = os.path.join(support.HERE, "work", "blueque_runner.py")


@pytest.fixture(params=[2, 3])
def protocol(request):
    return request.param


@pytest.fixture
def client(protocol):
    return blueque.Client(support.URL, protocol=protocol)


@pytest.fixture
def queue(client):
    return client.get_queue("some_queue")


@pytest.fixture
def runner(protocol, tmp_path):
    """Starts programs that take tasks; what they forked ends when the test lets it."""
    made = []

    def make(verb="run"):
        args = [sys.executable, PROGRAM, support.URL, str(protocol), "some_queue", verb]
        made.append(subprocess.Popen(args, stdout=subprocess.PIPE, stderr=open(str(tmp_path / "log"), "a")))
        return made[-1]

    yield make
    for process in made:
        process.kill()
        process.wait()


def ends(client, task, status):
    return support.until(lambda: [one for one in [client.get_task(task)] if one.status == status])[0]


def test_a_task_is_run_by_a_forked_process_and_deleted(client, queue, runner, raw):
    task = queue.enqueue("return some text")
    assert client.get_task(task).status == "pending"
    process = runner()
    done = ends(client, task, "complete")
    assert (done.result, done.parameters, done.queue) == ("some text", "return some text", "some_queue")
    assert done.node.endswith("_%d" % process.pid) and done.pid != process.pid
    queue.delete_task(done)
    assert client.get_task(task).status is None
    assert raw.keys("blueque_*tasks*") == []
    assert raw.zscore("blueque_queues", "some_queue") == 1


def test_a_task_fails(client, queue, runner, raw):
    task = queue.enqueue("raise something is wrong")
    runner()
    failed = ends(client, task, "failed")
    assert failed.error == "something is wrong"
    queue.delete_task(failed)
    assert raw.keys("blueque_*tasks*") == []


def test_tasks_run_in_order(client, queue, runner, raw):
    tasks = [queue.enqueue("return %d" % number) for number in range(5)]
    runner()
    ends(client, tasks[-1], "complete")
    assert raw.lrange("blueque_complete_tasks_some_queue", 0, -1) == tasks[::-1]


def test_a_task_outlives_its_listener_and_is_waited_for(client, queue, runner, tmp_path, raw):
    gate = tmp_path / "gate"
    task = queue.enqueue("wait %s done" % gate)
    first = runner()
    started = ends(client, task, "started")
    first.kill()
    first.wait()
    second = runner()
    adopted = support.until(lambda: raw.hget("blueque_task_" + task, "reclaimed_node"))
    assert adopted.endswith("_%d" % second.pid)
    after = queue.enqueue("return next")
    gate.write_text("")
    assert ends(client, task, "complete").node == started.node
    ends(client, after, "complete")
    assert raw.keys("blueque_reserved*") == []
    assert raw.smembers("blueque_listeners_some_queue") == {adopted}


def test_a_task_that_was_only_reserved_is_run_by_who_adopts_it(client, queue, runner):
    task = queue.enqueue("return done")
    gone = runner("reserve")
    assert gone.communicate()[0].decode().strip() == task
    assert client.get_task(task).status == "reserved"
    runner()
    assert ends(client, task, "complete").result == "done"


def test_tasks_are_scheduled_and_enqueued_when_due(client, queue, runner, raw):
    with mock.patch("blueque.redis_queue.time.time") as clock:
        clock.return_value = 1000.0
        later = queue.schedule("return later", 1500.25)
        sooner = queue.schedule("return sooner", 1400.5)
        at_once = queue.schedule("return at once", 900)
        assert [client.get_task(one).status for one in (later, sooner, at_once)] == ["scheduled", "scheduled", "pending"]
        queue.enqueue_due_tasks()
        assert raw.llen("blueque_pending_tasks_some_queue") == 1
        clock.return_value = 1600.0
        queue.enqueue_due_tasks()
        queue.enqueue_due_tasks()
    assert raw.lrange("blueque_pending_tasks_some_queue", 0, -1) == [later, sooner, at_once]
    assert raw.hget("blueque_task_" + later, "eta") == "1500.25"
    runner()
    assert ends(client, later, "complete").result == "later"


def test_due_tasks_are_looked_at_again_when_somebody_changed_the_schedule(client, queue, raw):
    soon = time.time() + 0.2
    task = queue.schedule("return x", soon)
    time.sleep(max(0, soon - time.time()) + 0.01)
    real = raw.zadd
    looked = []

    def meddle(*args, **options):
        # Between the look and the transaction, once.
        looked.append(args)
        if len(looked) == 1:
            real("blueque_scheduled_tasks_some_queue", {"other": 1})
        return found(*args, **options)

    import redis
    found = redis.client.Pipeline.zrangebyscore
    with mock.patch.object(redis.client.Pipeline, "zrangebyscore", lambda self, *args: meddle(self, *args)):
        queue.enqueue_due_tasks()
    assert len(looked) >= 1
    assert sorted(raw.lrange("blueque_pending_tasks_some_queue", 0, -1)) == sorted([task, "other"])


@pytest.mark.haul_only
def test_blueque_produces_and_haul_works(client, queue, raw):
    task = queue.enqueue("some words")
    popped = json.loads(raw.execute_command("HAUL.POP", "w", "QUEUES", "some_queue")[0])
    assert (popped["jid"], popped["data"]) == (task, "some words")
    assert client.get_task(task).status == "reserved"
    raw.execute_command("HAUL.COMPLETE", "w", task, "RESULT", "fine")
    done = client.get_task(task)
    assert (done.status, done.result, done.node) == ("complete", "fine", "w")
    assert done.updated >= done.created
    queue.delete_task(done)
    assert raw.execute_command("HAUL.GET", task) is None


@pytest.mark.haul_only
def test_haul_produces_and_blueque_works(client, queue, runner, raw):
    good = raw.execute_command("HAUL.PUT", "some_queue", "klass", '"return fine"')
    runner()
    # Data is JSON: the runner sees its text.
    assert ends(client, good, "complete").parameters == '"return fine"'
    job = json.loads(raw.execute_command("HAUL.GET", good))
    assert job["state"] == "complete"
