"""The Redis protocol surface, seen by plain redis-py and, where the exact bytes matter, by a bare socket.

The job keys (`ql:*`) are filled through the script of qless-py, the way a client would; what is read back over them
must be what Redis would hold.
"""

import hashlib
import json
import math
import pkgutil
import threading

import pytest
import redis

import support
from support import REDIS_PY, Wire

NOSCRIPT = "NOSCRIPT No matching script. Please use EVAL."
TEXT = pkgutil.get_data("qless", "qless-core/qless.lua").decode()
SHA = hashlib.sha1(TEXT.encode()).hexdigest()
NOW = "1700000000.5"


def protocols():
    if REDIS_PY < (5,):
        return [2]
    return [2, 3]


@pytest.fixture(params=protocols())
def conn(request):
    """A plain client, speaking each protocol version the library knows."""
    options = {} if REDIS_PY < (5,) else {"protocol": request.param}
    connection = support.connect(**options)
    yield connection
    connection.connection_pool.disconnect()


@pytest.fixture
def call(raw):
    """Calls the script as a client does."""
    raw.script_load(TEXT)

    def call(command, *args):
        return raw.evalsha(SHA, 0, command, NOW, *args)

    return call


@pytest.fixture
def filled(call):
    """One job in each state, a recurring one, tags, tracking, a throttle-free world."""
    call("config.set", "heartbeat", "50")
    call("put", "q", "runs", "k", '{"a":1}', 0, "tags", '["x"]', "priority", "2")
    call("pop", "q", "w", 1)
    call("put", "q", "fails", "k", "{}", 0, "tags", '["x"]')
    call("pop", "q", "w", 1)
    call("fail", "fails", "w", "g", "m")
    call("put", "q", "done", "k", "{}", 0)
    call("pop", "q", "w", 1)
    call("complete", "done", "w", "q", "{}")
    call("put", "q", "waits", "k", "{}", 0)
    call("put", "q", "later", "k", "{}", 100)
    call("put", "q", "needs", "k", "{}", 0, "depends", '["waits"]')
    call("recur", "q", "again", "k", "{}", "interval", 60, 500)
    call("track", "track", "waits")
    call("pause", "p")
    return call


# --- connections ----------------------------------------------------------------------------------------------------


def test_ping_and_echo(conn, wire):
    assert conn.ping() is True
    assert conn.echo("hello") == "hello"
    assert wire.call("PING") == Wire.Status("PONG")
    assert wire.call("ping", "hello") == "hello"
    assert wire.call("ECHO", "hello") == "hello"


def test_names_of_commands_in_any_case(wire):
    assert wire.call("pInG") == Wire.Status("PONG")
    assert wire.call("script", "exists", SHA) in ([0], [1])
    assert wire.call("evalsha", "0" * 40, "0") == Wire.Error(NOSCRIPT)


def test_inline_commands(wire):
    wire.raw(b"PING\r\n")
    assert wire.read() == Wire.Status("PONG")


def test_quit(wire):
    assert wire.call("QUIT") == Wire.Status("OK")
    assert wire.closed()


def test_unknown_commands_do_not_close(wire):
    for args in (("NONSENSE",), ("NONSENSE", "a", "b"), ("GEOADD", "k"), ("HAUL.NONSENSE",)):
        reply = wire.call(*args)
        assert isinstance(reply, Wire.Error), args
        assert reply.text.startswith("ERR ")
    assert wire.call("PING") == Wire.Status("PONG")


@pytest.mark.parametrize("args", [
    ("CLIENT", "NONSENSE"), ("CONFIG", "NONSENSE"), ("SCRIPT", "NONSENSE"), ("SLOWLOG", "NONSENSE"), ("CLIENT",),
    ("SCRIPT",), ("CONFIG",),
])
def test_unknown_subcommands_do_not_close(wire, args):
    reply = wire.call(*args)
    assert isinstance(reply, Wire.Error)
    assert wire.call("PING") == Wire.Status("PONG")


def test_what_redis_py_8_asks_first(wire):
    wire.call("HELLO", "3")
    wire.call("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-ip")  # may be refused
    assert wire.call("PING") == Wire.Status("PONG")


@pytest.mark.parametrize("args", [
    ("GET",), ("SET", "k"), ("EVALSHA",), ("EVAL",), ("SELECT",), ("ECHO",), ("HGET", "k"), ("ZSCORE", "k"),
    ("PUBLISH", "c"), ("SUBSCRIBE",), ("LRANGE", "k", "0"), ("WATCH",), ("TYPE",), ("SCRIPT", "LOAD"),
])
def test_too_few_arguments_do_not_close(wire, args):
    reply = wire.call(*args)
    assert isinstance(reply, Wire.Error)
    assert reply.text.startswith("ERR wrong number of arguments") or "number of arg" in reply.text.lower(), reply
    assert wire.call("PING") == Wire.Status("PONG")


def test_pipelined_bytes_are_answered_in_order(wire):
    for number in range(500):
        wire.send("ECHO", number)
    assert [wire.read() for _ in range(500)] == [str(number) for number in range(500)]


def test_a_command_arriving_byte_by_byte(wire):
    for byte in b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n":
        wire.raw(bytes([byte]))
    assert wire.read() == "hello"


def test_many_connections():
    connections = [support.connect() for _ in range(50)]
    for number, connection in enumerate(connections):
        assert connection.echo(str(number)) == str(number)
    for connection in connections:
        connection.connection_pool.disconnect()


# --- HELLO ----------------------------------------------------------------------------------------------------------


def test_hello_3(wire):
    reply = wire.call("HELLO", "3")
    assert isinstance(reply, Wire.Map)
    fields = dict((key, value) for key, value in reply.pairs if not isinstance(value, list))
    assert {"server", "version", "proto", "id", "mode", "role"} <= set(fields)
    assert "modules" in [key for key, _ in reply.pairs]
    assert fields["proto"] == 3
    assert isinstance(fields["id"], int)
    assert fields["role"] == "master"


def test_hello_2(wire):
    reply = wire.call("HELLO", "2")
    assert isinstance(reply, list)
    fields = dict(zip(reply[::2], map(str, reply[1::2])))
    assert fields["proto"] == "2"
    assert isinstance(wire.call("HELLO"), list)


def test_hello_with_another_version(wire):
    for version in ("1", "4"):
        reply = wire.call("HELLO", version)
        assert reply == Wire.Error("NOPROTO unsupported protocol version")
    assert wire.call("PING") == Wire.Status("PONG")


def test_hello_sets_the_name(wire):
    wire.call("HELLO", "3", "SETNAME", "me")
    assert wire.call("CLIENT", "GETNAME") == "me"


def test_types_of_the_third_protocol(wire, filled):
    assert wire.call("HGET", "ql:j:runs", "none") is None
    wire.call("HELLO", "3")
    assert wire.call("HGET", "ql:j:runs", "none") == Wire.Null()
    assert wire.call("GET", "none") == Wire.Null()
    assert isinstance(wire.call("HGETALL", "ql:config"), Wire.Map)
    assert isinstance(wire.call("SMEMBERS", "ql:failures"), Wire.Set)
    assert wire.call("ZSCORE", "ql:tracked", "waits") == Wire.Double(1700000000.5)
    assert wire.call("EVALSHA", SHA, "0", "get", NOW, "none") == Wire.Null()
    # Numbers and lists a script gives stay what they were.
    assert wire.call("EVALSHA", SHA, "0", "length", NOW, "q") == 3
    assert wire.call("EVALSHA", SHA, "0", "jobs", NOW, "running", "q") == ["runs"]
    assert wire.call("EVALSHA", SHA, "0", "config.get", NOW, "grace-period") == 10
    wire.call("HELLO", "2")
    assert wire.call("GET", "none") is None


@pytest.mark.skipif(REDIS_PY < (5,), reason="this redis-py speaks only the second protocol")
def test_redis_py_speaking_the_third_protocol(filled):
    connection = support.connect(protocol=3)
    assert connection.hgetall("ql:config") == {"heartbeat": "50"}
    assert set(connection.smembers("ql:failures")) == {"g"}
    assert connection.zscore("ql:tracked", "waits") == 1700000000.5
    assert connection.get("none") is None
    connection.connection_pool.disconnect()


# --- CLIENT, INFO, CONFIG, SLOWLOG ----------------------------------------------------------------------------------


def test_client_name_and_id(wires):
    one, two = wires(), wires()
    assert one.call("CLIENT", "GETNAME") in (None, "")
    assert one.call("CLIENT", "SETNAME", "first") == Wire.Status("OK")
    assert one.call("CLIENT", "GETNAME") == "first"
    assert two.call("CLIENT", "GETNAME") in (None, "")
    first, second = one.call("CLIENT", "ID"), two.call("CLIENT", "ID")
    assert isinstance(first, int) and isinstance(second, int) and first != second


def test_client_name_through_redis_py(conn):
    with conn.pipeline(transaction=False) as pipe:  # one connection
        pipe.execute_command("CLIENT", "SETNAME", "me")
        pipe.execute_command("CLIENT", "GETNAME")
        assert pipe.execute()[1] == "me"


def test_client_setinfo(wire, is_haul):
    reply = wire.call("CLIENT", "SETINFO", "LIB-NAME", "redis-py")
    if is_haul:  # Redis has it since 7.2
        assert reply == Wire.Status("OK")
        assert wire.call("CLIENT", "SETINFO", "LIB-VER", "1.2.3") == Wire.Status("OK")
    assert wire.call("PING") == Wire.Status("PONG")


def test_info(conn):
    info = conn.info()
    version = str(info["redis_version"]).split(".")
    assert len(version) == 3 and tuple(int(part) for part in version) >= (2, 5, 5)
    assert float(info["used_cpu_user"]) >= 0
    assert float(info["used_cpu_sys"]) >= 0
    assert int(info["used_memory"]) > 0
    assert "used_memory_human" in info


def test_info_as_text(wire):
    text = wire.call("INFO")
    assert "\r\n" in text
    assert any(line.startswith("redis_version:") for line in text.split("\r\n"))
    assert "used_memory:" in wire.call("info", "memory")


def test_auth_without_a_password(wire):
    assert isinstance(wire.call("AUTH", "secret"), Wire.Error)
    assert wire.call("PING") == Wire.Status("PONG")


def test_config_of_the_slow_log(conn):
    before = conn.config_get("slowlog-*")
    assert {"slowlog-log-slower-than", "slowlog-max-len"} <= set(before)
    assert conn.config_get("slow-*") == {}
    assert conn.config_set("slowlog-max-len", 1000) is True
    assert conn.config_set("slowlog-log-slower-than", 20000) is True
    assert conn.config_get("slowlog-max-len") == {"slowlog-max-len": "1000"}
    for key, value in before.items():
        conn.config_set(key, value)
    assert conn.config_get("slowlog-*") == before


def test_config_get_of_nothing_known(wire):
    assert wire.call("CONFIG", "GET", "no-such-option") == []
    assert wire.call("PING") == Wire.Status("PONG")


def test_slow_log(conn):
    assert conn.execute_command("SLOWLOG", "RESET") in (True, "OK")
    entries = conn.execute_command("SLOWLOG", "GET", 10)
    assert isinstance(entries, list)
    if REDIS_PY >= (3,):
        assert isinstance(conn.slowlog_get(5), list)
        assert conn.slowlog_reset() is True


# --- databases ------------------------------------------------------------------------------------------------------


def test_select_keeps_worlds_apart(wire, filled, raw):
    assert wire.call("EVALSHA", SHA, "0", "length", NOW, "q") == 3
    assert wire.call("SELECT", "3") == Wire.Status("OK")
    assert wire.call("EVALSHA", SHA, "0", "length", NOW, "q") == 0
    assert wire.call("KEYS", "*") == []
    assert wire.call("SET", "k", "v") == Wire.Status("OK")
    wire.call("EVALSHA", SHA, "0", "put", NOW, "q", "there", "k", "{}", "0")
    assert raw.get("k") is None
    assert raw.exists("ql:j:there") in (0, False)
    assert wire.call("FLUSHDB") == Wire.Status("OK")
    assert wire.call("GET", "k") is None
    assert wire.call("EXISTS", "ql:j:there") == 0
    # The first database was not touched by that.
    assert wire.call("SELECT", "0") == Wire.Status("OK")
    assert wire.call("EVALSHA", SHA, "0", "length", NOW, "q") == 3
    for bad in ("-1", "16", "a b", "n" * 65):
        assert isinstance(wire.call("SELECT", bad), Wire.Error)
    assert wire.call("PING") == Wire.Status("PONG")


def test_a_database_named_in_the_connection(filled):
    connection = support.connect(db=3)
    assert connection.keys("ql:*") == []
    connection.set("k", "three")
    assert connection.get("k") == "three"
    connection.connection_pool.disconnect()


def test_flushall(raw, filled, wire, request):
    wire.call("SELECT", "3")
    wire.call("SET", "k", "v")
    assert raw.flushall() is True
    assert raw.keys("*") == []
    if request.config.is_haul:  # a tenant cannot touch another's
        assert wire.call("GET", "k") == "v"


def test_flushdb_takes_everything(raw, filled):
    raw.set("k", "v")
    assert raw.flushdb() is True
    assert raw.keys("*") == []
    assert raw.evalsha(SHA, 0, "length", NOW, "q") == 0
    assert raw.evalsha(SHA, 0, "config.get", NOW, "heartbeat") == 60


# --- scripts --------------------------------------------------------------------------------------------------------


def test_script_load_exists_flush(conn):
    assert conn.script_load(TEXT) == SHA
    # A text of our own: the server may know those of released packages from the start.
    text = TEXT + "\n-- mine\n"
    sha = hashlib.sha1(text.encode()).hexdigest()
    assert bool(conn.script_exists(sha)[0]) is False
    assert conn.script_load(text) == sha
    assert [bool(one) for one in conn.script_exists(SHA, "0" * 40, sha)] == [True, False, True]
    assert conn.script_flush() is True
    assert bool(conn.script_exists(sha)[0]) is False
    with pytest.raises(redis.exceptions.NoScriptError):
        conn.evalsha(sha, 0, "length", NOW, "q")


def test_script_flush_modes(wire):
    for mode in ((), ("SYNC",), ("ASYNC",)):
        assert wire.call("SCRIPT", "FLUSH", *mode) == Wire.Status("OK")


def test_the_text_of_noscript(wire):
    wire.call("SCRIPT", "FLUSH")
    assert wire.call("EVALSHA", "f" * 40, "0") == Wire.Error(NOSCRIPT)
    assert wire.call("EVALSHA", "", "0") == Wire.Error(NOSCRIPT)
    assert wire.call("EVALSHA", "abc", "0", "get", NOW, "j") == Wire.Error(NOSCRIPT)
    assert wire.call("PING") == Wire.Status("PONG")


def test_noscript_in_redis_py(conn):
    with pytest.raises(redis.exceptions.NoScriptError):
        conn.evalsha("0" * 40, 0)


def test_a_sha_in_capitals(wire):
    wire.call("SCRIPT", "LOAD", TEXT)
    assert wire.call("EVALSHA", SHA.upper(), "0", "length", NOW, "q") == 0


def test_eval_loads(conn):
    conn.script_flush()
    assert conn.eval(TEXT, 0, "length", NOW, "q") == 0
    assert conn.evalsha(SHA, 0, "length", NOW, "q") == 0


def test_registered_scripts(conn):
    conn.script_flush()
    script = conn.register_script(TEXT)
    assert script(keys=[], args=["length", NOW, "q"]) == 0
    assert script.sha == SHA


def test_a_script_with_a_comment_is_another_script(conn):
    """Recognised by what it is, not by its name."""
    text = TEXT + "\n-- edited here\n"
    sha = conn.script_load(text)
    assert sha == hashlib.sha1(text.encode()).hexdigest()
    assert conn.evalsha(sha, 0, "length", NOW, "q") == 0


def test_script_errors(wire, filled):
    for args, words in (
        (("get",), "bad argument #1 to 'tonumber'"),
        ((), "Must provide a command"),
        (("nonsense", NOW), "Unknown command nonsense"),
        (("nonsense",), "Unknown command nonsense"),
        (("length", "soon", "q"), 'Arg "now" missing or not a number: nil'),
        (("complete", NOW, "none", "w", "q", "{}"), "does not exist"),
    ):
        reply = wire.call("EVALSHA", SHA, "0", *args)
        assert isinstance(reply, Wire.Error), args
        assert words in reply.text
        assert "user_script:" in reply.text
        assert "\r" not in reply.text and "\n" not in reply.text
    assert wire.call("PING") == Wire.Status("PONG")


@pytest.mark.haul_only
def test_a_clean_error_text(wire, filled):
    reply = wire.call("EVALSHA", SHA, "0", "nonsense", NOW)
    assert reply == Wire.Error("ERR user_script:1: Unknown command nonsense")


@pytest.mark.haul_only
def test_keys_are_refused(wire, filled):
    reply = wire.call("EVALSHA", SHA, "1", "key", "length", NOW, "q")
    assert isinstance(reply, Wire.Error) and "No Keys should be provided" in reply.text


@pytest.mark.haul_only
def test_other_scripts_are_not_run(conn):
    with pytest.raises(redis.ResponseError, match="does not execute arbitrary Lua"):
        conn.eval("return 1", 0)
    sha = conn.script_load("return redis.call('get', 'x')")
    with pytest.raises(redis.ResponseError, match="does not execute arbitrary Lua"):
        conn.evalsha(sha, 0)


# --- pipelines and transactions -------------------------------------------------------------------------------------


def test_pipeline(conn):
    with conn.pipeline(transaction=False) as pipe:
        pipe.set("a", "1").get("a").echo("x")
        pipe.execute_command("NONSENSE")
        pipe.get("a")
        replies = pipe.execute(raise_on_error=False)
    assert replies[:3] == [True, "1", "x"]
    assert isinstance(replies[3], redis.ResponseError)
    assert replies[4] == "1"


def test_a_long_pipeline(conn):
    with conn.pipeline(transaction=False) as pipe:
        for number in range(2000):
            pipe.set("k%d" % (number % 10), number)
        assert pipe.execute() == [True] * 2000
    assert conn.get("k9") == "1999"


def test_transaction(conn):
    with conn.pipeline() as pipe:
        pipe.set("a", "1")
        pipe.rpush("l", "x", "y")
        pipe.lrange("l", 0, -1)
        assert pipe.execute() == [True, 2, ["x", "y"]]


def test_transaction_on_the_wire(wire):
    assert wire.call("MULTI") == Wire.Status("OK")
    assert wire.call("SET", "a", "1") == Wire.Status("QUEUED")
    assert wire.call("GET", "a") == Wire.Status("QUEUED")
    assert wire.call("EXEC") == [Wire.Status("OK"), "1"]
    assert wire.call("MULTI") == Wire.Status("OK")
    assert wire.call("SET", "a", "2") == Wire.Status("QUEUED")
    assert wire.call("DISCARD") == Wire.Status("OK")
    assert wire.call("GET", "a") == "1"
    assert wire.call("MULTI") == Wire.Status("OK")
    assert wire.call("EXEC") == []


def test_transaction_errors(wire):
    assert wire.call("EXEC") == Wire.Error("ERR EXEC without MULTI")
    assert wire.call("DISCARD") == Wire.Error("ERR DISCARD without MULTI")
    wire.call("MULTI")
    assert wire.call("MULTI") == Wire.Error("ERR MULTI calls can not be nested")
    assert wire.call("DISCARD") == Wire.Status("OK")
    wire.call("MULTI")
    assert isinstance(wire.call("NONSENSE"), Wire.Error)
    reply = wire.call("EXEC")
    assert isinstance(reply, Wire.Error) and reply.text.startswith("EXECABORT")
    wire.call("MULTI")
    assert wire.call("WATCH", "a") == Wire.Error("ERR WATCH inside MULTI is not allowed")
    assert wire.call("DISCARD") == Wire.Status("OK")
    assert wire.call("PING") == Wire.Status("PONG")


def test_an_error_inside_a_transaction_stops_nothing(wire):
    wire.call("SET", "text", "x")
    wire.call("MULTI")
    wire.call("RPUSH", "text", "y")
    wire.call("SET", "after", "1")
    replies = wire.call("EXEC")
    assert isinstance(replies[0], Wire.Error) and replies[0].text.startswith("WRONGTYPE")
    assert replies[1] == Wire.Status("OK")
    assert wire.call("GET", "after") == "1"


def test_scripts_in_a_transaction(wire, filled):
    """So the Ruby client reads the length of a queue."""
    wire.call("MULTI")
    for group in ("locks", "work", "scheduled", "depends"):
        assert wire.call("ZCARD", "ql:q:q-" + group) == Wire.Status("QUEUED")
    assert wire.call("EXEC") == [1, 1, 1, 1]
    wire.call("MULTI")
    assert wire.call("EVALSHA", SHA, "0", "put", NOW, "q", "new", "k", "{}", "0") == Wire.Status("QUEUED")
    assert wire.call("EVALSHA", SHA, "0", "length", NOW, "q") == Wire.Status("QUEUED")
    assert wire.call("EXEC") == ["new", 4]


def test_watch(wires):
    one, two = wires(), wires()
    assert one.call("WATCH", "k") == Wire.Status("OK")
    two.call("SET", "k", "theirs")
    one.call("MULTI")
    one.call("SET", "k", "mine")
    assert one.call("EXEC") is None
    assert one.call("GET", "k") == "theirs"
    # Watching ends with EXEC, whatever came of it.
    one.call("MULTI")
    one.call("SET", "k", "mine")
    assert one.call("EXEC") == [Wire.Status("OK")]


def test_watch_undisturbed(wires):
    one, two = wires(), wires()
    one.call("WATCH", "k")
    two.call("SET", "another", "x")
    one.call("MULTI")
    one.call("SET", "k", "mine")
    assert one.call("EXEC") == [Wire.Status("OK")]


def test_unwatch(wires):
    one, two = wires(), wires()
    one.call("WATCH", "k")
    assert one.call("UNWATCH") == Wire.Status("OK")
    two.call("SET", "k", "theirs")
    one.call("MULTI")
    one.call("GET", "k")
    assert one.call("EXEC") == ["theirs"]


def test_watch_through_redis_py(conn, raw):
    with conn.pipeline() as pipe:
        pipe.watch("k")
        raw.set("k", "theirs")
        pipe.multi()
        pipe.set("k", "mine")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert conn.transaction(lambda pipe: pipe.multi() or pipe.set("k", "mine"), "k") == [True]


# --- pub/sub --------------------------------------------------------------------------------------------------------


def listening(conn, channels=(), patterns=()):
    pubsub = conn.pubsub()
    if channels:
        pubsub.subscribe(*channels)
    if patterns:
        pubsub.psubscribe(*patterns)
    for _ in range(len(channels) + len(patterns)):
        assert message(pubsub)["type"] in ("subscribe", "psubscribe")
    return pubsub


def message(pubsub):
    return support.until(lambda: pubsub.get_message(timeout=1))


def test_publish_counts_receivers(conn, raw):
    assert raw.publish("nobody", "x") == 0
    one = listening(conn, ["c", "d"])
    two = listening(conn, ["c"], ["c*"])
    assert raw.publish("c", "hello") == 3
    assert raw.publish("d", "hello") == 1
    got = message(one)
    assert (got["type"], got["channel"], got["data"]) == ("message", "c", "hello")
    assert message(one)["channel"] == "d"
    kinds = {message(two)["type"], message(two)["type"]}
    assert kinds == {"message", "pmessage"}
    one.close()
    two.close()


def test_patterns(conn, raw):
    pubsub = listening(conn, patterns=["ql:w:*", "h?llo", "[ab]c"])
    for channel, heard in (("ql:w:me", True), ("ql:log", False), ("hallo", True), ("hllo", False), ("ac", True),
                           ("cc", False)):
        assert raw.publish(channel, channel) == (1 if heard else 0), channel
        if heard:
            got = message(pubsub)
            assert (got["type"], got["channel"], got["data"]) == ("pmessage", channel, channel)
    pubsub.close()


def test_everything_by_a_pattern(conn, raw, call):
    pubsub = listening(conn, patterns=["*"])
    call("put", "q", "j", "k", "{}", 0)
    got = message(pubsub)
    assert (got["channel"], got["pattern"]) == ("ql:log", "*")
    assert json.loads(got["data"]) == {"jid": "j", "event": "put", "queue": "q"}
    raw.publish("a-channel-of-nobody", "disconnect")
    assert message(pubsub)["data"] == "disconnect"
    pubsub.punsubscribe("*")
    assert message(pubsub)["type"] == "punsubscribe"
    assert raw.publish("x", "y") == 0
    pubsub.close()


def test_unsubscribe(conn, raw):
    pubsub = listening(conn, ["c", "d"])
    pubsub.unsubscribe("c")
    got = message(pubsub)
    assert (got["type"], got["channel"], got["data"]) == ("unsubscribe", "c", 1)
    assert raw.publish("c", "x") == 0
    assert raw.publish("d", "x") == 1
    assert message(pubsub)["data"] == "x"
    pubsub.unsubscribe()
    assert message(pubsub)["type"] == "unsubscribe"
    assert raw.publish("d", "x") == 0
    pubsub.close()


def test_a_subscription_ends_with_its_connection(wires, raw):
    wire = wires()
    assert wire.call("SUBSCRIBE", "c") == ["subscribe", "c", 1]
    assert raw.publish("c", "x") == 1
    wire.close()
    support.until(lambda: raw.publish("c", "x") == 0)


def test_subscribed_in_the_second_protocol(wire):
    assert wire.call("SUBSCRIBE", "c", "d") == ["subscribe", "c", 1]
    assert wire.read() == ["subscribe", "d", 2]
    assert wire.call("PSUBSCRIBE", "p*") == ["psubscribe", "p*", 3]
    reply = wire.call("GET", "k")
    assert isinstance(reply, Wire.Error) and "get" in reply.text.lower()
    assert wire.call("PING") == ["pong", ""]
    assert wire.call("PING", "x") == ["pong", "x"]
    assert wire.call("UNSUBSCRIBE", "c", "d") == ["unsubscribe", "c", 2]
    assert wire.read() == ["unsubscribe", "d", 1]
    assert wire.call("PUNSUBSCRIBE") == ["punsubscribe", "p*", 0]
    assert wire.call("GET", "k") is None
    assert wire.call("UNSUBSCRIBE") == ["unsubscribe", None, 0]


def test_subscribed_in_the_third_protocol(wire, raw):
    wire.call("HELLO", "3")
    assert wire.call("SUBSCRIBE", "c") == Wire.Push(["subscribe", "c", 1])
    assert wire.call("SET", "k", "v") == Wire.Status("OK")
    raw.publish("c", "hello")
    assert wire.read() == Wire.Push(["message", "c", "hello"])
    assert wire.call("GET", "k") == "v"


def test_a_message_comes_before_the_reply(wire, call):
    """On one connection that both listens and calls, the event is there before the answer."""
    wire.call("HELLO", "3")
    wire.call("SUBSCRIBE", "ql:log", "own")
    wire.read()
    for number in range(20):
        wire.send("EVALSHA", SHA, "0", "put", NOW, "q", "j%d" % number, "k", "{}", "0")
        first = wire.read()
        assert isinstance(first, Wire.Push), "the reply overtook its event"
        assert json.loads(first.items[2])["jid"] == "j%d" % number
        assert wire.read() == "j%d" % number
    wire.send("PUBLISH", "own", "x")
    assert wire.read() == Wire.Push(["message", "own", "x"])
    assert wire.read() == 1


def test_a_message_is_there_when_the_caller_has_its_reply(wires, call):
    """On two connections: once the caller knows, a listener asking for its own next reply hears the event first."""
    listener, caller = wires(), wires()
    listener.call("HELLO", "3")
    listener.call("SUBSCRIBE", "ql:log")
    for number in range(20):
        assert caller.call("EVALSHA", SHA, "0", "put", NOW, "q", "j%d" % number, "k", "{}", "0") == "j%d" % number
        listener.send("PING")
        assert isinstance(listener.read(), Wire.Push)
        assert listener.read() == Wire.Status("PONG")


def test_order_of_messages(conn, raw):
    pubsub = listening(conn, ["c"])
    for number in range(200):
        raw.publish("c", number)
    assert [message(pubsub)["data"] for _ in range(200)] == [str(number) for number in range(200)]
    pubsub.close()


def test_a_failed_call_publishes_nothing(wire, call):
    wire.call("HELLO", "3")
    wire.call("SUBSCRIBE", "ql:log")
    assert isinstance(wire.call("EVALSHA", SHA, "0", "put", NOW, "q", "j", "k", "{}", "soon"), Wire.Error)
    assert wire.call("PING") == Wire.Status("PONG")


# --- reading the job keys -------------------------------------------------------------------------------------------


ALL_KEYS = {
    "ql:config": "hash", "ql:queues": "zset", "ql:paused_queues": "set", "ql:workers": "zset", "ql:w:w:jobs": "zset",
    "ql:j:runs": "hash", "ql:j:runs-history": "list", "ql:j:fails": "hash", "ql:j:fails-history": "list",
    "ql:j:done": "hash", "ql:j:done-history": "list", "ql:j:waits": "hash", "ql:j:waits-history": "list",
    "ql:j:waits-dependents": "set", "ql:j:later": "hash", "ql:j:later-history": "list", "ql:j:needs": "hash",
    "ql:j:needs-history": "list", "ql:j:needs-dependencies": "set", "ql:q:q-work": "zset", "ql:q:q-locks": "zset",
    "ql:q:q-scheduled": "zset", "ql:q:q-depends": "zset", "ql:q:q-recur": "zset", "ql:r:again": "hash",
    "ql:failures": "set", "ql:f:g": "list", "ql:completed": "zset", "ql:tracked": "zset", "ql:tags": "zset",
    "ql:t:x": "zset", "ql:s:wait:1699920000:q": "hash", "ql:s:run:1699920000:q": "hash",
    "ql:s:stats:1699920000:q": "hash",
}


def test_keys_and_types(conn, filled):
    assert set(conn.keys("*")) == set(ALL_KEYS)
    assert {key: conn.type(key) for key in ALL_KEYS} == ALL_KEYS
    assert conn.type("ql:nothing") == "none"
    assert set(conn.keys("ql:q:*-work")) == {"ql:q:q-work"}
    assert set(conn.keys("ql:?:again")) == {"ql:r:again"}
    assert set(conn.keys("ql:[rf]:*")) == {"ql:r:again", "ql:f:g"}
    assert conn.keys("nothing*") == []
    # A key vanishes with what it held.
    assert conn.keys("ql:q:q") == []


def test_exists(conn, filled):
    assert conn.exists("ql:j:runs") in (1, True)
    assert conn.exists("ql:j:none") in (0, False)


def test_exists_counts(wire, filled):
    assert wire.call("EXISTS", "ql:j:runs", "ql:j:runs", "ql:j:none", "ql:config") == 3


def test_scan(conn, filled):
    def scan(**options):
        found, cursor = [], 0
        while True:
            cursor, keys = conn.scan(cursor, **options)
            found += keys
            if cursor == 0:
                return found

    conn.set("scratch", "x")
    assert set(scan()) == set(ALL_KEYS) | {"scratch"}
    assert set(scan(count=3)) == set(ALL_KEYS) | {"scratch"}
    assert set(scan(match="ql:j:*-history", count=2)) == {key for key in ALL_KEYS if key.endswith("-history")}
    assert set(conn.scan_iter(match="ql:f*")) == {"ql:failures", "ql:f:g"}


def test_hash_reads(conn, filled):
    job = conn.hgetall("ql:j:runs")
    assert job["jid"] == "runs" and job["klass"] == "k" and job["state"] == "running" and job["queue"] == "q"
    assert job["worker"] == "w" and job["data"] == '{"a":1}' and job["tags"] == '["x"]'
    assert (job["retries"], job["remaining"], job["priority"]) == ("5", "5", "2")
    assert float(job["expires"]) == 1700000050.5
    assert float(job["time"]) == 1700000000.5
    assert conn.hget("ql:j:runs", "state") == "running"
    assert conn.hget("ql:j:runs", "none") is None
    assert conn.hget("ql:j:none", "state") is None
    assert conn.hmget("ql:j:runs", "jid", "none", "state") == ["runs", None, "running"]
    assert conn.hexists("ql:j:runs", "state") is True
    assert conn.hexists("ql:j:runs", "none") is False
    assert conn.hlen("ql:config") == 1
    assert set(conn.hkeys("ql:config")) == {"heartbeat"}
    assert conn.hvals("ql:config") == ["50"]
    assert conn.hgetall("ql:j:none") == {}
    assert dict(conn.hscan("ql:config")[1]) == {"heartbeat": "50"}
    assert conn.hgetall("ql:r:again")["interval"] == "60"
    failure = json.loads(conn.hget("ql:j:fails", "failure"))
    assert failure == {"group": "g", "message": "m", "when": 1700000000, "worker": "w"}
    assert conn.hget("ql:s:stats:1699920000:q", "failed") == "1"
    assert conn.hget("ql:s:wait:1699920000:q", "total") == "3"


def test_list_reads(conn, filled):
    assert conn.lrange("ql:f:g", 0, -1) == ["fails"]
    assert conn.llen("ql:f:g") == 1
    assert conn.lindex("ql:f:g", 0) == "fails"
    assert conn.lindex("ql:f:g", 7) is None
    history = [json.loads(entry) for entry in conn.lrange("ql:j:fails-history", 0, -1)]
    assert history == [[1700000000, "put", {"q": "q"}], [1700000000, "popped", {"worker": "w"}],
                       [1700000000, "failed", {"worker": "w", "group": "g"}]]
    assert json.loads(conn.lrange("ql:j:fails-history", -1, -1)[0])[1] == "failed"
    assert conn.llen("ql:nothing") == 0
    assert conn.lrange("ql:nothing", 0, -1) == []


def test_set_reads(conn, filled):
    assert set(conn.smembers("ql:failures")) == {"g"}
    assert conn.scard("ql:paused_queues") == 1
    assert conn.sismember("ql:paused_queues", "p") in (1, True)
    assert conn.sismember("ql:paused_queues", "q") in (0, False)
    assert set(conn.smembers("ql:j:needs-dependencies")) == {"waits"}
    assert set(conn.smembers("ql:j:waits-dependents")) == {"needs"}
    assert set(conn.smembers("ql:nothing")) == set()
    assert list(conn.sscan("ql:failures")[1]) == ["g"]


def test_sorted_set_reads(conn, filled):
    assert conn.zcard("ql:completed") == 1
    assert conn.zcard("ql:nothing") == 0
    assert conn.zscore("ql:q:q-recur", "again") == 1700000500.5
    assert conn.zscore("ql:q:q-recur", "none") is None
    assert conn.zscore("ql:nothing", "none") is None
    assert conn.zrange("ql:tags", 0, -1) == ["x"]
    pairs = conn.zrange("ql:w:w:jobs", 0, -1, withscores=True)
    assert [tuple(pair) for pair in pairs] == [("runs", 1700000050.5)]
    assert conn.zscore("ql:q:q-work", "waits") == pytest.approx(0 - 1700000000.5 / 1e10)
    assert conn.zrevrange("ql:t:x", 0, -1) == ["runs", "fails"]
    assert conn.zrangebyscore("ql:q:q-locks", "-inf", "+inf") == ["runs"]
    assert conn.zrangebyscore("ql:q:q-locks", "(1700000050.5", "+inf") == []
    assert conn.zrevrangebyscore("ql:q:q-scheduled", "+inf", 0, start=0, num=1) == ["later"]
    assert conn.zcount("ql:q:q-scheduled", 0, "+inf") == 1
    assert conn.zrank("ql:t:x", "fails") == 0
    assert conn.zrevrank("ql:t:x", "fails") == 1
    assert conn.zrank("ql:t:x", "none") is None
    assert [tuple(pair) for pair in conn.zscan("ql:queues")[1]] == [("q", 1700000000.5)]


def test_an_infinite_score(conn, filled):
    filled("timeout", "runs")
    assert conn.zscore("ql:q:q-work", "runs") == math.inf


def test_a_read_of_the_wrong_type(wire, filled):
    for args in (("LRANGE", "ql:config", "0", "-1"), ("HGETALL", "ql:queues"), ("ZCARD", "ql:j:runs"),
                 ("SMEMBERS", "ql:f:g"), ("GET", "ql:config")):
        reply = wire.call(*args)
        assert isinstance(reply, Wire.Error) and reply.text.startswith("WRONGTYPE"), args
    assert wire.call("PING") == Wire.Status("PONG")


@pytest.mark.haul_only
@pytest.mark.parametrize("args", [
    ("SET", "ql:x", "v"), ("SET", "ql:j:runs", "v"), ("DEL", "ql:j:runs"), ("RPUSH", "ql:f:g", "v"),
    ("HSET", "ql:config", "heartbeat", "1"), ("EXPIRE", "ql:j:runs", "1"), ("DEL", "scratch", "ql:config"),
    ("BRPOP", "ql:f:g", "1"), ("LPUSH", "ql:f:g", "v"), ("HDEL", "ql:config", "heartbeat"), ("SADD", "ql:failures", "v"),
    ("SREM", "ql:failures", "g"), ("ZADD", "ql:tracked", "1", "v"), ("ZREM", "ql:tracked", "waits"),
])
def test_job_keys_cannot_be_written(wire, filled, args):
    wire.call("SET", "scratch", "v")
    reply = wire.call(*args)
    assert isinstance(reply, Wire.Error), args
    assert reply.text.startswith("ERR read-only virtual key"), reply
    assert wire.call("GET", "scratch") == "v"
    assert wire.call("HGET", "ql:j:runs", "state") == "running"
    assert wire.call("LRANGE", "ql:f:g", "0", "-1") == ["fails"]


# --- the scratch keys -----------------------------------------------------------------------------------------------


def test_scratch_strings(conn):
    assert conn.get("k") is None
    assert conn.set("k", "v") is True
    assert conn.get("k") == "v"
    assert conn.set("k", "w") is True
    assert conn.type("k") == "string"
    assert conn.ttl("k") in (-1, None)
    assert conn.delete("k", "none") == 1
    assert conn.get("k") is None
    assert conn.ttl("k") in (-2, None)


def test_ttl_on_the_wire(wire):
    assert wire.call("TTL", "none") == -2
    wire.call("SET", "k", "v")
    assert wire.call("TTL", "k") == -1


def test_the_empty_key_and_the_empty_value(conn):
    assert conn.set("", "of the empty key") is True
    assert conn.get("") == "of the empty key"
    assert conn.exists("") in (1, True)
    assert conn.keys("*") == [""]
    assert conn.delete("") == 1
    conn.set("k", "")
    assert conn.get("k") == ""
    conn.delete("k")
    conn.rpush("", "x")
    assert conn.lrange("", 0, -1) == ["x"]
    assert list(conn.brpop("", 1)) == ["", "x"]


def test_bytes_of_any_kind():
    connection = support.connect(decode_responses=False)
    value = bytes(range(256)) * 100 + b"\r\n$5\r\n*1\r\n"
    connection.set(b"\x00\xff\r\n", value)
    assert connection.get(b"\x00\xff\r\n") == value
    connection.connection_pool.disconnect()


def test_a_large_value(conn):
    value = "x" * (4 << 20)
    conn.set("k", value)
    assert conn.get("k") == value


def test_scratch_lists(conn):
    assert conn.rpush("l", "a") == 1
    assert conn.rpush("l", "b", "c") == 3
    assert conn.lrange("l", 0, -1) == ["a", "b", "c"]
    assert conn.lrange("l", 1, 1) == ["b"]
    assert conn.lrange("l", -2, 10) == ["b", "c"]
    assert conn.lrange("l", 5, 6) == []
    assert conn.llen("l") == 3
    assert conn.type("l") == "list"
    assert tuple(conn.brpop("l", 1)) == ("l", "c")
    assert tuple(conn.brpop(["none", "l"], 1)) == ("l", "b")
    assert tuple(conn.brpop("l", 1)) == ("l", "a")
    assert conn.exists("l") in (0, False)


def test_brpop_waits(wires, raw):
    wire = wires()
    wire.send("BRPOP", "l", "m", "20")
    # It really waits: another connection is served meanwhile, and its push ends the wait.
    assert raw.ping() is True
    raw.rpush("m", "x")
    assert wire.read() == ["m", "x"]
    assert raw.lrange("m", 0, -1) == []


def test_brpop_gives_up(wire):
    assert wire.call("BRPOP", "l", "0.05") is None
    assert wire.call("PING") == Wire.Status("PONG")


def test_brpop_first_come_first_served(wires, raw):
    waiting = []
    for number in range(3):
        wire = wires()
        name = "waiter-%d" % number
        wire.call("CLIENT", "SETNAME", name)
        wire.send("BRPOP", "l", "20")
        # Whether it waits already shows in nothing but time; a round trip on the same server has to do.
        raw.ping()
        waiting.append(wire)
    for _ in range(3):
        raw.rpush("l", "x")
    assert [wire.read() for wire in waiting] == [["l", "x"]] * 3


def test_brpop_through_redis_py(conn):
    got = []
    thread = threading.Thread(target=lambda: got.append(conn.brpop("l", 10)))
    thread.start()
    support.connect().rpush("l", "x")
    thread.join(support.PATIENCE)
    assert [tuple(one) for one in got] == [("l", "x")]


def test_scratch_of_the_wrong_type(conn):
    conn.set("k", "v")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE|wrong kind"):
        conn.rpush("k", "x")
    conn.rpush("l", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE|wrong kind"):
        conn.get("l")
    assert conn.set("l", "now a string") is True


def test_scratch_hashes_of_queue_patterns(conn):
    """reqless keeps its queue patterns in plain keys: `qmore:dynamic`, a hash, and `qmore:priority`, a list."""
    conn.execute_command("HSET", "qmore:dynamic", "a", "1", "b", "2")
    assert conn.hgetall("qmore:dynamic") == {"a": "1", "b": "2"}
    assert conn.delete("qmore:dynamic") == 1
    assert conn.hgetall("qmore:dynamic") == {}
