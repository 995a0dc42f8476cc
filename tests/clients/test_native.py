"""The HAUL.* commands (docs/reference/commands.md), sent by a plain redis-py client. Time is the server's here."""

import json
import select
import time

import pytest
import redis

import support
from support import Wire

pytestmark = pytest.mark.haul_only


@pytest.fixture
def haul(raw):
    def call(name, *args):
        return raw.execute_command("HAUL." + name, *args)

    return call


@pytest.fixture
def put(haul):
    def put(jid, *options, **more):
        return haul("PUT", more.get("queue", "q"), "klass", more.get("data", "{}"), "JID", jid, *options)

    return put


@pytest.fixture
def pop(haul):
    def pop(*args, **more):
        queues = more.get("queues", ["q"])
        return [json.loads(job) for job in haul("POP", more.get("worker", "w"), *(args + ("QUEUES",) + tuple(queues)))]

    return pop


@pytest.fixture
def get(haul):
    def get(jid):
        text = haul("GET", jid)
        return None if text is None else json.loads(text)

    return get


def refused(code):
    return pytest.raises(redis.ResponseError, match="^(%s)( |$)" % code)


def jids(jobs):
    return [job["jid"] for job in jobs]


# --- putting --------------------------------------------------------------------------------------------------------


def test_put_and_get(haul, get):
    assert haul("PUT", "mail", "email", '{"to":"a@b.c"}', "JID", "j", "PRIORITY", 3, "RETRIES", 2, "TAG", "x", "TAG",
                "y") == "j"
    before = time.time()
    job = get("j")
    history = job.pop("history")
    assert job == {
        "jid": "j", "klass": "email", "queue": "mail", "state": "waiting", "data": {"to": "a@b.c"}, "result": None,
        "priority": 3, "retries": 2, "remaining": 2, "attempt": 0, "worker": None, "expires": None, "due": None,
        "tags": ["x", "y"], "tracked": False, "failure": None, "dependencies": [], "dependents": [],
        "throttles": job["throttles"], "spawned_from": None}
    assert len(history) == 1
    assert (history[0]["what"], history[0]["q"]) == ("put", "mail")
    assert abs(history[0]["when"] - before) < 60
    assert get("none") is None


def test_put_makes_a_jid(haul, get):
    one = haul("PUT", "q", "klass", "null")
    two = haul("PUT", "q", "klass", "[1]")
    assert one and two and one != two
    assert get(one)["data"] is None and get(two)["data"] == [1]
    assert get(one)["retries"] == 5


def test_names_and_keywords_in_any_case(raw, get):
    assert raw.execute_command("haul.put", "q", "klass", "{}", "jid", "j", "priority", "1") == "j"
    assert get("j")["priority"] == 1


def test_put_again(put, get, haul, pop):
    put("j")
    pop()
    assert put("j", "PRIORITY", 4, queue="r") == "j"
    assert (get("j")["queue"], get("j")["state"], get("j")["priority"]) == ("r", "waiting", 4)
    with refused("NOTRUNNING"):
        haul("COMPLETE", "w", "j")


def test_put_nx(put, get):
    assert put("j", "NX") == "j"
    with refused("EXISTS"):
        put("j", "NX", queue="r")
    assert get("j")["queue"] == "q"


def test_put_with_a_delay(put, get, pop, haul):
    put("j", "DELAY", 100)
    assert get("j")["state"] == "scheduled"
    assert pop() == []
    assert haul("JOBS", "scheduled", "QUEUE", "q") == ["j"]


def test_put_with_dependencies(put, get, pop, haul):
    put("a")
    put("b", "DEPENDS", "a")
    assert (get("b")["state"], get("b")["dependencies"], get("a")["dependents"]) == ("depends", ["a"], ["b"])
    assert jids(pop("COUNT", 5)) == ["a"]
    haul("COMPLETE", "w", "a")
    assert jids(pop()) == ["b"]


@pytest.mark.parametrize("args", [
    ("q", "klass", "{broken"), ("q", "klass", ""), ("q", "klass", "{}", "PRIORITY", "high"),
    ("q", "klass", "{}", "DELAY", "soon"), ("q", "klass", "{}", "RETRIES", "many"), ("q", "klass", "{}", "NONSENSE"),
    ("q", "klass", "{}", "JID"),
])
def test_put_refuses(haul, raw, args):
    with refused("BADARG"):
        haul("PUT", *args)
    assert raw.keys("ql:*") == []


@pytest.mark.parametrize("args", [("PUT",), ("PUT", "q"), ("PUT", "q", "klass"), ("GET",), ("POP",), ("POP", "w"),
                                  ("COMPLETE", "w"), ("MPUT",), ("RECUR", "q", "klass", "{}"), ("THROTTLE",)])
def test_missing_arguments(haul, raw, args):
    with pytest.raises(redis.ResponseError, match="^(BADARG|wrong number of arguments)"):
        haul(*args)
    assert raw.ping() is True


def test_mput(haul, get):
    jobs = [
        {"queue": "q", "klass": "k", "data": {"n": 1}, "jid": "a", "priority": 2, "tags": ["x"], "retries": 1},
        {"queue": "r", "klass": "k", "data": None, "jid": "b", "depends": ["a"], "throttles": ["t"]},
        {"queue": "q", "klass": "k", "data": [], "delay": 50, "nx": True},
    ]
    answer = haul("MPUT", *[json.dumps(job) for job in jobs])
    assert answer[:2] == ["a", "b"] and len(answer) == 3
    assert (get("a")["priority"], get("a")["tags"], get("a")["retries"]) == (2, ["x"], 1)
    assert (get("b")["state"], get("b")["queue"]) == ("depends", "r")
    assert "t" in get("b")["throttles"]
    assert get(answer[2])["state"] == "scheduled"


def test_mput_is_all_or_nothing(haul, get, put):
    put("there")
    with refused("EXISTS"):
        haul("MPUT", '{"queue":"q","klass":"k","data":1,"jid":"a"}',
             '{"queue":"q","klass":"k","data":1,"jid":"there","nx":true}')
    with refused("BADARG"):
        haul("MPUT", '{"queue":"q","klass":"k","data":1,"jid":"a"}', '{"klass":"k","data":1}')
    with refused("BADARG"):
        haul("MPUT", '{"queue":"q","klass":"k","data":1,"jid":"a"}', "nonsense")
    assert get("a") is None


def test_many_in_one(haul, pop):
    jobs = [json.dumps({"queue": "q", "klass": "k", "data": number, "jid": "%04d" % number}) for number in range(1000)]
    assert len(haul("MPUT", *jobs)) == 1000
    assert haul("LENGTH", "q") == 1000
    got = pop("COUNT", 1000)
    assert len(got) == 1000
    assert haul("MCOMPLETE", "w", *jids(got)) == ["complete"] * 1000


def test_move(haul, put, get):
    put("j", "PRIORITY", 2, "TAG", "x", data='{"keep":1}')
    assert haul("MOVE", "j", "r") == "j"
    job = get("j")
    assert (job["queue"], job["priority"], job["tags"], job["data"]) == ("r", 2, ["x"], {"keep": 1})
    haul("MOVE", "j", "s", "PRIORITY", 9, "DELAY", 50, "RETRIES", 1, "TAG", "y")
    job = get("j")
    assert (job["state"], job["priority"], job["retries"], job["tags"]) == ("scheduled", 9, 1, ["y"])
    put("k")
    haul("MOVE", "j", "t", "DEPENDS", "k")
    assert get("j")["dependencies"] == ["k"]
    with refused("NOJOB"):
        haul("MOVE", "none", "r")


def test_recurring(haul, get, pop):
    assert haul("RECUR", "q", "k", '{"a":1}', "INTERVAL", 3600, "JID", "r", "PRIORITY", 2, "RETRIES", 1, "BACKLOG", 3,
                "TAG", "x") == "r"
    recurring = json.loads(haul("GETRECUR", "r"))
    assert (recurring["jid"], recurring["queue"], recurring["klass"]) == ("r", "q", "k")
    assert (recurring["interval"], recurring["priority"], recurring["retries"]) == (3600, 2, 1)
    assert (recurring["backlog"], recurring["tags"], recurring["count"]) == (3, ["x"], 0)
    assert get("r") is None
    child = pop()[0]
    assert (child["jid"], child["spawned_from"], child["tags"], child["data"]) == ("r-1", "r", ["x"], {"a": 1})
    assert json.loads(haul("GETRECUR", "r"))["count"] == 1
    assert haul("JOBS", "recurring", "QUEUE", "q") == ["r"]
    assert haul("UNRECUR", "r") == 1
    assert haul("UNRECUR", "r") == 0
    assert haul("GETRECUR", "r") is None


def test_recurring_options(haul, pop):
    jid = haul("RECUR", "q", "k", "{}", "INTERVAL", 3600, "OFFSET", 1800, "THROTTLE", "t")
    assert jid
    assert pop() == []
    with refused("BADARG"):
        haul("RECUR", "q", "k", "{}", "INTERVAL", 0)
    with refused("BADARG"):
        haul("RECUR", "q", "k", "{}", "INTERVAL", "often")


# --- working --------------------------------------------------------------------------------------------------------


def test_pop(put, pop, get):
    assert pop() == []
    put("low")
    put("high", "PRIORITY", 5)
    job = pop()[0]
    assert (job["jid"], job["state"], job["worker"], job["attempt"]) == ("high", "running", "w", 1)
    assert 50 < job["expires"] - time.time() <= 61
    assert jids(pop("COUNT", 10)) == ["low"]
    assert get("low")["history"][-1]["what"] == "popped"


def test_pop_from_several_queues(put, pop):
    for number in range(3):
        put("a%d" % number, queue="a")
        put("b%d" % number, queue="b")
    assert [job["queue"] for job in pop("COUNT", 4, queues=["b", "a"])] == ["b", "b", "b", "a"]


def test_pop_round_robin(put, pop):
    for number in range(3):
        put("a%d" % number, queue="a")
        put("b%d" % number, queue="b")
    assert [job["queue"] for job in pop("COUNT", 5, "ROUNDROBIN", queues=["b", "a"])] == ["b", "a", "b", "a", "b"]


def test_pop_with_a_lock_of_its_own(put, pop):
    put("j")
    job = pop("LOCK", 500)[0]
    assert 450 < job["expires"] - time.time() <= 500


def test_pop_refuses(haul, pop):
    for args in (("COUNT", "x"), ("WAIT", "x"), ("LOCK", "x"), ("NONSENSE",)):
        with refused("BADARG"):
            pop(*args)
    with pytest.raises(redis.ResponseError):
        haul("POP", "w", "QUEUES")


def test_pop_honours_the_queues_heartbeat(haul, put, pop):
    haul("CONFIG", "SET", "q-heartbeat", 300)
    put("j")
    assert 250 < pop()[0]["expires"] - time.time() <= 300


def test_heartbeat(haul, put, pop, get):
    put("j")
    job = pop("LOCK", 5)[0]
    assert haul("HEARTBEAT", "w", "j") in (59, 60)
    assert haul("HEARTBEAT", "w", "j", "LOCK", 100, "DATA", '{"n":1}', "ATTEMPT", job["attempt"]) in (99, 100)
    assert get("j")["data"] == {"n": 1}
    assert get("j")["expires"] - time.time() > 90
    with refused("NOTHELD"):
        haul("HEARTBEAT", "other", "j")
    with refused("NOTHELD"):
        haul("HEARTBEAT", "w", "j", "ATTEMPT", 7)
    with refused("NOJOB"):
        haul("HEARTBEAT", "w", "none")
    put("waits")
    with refused("NOTRUNNING"):
        haul("HEARTBEAT", "w", "waits")
    with refused("BADARG"):
        haul("HEARTBEAT", "w", "j", "DATA", "{broken")


def test_mheartbeat(haul, put, pop):
    for jid in "ab":
        put(jid)
    pop("COUNT", 2)
    put("waits")
    put("theirs", "PRIORITY", 5)
    pop(worker="other")
    answer = haul("MHEARTBEAT", "w", "a", "none", "b", "waits", "theirs")
    assert answer[0] in ("59", "60") and answer[2] in ("59", "60")
    assert (answer[1], answer[3], answer[4]) == ("NOJOB", "NOTRUNNING", "NOTHELD")


def test_complete(haul, put, pop, get):
    put("j", data='{"n":1}')
    job = pop()[0]
    assert haul("RESULT", "j") is None
    assert haul("COMPLETE", "w", "j", "RESULT", "the result", "DATA", '{"n":2}', "ATTEMPT", job["attempt"]) == "complete"
    job = get("j")
    assert (job["state"], job["queue"], job["worker"], job["result"]) == ("complete", None, None, "the result")
    assert job["data"] == {"n": 2}
    assert haul("RESULT", "j") == "the result"
    assert haul("RESULT", "none") is None
    assert haul("JOBS", "complete") == ["j"]


def test_complete_into_the_next_queue(haul, put, pop, get):
    put("j")
    pop()
    assert haul("COMPLETE", "w", "j", "NEXT", "r") == "waiting"
    assert jids(pop(queues=["r"])) == ["j"]
    assert haul("COMPLETE", "w", "j", "NEXT", "s", "DELAY", 50) == "scheduled"
    assert get("j")["state"] == "scheduled"
    put("j")
    put("k", "PRIORITY", -1)
    pop()
    assert haul("COMPLETE", "w", "j", "NEXT", "r", "DEPENDS", "k") == "depends"
    assert get("j")["dependencies"] == ["k"]


def test_complete_refuses(haul, put, pop):
    with refused("NOJOB"):
        haul("COMPLETE", "w", "none")
    put("j")
    with refused("NOTRUNNING"):
        haul("COMPLETE", "w", "j")
    pop()
    with refused("NOTHELD"):
        haul("COMPLETE", "other", "j")
    with refused("NOTHELD"):
        haul("COMPLETE", "w", "j", "ATTEMPT", 2)
    with refused("BADARG"):
        haul("COMPLETE", "w", "j", "DATA", "{broken")
    with refused("BADARG"):
        haul("COMPLETE", "w", "j", "DELAY", 5)
    assert haul("COMPLETE", "w", "j") == "complete"
    with refused("NOTRUNNING"):
        haul("COMPLETE", "w", "j")


def test_mcomplete(haul, put, pop):
    for jid in "ab":
        put(jid)
    pop("COUNT", 2)
    put("waits")
    assert haul("MCOMPLETE", "w", "a", "none", "waits", "b") == ["complete", "NOJOB", "NOTRUNNING", "complete"]


def test_fail(haul, put, pop, get):
    put("j")
    job = pop()[0]
    with refused("NOTHELD"):
        haul("FAIL", "other", "j", "g", "m")
    assert haul("FAIL", "w", "j", "g", "m", "DATA", '{"n":1}', "ATTEMPT", job["attempt"]) == "j"
    job = get("j")
    assert (job["state"], job["data"]) == ("failed", {"n": 1})
    assert (job["failure"]["group"], job["failure"]["message"], job["failure"]["worker"]) == ("g", "m", "w")
    assert json.loads(haul("FAILED")) == {"g": 1}
    assert json.loads(haul("FAILED", "g")) == {"total": 1, "jobs": ["j"]}
    assert haul("UNFAIL", "r", "g", "COUNT", 5) == 1
    assert haul("UNFAIL", "r", "g") == 0
    assert (get("j")["state"], get("j")["queue"]) == ("waiting", "r")


def test_failed_in_pages(haul, put, pop):
    for number in range(5):
        put(str(number))
        pop()
        haul("FAIL", "w", str(number), "g", "m")
    assert json.loads(haul("FAILED", "g", "OFFSET", 1, "COUNT", 2)) == {"total": 5, "jobs": ["3", "2"]}
    assert haul("UNFAIL", "q", "g", "COUNT", 2) == 2
    assert json.loads(haul("FAILED", "g"))["jobs"] == ["4", "3", "2"]


def test_retry(haul, put, pop, get):
    put("j", "RETRIES", 2)
    job = pop()[0]
    with refused("NOTHELD"):
        haul("RETRY", "w", "j", "ATTEMPT", job["attempt"] + 1)
    assert haul("RETRY", "w", "j", "ATTEMPT", job["attempt"]) == 1
    assert get("j")["state"] == "waiting"
    assert pop()[0]["attempt"] == 2
    assert haul("RETRY", "w", "j", "DELAY", 50) == 0
    assert get("j")["state"] == "scheduled"
    haul("MOVE", "j", "q", "RETRIES", 0)
    pop()
    assert haul("RETRY", "w", "j", "GROUP", "g", "MESSAGE", "m") == -1
    assert get("j")["failure"]["group"] == "g"


def test_release(haul, put, pop, get):
    put("j")
    put("k", "PRIORITY", 9)
    pop("COUNT", 2)
    put("urgent", "PRIORITY", 100)
    assert haul("RELEASE", "j") == 1
    with refused("NOTHELD|NOTRUNNING"):
        haul("COMPLETE", "w", "j")
    assert jids(pop("COUNT", 2)) == ["j", "urgent"]
    with refused("NOTRUNNING"):
        put("waits")
        haul("RELEASE", "waits")
    with refused("NOJOB"):
        haul("RELEASE", "none")


def test_a_stale_attempt_is_refused(haul, put, pop):
    """The same worker gets the job twice; what the first attempt says no longer counts."""
    put("j")
    first = pop("LOCK", 0.05)[0]
    second = pop("WAIT", 4)[0]
    assert (first["attempt"], second["attempt"]) == (1, 2)
    with refused("NOTHELD"):
        haul("COMPLETE", "w", "j", "ATTEMPT", 1)
    assert haul("COMPLETE", "w", "j", "ATTEMPT", 2) == "complete"


# --- waiting --------------------------------------------------------------------------------------------------------


class Waiting(object):
    """A pop that waits on a connection of its own."""

    def __init__(self, wire, queues=("q",), worker="waiter", wait=8, options=()):
        self.wire = wire
        wire.send("HAUL.POP", worker, "WAIT", wait, *(tuple(options) + ("QUEUES",) + tuple(queues)))
        assert not select.select([wire.socket], [], [], 0.05)[0], "answered instead of waiting: %r" % (wire.read(),)

    def woken(self):
        before = time.monotonic()
        reply = self.wire.read()
        assert not isinstance(reply, Wire.Error), reply
        assert time.monotonic() - before < 4, "was not woken, but ran out"
        return [json.loads(job) for job in reply]


@pytest.fixture
def waiting(wires):
    return lambda **options: Waiting(wires(), **options)


def test_a_wait_runs_out(haul, wire):
    before = time.monotonic()
    assert wire.call("HAUL.POP", "w", "WAIT", "0.2", "QUEUES", "q") == []
    assert 0.15 < time.monotonic() - before < 3
    assert wire.call("PING") == Wire.Status("PONG")


def test_a_wait_with_work_at_hand_answers_at_once(put, pop):
    put("j")
    before = time.monotonic()
    assert jids(pop("WAIT", 4)) == ["j"]
    assert time.monotonic() - before < 2


def test_woken_by_a_put(waiting, put):
    pop = waiting()
    put("j")
    assert jids(pop.woken()) == ["j"]


def test_woken_by_a_put_into_any_of_its_queues(waiting, put):
    pop = waiting(queues=("a", "b", "c"))
    put("j", queue="b")
    assert jids(pop.woken()) == ["j"]


def test_woken_by_many_at_once(waiting, haul):
    pop = waiting(options=("COUNT", 3))
    haul("MPUT", *[json.dumps({"queue": "q", "klass": "k", "data": 1, "jid": str(number)}) for number in range(5)])
    assert len(pop.woken()) == 3
    assert haul("LENGTH", "q") == 5


def test_woken_by_a_due_delay(waiting, put):
    put("j", "DELAY", 0.3)
    pop = waiting()
    assert jids(pop.woken()) == ["j"]


def test_woken_by_a_delay_that_came_later(waiting, put):
    pop = waiting()
    put("j", "DELAY", 0.2)
    assert jids(pop.woken()) == ["j"]


def test_woken_by_an_expiring_lock(waiting, put, pop):
    put("j")
    assert pop("LOCK", 0.3)[0]["attempt"] == 1
    job = waiting().woken()[0]
    assert (job["jid"], job["attempt"], job["worker"]) == ("j", 2, "waiter")


def test_woken_by_an_unpause(waiting, put, haul):
    haul("PAUSE", "q")
    put("j")
    pop = waiting()
    haul("UNPAUSE", "q")
    assert jids(pop.woken()) == ["j"]


def test_woken_by_a_released_throttle(waiting, put, pop, haul):
    haul("THROTTLE", "SET", "t", 1)
    put("a", "THROTTLE", "t")
    put("b", "THROTTLE", "t")
    assert len(pop()) == 1
    first = haul("THROTTLE", "LOCKS", "t")[0]
    waits = waiting()
    haul("COMPLETE", "w", first)
    assert jids(waits.woken()) == ["b" if first == "a" else "a"]


def test_woken_by_a_throttle_released_by_hand(waiting, put, pop, haul):
    haul("THROTTLE", "SET", "t", 1)
    put("a", "THROTTLE", "t")
    pop()
    put("b", "THROTTLE", "t")
    waits = waiting()
    assert haul("THROTTLE", "RELEASE", "t", "a") == 1
    assert jids(waits.woken()) == ["b"]


def test_woken_by_a_released_dependency(waiting, put, pop, haul):
    put("a")
    put("b", "DEPENDS", "a")
    pop()
    waits = waiting()
    haul("COMPLETE", "w", "a")
    assert jids(waits.woken()) == ["b"]


def test_woken_by_a_dependency_taken_off(waiting, put, haul, pop):
    put("a", queue="elsewhere")
    put("b", "DEPENDS", "a")
    waits = waiting()
    haul("DEPENDS", "b", "OFF", "ALL")
    assert jids(waits.woken()) == ["b"]


@pytest.mark.parametrize("how", ["MOVE", "RETRY", "RELEASE", "UNFAIL", "NEXT", "RECUR"])
def test_woken_by_everything_else_that_gives_work(waiting, put, pop, haul, how):
    if how == "RECUR":
        waits = waiting()
        haul("RECUR", "q", "k", "{}", "INTERVAL", 3600, "JID", "j")
        assert jids(waits.woken()) == ["j-1"]
        return
    put("j")
    pop()
    if how == "UNFAIL":
        haul("FAIL", "w", "j", "g", "m")
    waits = waiting()
    if how == "MOVE":
        haul("MOVE", "j", "q")
    elif how == "RETRY":
        haul("RETRY", "w", "j")
    elif how == "RELEASE":
        haul("RELEASE", "j")
    elif how == "UNFAIL":
        haul("UNFAIL", "q", "g")
    else:
        haul("COMPLETE", "w", "j", "NEXT", "q")
    assert jids(waits.woken()) == ["j"]


def test_each_job_wakes_one(waiting, put, haul):
    pops = [waiting(worker="waiter-%d" % number) for number in range(5)]
    for number in range(5):
        put(str(number))
    assert sorted(jids(sum([pop.woken() for pop in pops], []))) == list("01234")
    assert sorted(haul("JOBS", "running", "QUEUE", "q", "COUNT", 10)) == list("01234")


def test_a_waiter_that_left_takes_nothing(wires, put, pop, raw):
    wire = wires()
    Waiting(wire)
    wire.close()
    for _ in range(50):
        raw.ping()  # time enough for the server to notice
    put("j")
    assert jids(pop("WAIT", 3)) == ["j"]


def test_waiting_hinders_nobody(waiting, raw):
    for number in range(20):
        waiting(worker=str(number))
    before = time.monotonic()
    for _ in range(100):
        raw.ping()
    assert time.monotonic() - before < 2


# --- looking --------------------------------------------------------------------------------------------------------


def test_mget(haul, put):
    put("a")
    put("b")
    answer = haul("MGET", "b", "none", "a")
    assert [None if text is None else json.loads(text)["jid"] for text in answer] == ["b", None, "a"]


def test_peek(haul, put):
    assert haul("PEEK", "q") == []
    for jid in "abc":
        put(jid)
    assert [json.loads(text)["state"] for text in haul("PEEK", "q", "COUNT", 2)] == ["waiting", "waiting"]
    assert len(haul("PEEK", "q")) == 1
    assert haul("LENGTH", "q") == 3


def test_queues(haul, put, pop):
    assert json.loads(haul("QUEUES")) == []
    put("waits", "PRIORITY", -1)
    put("runs", "PRIORITY", 1)
    put("later", "DELAY", 50)
    put("needs", "DEPENDS", "waits")
    pop()
    haul("RECUR", "q", "k", "{}", "INTERVAL", 60, "OFFSET", 50)
    expected = {"name": "q", "waiting": 1, "running": 1, "stalled": 0, "scheduled": 1, "depends": 1, "recurring": 1,
                "throttled": 0, "paused": False}
    assert json.loads(haul("QUEUES", "q")) == expected
    put("x", queue="r")
    assert sorted(queue["name"] for queue in json.loads(haul("QUEUES"))) == ["q", "r"]
    assert haul("FORGET", "r") == 1
    assert json.loads(haul("QUEUES")) == [expected]


def test_jobs_by_state(haul, put, pop):
    haul("THROTTLE", "SET", "t", 1)
    put("runs", "THROTTLE", "t")
    pop()
    put("throttled", "THROTTLE", "t")
    put("waits")
    put("later", "DELAY", 50)
    put("needs", "DEPENDS", "waits")
    for state, jid in (("running", "runs"), ("throttled", "throttled"), ("waiting", "waits"), ("scheduled", "later"),
                       ("depends", "needs")):
        assert haul("JOBS", state, "QUEUE", "q") == [jid], state
    assert haul("JOBS", "complete") == []
    for number in range(5):
        put("c%d" % number, queue="c")
        pop(queues=["c"])
        haul("COMPLETE", "w", "c%d" % number)
    assert haul("JOBS", "complete", "OFFSET", 1, "COUNT", 2) == ["c3", "c2"]
    with refused("BADARG"):
        haul("JOBS", "nonsense", "QUEUE", "q")


def test_stats(haul, put, pop):
    put("j")
    pop()
    haul("COMPLETE", "w", "j")
    stats = json.loads(haul("STATS", "q"))
    assert stats["wait"]["count"] == 1 and stats["run"]["count"] == 1
    assert json.loads(haul("STATS", "q", "DATE", 0))["wait"]["count"] == 0


def test_workers(haul, put, pop):
    put("j")
    pop(worker="someone")
    everybody = json.loads(haul("WORKERS"))
    assert [worker["name"] for worker in everybody] == ["someone"]
    assert json.loads(haul("WORKERS", "someone"))["jobs"] == ["j"]
    assert json.loads(haul("WORKERS", "nobody"))["jobs"] == []
    assert haul("DEREGISTER", "someone") == 1
    assert json.loads(haul("WORKERS")) == []


def test_tracked(haul, put, get):
    put("j")
    assert json.loads(haul("TRACKED")) == {"jobs": [], "expired": []}
    assert haul("TRACK", "j") == 1
    assert haul("TRACK", "j") == 0
    assert get("j")["tracked"] is True
    assert jids(json.loads(haul("TRACKED"))["jobs"]) == ["j"]
    haul("CANCEL", "j")
    assert json.loads(haul("TRACKED")) == {"jobs": [], "expired": ["j"]}
    assert haul("UNTRACK", "j") == 1
    assert haul("UNTRACK", "j") == 0
    with refused("NOJOB"):
        haul("TRACK", "none")


def test_tags(haul, put):
    put("a", "TAG", "x")
    put("b", "TAG", "x", "TAG", "y")
    assert haul("TAG", "a", "y", "z") == ["x", "y", "z"]
    assert haul("UNTAG", "a", "x", "z") == ["y"]
    assert json.loads(haul("TAGGED", "y")) == {"total": 2, "jobs": ["b", "a"]}
    assert json.loads(haul("TAGGED", "y", "OFFSET", 1, "COUNT", 1)) == {"total": 2, "jobs": ["a"]}
    assert haul("TAGS") == ["y"]
    assert haul("TAGS", "OFFSET", 1, "COUNT", 5) == []
    with refused("NOJOB"):
        haul("TAG", "none", "x")
    with refused("NOJOB"):
        haul("UNTAG", "none", "x")


# --- managing -------------------------------------------------------------------------------------------------------


def test_cancel(haul, put, get, pop):
    put("a")
    put("b", "DEPENDS", "a")
    with refused("NEEDED"):
        haul("CANCEL", "a")
    assert get("a") is not None
    assert haul("CANCEL", "a", "none", "b") == 2
    assert get("a") is None and get("b") is None
    put("c")
    pop()
    assert haul("CANCEL", "c") == 1
    with refused("NOJOB"):
        haul("COMPLETE", "w", "c")


def test_priority(haul, put, pop):
    put("a")
    put("b")
    assert haul("PRIORITY", "b", 7) == 1
    assert jids(pop("COUNT", 2)) == ["b", "a"]
    with refused("NOJOB"):
        haul("PRIORITY", "none", 1)
    with refused("BADARG"):
        haul("PRIORITY", "a", "high")


def test_log(haul, put, get):
    put("j")
    assert haul("LOG", "j", "hello") == 1
    assert haul("LOG", "j", "more", '{"k":"v"}') == 1
    assert get("j")["history"][1]["what"] == "hello"
    assert get("j")["history"][2]["k"] == "v"
    with refused("NOJOB"):
        haul("LOG", "none", "hello")
    with refused("BADARG"):
        haul("LOG", "j", "hello", "{broken")


def test_depends(haul, put, get):
    for jid in "abc":
        put(jid)
    put("d", "DEPENDS", "a")
    assert haul("DEPENDS", "d", "ON", "b", "c") == 1
    assert get("d")["dependencies"] == ["a", "b", "c"]
    assert haul("DEPENDS", "d", "OFF", "a") == 1
    assert get("d")["dependencies"] == ["b", "c"]
    assert haul("DEPENDS", "d", "OFF", "ALL") == 1
    assert get("d")["state"] == "waiting"
    with refused("NOTDEPENDS"):
        haul("DEPENDS", "d", "ON", "a")


def test_pause(haul, put, pop):
    put("j")
    put("k", queue="r")
    assert haul("PAUSE", "q", "r") == 1
    assert json.loads(haul("QUEUES", "q"))["paused"] is True
    assert pop(queues=["q", "r"]) == []
    assert haul("UNPAUSE", "q") == 1
    assert jids(pop("COUNT", 2, queues=["q", "r"])) == ["j"]


def test_config(haul):
    assert haul("CONFIG", "GET", "heartbeat") == "60"
    assert haul("CONFIG", "SET", "heartbeat", "30") == 1
    assert haul("CONFIG", "GET", "heartbeat") == "30"
    assert str(json.loads(haul("CONFIG", "GET"))["heartbeat"]) == "30"
    assert haul("CONFIG", "UNSET", "heartbeat") == 1
    assert haul("CONFIG", "GET", "heartbeat") == "60"
    assert haul("CONFIG", "GET", "no-such-option") is None
    with pytest.raises(redis.ResponseError):
        haul("CONFIG", "NONSENSE")


def test_throttles(haul, put, pop, get):
    assert haul("THROTTLE", "SET", "t", 1) == 1
    assert json.loads(haul("THROTTLE", "GET", "t"))["maximum"] == 1
    put("a", "THROTTLE", "t")
    put("b", "THROTTLE", "t")
    assert jids(pop("COUNT", 2)) == [haul("THROTTLE", "LOCKS", "t")[0]]
    assert haul("THROTTLE", "LOCKS", "t") == ["a"] or haul("THROTTLE", "LOCKS", "t") == ["b"]
    held = haul("THROTTLE", "LOCKS", "t")[0]
    other = "b" if held == "a" else "a"
    assert pop() == []
    assert get(other)["state"] == "throttled"
    assert haul("THROTTLE", "PENDING", "t") == [other]
    assert haul("COMPLETE", "w", held) == "complete"
    assert jids(pop()) == [other]
    assert haul("THROTTLE", "SET", "t", 5, "TTL", 100) == 1
    assert 90 < json.loads(haul("THROTTLE", "GET", "t"))["ttl"] <= 100
    assert haul("THROTTLE", "DELETE", "t") == 1
    with refused("BADARG"):
        haul("THROTTLE", "SET", "t", "many")


# --- together with the other APIs -----------------------------------------------------------------------------------


def test_a_job_put_here_is_popped_by_qless(haul, put, get):
    import qless
    put("j", "TAG", "x", "PRIORITY", 3, data='{"n":[1,{}]}')
    client = qless.Client(support.URL, hostname="old")
    job = client.queues["q"].pop()
    assert (job.jid, job.klass_name, job.tags, job.priority, job.data) == ("j", "klass", ["x"], 3, {"n": [1, {}]})
    assert get("j")["worker"] == "old"
    with refused("NOTHELD"):
        haul("COMPLETE", "w", "j")
    job.complete()
    assert get("j")["state"] == "complete"
    client.redis.connection_pool.disconnect()


def test_a_job_put_by_qless_is_popped_here(haul, pop, waiting):
    import qless
    client = qless.Client(support.URL, hostname="old")
    waits = waiting()
    client.queues["q"].put("x.Y", {"n": [1, {}]}, jid="j", tags=["x"])
    job = waits.woken()[0]
    assert (job["jid"], job["klass"], job["data"], job["tags"]) == ("j", "x.Y", {"n": [1, {}]}, ["x"])
    with pytest.raises(qless.exceptions.QlessException, match="another worker: waiter"):
        client("complete", "j", "old", "q", "{}")
    assert haul("COMPLETE", "waiter", "j") == "complete"
    assert client.jobs["j"].state == "complete"
    client.redis.connection_pool.disconnect()


def test_events_of_native_commands(haul, put, pop, ear):
    put("j")
    assert ear.next() == ("ql:log", {"jid": "j", "event": "put", "queue": "q"})
    haul("TRACK", "j")
    assert ear.next() == ("ql:track", "j")
    pop()
    assert ear.next() == ("ql:popped", "j")
    haul("COMPLETE", "w", "j")
    assert ear.take(2) == [("ql:completed", "j"), ("ql:log", {"jid": "j", "event": "completed", "queue": "q"})]


def test_native_commands_in_a_transaction(wire):
    wire.call("MULTI")
    assert wire.call("HAUL.PUT", "q", "k", "{}", "JID", "a") == Wire.Status("QUEUED")
    assert wire.call("HAUL.LENGTH", "q") == Wire.Status("QUEUED")
    assert wire.call("EXEC") == ["a", 1]


def test_native_commands_in_a_pipeline(raw):
    with raw.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.execute_command("HAUL.PUT", "q", "k", "{}", "JID", str(number))
        pipe.execute_command("HAUL.LENGTH", "q")
        assert pipe.execute() == [str(number) for number in range(100)] + [100]


def test_native_commands_keep_databases_apart(haul, put):
    put("j")
    there = support.connect(db=3)
    assert there.execute_command("HAUL.GET", "j") is None
    assert there.execute_command("HAUL.LENGTH", "q") == 0
    there.connection_pool.disconnect()
