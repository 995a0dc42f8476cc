"""Tests for what qless-py and reqless have in common: reqless began as a copy. test_qless.py and test_reqless.py take
all of these in and run them with their own `kit`.

Both packages send their own clock's time with every call and the server must believe it, so most tests turn that
clock by hand (`clock`) and nothing has to wait for real time to pass.
"""

import json
import signal
import sys
import threading
import types

import pytest

import support
from support import unwrap

import haul_jobs


class Clock(object):
    def __init__(self):
        self.now = 1700000000.25

    def time(self):
        return self.now

    def forward(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(kit, monkeypatch):
    clock = Clock()
    fake = types.SimpleNamespace(time=clock.time)
    for name in kit.clocked:
        monkeypatch.setattr(sys.modules[name], "time", fake)
    return clock


@pytest.fixture
def client(kit):
    client = kit.client("mine")
    yield client
    client.redis.connection_pool.disconnect()


@pytest.fixture
def other(kit):
    client = kit.client("other")
    yield client
    client.redis.connection_pool.disconnect()


@pytest.fixture
def q(client):
    return client.queues["q"]


def refused(kit, *words):
    return pytest.raises(kit.Error, match=".*".join(words))


# --- the client itself ----------------------------------------------------------------------------------------------


def test_the_script_is_loaded_on_demand(kit, client, q, raw):
    """The server may know the package's own text from the start, but not this copy of it."""
    client._lua = client.redis.register_script(client._lua.script + b"\n-- a copy\n")
    raw.script_flush()
    assert bool(raw.script_exists(client._lua.sha)[0]) is False
    kit.put(client, "q", jid="a")
    assert bool(raw.script_exists(client._lua.sha)[0]) is True
    raw.script_flush()
    assert q.pop().jid == "a"


def test_an_unknown_command_is_an_error_of_the_package(kit, client):
    with refused(kit, "Unknown command nonsense"):
        client("nonsense")


def test_the_connection_survives_errors(kit, client, q):
    for _ in range(20):
        with refused(kit, "Unknown command"):
            client("nonsense")
    assert len(q) == 0


def test_a_call_without_its_arguments(kit, client):
    with refused(kit, "no jid provided"):
        client("get")
    with refused(kit, "no queue name provided"):
        client("length")
    with refused(kit, "no jid provided"):
        client("recur.get")


def test_unknown_attributes(client, q):
    for thing in (client, client.queues, client.workers, client.config, q):
        with pytest.raises(AttributeError):
            thing.nonsense


def test_two_databases_hold_two_worlds(kit, client):
    there = kit.module.Client(support.URL + "/3", hostname="mine")
    kit.put(client, "q", jid="here")
    kit.put(there, "q", jid="there")
    assert client.jobs["there"] is None
    assert there.jobs["here"] is None
    assert [job.jid for job in there.queues["q"].pop(10)] == ["there"]
    there.redis.connection_pool.disconnect()


def test_bytes_outside_ascii(kit, client, q):
    kit.put(client, "q", jid="jörg", data={"text": "żółć 漢字 \U0001f980", "nul": "\x00\x7f"}, tags=["größe"])
    job = q.pop()
    assert job.jid == "jörg"
    assert kit.data(job) == {"text": "żółć 漢字 \U0001f980", "nul": "\x00\x7f"}
    assert job.tags == ["größe"]
    assert client.jobs.tagged("größe") == {"total": 1, "jobs": ["jörg"]}


def test_a_large_job(kit, client, q):
    text = "x" * (1 << 20)
    kit.put(client, "q", data={"text": text})
    assert kit.data(q.pop())["text"] == text


# --- putting and looking --------------------------------------------------------------------------------------------


def test_put_and_every_attribute(kit, client, clock):
    jid = kit.put(client, "q", "some.Klass", {"a": [1, {"b": None}]}, jid="a", priority=3, tags=["x", "y"], retries=2)
    assert jid == "a"
    job = client.jobs["a"]
    assert isinstance(job, kit.module.Job)
    assert (job.jid, job.klass_name, job.queue_name, job.state) == ("a", "some.Klass", "q", "waiting")
    assert (job.priority, job.original_retries, job.retries_left) == (3, 2, 2)
    assert (job.tags, job.dependents, job.dependencies) == (["x", "y"], [], [])
    assert (job.worker_name, job.expires_at, job.tracked) == ("", 0, False)
    assert job.failure == {}
    assert kit.data(job) == {"a": [1, {"b": None}]}
    assert job.history == [{"what": "put", "when": 1700000000, "q": "q"}]
    assert job.queue.name == "q"
    assert repr(job) == "<some.Klass a>"


def test_put_makes_a_jid(kit, client):
    jid = kit.put(client, "q")
    assert len(jid) == 32
    assert client.jobs[jid].original_retries == 5


def test_put_takes_a_class(kit, client, q):
    q.put(haul_jobs.Quick, kit.encode({}), jid="a")
    assert client.jobs["a"].klass_name == "haul_jobs.Quick"
    assert q.class_string(haul_jobs.Quick) == "haul_jobs.Quick"
    assert q.class_string("x.Y") == "x.Y"


def test_put_again_moves_the_job(kit, client, other, q, clock):
    kit.put(client, "q", jid="a", tags=["x"])
    q.pop()
    kit.put(client, "r", jid="a", data={"new": 1}, tags=["y"], priority=7)
    job = client.jobs["a"]
    assert (job.state, job.queue_name, job.priority, job.tags) == ("waiting", "r", 7, ["y"])
    assert kit.data(job) == {"new": 1}
    assert client.jobs.tagged("x")["total"] == 0
    assert client.workers["mine"] == {"jobs": [], "stalled": []}
    assert len(q) == 0


def test_unknown_jobs(client):
    assert client.jobs["none"] is None
    assert client.jobs.get("none", "nobody") == []
    assert client.jobs.get() == []


def test_get_several(kit, client):
    for jid in "abc":
        kit.put(client, "q", jid=jid)
    assert [job.jid for job in client.jobs.get("c", "none", "a")] == ["c", "a"]


def test_work_order(kit, client, q, clock):
    """Larger priority first, then the earlier put, then descending jid."""
    kit.put(client, "q", jid="late-low", priority=-1)
    for jid in ("b", "a", "c"):
        kit.put(client, "q", jid=jid)
    clock.forward(1)
    kit.put(client, "q", jid="after")
    kit.put(client, "q", jid="high", priority=5)
    order = ["high", "c", "b", "a", "after", "late-low"]
    assert [job.jid for job in kit.peek(q, 10)] == order
    assert [job.jid for job in q.pop(10)] == order


def test_a_priority_set_later_jumps_the_line(kit, client, q, clock):
    for jid in "abc":
        kit.put(client, "q", jid=jid)
        clock.forward(1)
    client.jobs["c"].priority = 0
    assert [job.jid for job in q.pop(3)] == ["c", "a", "b"]


def test_set_priority(kit, client):
    kit.put(client, "q", jid="a")
    job = client.jobs["a"]
    job.priority = 10
    assert job.priority == 10
    assert client.jobs["a"].priority == 10


def test_peek(kit, client, q):
    assert kit.peek(q) is None
    assert kit.peek(q, 3) == []
    for jid in "abc":
        kit.put(client, "q", jid=jid)
    assert kit.peek(q).state == "waiting"
    assert len(kit.peek(q, 2)) == 2
    assert len(q.pop(5)) == 3


def test_pop(kit, client, q, clock):
    assert q.pop() is None
    assert q.pop(3) == []
    kit.put(client, "q", jid="a")
    clock.forward(2)
    job = q.pop()
    assert (job.state, job.worker_name, job.expires_at) == ("running", "mine", clock.now + 60)
    assert job.ttl == 60
    clock.forward(10)
    assert job.ttl == 50
    assert job.history[-1] == {"what": "popped", "when": 1700000002, "worker": "mine"}
    assert q.pop() is None


def test_delay(kit, client, q, clock):
    kit.put(client, "q", jid="a", delay=10)
    assert client.jobs["a"].state == "scheduled"
    assert q.jobs.scheduled() == ["a"]
    assert q.pop() is None
    clock.forward(9.9)
    assert q.pop() is None
    clock.forward(0.2)
    assert q.pop().jid == "a"


def test_length_counts(kit, client, q, clock):
    kit.put(client, "q", jid="waits")
    kit.put(client, "q", jid="runs", priority=1)
    kit.put(client, "q", jid="later", delay=10)
    kit.put(client, "q", jid="depends", depends=["waits"])
    q.recur("x.Y", kit.encode({}), 60, 30, jid="again")
    q.pop()
    assert len(q) == 3
    counts = dict(q.counts)
    counts.pop("throttled", None)
    assert counts == {"name": "q", "waiting": 1, "running": 1, "stalled": 0, "scheduled": 1, "depends": 1,
                      "recurring": 1, "paused": False}
    assert [entry["name"] for entry in client.queues.counts] == ["q"]
    assert q.jobs.running() == ["runs"]
    assert q.jobs.scheduled() == ["later"]
    assert q.jobs.depends() == ["depends"]
    assert q.jobs.recurring() == ["again"]
    assert q.jobs.stalled() == []
    clock.forward(61)
    assert q.jobs.stalled() == ["runs"]
    assert q.jobs.running() == []
    assert q.counts["stalled"] == 1


def test_pages_of_jobs(kit, client, q, clock):
    for number in range(6):
        kit.put(client, "q", jid=str(number))
        clock.forward(1)
    q.pop(6)
    assert q.jobs.running(0, 2) == ["0", "1"]  # equal locks: by jid
    assert q.jobs.running(4, 10) == ["4", "5"]
    assert q.jobs.running(6) == []


def test_nothing_at_all(client):
    """Empty lists arrive as empty objects; the packages and third-party clients are used to it."""
    assert client.queues.counts == {}
    assert client.workers.counts == {}
    assert client.tags() == {}
    assert client.jobs.failed() == {}
    assert client.jobs.complete() == []
    assert client.jobs.tracked() == {"jobs": [], "expired": {}}
    assert client.jobs.tagged("x") == {"total": 0, "jobs": {}}
    assert client.jobs.failed("g") == {"total": 0, "jobs": []}
    assert client.workers["nobody"] == {"jobs": [], "stalled": []}
    assert client.queues["nothing"].counts["waiting"] == 0


def test_queues_are_listed_in_the_order_they_came(kit, client, clock):
    for name in ("z", "a", "m"):
        kit.put(client, name)
        clock.forward(1)
    assert [entry["name"] for entry in client.queues.counts] == ["z", "a", "m"]


def test_pause(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pause()
    assert q.counts["paused"] is True
    assert q.pop() is None
    assert kit.peek(q).jid == "a"
    q.unpause()
    assert q.counts["paused"] is False
    assert q.pop().jid == "a"


def test_forget_a_queue(kit, client, q):
    kit.put(client, "q", jid="a")
    client("queue.forget", "q")
    assert client.queues.counts == {}
    assert q.pop().jid == "a"


# --- working --------------------------------------------------------------------------------------------------------


def test_complete(kit, client, q, clock):
    kit.put(client, "q", jid="a")
    job = q.pop()
    clock.forward(3)
    assert job.complete() == "complete"
    job = client.jobs["a"]
    assert (job.state, job.queue_name, job.worker_name, job.expires_at) == ("complete", "", "", 0)
    assert job.history[-1] == {"what": "done", "when": 1700000003}
    assert client.jobs.complete() == ["a"]
    assert client.workers["mine"]["jobs"] == []
    assert len(q) == 0


def test_complete_stores_data(kit, client, q):
    kit.put(client, "q", jid="a", data={"n": 1})
    job = q.pop()
    kit.set(job, {"n": 2})
    job.complete()
    assert kit.data(client.jobs["a"]) == {"n": 2}


def test_completed_jobs_newest_first(kit, client, q, clock):
    for jid in "abc":
        kit.put(client, "q", jid=jid)
        q.pop().complete()
        clock.forward(1)
    assert client.jobs.complete() == ["c", "b", "a"]
    assert client.jobs.complete(1, 1) == ["b"]


def test_completed_jobs_are_purged(kit, client, q, clock):
    client.config["jobs-history-count"] = 2
    for jid in "abc":
        kit.put(client, "q", jid=jid, tags=["t"])
        q.pop().complete()
        clock.forward(1)
    assert client.jobs["a"] is None
    assert client.jobs.complete() == ["c", "b"]
    assert client.jobs.tagged("t")["jobs"] == ["b", "c"]
    client.config["jobs-history"] = 10
    clock.forward(20)
    kit.put(client, "q", jid="d")
    q.pop().complete()
    assert client.jobs.complete() == ["d"]


def test_advance(kit, client, q, clock):
    kit.put(client, "q", jid="a")
    assert q.pop().complete("r") == "waiting"
    job = client.jobs["a"]
    assert (job.state, job.queue_name, job.worker_name) == ("waiting", "r", "")
    assert [entry["what"] for entry in job.history] == ["put", "popped", "done", "put"]
    assert client.queues["r"].pop().jid == "a"


def test_advance_with_a_delay(kit, client, q, clock):
    kit.put(client, "q", jid="a")
    assert q.pop().complete("r", delay=10) == "scheduled"
    assert client.queues["r"].jobs.scheduled() == ["a"]
    assert client.queues["r"].pop() is None
    clock.forward(11)
    assert client.queues["r"].pop().jid == "a"


@pytest.mark.haul_only
def test_advance_with_a_delay_says_scheduled(kit, client, q, clock):
    kit.put(client, "q", jid="a")
    q.pop().complete("r", delay=10)
    assert client.jobs["a"].state == "scheduled"


def test_advance_with_dependencies(kit, client, q):
    kit.put(client, "q", jid="a")
    job = q.pop()
    kit.put(client, "q", jid="b")
    assert job.complete("r", depends=["b"]) == "depends"
    assert client.jobs["a"].dependencies == ["b"]
    assert client.queues["r"].pop() is None
    q.pop().complete()
    assert client.queues["r"].pop().jid == "a"


def test_complete_is_refused(kit, client, other, q, clock):
    with refused(kit, "does not exist"):
        client("complete", "none", "mine", "q", "{}")
    kit.put(client, "q", jid="a")
    with refused(kit, "not currently running: waiting"):
        client("complete", "a", "mine", "q", "{}")
    job = q.pop()
    with refused(kit, "another worker: mine"):
        client("complete", "a", "other", "q", "{}")
    job.complete()
    with refused(kit, "not currently running: complete"):
        job.complete()


def test_complete_says_what_is_missing(kit, client):
    with refused(kit, 'Complete\\(\\): Arg "worker" missing'):
        client("complete", "a")
    with refused(kit, 'Complete\\(\\): Arg "queue(_name)?" missing'):
        client("complete", "a", "mine")
    with refused(kit, '"delay" cannot be used without a "next"'):
        client("complete", "a", "mine", "q", "{}", "delay", 1)
    with refused(kit, '"depends" cannot be used without a "next"'):
        client("complete", "a", "mine", "q", "{}", "depends", "[]")


def test_heartbeat(kit, client, q, clock):
    kit.put(client, "q", jid="a", data={"n": 1})
    job = q.pop()
    clock.forward(30)
    kit.set(job, {"n": 2})
    assert job.heartbeat() == 1700000090.0  # truncated to whole seconds
    assert client.jobs["a"].expires_at == clock.now + 60
    assert kit.data(client.jobs["a"]) == {"n": 2}
    assert q.jobs.running() == ["a"]


def test_heartbeat_interval(kit, client, q, clock):
    assert q.heartbeat == 60
    client.config["heartbeat"] = 20
    assert q.heartbeat == 20
    q.heartbeat = 100
    assert q.heartbeat == 100
    assert client.config["q-heartbeat"] == 100
    kit.put(client, "q", jid="a")
    job = q.pop()
    assert job.ttl == 100
    client.config["q-heartbeat"] = 7
    job.heartbeat()
    assert client.jobs["a"].ttl == 7


def test_heartbeat_of_a_job_one_does_not_hold(kit, client, other, q):
    kit.put(client, "q", jid="a")
    with pytest.raises(kit.LostLock):
        client.jobs["a"].heartbeat()
    other.queues["q"].pop()
    with pytest.raises(kit.LostLock):
        client.jobs["a"].heartbeat()
    client.jobs["a"].cancel()
    with refused(kit, "does not exist"):
        client("heartbeat", "a", "mine", "{}")


def test_heartbeat_after_a_move(kit, client, q):
    kit.put(client, "q", jid="a")
    job = q.pop()
    client.jobs["a"].move("r")
    with pytest.raises(kit.LostLock):
        job.heartbeat()


@pytest.mark.haul_only
def test_data_is_kept_as_it_was_sent(kit, client, q):
    """The reference re-encodes: empty lists become objects, long numbers lose digits."""
    data = {"list": [], "float": 1.0, "long": 12345678901234567890, "slash": "a/b"}
    kit.put(client, "q", jid="a", data=data)
    job = q.pop()
    job.heartbeat()
    assert kit.data(client.jobs["a"]) == data
    assert isinstance(kit.data(client.jobs["a"])["float"], float)
    job.fail("g", "m")
    assert kit.data(client.jobs["a"]) == data
    assert kit.data(client.jobs["a"])["list"] == []


def test_fail_and_unfail(kit, client, q, clock):
    kit.put(client, "q", jid="a")
    job = q.pop()
    clock.forward(1)
    assert job.fail("group", "message") == "a"
    job = client.jobs["a"]
    assert (job.state, job.queue_name, job.worker_name, job.expires_at) == ("failed", "q", "", 0)
    assert job.failure == {"group": "group", "message": "message", "when": 1700000001, "worker": "mine"}
    assert job.history[-1] == {"what": "failed", "when": 1700000001, "worker": "mine", "group": "group"}
    assert client.jobs.failed() == {"group": 1}
    failed = client.jobs.failed("group")
    assert (failed["total"], [one.jid for one in failed["jobs"]]) == (1, ["a"])
    assert client.unfail("group", "r") == 1
    assert client.jobs["a"].state == "waiting"
    assert client.jobs.failed() == {}
    assert client.queues["r"].pop().jid == "a"


def test_failed_newest_first_unfail_oldest_first(kit, client, q, clock):
    for jid in "abcd":
        kit.put(client, "q", jid=jid)
        q.pop().fail("g", "m")
        clock.forward(1)
    assert [job.jid for job in client.jobs.failed("g")["jobs"]] == ["d", "c", "b", "a"]
    assert [job.jid for job in client.jobs.failed("g", 0, 2)["jobs"]] == ["d", "c"]
    assert client.unfail("g", "q", 3) == 3
    assert [job.jid for job in client.jobs.failed("g")["jobs"]] == ["d"]
    assert sorted(job.jid for job in q.pop(10)) == ["a", "b", "c"]


def test_fail_is_refused(kit, client, q):
    with refused(kit, "does not exist"):
        client("fail", "none", "mine", "g", "m")
    kit.put(client, "q", jid="a")
    with refused(kit, "not currently running: waiting"):
        client("fail", "a", "mine", "g", "m")
    for args, word in ((("a",), "worker"), (("a", "mine"), "group"), (("a", "mine", "g"), "message")):
        with refused(kit, 'Fail\\(\\): Arg "%s" missing' % word):
            client("fail", *args)


def test_retry(kit, client, q, clock):
    kit.put(client, "q", jid="a", retries=2)
    assert q.pop().retry() == 1
    job = client.jobs["a"]
    assert (job.state, job.retries_left, job.original_retries) == ("waiting", 1, 2)
    assert q.pop().retry(delay=10) == 0
    assert client.jobs["a"].state == "scheduled"
    assert q.pop() is None
    clock.forward(11)
    assert q.pop().retry() == -1
    job = client.jobs["a"]
    assert job.state == "failed"
    assert job.failure["group"] == "failed-retries-q"
    assert job.failure["message"] == 'Job exhausted retries in queue "q"'
    assert client.jobs.failed() == {"failed-retries-q": 1}


def test_retry_with_a_reason(kit, client, q):
    kit.put(client, "q", jid="a", retries=1)
    assert q.pop().retry(group="g", message="m") == 0
    assert client.jobs["a"].failure["group"] == "g"
    assert client.jobs["a"].state == "waiting"
    assert q.pop().retry(0, "g", "m") == -1
    assert client.jobs["a"].failure["message"] == "m"
    assert client.jobs.failed() == {"g": 1}


def test_retry_is_refused(kit, client, other, q):
    kit.put(client, "q", jid="a")
    with refused(kit, "not currently running: waiting"):
        client("retry", "a", "q", "mine")
    q.pop()
    with refused(kit, "another worker: mine"):
        client("retry", "a", "q", "other")
    with refused(kit, "does not exist"):
        client("retry", "none", "q", "mine")
    with refused(kit, 'Retry\\(\\): Arg "delay" not a number: x'):
        client("retry", "a", "q", "mine", "x")


@pytest.mark.haul_only
def test_retry_into_another_queue_moves_it(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop()
    client("retry", "a", "r", "mine", 0)
    assert client.jobs["a"].queue_name == "r"
    assert sorted(entry["name"] for entry in client.queues.counts) == ["q", "r"]
    assert client.queues["r"].pop().jid == "a"


def test_timeout(kit, client, other, q, ear):
    kit.put(client, "q", jid="a")
    kit.put(client, "q", jid="b", priority=-1)
    job = q.pop()
    ear.take(2)
    client.jobs["a"].timeout()
    lost = {"jid": "a", "event": "lock_lost", "worker": "mine"}
    assert ear.take(2) == [("ql:w:mine", lost), ("ql:log", lost)]
    assert client.jobs["a"].state == "stalled"
    assert client.jobs["a"].history[-1]["what"] == "timed-out"
    with refused(kit, "not running"):
        client.jobs["a"].timeout()
    with pytest.raises(kit.LostLock):
        job.heartbeat()
    kit.put(client, "q", jid="c", priority=100)
    assert [job.jid for job in other.queues["q"].pop(3)] == ["a", "c", "b"]


@pytest.mark.haul_only
def test_timeout_takes_the_job_from_its_worker(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop()
    client.jobs["a"].timeout()
    assert client.workers["mine"] == {"jobs": [], "stalled": []}


def test_an_expired_lock_is_first_warned_then_handed_over(kit, client, other, q, ear, clock):
    kit.put(client, "q", jid="a", retries=1)
    mine = q.pop()
    ear.next()
    clock.forward(61)
    assert other.queues["q"].pop() is None
    lost = {"jid": "a", "event": "lock_lost", "worker": "mine"}
    assert ear.take(2) == [("ql:w:mine", lost), ("ql:log", lost)]
    assert client.jobs["a"].state == "running"
    clock.forward(9)
    assert other.queues["q"].pop() is None
    clock.forward(2)
    theirs = other.queues["q"].pop()
    assert (theirs.jid, theirs.worker_name, theirs.retries_left) == ("a", "other", 0)
    with pytest.raises(kit.LostLock):
        mine.heartbeat()
    with refused(kit, "another worker: other"):
        mine.complete()
    assert theirs.complete() == "complete"
    assert [entry["what"] for entry in client.jobs["a"].history] == ["put", "popped", "timed-out", "popped", "done"]


def test_a_warned_worker_may_still_finish(kit, client, other, q, clock):
    kit.put(client, "q", jid="a")
    mine = q.pop()
    clock.forward(61)
    assert other.queues["q"].pop() is None
    mine.heartbeat()
    assert mine.complete() == "complete"


def test_without_grace_the_lock_is_handed_over_at_once(kit, client, other, q, clock):
    client.config["grace-period"] = 0
    kit.put(client, "q", jid="a")
    q.pop()
    clock.forward(61)
    assert other.queues["q"].pop().jid == "a"


def test_retries_run_out(kit, client, other, q, clock, ear):
    client.config["grace-period"] = 0
    kit.put(client, "q", jid="a", retries=1)
    client.track("a")
    q.pop()
    clock.forward(61)
    q.pop()
    clock.forward(61)
    ear.take(1 + 1 + 1 + 1 + 3 + 1)  # config, put, track, popped, the warning, popped
    assert q.pop() is None
    assert ear.take(3)[0] == ("ql:stalled", "a")
    assert ear.next() == ("ql:failed", "a")
    assert ear.next() == ("ql:log", {"jid": "a", "event": "failed", "group": "failed-retries-q", "worker": "mine",
                                     "message": 'Job exhausted retries in queue "q"'})
    job = client.jobs["a"]
    assert (job.state, job.retries_left, job.worker_name) == ("failed", -1, "")
    assert job.failure["group"] == "failed-retries-q"


@pytest.mark.haul_only
def test_put_forgets_an_old_warning(kit, client, other, q, clock):
    kit.put(client, "q", jid="a")
    q.pop()
    clock.forward(61)
    assert other.queues["q"].pop() is None  # warned
    kit.put(client, "q", jid="a")
    q.pop()
    clock.forward(61)
    assert other.queues["q"].pop() is None  # warned anew, not handed over


def test_cancel(kit, client, other, q, ear):
    kit.put(client, "q", jid="a", tags=["t"])
    job = q.pop()
    ear.next()
    assert client.jobs["a"].cancel() == ["a"]
    event = {"jid": "a", "event": "canceled", "worker": "mine", "queue": "q"}
    assert ear.take(2) == [("ql:log", event), ("ql:w:mine", event)]
    assert client.jobs["a"] is None
    assert client.jobs.tagged("t")["total"] == 0
    assert client.workers["mine"]["jobs"] == []
    assert len(q) == 0
    with pytest.raises(kit.LostLock):
        job.heartbeat()
    with refused(kit, "does not exist"):
        job.complete()


def test_cancel_a_failed_job(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop().fail("g", "m")
    client.jobs["a"].cancel()
    assert client.jobs.failed() == {}
    assert q.stats()["failed"] == 0
    assert q.stats()["failures"] == 1


def test_cancel_what_others_need(kit, client):
    kit.put(client, "q", jid="a")
    kit.put(client, "q", jid="b", depends=["a"])
    with refused(kit, "a is a dependency of b but is not mentioned to be canceled"):
        client.jobs["a"].cancel()
    assert client.jobs["a"].state == "waiting"
    assert client("cancel", "a", "b") == ["a", "b"]
    assert client.jobs.get("a", "b") == []


def test_move(kit, client, q, clock, ear):
    kit.put(client, "q", jid="a", data={"x": 1}, tags=["t"], priority=4)
    q.pop()
    ear.next()
    assert client.jobs["a"].move("r") == "a"
    job = client.jobs["a"]
    assert (job.state, job.queue_name, job.tags, job.priority) == ("waiting", "r", ["t"], 4)
    assert kit.data(job) == {"x": 1}
    client.jobs["a"].move("s", delay=5)
    assert client.queues["s"].jobs.scheduled() == ["a"]
    kit.put(client, "q", jid="b")
    client.jobs["a"].move("t", depends=["b"])
    assert client.jobs["a"].dependencies == ["b"]
    assert client.queues["t"].jobs.depends() == ["a"]


def test_moving_a_failed_job(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop().fail("g", "m")
    client.jobs["a"].move("r")
    assert client.jobs.failed() == {}
    assert client.queues["r"].pop().jid == "a"


@pytest.mark.haul_only
def test_moving_a_failed_job_counts_where_it_failed(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop().fail("g", "m")
    client.jobs["a"].move("r")
    assert q.stats()["failed"] == 0
    assert client.queues["r"].stats()["failed"] == 0


def test_log(kit, client, clock):
    kit.put(client, "q", jid="a")
    clock.forward(4)
    assert client("log", "a", "hello") is None
    assert client("log", "a", "more", json.dumps({"k": "v"})) is None
    assert client.jobs["a"].history[1:] == [
        {"what": "hello", "when": 1700000004}, {"what": "more", "when": 1700000004, "k": "v"}]
    with refused(kit, "Log\\(\\): Job none does not exist"):
        client("log", "none", "hello")


@pytest.mark.haul_only
def test_log_refuses_what_would_poison_the_job(kit, client):
    kit.put(client, "q", jid="a")
    for scalar in ("1", '"x"', "null"):
        with refused(kit, "not cjson"):
            client("log", "a", "hello", scalar)
    assert len(client.jobs["a"].history) == 1


# --- dependencies ---------------------------------------------------------------------------------------------------


def test_dependencies(kit, client, q):
    kit.put(client, "q", jid="a")
    kit.put(client, "q", jid="b", depends=["a"])
    assert client.jobs["b"].state == "depends"
    assert client.jobs["b"].dependencies == ["a"]
    assert client.jobs["a"].dependents == ["b"]
    assert [job.jid for job in q.pop(5)] == ["a"]
    client.jobs["a"].complete()
    assert client.jobs["b"].state == "waiting"
    assert client.jobs["b"].dependencies == []
    assert q.pop().jid == "b"


def test_depend_and_undepend(kit, client, q):
    for jid in "abc":
        kit.put(client, "q", jid=jid, priority=-1)
    kit.put(client, "q", jid="d", depends=["a"])
    assert client.jobs["d"].depend("b", "c", "none")
    assert sorted(client.jobs["d"].dependencies) == ["a", "b", "c"]
    assert client.jobs["d"].undepend("a")
    assert sorted(client.jobs["d"].dependencies) == ["b", "c"]
    assert client.jobs["d"].undepend(all=True)
    assert client.jobs["d"].dependencies == []
    assert client.jobs["a"].dependents == []
    assert q.pop().jid == "d"
    with refused(kit, "Job d not in the depends state: running"):
        client.jobs["d"].depend("a")


def test_failing_releases_nobody(kit, client, q):
    kit.put(client, "q", jid="a")
    kit.put(client, "q", jid="b", depends=["a"])
    q.pop().fail("g", "m")
    assert client.jobs["b"].state == "depends"


def test_a_finished_dependency_does_not_hold(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop().complete()
    kit.put(client, "q", jid="b", depends=["a", "never"])
    assert client.jobs["b"].state == "waiting"


def test_a_chain_of_dependencies(kit, client, q):
    kit.put(client, "q", jid="0")
    for number in range(1, 20):
        kit.put(client, "q", jid=str(number), depends=[str(number - 1)])
    for number in range(20):
        job = q.pop()
        assert job.jid == str(number)
        job.complete()
    assert len(q) == 0


# --- tags, tracking, statistics, workers ----------------------------------------------------------------------------


def test_tags(kit, client, clock):
    kit.put(client, "q", jid="a", tags=["x"])
    assert unwrap(client.jobs["a"].tag("y", "x")) == ["x", "y"]
    assert client.jobs["a"].tags == ["x", "y"]
    assert client.jobs.tagged("y") == {"total": 1, "jobs": ["a"]}
    assert unwrap(client.jobs["a"].untag("x")) == ["y"]
    assert client.jobs["a"].tags == ["y"]
    assert client.jobs.tagged("x")["total"] == 0
    with refused(kit, "Tag\\(\\): Job none does not exist"):
        client("tag", "add", "none", "x")


def test_top_tags(kit, client):
    for number in range(4):
        kit.put(client, "q", tags=["often"] + (["seldom"] if number < 2 else []) + (["once"] if number < 1 else []))
    assert client.tags() == ["often", "seldom"]
    assert client.tags(1, 1) == ["seldom"]


def test_tagged_in_pages(kit, client, clock):
    for jid in "abcd":
        kit.put(client, "q", jid=jid, tags=["t"])
        clock.forward(1)
    assert client.jobs.tagged("t") == {"total": 4, "jobs": ["a", "b", "c", "d"]}
    assert client.jobs.tagged("t", 2, 25)["jobs"] == ["c", "d"]


def test_tracking(kit, client, q, clock):
    kit.put(client, "q", jid="a")
    kit.put(client, "q", jid="b")
    assert client.jobs["a"].track() == kit.yes
    assert client.track("b") == kit.yes
    assert client.jobs["a"].tracked is True
    assert sorted(job.jid for job in client.jobs.tracked()["jobs"]) == ["a", "b"]
    assert client.jobs["a"].untrack() == kit.yes
    assert client.jobs["a"].untrack() == kit.no
    assert client.jobs["a"].tracked is False
    client.jobs["b"].cancel()
    assert client.jobs.tracked() == {"jobs": [], "expired": ["b"]}
    with refused(kit, "Track\\(\\): Job does not exist"):
        client.track("none")


@pytest.mark.haul_only
def test_untrack_a_job_that_is_gone(kit, client):
    kit.put(client, "q", jid="a")
    client.track("a")
    client.jobs["a"].cancel()
    assert client.untrack("a") == kit.yes
    assert client.jobs.tracked() == {"jobs": [], "expired": {}}


def test_statistics(kit, client, q, clock):
    for number in range(4):
        kit.put(client, "q", jid=str(number))
        clock.forward(1)
    for job in q.pop(4):
        clock.forward(60)
        job.complete()
    kit.put(client, "q", jid="bad")
    q.pop().fail("g", "m")
    stats = q.stats()
    assert (stats["failed"], stats["failures"], stats["retries"]) == (1, 1, 0)
    assert stats["wait"]["count"] == 5
    assert stats["wait"]["mean"] == pytest.approx(2.0)
    assert stats["wait"]["histogram"][:5] == [1, 1, 1, 1, 1]
    assert stats["run"]["count"] == 4
    assert stats["run"]["mean"] == pytest.approx(150.0)
    assert stats["run"]["std"] == pytest.approx(77.4596669)
    assert len(stats["run"]["histogram"]) == 148
    assert stats["run"]["histogram"][60:64] == [1, 1, 1, 1]
    assert q.stats("0")["wait"]["count"] == 0


def test_workers(kit, client, other, q, clock):
    kit.put(client, "q", jid="a")
    kit.put(client, "q", jid="b")
    q.pop()
    clock.forward(30)
    other.queues["q"].pop()
    assert client.workers.counts == [
        {"name": "other", "jobs": 1, "stalled": 0}, {"name": "mine", "jobs": 1, "stalled": 0}]
    assert client.workers["other"]["jobs"] == ["a"]
    clock.forward(40)
    assert client.workers["mine"] == {"jobs": [], "stalled": ["b"]}
    assert {"name": "mine", "jobs": 0, "stalled": 1} in client.workers.counts
    client("worker.deregister", "mine")
    assert [entry["name"] for entry in client.workers.counts] == ["other"]
    client.config["max-worker-age"] = 5
    assert client.workers.counts == {}


# --- configuration --------------------------------------------------------------------------------------------------


DEFAULTS = {"application": "qless", "grace-period": 10, "heartbeat": 60, "histogram-history": 7,
            "jobs-history": 604800, "jobs-history-count": 50000, "stats-history": 30}


def test_config_as_a_mapping(client):
    config = client.config
    assert config.all == DEFAULTS
    assert len(config) == 7
    assert config["heartbeat"] == 60
    assert config["nothing"] is None
    assert "nothing" not in config and "heartbeat" in config
    assert sorted(config) == sorted(config.keys()) == sorted(DEFAULTS)
    assert dict(config.items()) == DEFAULTS
    assert sorted(map(str, config.values())) == sorted(map(str, DEFAULTS.values()))
    config["nothing"] = 5
    assert config["nothing"] == 5
    assert config.all["nothing"] == "5"
    assert config.get("nothing") == 5
    assert config.get("absent", 9) == 9
    assert config.pop("nothing") == 5
    assert config.pop("nothing", 3) == 3
    assert "nothing" not in config
    config.update({"heartbeat": 1}, grace=2)
    assert config.all["heartbeat"] == "1" and config["grace"] == 2
    del config["grace"]
    config.clear()
    assert config.all == DEFAULTS


def test_config_events(client, ear):
    client.config["o"] = "v"
    del client.config["o"]
    assert ear.text() == ("ql:log", '{"option":"o","event":"config_set","value":"v"}')
    assert ear.text() == ("ql:log", '{"event":"config_unset","option":"o"}')


def test_config_says_what_is_missing(kit, client):
    with refused(kit, 'config.set\\(\\): Arg "option" missing'):
        client("config.set")
    with refused(kit, 'config.set\\(\\): Arg "value" missing'):
        client("config.set", "o")
    with refused(kit, 'config.unset\\(\\): Arg "option" missing'):
        client("config.unset")


@pytest.mark.haul_only
def test_nonsense_in_a_numeric_option_is_ignored(kit, client, q):
    client.config["heartbeat"] = "soon"
    client.config["q-heartbeat"] = "never"
    kit.put(client, "q", jid="a")
    assert 55 < q.pop().ttl <= 60


# --- recurring jobs -------------------------------------------------------------------------------------------------


def test_recurring_attributes(kit, client, q, clock):
    assert q.recur("x.Y", kit.encode({"a": 1}), 60, 5, priority=2, tags=["t"], retries=3, jid="r") == "r"
    job = client.jobs["r"]
    assert isinstance(job, kit.module.RecurringJob)
    assert (job.jid, job.klass_name, job.queue_name, job.tags) == ("r", "x.Y", "q", ["t"])
    assert (job.priority, job.interval, job.retries, job.count) == (2, 60, 3, 0)
    assert kit.data(job) == {"a": 1}
    assert job.next == clock.now + 5
    assert job.queue.name == "q"
    assert q.jobs.recurring() == ["r"]


def test_recurring_makes_a_jid(kit, client, q):
    assert len(q.recur(haul_jobs.Quick, kit.encode({}), 60)) == 32


def test_recurring_children(kit, client, q, clock):
    q.heartbeat = 10000
    q.recur("x.Y", kit.encode({"a": 1}), 60, 0, priority=2, tags=["t"], retries=3, jid="r")
    child = q.pop()
    assert (child.jid, child.klass_name, child.tags, child.priority) == ("r-1", "x.Y", ["t"], 2)
    assert child.original_retries == 3
    assert kit.data(child) == {"a": 1}
    assert q.pop() is None
    clock.forward(60)
    assert q.pop().jid == "r-2"
    clock.forward(180)
    assert [job.jid for job in q.pop(10)] == ["r-3", "r-4", "r-5"]
    assert client.jobs["r"].count == 5
    assert client.jobs.tagged("t")["total"] == 5


def test_recurring_updates(kit, client, q, clock):
    q.recur("x.Y", kit.encode({}), 60, 0, jid="r")
    job = client.jobs["r"]
    job.priority = 5
    job.retries = 7
    job.interval = 10
    kit.set(job, {"new": True})
    job.klass = haul_jobs.Quick
    job = client.jobs["r"]
    assert (job.priority, job.retries, job.interval, job.klass_name) == (5, 7, 10, "haul_jobs.Quick")
    assert kit.data(job) == {"new": True}
    assert job.klass is haul_jobs.Quick
    assert job.next == pytest.approx(clock.now - 50)


def test_recurring_tags(kit, client, q, clock):
    q.recur("x.Y", kit.encode({}), 60, 0, jid="r", tags=["a"])
    assert unwrap(client.jobs["r"].tag("b")) == ["a", "b"]
    assert client.jobs["r"].tags == ["a", "b"]
    assert unwrap(client.jobs["r"].untag("a")) == ["b"]
    assert client.jobs["r"].tags == ["b"]
    assert q.pop().tags == ["b"]


def test_recurring_move_and_cancel(kit, client, q, clock):
    q.recur("x.Y", kit.encode({}), 60, 0, jid="r")
    assert client.jobs["r"].move("s") == 1
    assert client.jobs["r"].queue_name == "s"
    assert q.jobs.recurring() == []
    assert client.queues["s"].jobs.recurring() == ["r"]
    assert client.queues["s"].pop().jid == "r-1"
    client.jobs["r"].cancel()
    assert client.jobs["r"] is None
    assert client.jobs["r-1"].state == "running"
    clock.forward(100)
    assert client.queues["s"].pop() is None


def test_recurring_backlog(kit, client, q, clock):
    q.heartbeat = 10000
    q.recur("x.Y", kit.encode({}), 60, 0, jid="r")
    client("recur.update", "r", "backlog", 2)
    q.pop()
    clock.forward(610)
    assert [job.jid for job in q.pop(20)] == ["r-2", "r-3"]
    assert client.jobs["r"].next == 1700000660


def test_recurring_updates_are_refused(kit, client, q):
    with refused(kit, "Recur\\(\\): No recurring job none"):
        client("recur.update", "none", "priority", 1)
    q.recur("x.Y", kit.encode({}), 60, jid="r")
    with refused(kit, 'Recur\\(\\): Arg "priority" must be a number: x'):
        client("recur.update", "r", "priority", "x")
    with refused(kit, 'Recur\\(\\): Unrecognized option "foo"'):
        client("recur.update", "r", "foo", 1)
    with refused(kit, 'Recur\\(\\): Arg "interval" must be greater than'):
        q.recur("x.Y", kit.encode({}), 0)
    with refused(kit, 'schedule type "cron" unknown'):
        client("recur", "q", "s", "x.Y", "{}", "cron", 1, 1)


@pytest.mark.haul_only
def test_recurring_interval_must_stay_positive(kit, client, q):
    q.recur("x.Y", kit.encode({}), 60, jid="r")
    with pytest.raises(kit.Error):
        client("recur.update", "r", "priority", 9, "interval", 0)
    assert (client.jobs["r"].interval, client.jobs["r"].priority) == (60, 0)


# --- events ---------------------------------------------------------------------------------------------------------


class Seen(object):
    """Counts what a listener calls back with, and lets the test await it."""

    def __init__(self):
        self.heard = []
        self.changed = threading.Condition()

    def on(self, events, *names):
        for name in names:
            events.on(name, lambda jid, name=name: self.add(name, jid))

    def add(self, name, jid):
        with self.changed:
            self.heard.append((name, jid))
            self.changed.notify_all()

    def wait(self, *expected):
        with self.changed:
            assert self.changed.wait_for(lambda: self.heard == list(expected), support.PATIENCE), self.heard


def listens(raw, worker):
    """Waits until the listener thread of that worker is subscribed. The packages do not wait for it themselves, and a
    worker told to stop before that never ends."""
    support.until(lambda: raw.publish("ql:w:" + worker, "{}") > 0)


def test_events_of_a_tracked_job(kit, client, other, q, raw, clock):
    seen = Seen()
    listener = kit.client("listener")
    seen.on(listener.events, "canceled", "completed", "failed", "popped", "stalled", "put", "track", "untrack")
    with listener.events.thread():
        support.until(lambda: raw.publish("ql:track", "ready") > 0)
        seen.wait(("track", "ready"))
        kit.put(client, "q", jid="a")
        kit.put(client, "q", jid="untracked", priority=-5)
        client.track("a")
        q.pop().retry()
        q.pop()
        clock.forward(61)
        other.queues["q"].pop()
        client.jobs["a"].complete()
        kit.put(client, "q", jid="a")
        q.pop().fail("g", "m")
        client.jobs["a"].cancel()
        kit.put(client, "q", jid="a")
        client.untrack("a")
        q.pop()
        names = ["track", "popped", "popped", "stalled", "completed", "put", "popped", "failed", "canceled", "put",
                 "untrack"]
        seen.wait(("track", "ready"), *[(name, "a") for name in names])
    listener.redis.connection_pool.disconnect()


def test_event_callbacks_can_be_taken_off(kit, client, q, raw):
    seen = Seen()
    listener = kit.client("listener")
    seen.on(listener.events, "popped", "completed", "track")
    listener.events.off("popped")
    with pytest.raises(NotImplementedError):
        listener.events.on("nonsense", int)
    kit.put(client, "q", jid="a")
    client.track("a")
    with listener.events.thread():
        support.until(lambda: raw.publish("ql:track", "ready") > 0)
        seen.wait(("track", "ready"))
        q.pop().complete()
        seen.wait(("track", "ready"), ("completed", "a"))
    listener.redis.connection_pool.disconnect()


def test_log_events_in_full(kit, client, other, q, ear):
    """Text and order, as the reference writes them."""
    kit.put(client, "q", jid="a")
    assert ear.text() == ("ql:log", '{"jid":"a","event":"put","queue":"q"}')
    q.pop().complete("r")
    assert ear.text() == ("ql:log", '{"jid":"a","to":"r","event":"advanced","queue":"q"}')
    client.queues["r"].pop().fail("g", "m")
    assert ear.text() == ("ql:log", '{"message":"m","jid":"a","group":"g","event":"failed","worker":"mine"}')
    client.unfail("g", "q")
    job = q.pop()
    kit.raw_put(other, "r", "a", "x.Y", "{}", 0)
    assert ear.text() == ("ql:log", '{"jid":"a","event":"put","queue":"r"}')
    lost = '{"jid":"a","event":"lock_lost","worker":"mine"}'
    assert [ear.text(), ear.text()] == [("ql:w:mine", lost), ("ql:log", lost)]
    with pytest.raises(kit.LostLock):
        job.heartbeat()
    client.queues["r"].pop().complete()
    assert ear.text() == ("ql:log", '{"jid":"a","event":"completed","queue":"r"}')
    kit.put(client, "q", jid="b")
    assert ear.next().data["event"] == "put"
    q.pop().cancel()
    canceled = '{"jid":"b","queue":"q","event":"canceled","worker":"mine"}'
    assert [ear.text(), ear.text()] == [("ql:log", canceled), ("ql:w:mine", canceled)]
    ear.quiet()


def test_silent_commands(kit, client, q, ear, clock):
    kit.put(client, "q", jid="a", delay=1)
    ear.next()
    clock.forward(2)
    job = q.pop()
    job.heartbeat()
    job.tag("t")
    job.priority = 3
    client("log", "a", "hello")
    job.retry()
    q.pause()
    q.unpause()
    q.recur("x.Y", kit.encode({}), 60, jid="r")
    q.pop(5)
    ear.quiet()


# --- a failed call changes nothing ----------------------------------------------------------------------------------


@pytest.mark.haul_only
def test_a_refused_put_leaves_no_trace(kit, client, q, ear):
    for options in (("tags", '"text"'), ("tags", "{"), ("retries", "x"), ("priority", "x"), ("depends", '"b"'),
                    ("tags",)):
        with pytest.raises(kit.Error):
            kit.raw_put(client, "q", "a", "x.Y", "{}", 0, *options)
    with pytest.raises(kit.Error):
        kit.raw_put(client, "q", "a", "x.Y", "{broken", 0)
    assert client.jobs["a"] is None
    assert client.queues.counts == {}
    assert client.redis.keys("ql:*") == []
    ear.quiet()


@pytest.mark.haul_only
def test_a_refused_put_of_an_existing_job_leaves_it_alone(kit, client, q, ear):
    kit.put(client, "q", jid="a", tags=["t"])
    ear.next()
    with pytest.raises(kit.Error):
        kit.raw_put(client, "q", "a", "x.Y", "{}", 0, "retries", "x")
    assert client.jobs.tagged("t")["jobs"] == ["a"]
    assert client.jobs["a"].tags == ["t"]
    ear.quiet()


@pytest.mark.haul_only
def test_times_that_are_no_times(kit, client):
    for now in ("nan", "inf", "-inf"):
        with pytest.raises(Exception, match="Arg \"now\" missing or not a number"):
            client._lua(keys=[], args=["queues", now])


@pytest.mark.haul_only
def test_a_negative_pop_takes_nothing(kit, client, q):
    for jid in "abc":
        kit.put(client, "q", jid=jid)
    assert unwrap(client("pop", "q", "mine", -1)) in ([], {})
    assert len(q.pop(5)) == 3


@pytest.mark.haul_only
def test_unfail_nothing(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop().fail("g", "m")
    assert client("unfail", "q", "g", 0) == 0
    assert client.jobs["a"].state == "failed"


@pytest.mark.haul_only
def test_unfail_makes_its_queue_known(kit, client, q):
    kit.put(client, "q", jid="a")
    q.pop().fail("g", "m")
    client.unfail("g", "fresh")
    assert "fresh" in [entry["name"] for entry in client.queues.counts]


# --- running jobs in this process -----------------------------------------------------------------------------------


def test_process_calls_the_method(kit, client, q):
    kit.put(client, "q", "haul_jobs.Quick", jid="a")
    q.pop().process()
    assert client.jobs["a"].state == "complete"


def test_process_prefers_the_queues_method(kit, client):
    kit.put(client, "first", "haul_jobs.Chain", jid="a")
    client.queues["first"].pop().process()
    assert client.jobs["a"].queue_name == "second"


@pytest.mark.parametrize("klass, group", [
    ("haul_jobs.Broken", "q-ValueError"),
    ("haul_jobs.Chain", "q-method-missing"),
    ("haul_jobs.Odd", "q-method-type"),
    ("no_such_module.Klass", "q-ModuleNotFoundError"),
    ("haul_jobs.NoSuchClass", "q-AttributeError"),
])
def test_process_fails_the_job(kit, client, q, klass, group):
    kit.put(client, "q", klass, jid="a")
    q.pop().process()
    job = client.jobs["a"]
    assert job.state == "failed"
    assert job.failure["group"] == group
    if klass == "haul_jobs.Broken":
        assert "broken on purpose" in job.failure["message"]
    assert client.jobs.failed() == {group: 1}


def test_the_retry_decorator(kit, client, q):
    kit.put(client, "q", kit.retrying + ".Retrying", jid="a", retries=2)
    q.pop().process()
    job = client.jobs["a"]
    assert (job.state, job.retries_left) == ("waiting", 1)


# --- worker classes -------------------------------------------------------------------------------------------------


def test_worker_takes_names_and_queues(kit, client, q):
    worker = kit.Worker(["a", q], client)
    assert [queue.name for queue in worker.queues] == ["a", "q"]
    with pytest.raises(NotImplementedError):
        worker.kill("a")


def test_worker_yields_jobs_then_nothing(kit, client):
    kit.put(client, "a", jid="1")
    kit.put(client, "b", jid="2")
    jobs = kit.Worker(["a", "b"], client).jobs()
    assert [next(jobs).jid, next(jobs).jid, next(jobs)] == ["1", "2", None]


def test_worker_resumes(kit, client, other):
    kit.put(client, "a", jid="1")
    kit.put(client, "b", jid="2")
    client.queues["a"].pop()
    client.queues["b"].pop()
    worker = kit.Worker(["a"], client, resume=True)
    assert [job.jid for job in worker.resume] == ["1"]
    assert next(worker.jobs()).jid == "1"
    kit.put(client, "a", jid="3")
    other.queues["a"].pop()
    assert next(kit.Worker(["a"], client, resume=[client.jobs["3"]]).jobs()) is None


def test_serial_worker_runs_jobs(kit, client, raw, tmp_path):
    for number in range(5):
        kit.put(client, "q", "haul_jobs.Quick", jid=str(number))

    class Worker(kit.Serial):
        def signals(self):
            pass

        def jobs(self):
            for job in kit.Serial.jobs(self):
                if job is None:
                    listens(raw, "mine")
                    return
                yield job

    Worker(["q"], client, sandbox=str(tmp_path / "box")).run()
    assert sorted(client.jobs.complete()) == list("01234")


def test_serial_worker_hears_of_lost_locks(kit, client, other, raw, tmp_path):
    """The listener thread of a worker that is inside a job calls kill."""
    killed = []
    heard = threading.Event()
    inside = threading.Event()

    class Worker(kit.Serial):
        def signals(self):
            pass

        def kill(self, jid):
            killed.append(jid)
            heard.set()

        def jobs(self):
            job = next(kit.Serial.jobs(self))

            class Job(object):
                jid, klass_name = job.jid, job.klass_name

                def process(self):
                    inside.set()
                    assert heard.wait(support.PATIENCE)

            yield Job()

    for event in ("timeout", "cancel", "put"):
        kit.put(client, "q", jid="a")
        heard.clear()
        inside.clear()
        thread = threading.Thread(target=Worker(["q"], client, sandbox=str(tmp_path / "box")).run)
        thread.start()
        assert inside.wait(support.PATIENCE)
        listens(raw, "mine")
        if event == "timeout":
            client.jobs["a"].timeout()
        elif event == "cancel":
            client.jobs["a"].cancel()
        else:
            kit.put(other, "q", jid="a")
        thread.join(support.PATIENCE)
        assert not thread.is_alive()
        if event != "cancel":
            client.jobs["a"].cancel()
    assert killed == ["a", "a", "a"]


def test_gevent_worker_runs_jobs(kit, client, start, desk):
    """In a process of its own, as its program makes it: patching a test run for gevent would change everything."""
    for number in range(4):
        kit.put(client, "q", "haul_jobs.Steady", {"desk": desk.path}, jid=str(number))
    start("q", greenlets=4)
    reports = [desk.next("started") for _ in range(4)]  # all four at once, in one process
    assert len({report["pid"] for report in reports}) == 1
    assert len({report["sandbox"] for report in reports}) == 4
    for report in reports:
        report["answer"]()
    for _ in range(4):
        desk.next("completed")
    assert sorted(client.jobs.complete()) == list("0123")


def test_gevent_worker_stops_a_job_whose_lock_is_lost(kit, client, raw, start, desk):
    kit.put(client, "q", "haul_jobs.Killable", {"desk": desk.path}, jid="a")
    start("q", name="green", greenlets=2)
    desk.next("started")
    listens(raw, "green")
    client.jobs["a"].timeout()
    report = desk.next("killed")
    assert (report["jid"], report["kind"]) == ("a", "GreenletExit")
    # It is handed out again, to the same worker, and this time it may finish.
    desk.next("started")["answer"]()
    support.until(lambda: client.jobs["a"].state == "complete")


def test_gevent_worker_stops_a_canceled_job(kit, client, raw, start, desk):
    kit.put(client, "q", "haul_jobs.Killable", {"desk": desk.path}, jid="a")
    start("q", name="green", greenlets=2)
    desk.next("started")
    listens(raw, "green")
    client.jobs["a"].cancel()
    assert desk.next("killed")["jid"] == "a"
    assert client.jobs["a"] is None


# --- worker processes -----------------------------------------------------------------------------------------------


def test_forked_workers_share_the_work(kit, client, start, desk):
    for number in range(3):
        kit.put(client, "q", "haul_jobs.Steady", {"desk": desk.path}, jid=str(number))
    process = start("q", name="box", workers=3)
    reports = [desk.next("started") for _ in range(3)]
    assert len({report["pid"] for report in reports}) == 3
    assert {report["parent"] for report in reports} == {process.process.pid}
    assert {report["worker"] for report in reports} == {"box"}
    assert sorted(client.workers["box"]["jobs"]) == ["0", "1", "2"]
    for report in reports:
        report["answer"]()
    assert {desk.next("completed")["state"] for _ in reports} == {"complete"}
    assert sorted(client.jobs.complete()) == ["0", "1", "2"]
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_a_process_advances_a_job_through_queues(kit, client, start, desk):
    kit.put(client, "first", "haul_jobs.Chain", {"desk": desk.path}, jid="a")
    start("first", "second")
    desk.next("second")
    support.until(lambda: client.jobs["a"].state == "complete")
    assert [entry["what"] for entry in client.jobs["a"].history] == [
        "put", "popped", "done", "put", "popped", "done"]


def test_a_process_fails_broken_jobs_and_goes_on(kit, client, start, desk):
    kit.put(client, "q", "haul_jobs.Broken", jid="bad", priority=1)
    kit.put(client, "q", "haul_jobs.Steady", {"desk": desk.path}, jid="good")
    start("q")
    desk.next("started")["answer"]()
    desk.next("completed")
    assert client.jobs["bad"].failure["group"] == "q-ValueError"
    assert client.jobs["good"].state == "complete"


def test_a_process_heartbeats(kit, client, start, desk):
    kit.put(client, "q", "haul_jobs.Beating", {"desk": desk.path}, jid="a")
    start("q", name="box")
    report = desk.next("started")
    client.config["heartbeat"] = 600
    report["answer"]("beat")
    report = desk.next("beaten")
    assert client.jobs["a"].ttl > 500
    report["answer"]("done")
    desk.next("completed")
    support.until(lambda: client.jobs["a"].state == "complete")


def test_a_process_loses_its_lock_to_another(kit, client, other, start, desk):
    """The lock runs out, another worker gets the job and finishes it; the first one is refused."""
    client.config["grace-period"] = 0
    client.config["q-heartbeat"] = -1  # what is popped now has expired already
    kit.put(client, "q", "haul_jobs.Beating", {"desk": desk.path}, jid="a")
    start("q", name="box")
    report = desk.next("started")
    client.config["q-heartbeat"] = 60
    theirs = other.queues["q"].pop()
    assert (theirs.jid, theirs.worker_name) == ("a", "other")
    report["answer"]("beat")
    report = desk.next("lost")
    assert report["kind"] == kit.LostLock.__name__
    assert theirs.complete() == "complete"
    report["answer"]()
    history = client.jobs["a"].history
    assert [entry.get("worker") for entry in history if entry["what"] == "popped"] == ["box", "other"]


def test_a_process_may_not_complete_what_was_taken_away(kit, client, start, desk):
    kit.put(client, "q", "haul_jobs.Beating", {"desk": desk.path}, jid="a")
    start("q", name="box")
    report = desk.next("started")
    client.jobs["a"].move("r")
    report["answer"]("done")
    report = desk.next("refused")
    assert report["kind"] == kit.Error.__name__
    assert "not currently running: waiting" in report["text"]
    report["answer"]()
    assert client.jobs["a"].queue_name == "r"


def test_a_process_has_its_job_canceled(kit, client, start, desk):
    kit.put(client, "q", "haul_jobs.Beating", {"desk": desk.path}, jid="a")
    start("q", name="box")
    report = desk.next("started")
    client.jobs["a"].cancel()
    report["answer"]("beat")
    desk.next("lost")["answer"]()
    assert client.jobs["a"] is None
    # It works on.
    kit.put(client, "q", "haul_jobs.Steady", {"desk": desk.path}, jid="b")
    desk.next("started")["answer"]()
    desk.next("completed")


def test_a_dead_process_is_replaced_and_its_job_given_out_again(kit, client, start, desk):
    client.config["grace-period"] = 0
    client.config["q-heartbeat"] = -1
    kit.put(client, "q", "haul_jobs.Deadly", {"desk": desk.path}, jid="a")
    start("q", name="box")
    first = desk.next("started")
    client.config["q-heartbeat"] = 60
    first["answer"]("die")
    second = desk.next("started")
    assert second["pid"] != first["pid"]
    second["answer"]()
    desk.next("completed")
    assert client.jobs["a"].state == "complete"


def test_a_process_resumes_its_jobs(kit, client, start, desk):
    kit.put(client, "q", "haul_jobs.Steady", {"desk": desk.path}, jid="a")
    kit.client("box").queues["q"].pop()
    start("q", name="box", resume=True)
    desk.next("started")["answer"]()
    desk.next("completed")
    assert [entry["what"] for entry in client.jobs["a"].history] == ["put", "popped", "done"]


def test_quit_lets_a_job_finish(kit, client, raw, start, desk):
    kit.put(client, "q", "haul_jobs.Steady", {"desk": desk.path}, jid="a", priority=1)
    process = start("q", name="box")
    report = desk.next("started")
    listens(raw, "box")
    process.signal(signal.SIGQUIT)
    report["answer"]()
    desk.next("completed")
    assert client.jobs["a"].state == "complete"
    assert process.wait() == 0
