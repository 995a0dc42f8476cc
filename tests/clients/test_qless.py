"""qless-py 0.11.4, the last release on the package index, with the script it brings along."""

import hashlib
import os
import pkgutil

import pytest

import qless
import qless.exceptions
import qless.profile
import qless.util
import qless.workers
import qless.workers.forking
import qless.workers.serial

import support
from both import *  # noqa: F401,F403
from both import refused


class Kit(object):
    name = "qless"
    module = qless
    program = "qless-py-worker"
    retrying = "retrying_qless"
    clocked = ("qless", "qless.job", "qless.queue")
    Error = qless.exceptions.QlessException
    LostLock = qless.exceptions.LostLockException
    Worker = qless.workers.Worker
    Serial = qless.workers.serial.SerialWorker
    Forking = qless.workers.forking.ForkingWorker
    yes, no = "1", "0"

    def client(self, name):
        return qless.Client(support.URL, hostname=name)

    def encode(self, data):
        return data

    def data(self, job):
        return job.data

    def set(self, job, data):
        job.data = data

    def put(self, client, queue, klass="x.Y", data=None, **options):
        return client.queues[queue].put(klass, data or {}, **options)

    def raw_put(self, client, queue, *args):
        # This release does not say who puts.
        return client("put", queue, *args)

    def peek(self, queue, count=None):
        return queue.peek(count)


@pytest.fixture
def kit():
    return Kit()


def test_the_script_is_the_packages_own(client, raw):
    text = pkgutil.get_data("qless", "qless-core/qless.lua")
    client.queues["q"].pop()
    assert client._lua.sha == hashlib.sha1(text).hexdigest()
    if not os.environ.get("HAUL_TEST_LUA"):
        assert client._lua.sha == "e22308e0c17253ff34e753088c8e9954c52a6dae"
    assert raw.script_exists(client._lua.sha) in ([True], [1])


def test_this_release_puts_without_naming_the_worker(kit, client, ear):
    """`put queue jid ...`, where later scripts have `put worker queue jid ...`."""
    assert client("put", "q", "a", "x.Y", "{}", 0) == "a"
    assert client.jobs["a"].queue_name == "q"
    assert [entry["name"] for entry in client.queues.counts] == ["q"]


def test_every_move_tells_the_holder(kit, client, q, ear):
    """Since nobody is named, even the holder itself is told."""
    kit.put(client, "q", jid="a")
    q.pop()
    ear.next()
    client.jobs["a"].move("r")
    lost = {"jid": "a", "event": "lock_lost", "worker": "mine"}
    assert ear.take(3)[1:] == [("ql:w:mine", lost), ("ql:log", lost)]


def test_put_says_what_is_missing(kit, client):
    with refused(kit, "no queue name provided"):
        client("put")
    with refused(kit, 'Put\\(\\): Arg "jid" missing'):
        client("put", "q")
    with refused(kit, 'Put\\(\\): Arg "klass" missing'):
        client("put", "q", "a")
    with refused(kit, 'Put\\(\\): Arg "delay" not a number: x'):
        client("put", "q", "a", "x.Y", "{}", "x")
    with refused(kit, "Odd number of additional args"):
        client("put", "q", "a", "x.Y", "{}", 0, "tags")
    with refused(kit, 'Put\\(\\): Arg "retries" not a number: x'):
        client("put", "q", "a", "x.Y", "{}", 0, "retries", "x")


def test_items_of_the_data(kit, client):
    kit.put(client, "q", jid="a", data={"k": "v"})
    job = client.jobs["a"]
    assert job["k"] == "v" and job["none"] is None
    job["k"] = "w"
    assert job["k"] == "w"


def test_klass_is_imported_and_reloaded(kit, client):
    import haul_jobs
    kit.put(client, "q", "haul_jobs.Quick", jid="a")
    assert client.jobs["a"].klass is haul_jobs.Quick
    qless.Job.reload("haul_jobs.Quick")
    assert client.jobs["a"].klass.__name__ == "Quick"
    assert qless.util.import_class("haul_jobs.Quick").__name__ == "Quick"


def test_max_concurrency(kit, client, q, clock):
    client.config["q-max-concurrency"] = 2
    for jid in "abc":
        kit.put(client, "q", jid=jid)
    assert len(q.pop(5)) == 2
    assert q.pop() is None
    client.jobs[q.jobs.running()[0]].complete()
    assert len(q.pop(5)) == 1


def test_worker_helpers(kit, tmp_path):
    assert [len(group) for group in qless.workers.Worker.divide(list(range(7)), 3)] == [3, 2, 2]
    assert qless.workers.Worker.divide([], 2) == [[], []]
    folder = tmp_path / "box"
    with qless.workers.Worker.sandbox(str(folder)):
        (folder / "file").write_text("x")
        (folder / "sub").mkdir()
    assert list(folder.iterdir()) == []
    before = qless.workers.Worker.title()
    qless.workers.Worker.title("testing")
    assert qless.workers.Worker.title() == "qless-py-worker testing"
    import setproctitle
    setproctitle.setproctitle(before)


def test_serial_worker_kill_and_stop(kit, client):
    worker = kit.Serial(["q"], client)
    worker.kill("another")
    worker.jid = "a"
    with pytest.raises(SystemExit):
        worker.kill("a")
    worker.stop()
    assert worker.shutdown is True


def test_forking_worker_spawns(kit, client):
    worker = kit.Forking(["q"], client, workers=3, interval=1)
    assert worker.count == 3
    assert isinstance(worker.spawn(), kit.Serial)
    worker.klass = "qless.workers.serial.SerialWorker"
    assert isinstance(worker.spawn(), kit.Serial)


@pytest.mark.haul_only
@pytest.mark.skipif(support.REDIS_PY >= (5,), reason="qless.profile names a parser class redis-py 5 has no more")
def test_the_profiler(kit, client, capsys):
    """Needs entries of four fields, as Redis 3 gave them; Redis 7 gives six and breaks it."""
    with qless.profile.Profiler(client):
        kit.put(client, "q", jid="a")
        client.queues["q"].pop()
    assert "Raw Redis Commands" in capsys.readouterr().out
