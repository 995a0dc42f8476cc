"""Blueque's keys on the wire, in both protocol versions: the transactions its client sends (spec, chapter 3), the rules
of transactions, races, and jobs of Haul and tasks of Blueque in each other's hands."""

import json
import threading

import pytest

import support
from support import Wire

TASK = "0a1b2c3d-0000-4000-8000-00000000000%d"


@pytest.fixture(params=[2, 3])
def speak(request, wires):
    """Connections that speak one protocol version."""
    def make():
        wire = wires()
        wire.call("HELLO", str(request.param))
        wire.version = request.param
        return wire

    return make


@pytest.fixture
def blue(speak):
    return speak()


def plain(reply):
    """A reply without what only one protocol version has."""
    if isinstance(reply, Wire.Null):
        return None
    if isinstance(reply, Wire.Double):
        return ("%r" % reply.value).replace(".0", "")
    if isinstance(reply, Wire.Map):
        return [word for pair in reply.pairs for word in pair]
    if isinstance(reply, Wire.Set):
        return list(reply.items)
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return reply


def transact(wire, *commands):
    """One write, as redis-py's pipelines do it."""
    wire.send("MULTI")
    for command in commands:
        wire.send(*command)
    wire.send("EXEC")
    assert wire.read() == Wire.Status("OK")
    for _ in commands:
        assert wire.read() == Wire.Status("QUEUED")
    return plain(wire.read())


def enqueue(wire, jid, queue="q", parameters="p"):
    return transact(
        wire,
        ("HSET", "blueque_task_" + jid, "status", "pending", "queue", queue, "parameters", parameters,
         "created", "1794771779.1898537", "updated", "1794771779.1898537"),
        ("ZINCRBY", "blueque_queues", "0", queue),
        ("LPUSH", "blueque_pending_tasks_" + queue, jid))


def take(wire, listener, queue="q"):
    jid = plain(wire.call("RPOPLPUSH", "blueque_pending_tasks_" + queue, "blueque_reserved_tasks_%s_%s" % (queue, listener)))
    if jid is not None:
        wire.call("HSET", "blueque_task_" + jid, "status", "reserved", "node", listener, "updated", "2.5")
    return jid


def finish(wire, jid, listener, queue="q", pid="42", end=("complete", "result", "r")):
    status, field, value = end
    return transact(
        wire,
        ("LREM", "blueque_reserved_tasks_%s_%s" % (queue, listener), "1", jid),
        ("SREM", "blueque_started_tasks_" + queue, " ".join((listener, pid, jid))),
        ("HSET", "blueque_task_" + jid, "status", status, field, value, "updated", "4.5"),
        ("LPUSH", "blueque_%s_tasks_%s" % (status, queue), jid))


def start(wire, jid, listener, queue="q", pid="42"):
    return transact(
        wire,
        ("SADD", "blueque_started_tasks_" + queue, " ".join((listener, pid, jid))),
        ("HSET", "blueque_task_" + jid, "status", "started", "pid", pid, "updated", "3.5"))


# --- chapter 3, as captured -----------------------------------------------------------------------------------------


def test_a_task_from_enqueue_to_delete(blue):
    jid = TASK % 1
    assert enqueue(blue, jid) == [5, "0", 1]
    assert blue.call("RPOPLPUSH", "blueque_pending_tasks_q", "blueque_reserved_tasks_q_h_7") == jid
    assert blue.call("HSET", "blueque_task_" + jid, "status", "reserved", "node", "h_7", "updated", "2.5") == 1
    assert plain(blue.call("HGETALL", "blueque_task_" + jid)) == [
        "status", "reserved", "queue", "q", "parameters", "p", "created", "1794771779.1898537", "updated", "2.5",
        "node", "h_7"]
    assert start(blue, jid, "h_7") == [1, 1]
    assert finish(blue, jid, "h_7") == [1, 1, 1, 1]
    assert transact(blue, ("DEL", "blueque_task_" + jid), ("LREM", "blueque_complete_tasks_q", "1", jid)) == [1, 1]
    assert plain(blue.call("HGETALL", "blueque_task_" + jid)) == []
    assert plain(blue.call("KEYS", "blueque_*")) == ["blueque_queues"]


def test_a_task_that_fails(blue):
    jid = TASK % 1
    enqueue(blue, jid)
    assert take(blue, "h_7") == jid
    start(blue, jid, "h_7")
    assert finish(blue, jid, "h_7", end=("failed", "error", "it broke")) == [1, 1, 1, 1]
    assert blue.call("HGET", "blueque_task_" + jid, "error") == "it broke"
    assert transact(blue, ("DEL", "blueque_task_" + jid), ("LREM", "blueque_failed_tasks_q", "1", jid)) == [1, 1]


def test_the_types_of_replies(blue):
    enqueue(blue, "t")
    blue.call("SADD", "blueque_listeners_q", "l")
    new = blue.version == 3
    null = Wire.Null() if new else None
    assert isinstance(blue.call("HGETALL", "blueque_task_t"), Wire.Map if new else list)
    assert blue.call("HGETALL", "blueque_task_none") == (Wire.Map([]) if new else [])
    assert blue.call("SMEMBERS", "blueque_listeners_q") == (Wire.Set(["l"]) if new else ["l"])
    assert blue.call("ZINCRBY", "blueque_queues", "1", "q") == (Wire.Double(1.0) if new else "1")
    assert blue.call("ZSCORE", "blueque_queues", "q") == (Wire.Double(1.0) if new else "1")
    assert blue.call("HGET", "blueque_task_t", "none") == null
    assert blue.call("LINDEX", "blueque_pending_tasks_q", "5") == null
    assert blue.call("RPOPLPUSH", "blueque_pending_tasks_none", "blueque_reserved_tasks_none_l") == null
    assert isinstance(blue.call("ZRANGEBYSCORE", "blueque_queues", "0", "9"), list)


def schedule(wire, jid, eta):
    return transact(
        wire,
        ("HSET", "blueque_task_" + jid, "status", "scheduled", "queue", "q", "parameters", "p", "created", "1",
         "updated", "1", "eta", eta),
        ("ZINCRBY", "blueque_queues", "0", "q"),
        ("ZADD", "blueque_scheduled_tasks_q", eta, jid))


def test_due_tasks_are_moved_unless_somebody_else_was_there(blue, speak):
    assert schedule(blue, "b", "1794771779.6") == [6, "0", 1]
    assert schedule(blue, "a", "1794771780.25") == [6, "0", 1]
    other = speak()

    def look():
        assert blue.call("WATCH", "blueque_scheduled_tasks_q") == Wire.Status("OK")
        return plain(blue.call("ZRANGEBYSCORE", "blueque_scheduled_tasks_q", "0", "1794771790.5"))

    def move(ids):
        commands = [("ZREMRANGEBYSCORE", "blueque_scheduled_tasks_q", "0", "1794771790.5")]
        for jid in ids:
            commands.append(("LPUSH", "blueque_pending_tasks_q", jid))
            commands.append(("HSET", "blueque_task_" + jid, "status", "pending", "updated", "1794771790.5"))
        return transact(blue, *commands)

    ids = look()
    assert ids == ["b", "a"]
    schedule(other, "c", "1794771781.5")
    assert move(ids) is None
    ids = look()
    assert ids == ["b", "a", "c"]
    assert move(ids) == [3, 1, 0, 2, 0, 3, 0]
    assert look() == []
    assert transact(blue) == []
    assert [take(blue, "l") for _ in range(4)] == ["b", "a", "c", None]


def test_a_watch_fires_when_an_absent_key_is_made(blue, speak):
    for key, command in [
            ("blueque_task_t", ("HSET", "blueque_task_t", "status", "x")),
            ("blueque_pending_tasks_q", ("LPUSH", "blueque_pending_tasks_q", "u")),
            ("blueque_complete_tasks_q", ("LPUSH", "blueque_complete_tasks_q", "v")),
            ("blueque_listeners_q", ("SADD", "blueque_listeners_q", "l")),
            ("blueque_queues", ("ZINCRBY", "blueque_queues", "0", "q")),
            ("blueque_reserved_tasks_q_l", ("RPOPLPUSH", "blueque_pending_tasks_q", "blueque_reserved_tasks_q_l"))]:
        blue.call("WATCH", key)
        speak().call(*command)
        assert transact(blue, ("PING",)) is None, key
        blue.call("WATCH", key)
        assert transact(blue, ("PING",)) == [Wire.Status("PONG")], key


def test_unwatch_and_discard_clear_watches(blue, speak):
    other = speak()
    for clear in ("UNWATCH", "DISCARD"):
        blue.call("WATCH", "blueque_queues")
        other.call("ZINCRBY", "blueque_queues", "1", "q")
        if clear == "DISCARD":
            blue.call("MULTI")
        assert blue.call(clear) == Wire.Status("OK")
        assert transact(blue, ("PING",)) == [Wire.Status("PONG")]


def test_faults_in_transactions(blue):
    blue.call("SADD", "blueque_listeners_q", "l")
    blue.call("MULTI")
    blue.call("LPUSH", "blueque_pending_tasks_q", "t")
    assert blue.call("LREM", "blueque_pending_tasks_q", "t").text == "ERR wrong number of arguments for 'lrem' command"
    assert blue.call("EXEC").text == "EXECABORT Transaction discarded because of previous errors."
    blue.call("MULTI")
    assert blue.call("FOO", "a", "b").text == "ERR unknown command 'FOO', with args beginning with: 'a' 'b' "
    assert blue.call("EXEC").text.startswith("EXECABORT")
    blue.call("MULTI")
    assert blue.call("MULTI").text == "ERR MULTI calls can not be nested"
    assert blue.call("WATCH", "k").text == "ERR WATCH inside MULTI is not allowed"
    blue.call("DISCARD")
    assert blue.call("EXEC").text == "ERR EXEC without MULTI"
    assert blue.call("DISCARD").text == "ERR DISCARD without MULTI"
    done = transact(
        blue, ("LPUSH", "blueque_pending_tasks_q", "t"), ("ZINCRBY", "blueque_listeners_q", "1", "l"),
        ("LREM", "blueque_listeners_q", "1", "l"), ("ZADD", "blueque_scheduled_tasks_q", "x", "u"),
        ("ZINCRBY", "blueque_queues", "1", "q"))
    wrong = "WRONGTYPE Operation against a key holding the wrong kind of value"
    assert done == [1, Wire.Error(wrong), Wire.Error(wrong), Wire.Error("ERR value is not a valid float"), "1"]


@pytest.mark.haul_only
def test_the_transactions_of_the_first_description(blue):
    done = transact(
        blue, ("HMSET", "blueque_task_t", "status", "pending", "queue", "q", "parameters", "[1]"),
        ("ZINCRBY", "blueque_queues", "0", "q"), ("LPUSH", "blueque_pending_tasks_q", "t"))
    assert done == [Wire.Status("OK"), "0", 1]
    assert blue.call("RPOPLPUSH", "blueque_pending_tasks_q", "blueque_reserved_tasks_q_n") == "t"
    assert blue.call("HMSET", "blueque_task_t", "status", "reserved", "node", "n") == Wire.Status("OK")
    done = transact(
        blue, ("SADD", "blueque_started_tasks_q", "n 1 t"), ("HMSET", "blueque_task_t", "status", "started", "pid", "1"),
        ("HGET", "blueque_task_t", "parameters"))
    assert done == [1, Wire.Status("OK"), "[1]"]
    done = transact(
        blue, ("LREM", "blueque_reserved_tasks_q_n", "t"), ("LREM", "blueque_started_tasks_q", "1", "n 1 t"),
        ("HMSET", "blueque_task_t", "status", "complete", "result", "2"), ("LPUSH", "blueque_complete_tasks_q", "t"))
    assert done == [1, 1, Wire.Status("OK"), 1]


# --- races ----------------------------------------------------------------------------------------------------------


def at_once(calls):
    """Does each on a thread of its own, all at the same time; what they answer."""
    gate, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def one(index, call):
        gate.wait()
        answers[index] = call()

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_one_of_two_listeners_claims_an_orphan(speak):
    first, second = speak(), speak()
    for number in range(200):
        first.call("SADD", "blueque_listeners_q", "dead_%d" % number)
        claims = [lambda wire=wire: wire.call("SREM", "blueque_listeners_q", "dead_%d" % number) for wire in (first, second)]
        assert sorted(at_once(claims)) == [0, 1]


def test_a_task_goes_to_one_listener(speak):
    wires = [speak() for _ in range(4)]
    for number in range(200):
        enqueue(wires[0], "t%03d" % number)

    def drain(wire, name):
        taken = []
        while True:
            jid = take(wire, name)
            if jid is None:
                return taken
            taken.append(jid)

    lists = at_once([lambda wire=wire, name="l_%d" % index: drain(wire, name) for index, wire in enumerate(wires)])
    assert sorted(jid for taken in lists for jid in taken) == ["t%03d" % number for number in range(200)]
    for index, taken in enumerate(lists):
        assert taken == sorted(taken)
        assert plain(wires[0].call("LRANGE", "blueque_reserved_tasks_q_l_%d" % index, "0", "-1")) == taken[::-1]


# --- Haul and Blueque -----------------------------------------------------------------------------------------------


def job(wire, jid):
    text = plain(wire.call("HAUL.GET", jid))
    return None if text is None else json.loads(text)


@pytest.mark.haul_only
def test_a_worker_of_haul_completes_a_task_of_blueque(blue):
    enqueue(blue, "t", parameters="plain words")
    popped = [json.loads(text) for text in blue.call("HAUL.POP", "worker", "QUEUES", "q")]
    assert [(one["jid"], one["data"], one["klass"]) for one in popped] == [("t", "plain words", "blueque")]
    assert blue.call("HGET", "blueque_task_t", "status") == "reserved"
    assert blue.call("HGET", "blueque_task_t", "node") == "worker"
    blue.call("HAUL.COMPLETE", "worker", "t", "RESULT", "a result")
    fields = plain(blue.call("HGETALL", "blueque_task_t"))
    fields = dict(zip(fields[::2], fields[1::2]))
    assert (fields["status"], fields["result"], fields["queue"]) == ("complete", "a result", "q")
    assert transact(blue, ("DEL", "blueque_task_t"), ("LREM", "blueque_complete_tasks_q", "1", "t")) == [1, 1]
    assert job(blue, "t") is None


@pytest.mark.haul_only
def test_a_worker_of_haul_fails_a_task_of_blueque(blue):
    enqueue(blue, "t")
    blue.call("HAUL.POP", "worker", "QUEUES", "q")
    blue.call("HAUL.FAIL", "worker", "t", "group", "a message")
    assert blue.call("HGET", "blueque_task_t", "error") == "a message"
    assert plain(blue.call("LRANGE", "blueque_failed_tasks_q", "0", "-1")) == ["t"]
    assert transact(blue, ("DEL", "blueque_task_t"), ("LREM", "blueque_failed_tasks_q", "1", "t")) == [1, 1]
    assert job(blue, "t") is None


@pytest.mark.haul_only
@pytest.mark.parametrize("end", ["complete", "failed"])
def test_a_listener_takes_a_job_of_haul(blue, end):
    blue.call("HAUL.PUT", "q", "klass", '{"a": 1}', "JID", "j")
    assert blue.call("RPOPLPUSH", "blueque_pending_tasks_q", "blueque_reserved_tasks_q_h_7") == "j"
    assert blue.call("HSET", "blueque_task_j", "status", "reserved", "node", "h_7", "updated", "2.5") == 1
    assert blue.call("HGET", "blueque_task_j", "parameters") == '{"a": 1}'
    start(blue, "j", "h_7")
    held = job(blue, "j")
    assert (held["state"], held["worker"], held["expires"], held["pid"]) == ("running", "h_7", None, "42")
    assert json.loads(blue.call("HAUL.WORKERS"))[0]["jobs"] == 1
    words = ("complete", "result", "r") if end == "complete" else ("failed", "error", "it broke")
    assert finish(blue, "j", "h_7", end=words) == [1, 1, 1, 1]
    done = job(blue, "j")
    assert done["state"] == end
    if end == "complete":
        assert done["result"] == "r"
    else:
        assert (done["failure"]["message"], done["failure"]["worker"]) == ("it broke", "h_7")


@pytest.mark.haul_only
def test_a_task_that_is_cancelled_is_gone(blue):
    enqueue(blue, "t")
    take(blue, "l")
    start(blue, "t", "l")
    assert blue.call("HAUL.CANCEL", "t") == 1
    assert plain(blue.call("HGETALL", "blueque_task_t")) == []
    assert plain(blue.call("KEYS", "blueque_*")) == ["blueque_queues"]


@pytest.mark.haul_only
def test_a_worker_that_waits_gets_a_task(blue, speak):
    waiting = speak()
    waiting.send("HAUL.POP", "w", "WAIT", "10", "QUEUES", "q")
    enqueue(blue, "t")
    assert json.loads(waiting.read()[0])["jid"] == "t"
