"""reqless 0.13.3, the last release on the package index, with the script it brings along: the commands of qless under
their old names, plus throttles. Queue patterns are plain keys (`qmore:*`) it reads and writes itself."""

import hashlib
import json
import pkgutil

import pytest

import support

if support.REDIS_PY < (4,):
    pytest.skip("reqless imports redis.commands, which redis-py has since 4.0", allow_module_level=True)

import reqless  # noqa: E402
import reqless.abstract  # noqa: E402
import reqless.exceptions  # noqa: E402
import reqless.importer  # noqa: E402
import reqless.listener  # noqa: E402
import reqless.profile  # noqa: E402
import reqless.util  # noqa: E402
import reqless.workers.forking  # noqa: E402
import reqless.workers.serial  # noqa: E402
import reqless.workers.util  # noqa: E402
from reqless.qmore.client import QmoreClient, QueuePriorityPattern  # noqa: E402
from reqless.queue_resolvers import (  # noqa: E402
    QmoreDynamicMappingQueueIdentifiersTransformer,
    QmoreDynamicPriorityQueueIdentifiersTransformer,
    TransformingQueueResolver,
)

from both import *  # noqa: E402,F401,F403
from both import refused  # noqa: E402


class Kit(object):
    name = "reqless"
    module = reqless
    program = "reqless-py-worker"
    retrying = "retrying_reqless"
    clocked = ("reqless", "reqless.job", "reqless.queue")
    Error = reqless.exceptions.ReqlessError
    LostLock = reqless.exceptions.LostLockError
    Worker = reqless.workers.Worker
    Serial = reqless.workers.serial.SerialWorker
    Forking = reqless.workers.forking.ForkingWorker
    yes, no = True, False

    def client(self, name):
        return reqless.Client(support.URL, hostname=name)

    def encode(self, data):
        return json.dumps(data)

    def data(self, job):
        return json.loads(job.data)

    def set(self, job, data):
        job.data = json.dumps(data)

    def put(self, client, queue, klass="x.Y", data=None, **options):
        return client.queues[queue].put(klass, json.dumps(data or {}), **options)

    def raw_put(self, client, queue, *args):
        return client("put", client.worker_name, queue, *args)

    def peek(self, queue, count=None):
        return queue.peek(count=count)


@pytest.fixture
def kit():
    return Kit()


def test_the_script_is_the_packages_own(client, raw):
    text = pkgutil.get_data("reqless", "lua/qless.lua")
    client.queues["q"].pop()
    assert client._lua.sha == hashlib.sha1(text).hexdigest() == "9c9147f2518c96647f55eb15f00b1ee40fa49cd0"
    assert raw.script_exists(client._lua.sha) in ([True], [1])


def test_peek_with_an_offset(kit, client, q, clock):
    for jid in "abcd":
        kit.put(client, "q", jid=jid)
        clock.forward(1)
    assert [job.jid for job in q.peek(1, 2)] == ["b", "c"]
    assert [job.jid for job in q.peek(3, 5)] == ["d"]
    assert q.peek(4, 5) == []
    assert q.peek(2).jid == "c"
    with refused(kit, 'Peek\\(\\): Arg "offset" missing or not a number: nil'):
        client("peek", "q")
    with refused(kit, 'Peek\\(\\): Arg "count" missing or not a number: nil'):
        client("peek", "q", 0)


def test_the_mover_itself_is_not_told(kit, client, other, q, ear):
    kit.put(client, "q", jid="a")
    q.pop()
    ear.next()
    kit.put(client, "r", jid="a")
    assert ear.next().data["event"] == "put"
    ear.quiet()


def test_requeue(kit, client, q):
    with refused(kit, "Requeue\\(\\): Job a does not exist"):
        q.requeue("x.Y", "{}", jid="a")
    kit.put(client, "q", jid="a")
    q.pop().fail("g", "m")
    assert client.queues["r"].requeue("x.Y", '{"n":1}', jid="a", priority=2, tags=["t"], retries=1, delay=0,
                                      depends=[], throttles=["th"]) == "a"
    job = client.jobs["a"]
    assert (job.state, job.queue_name, job.priority, job.tags) == ("waiting", "r", 2, ["t"])
    assert job.throttles == ["th", "ql:q:r"]


def test_put_says_what_is_missing(kit, client):
    with refused(kit, "no queue name provided"):
        client("put", "me")
    with refused(kit, 'Put\\(\\): Arg "jid" missing'):
        client("put", "me", "q")
    with refused(kit, 'Put\\(\\): Arg "klass" missing'):
        client("put", "me", "q", "a")
    with refused(kit, 'Put\\(\\): Arg "delay" not a number: x'):
        client("put", "me", "q", "a", "x.Y", "{}", "x")
    with refused(kit, "Odd number of additional args"):
        client("put", "me", "q", "a", "x.Y", "{}", 0, "tags")


def test_complete_in_the_wrong_queue(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop()
    with refused(kit, "running in another queue: q"):
        client("complete", "a", "mine", "r", "{}")


def test_fail_by_another_worker(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop()
    with refused(kit, "running with another worker: mine"):
        client("fail", "a", "other", "g", "m")


def test_delay_and_dependencies_together(kit, client, q, clock):
    kit.put(client, "q", jid="a")
    kit.put(client, "q", jid="b", delay=10, depends=["a"])
    assert client.jobs["b"].state == "depends"
    q.pop().complete()
    assert client.jobs["b"].state == "scheduled"
    assert q.pop() is None
    clock.forward(11)
    assert q.pop().jid == "b"


@pytest.mark.haul_only
def test_dependencies_taken_off_take_the_delay_along(kit, client, q, clock):
    kit.put(client, "q", jid="a", priority=-1)
    kit.put(client, "q", jid="b", delay=10, depends=["a"])
    client.jobs["b"].undepend(all=True)
    assert client.jobs["b"].state == "waiting"
    kit.put(client, "q", jid="b", depends=["a"])
    q.pop().complete()
    assert client.jobs["b"].state == "waiting"


def test_history_is_capped(kit, client):
    client.config["max-job-history"] = 4
    kit.put(client, "q", jid="a")
    for number in range(10):
        client("log", "a", str(number))
    assert [entry["what"] for entry in client.jobs["a"].history] == ["put", "7", "8", "9"]


@pytest.mark.haul_only
@pytest.mark.parametrize("cap", [1, 2])
def test_history_capped_to_almost_nothing(kit, client, cap):
    client.config["max-job-history"] = cap
    kit.put(client, "q", jid="a")
    for number in range(5):
        client("log", "a", str(number))
    assert [entry["what"] for entry in client.jobs["a"].history] == ["put", "4"]


def test_children_know_their_parent(kit, client, q, clock):
    q.recur("x.Y", "{}", 60, 0, jid="r")
    q.pop()
    assert json.loads(client("get", "r-1"))["spawned_from_jid"] == "r"
    kit.put(client, "q", jid="a")
    assert json.loads(client("get", "a"))["spawned_from_jid"] is False


def test_setters_of_a_job_are_local(kit, client, q):
    kit.put(client, "q", jid="a")
    job = client.jobs["a"]
    job.jid, job.klass_name, job.queue_name = "b", "x.Z", "r"
    job.tags, job.throttles, job.sandbox = ["t"], ["th"], "/somewhere"
    job.dependencies, job.failure, job.expires_at = ["d"], None, 5.0
    job.klass = Kit
    assert (job.jid, job.queue_name, job.tags, job.throttles, job.sandbox) == ("b", "r", ["t"], ["th"], "/somewhere")
    assert client.jobs["a"].tags == []


def test_a_recurring_count_cannot_be_set(kit, client, q):
    q.recur("x.Y", "{}", 60, jid="r")
    with refused(kit, 'Unrecognized option "count"'):
        client.jobs["r"].count = 3


# --- throttles ------------------------------------------------------------------------------------------------------


def test_throttle_settings(kit, client, q):
    throttle = client.throttles["t"]
    assert throttle.name == "t"
    assert (throttle.maximum(), throttle.ttl(), throttle.locks(), throttle.pending()) == (0, -2, [], [])
    throttle.set_maximum(3)
    assert (throttle.maximum(), throttle.ttl()) == (3, -1)
    throttle.set_maximum(4, 100)
    assert throttle.maximum() == 4
    assert 90 < throttle.ttl() <= 100
    throttle.set_maximum(expiration=50)
    assert throttle.maximum() == 4
    throttle.delete()
    assert (throttle.maximum(), throttle.ttl()) == (0, -2)
    assert q.throttle.name == "ql:q:q"


def test_throttle_says_what_is_missing(kit, client):
    with refused(kit, "Throttle\\(\\): no tid provided"):
        client("throttle.get")


def test_throttle_get_and_the_queues_own(kit, client, q):
    client("queue.throttle.set", "q", 2)
    assert q.throttle.maximum() == 2
    assert json.loads(client("queue.throttle.get", "q"))["maximum"] == 2
    throttle = json.loads(client("throttle.get", "ql:q:q"))
    assert (throttle["id"], throttle["maximum"]) == ("ql:q:q", 2)
    # Not a queue that was put into.
    assert client.queues.counts == {}


@pytest.mark.haul_only
def test_a_maximum_must_be_a_number(kit, client):
    with refused(kit, "not a number"):
        client("throttle.set", "t", "many", 0)


def test_jobs_carry_their_throttles(kit, client, q):
    kit.put(client, "q", jid="a", throttles=["x", "y"])
    assert client.jobs["a"].throttles == ["x", "y", "ql:q:q"]
    client.jobs["a"].move("r")
    assert client.jobs["a"].throttles == ["x", "y", "ql:q:r"]
    q.recur("x.Y", "{}", 60, jid="rec", throttles=["x"])
    assert client.jobs["rec"].throttles == ["x", "ql:q:q"]
    assert q.pop().throttles == ["x", "ql:q:q"]


def test_a_throttle_holds_back(kit, client, q, clock):
    client.throttles["t"].set_maximum(1)
    for jid in "abc":
        kit.put(client, "q", jid=jid, throttles=["t"])
        clock.forward(1)
    job = q.pop()
    assert job.jid == "a"
    assert client.throttles["t"].locks() == ["a"]
    assert q.pop() is None
    assert client.jobs["b"].state == "throttled"
    assert client.jobs["b"].history[-1] == {"what": "throttled", "when": int(clock.now), "queue": "q"}
    assert q.pop() is None
    assert client.throttles["t"].pending() == ["b", "c"]
    assert q.counts["throttled"] == 2
    assert client("jobs", "throttled", "q") == ["b", "c"]
    assert job.complete() == "complete"
    assert client.throttles["t"].pending() == ["c"]
    assert q.pop().jid == "b"


def test_a_put_into_a_full_throttle_waits_at_once(kit, client, q):
    client.throttles["t"].set_maximum(1)
    kit.put(client, "q", jid="a", throttles=["t"])
    q.pop()
    kit.put(client, "q", jid="b", throttles=["t"])
    assert client.jobs["b"].state == "throttled"
    assert q.counts["waiting"] == 0


@pytest.mark.parametrize("how", ["complete", "advance", "fail", "retry", "timeout", "cancel", "release"])
def test_what_releases_a_throttle(kit, client, q, how):
    client.throttles["t"].set_maximum(1)
    kit.put(client, "q", jid="a", throttles=["t"])
    job = q.pop()
    kit.put(client, "r", jid="b", throttles=["t"])
    assert client.queues["r"].pop() is None
    if how == "advance":
        job.complete("elsewhere")
    elif how == "fail":
        job.fail("g", "m")
    elif how == "release":
        client("throttle.release", "t", "a")
    else:
        getattr(job, how)()
    assert client.throttles["t"].locks() == []
    assert client.queues["r"].pop().jid == "b"
    assert client.throttles["t"].locks() == ["b"]


def test_an_expired_lock_keeps_its_throttle(kit, client, other, q, clock):
    client.config["grace-period"] = 0
    client.throttles["t"].set_maximum(1)
    kit.put(client, "q", jid="a", throttles=["t"])
    q.pop()
    clock.forward(61)
    assert other.queues["q"].pop().jid == "a"
    assert client.throttles["t"].locks() == ["a"]


def test_a_job_needs_all_its_throttles(kit, client, q):
    client.throttles["wide"].set_maximum(5)
    client.throttles["narrow"].set_maximum(1)
    kit.put(client, "q", jid="a", throttles=["narrow"], priority=1)
    assert q.pop().jid == "a"
    kit.put(client, "q", jid="b", throttles=["wide", "narrow"])
    assert q.pop() is None
    assert client.throttles["wide"].locks() == []
    assert client.throttles["narrow"].pending() == ["b"]


def test_a_queue_throttle(kit, client, q):
    q.throttle.set_maximum(2)
    for jid in "abc":
        kit.put(client, "q", jid=jid)
    assert len(q.pop(5)) == 2
    assert len(q.throttle.locks()) == 2
    assert q.pop() is None
    client.jobs[q.jobs.running()[0]].complete()
    assert len(q.pop(5)) == 1


def test_popping_again_when_throttled(kit, client, q, clock):
    """One pop may come back with less than there is, unless told to try more often."""
    client.throttles["t"].set_maximum(1)
    for jid in ("a", "b"):
        kit.put(client, "q", jid=jid, throttles=["t"], priority=5)
        clock.forward(1)
    kit.put(client, "q", jid="free")
    assert [job.jid for job in q.pop(2)] == ["a"]
    assert [job.jid for job in q.pop(2)] == ["free"]
    kit.put(client, "s", jid="c")
    client.config["max-pop-retry"] = 5
    for jid in ("d", "e"):
        kit.put(client, "s", jid=jid, throttles=["u"], priority=5)
        clock.forward(1)
    client.throttles["u"].set_maximum(1)
    assert sorted(job.jid for job in client.queues["s"].pop(2)) == ["c", "d"]


def test_canceling_a_throttled_job(kit, client, q):
    client.throttles["t"].set_maximum(1)
    kit.put(client, "q", jid="a", throttles=["t"])
    q.pop()
    kit.put(client, "q", jid="b", throttles=["t"])
    client.jobs["b"].cancel()
    assert client.throttles["t"].pending() == []
    assert q.counts["throttled"] == 0


def test_top_tags_forget_unused_ones(kit, client):
    kit.put(client, "q", jid="a", tags=["t"])
    kit.put(client, "q", jid="b", tags=["t"])
    assert client.tags() == ["t"]
    client("cancel", "a", "b")
    assert client.tags() == {}
    assert client.redis.zscore("ql:tags", "t") is None


# --- queue patterns -------------------------------------------------------------------------------------------------


def test_identifier_patterns(client):
    qmore = QmoreClient(client.redis)
    assert qmore.get_queue_identifier_patterns() == {"default": "*"}
    qmore.set_queue_identifier_patterns({"high": ["a*", "!ab"], "default": ["x"]})
    assert qmore.get_queue_identifier_patterns() == {"high": ["a*", "!ab"], "default": ["x"]}
    qmore.set_queue_identifier_patterns({"low": ["z"]})
    assert qmore.get_queue_identifier_patterns() == {"low": ["z"], "default": "*"}
    qmore.set_queue_identifier_patterns({})
    assert qmore.get_queue_identifier_patterns() == {"default": "*"}


def test_priority_patterns(client):
    qmore = QmoreClient(client.redis)
    assert qmore.get_queue_priority_patterns() == []
    qmore.set_queue_priority_patterns([
        QueuePriorityPattern(["a*", "!ab"], False), QueuePriorityPattern(["default"], True)])
    one, two = qmore.get_queue_priority_patterns()
    assert (one.patterns, one.should_distribute_fairly) == (["a*", "!ab"], False)
    assert (two.patterns, two.should_distribute_fairly) == (["default"], True)
    assert "a*" in repr(one)
    qmore.set_queue_priority_patterns([])
    assert qmore.get_queue_priority_patterns() == []


def test_the_mapping_resolver(kit, client, clock):
    for name in ("alpha", "beta", "gamma", "alpha-slow"):
        kit.put(client, name)
        clock.forward(1)
    QmoreClient(client.redis).set_queue_identifier_patterns({"fast": ["*a", "!gamma"], "slow": ["*-slow"]})
    resolver = TransformingQueueResolver(
        ["@fast", "literal", "@slow"], [QmoreDynamicMappingQueueIdentifiersTransformer(client, 1)])
    assert resolver.resolve() == ["alpha", "beta", "literal", "alpha-slow"]
    resolver = TransformingQueueResolver(["*", "!@fast"], [QmoreDynamicMappingQueueIdentifiersTransformer(client)])
    # What is negated inside a negated name is taken in again.
    assert resolver.resolve() == ["alpha-slow", "gamma"]
    assert TransformingQueueResolver(["b", "a"]).resolve() == ["b", "a"]


def test_the_priority_resolver(client):
    qmore = QmoreClient(client.redis)
    qmore.set_queue_priority_patterns([
        QueuePriorityPattern(["high*"], False), QueuePriorityPattern(["default"], False),
        QueuePriorityPattern(["low*"], True)])
    resolver = TransformingQueueResolver(
        ["low-1", "other", "high-1", "low-2"], [QmoreDynamicPriorityQueueIdentifiersTransformer(client, 1)])
    resolved = resolver.resolve()
    assert resolved[:2] == ["high-1", "other"]
    assert sorted(resolved[2:]) == ["low-1", "low-2"]
    qmore.set_queue_priority_patterns([
        QueuePriorityPattern(["*", "!low*"], False), QueuePriorityPattern(["default"], True)])
    resolved = TransformingQueueResolver(
        ["low-1", "other", "low-2"], [QmoreDynamicPriorityQueueIdentifiersTransformer(client)]).resolve()
    assert resolved[0] == "other" and sorted(resolved[1:]) == ["low-1", "low-2"]


def test_a_worker_with_a_resolver(kit, client, clock):
    for name in ("b-queue", "a-queue", "other"):
        kit.put(client, name, jid=name)
        clock.forward(1)
    qmore = QmoreClient(client.redis)
    qmore.set_queue_identifier_patterns({"mine": ["*-queue"]})
    qmore.set_queue_priority_patterns([QueuePriorityPattern(["a*"], False)])
    resolver = TransformingQueueResolver(["@mine"], [
        QmoreDynamicMappingQueueIdentifiersTransformer(client), QmoreDynamicPriorityQueueIdentifiersTransformer(client)])
    jobs = kit.Worker(resolver, client).jobs()
    assert [next(jobs).jid, next(jobs).jid, next(jobs)] == ["a-queue", "b-queue", None]


# --- the rest of the package ----------------------------------------------------------------------------------------


def test_listener_alone(client, raw):
    listener = reqless.listener.Listener(client.redis, ["some", "channels"])
    messages = listener.listen()
    heard = []

    def listen():
        for message in messages:
            heard.append((message["channel"], message["data"]))
            if len(heard) == 2:
                return

    import threading
    thread = threading.Thread(target=listen)
    thread.start()
    support.until(lambda: raw.execute_command("PUBLISH", "some", "1") == 1)
    raw.publish("channels", "2")
    thread.join(support.PATIENCE)
    assert heard == [("some", "1"), ("channels", "2")]
    listener.unlisten()


def test_klass_is_imported_and_reloaded(kit, client):
    import haul_jobs
    kit.put(client, "q", "haul_jobs.Quick", jid="a")
    assert client.jobs["a"].klass is haul_jobs.Quick
    reqless.importer.Importer.mark_for_reload_on_next_import("haul_jobs.Quick")
    assert client.jobs["a"].klass.__name__ == "Quick"
    assert reqless.util.import_class("haul_jobs.Quick").__name__ == "Quick"


def test_a_typed_job_processor(kit, client, q):
    import typed_reqless
    q.put(typed_reqless.Adder, typed_reqless.Numbers(2, 3).to_json(), jid="a")
    q.pop().process()
    job = client.jobs["a"]
    assert job.state == "complete"
    assert typed_reqless.Adder.data_class() is typed_reqless.Numbers
    assert json.loads(job.data) == {"a": 2, "b": 3, "sum": 5}


def test_worker_helpers(kit, tmp_path):
    util = reqless.workers.util
    assert [len(group) for group in util.divide(list(range(7)), 3)] == [3, 2, 2]
    assert util.divide([], 2) == [[], []]
    folder = tmp_path / "box"
    with util.create_sandbox(str(folder)):
        (folder / "file").write_text("x")
        (folder / "sub").mkdir()
    assert list(folder.iterdir()) == []
    before = util.get_title()
    util.set_title("testing")
    assert util.get_title() == "reqless-py-worker testing"
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
    with pytest.raises(NotImplementedError):
        kit.Worker(["q"], client).run()


def test_forking_worker_spawns(kit, client):
    worker = kit.Forking(["q"], client, workers=3, interval=1)
    assert worker.count == 3
    assert isinstance(worker.spawn(), kit.Serial)
    worker = kit.Forking(["q"], client, klass="reqless.workers.serial.SerialWorker")
    assert isinstance(worker.spawn(), kit.Serial)


@pytest.mark.haul_only
def test_the_profiler(kit, client, capsys):
    """Needs entries of four fields, as Redis 3 gave them; Redis 7 gives six and breaks it."""
    with reqless.profile.Profiler(client):
        kit.put(client, "q", jid="a")
        client.queues["q"].pop()
    assert "Raw Redis Commands" in capsys.readouterr().out
