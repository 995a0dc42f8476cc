#!/usr/bin/env python3
"""Run the script tests of tests/scripts against a reference, or against Haul.

    run.py --qless qless.lua --reqless reqless.lua [script ...]
        starts a private redis-server (no persistence, free loopback port),
        loads the given Lua texts and runs the scripts on it.  Cases marked
        `@fix` are skipped: there Haul differs from the reference on purpose.

    run.py --address 127.0.0.1:6379 [--qless ... --reqless ...] [script ...]
        runs the scripts, `@fix` cases included, against a running Haul.
        Without Lua texts two one-line stand-ins are loaded, which is enough
        for Haul to choose the dialect.

Only the standard library is used.  Exit status: 0 all passed, 1 mismatches,
2 the run could not be started.

Script format
-------------
    # comment
    case <title>                  a new case, on an empty database
    @fix                          Haul differs from the reference here
    # packaged: <what it does>    with @fix: only the script that clients package,
                                  older than the specification, differs
    qless <command> <now> ...     a call of the qless script
    reqless <command> <now> ...   a call of the reqless script
    fcall <name> <numkeys> ...    FCALL
    raw <command> ...             a plain Redis command; the words $qless and
                                  $reqless stand for the SHA-1 of the scripts
      = <expectation>             what the line above answers
      ! <channel> <payload>       an event it published (in order), `! none`

Words are split on spaces; a word may be quoted whole: '...' literally,
"..." with the escapes \\" \\\\ \\n \\r \\t \\xHH.  `''` is an empty word.

Expectations: nil, :5, "bulk", text <exact bytes>, json <value>, has <value>,
list <words>, set <words> (any order), hash <words> (pairs, any order), ok (any
simple string) or ok <that simple string>, error <message>, any.  `has` compares
the keys it names, in objects inside objects and lists too; `{}` is compared
exactly.  A line without an expectation must not fail.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

MARK = b"haul-script-test-mark"


# --------------------------------------------------------------------- wire

class Simple(bytes):
    """A simple string reply."""


class Failure(bytes):
    """An error reply."""


class Wire:
    """A small RESP2 client."""

    def __init__(self, host, port):
        self.sock = socket.create_connection((host, port), timeout=10)
        self.file = self.sock.makefile("rb")

    def send(self, *words):
        out = [b"*%d\r\n" % len(words)]
        for word in words:
            if isinstance(word, str):
                word = word.encode("utf-8", "surrogateescape")
            out.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.sock.sendall(b"".join(out))

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("connection closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return Simple(rest)
        if kind == b"-":
            return Failure(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            if size < 0:
                return None
            data = self.file.read(size + 2)
            return data[:-2]
        if kind == b"*":
            size = int(rest)
            if size < 0:
                return None
            return [self.read() for _ in range(size)]
        raise ConnectionError("unknown reply %r" % line)

    def call(self, *words):
        self.send(*words)
        return self.read()

    def close(self):
        self.file.close()
        self.sock.close()


# ------------------------------------------------------------------ parsing

class Step:
    def __init__(self, line, dialect, words):
        self.line = line
        self.dialect = dialect
        self.words = words
        self.expected = []
        self.events = None


class Case:
    def __init__(self, path, line, title):
        self.path = path
        self.line = line
        self.title = title
        self.fix = False
        self.packaged = False
        self.steps = []


ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "b": b"\b", "f": b"\f",
           '"': b'"', "\\": b"\\", "0": b"\0"}


def quoted(text, at):
    """Reads a double-quoted word starting after the quote at `at`."""
    out = b""
    while True:
        if at >= len(text):
            raise ValueError("missing closing quote")
        char = text[at]
        if char == '"':
            return out, at + 1
        if char == "\\":
            nxt = text[at + 1]
            if nxt == "x":
                out += bytes([int(text[at + 2:at + 4], 16)])
                at += 4
                continue
            out += ESCAPES[nxt]
            at += 2
            continue
        out += char.encode("utf-8", "surrogateescape")
        at += 1


def words_of(text):
    out, at = [], 0
    while True:
        while at < len(text) and text[at] == " ":
            at += 1
        if at >= len(text):
            return out
        if text[at] == "'":
            end = text.index("'", at + 1)
            out.append(text[at + 1:end].encode("utf-8", "surrogateescape"))
            at = end + 1
        elif text[at] == '"':
            word, at = quoted(text, at + 1)
            out.append(word)
        else:
            end = text.find(" ", at)
            end = len(text) if end < 0 else end
            out.append(text[at:end].encode("utf-8", "surrogateescape"))
            at = end
        if at < len(text) and text[at] != " ":
            raise ValueError("a quoted word must end at a space")


def parse(path):
    cases, case, step = [], None, None
    with open(path, encoding="utf-8", errors="surrogateescape") as source:
        for number, raw in enumerate(source, 1):
            line = raw.rstrip("\n")
            bare = line.strip()
            where = "%s:%d" % (path, number)
            if case and bare.startswith("# packaged:"):
                case.packaged = True
            if not bare or bare.startswith("#"):
                continue
            if line.startswith("case "):
                case, step = Case(path, number, line[5:].strip()), None
                cases.append(case)
                continue
            if case is None:
                raise SystemExit("%s: a line outside a case" % where)
            if bare == "@fix":
                case.fix = True
            elif bare.startswith("= ") or bare == "=":
                step.expected.append((number, bare[2:]))
            elif bare.startswith("! "):
                if step.events is None:
                    step.events = []
                if bare != "! none":
                    channel, payload = bare[2:].split(" ", 1)
                    step.events.append((channel, payload))
            else:
                dialect, _, rest = bare.partition(" ")
                if dialect not in ("qless", "reqless", "fcall", "raw"):
                    raise SystemExit("%s: unknown word %r" % (where, dialect))
                try:
                    step = Step(number, dialect, words_of(rest))
                except (ValueError, KeyError) as fault:
                    raise SystemExit("%s: %s" % (where, fault))
                case.steps.append(step)
    return cases


# --------------------------------------------------------------- comparison

def same(a, b):
    """Equality of JSON values: true is not 1, [] is not {}."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b
    return type(a) is type(b) and a == b


def has(got, want):
    """Every key of `want` is in `got`, and equal (nested objects likewise)."""
    if isinstance(want, dict) and want and isinstance(got, dict):
        return all(k in got and has(got[k], want[k]) for k in want)
    if isinstance(want, list) and isinstance(got, list):
        return len(got) == len(want) and all(map(has, got, want))
    return same(got, want)


SUFFIX = re.compile(rb" script: [0-9a-f]{40}, on @user_script:\d+\.$")
PREFIX = re.compile(rb"^(ERR )?(Error running script \(call to f_[0-9a-f]{40}\): "
                    rb"@user_script:\d+: ?)?(user_script:\d+: ?)?(ERR )?")


def message(reply):
    text = SUFFIX.sub(b"", bytes(reply))
    text = PREFIX.sub(b"", text, count=1)
    return re.sub(rb"table: 0x[0-9a-f]+", b"table", text).rstrip(b" ")


def encode(text):
    return text.encode("utf-8", "surrogateescape")


def decoded(text):
    return json.loads(text.decode("utf-8", "surrogateescape"))


def flat(reply):
    """An array reply as a list of byte strings."""
    if not isinstance(reply, list):
        return None
    return [b"%d" % x if isinstance(x, int) else b"(nil)" if x is None else bytes(x)
            for x in reply]


def alike(got, want):
    """The same words; a score may be written in more digits than it needs, as Redis before 7.2 does."""
    def one(a, b):
        try:
            return a == b or (b"." in a and b"." in b or b"e" in a + b) and float(a) == float(b)
        except ValueError:
            return False
    return got is not None and len(got) == len(want) and all(map(one, got, want))


def matches(reply, want):
    kind, _, rest = want.partition(" ")
    bulk = isinstance(reply, bytes) and not isinstance(reply, (Simple, Failure))
    if want == "any":
        return True
    if want == "nil":
        return reply is None
    if kind == "ok":
        return isinstance(reply, Simple) and rest in ("", reply.decode())
    if kind.startswith(":"):
        return isinstance(reply, int) and reply == int(kind[1:])
    if want.startswith('"'):
        return bulk and alike([reply], words_of(want))
    if kind == "text":
        return bulk and reply == encode(rest)
    if kind in ("json", "has"):
        try:
            if bulk:
                got = decoded(reply)
            elif isinstance(reply, list):  # an array of JSON texts
                got = [decoded(one) for one in reply]
            else:
                return False
        except (AttributeError, ValueError):
            return False
        return (same if kind == "json" else has)(got, json.loads(rest))
    if kind == "list":
        return alike(flat(reply), words_of(rest))
    if kind == "set":
        got = flat(reply)
        return got is not None and sorted(got) == sorted(words_of(rest))
    if kind == "hash":
        got, pairs = flat(reply), words_of(rest)
        if got is None or len(got) != len(pairs):
            return False
        return dict(zip(got[::2], got[1::2])) == dict(zip(pairs[::2], pairs[1::2]))
    if kind == "error":
        return isinstance(reply, Failure) and message(reply) == encode(rest).rstrip(b" ")
    raise SystemExit("unknown expectation %r" % want)


def show(reply):
    if isinstance(reply, Failure):
        return "error " + message(reply).decode("utf-8", "replace")
    if isinstance(reply, Simple):
        return "ok (+%s)" % reply.decode("utf-8", "replace")
    if isinstance(reply, int):
        return ":%d" % reply
    if reply is None:
        return "nil"
    if isinstance(reply, list):
        return "list " + " ".join(word(x) for x in flat(reply))
    return "text " + reply.decode("utf-8", "replace")


def word(data):
    text = data.decode("utf-8", "replace")
    if text and re.fullmatch(r"[^\s'\"]+", text):
        return text
    return "'%s'" % text if "'" not in text else json.dumps(text)


# -------------------------------------------- older packaged reqless scripts


# Client packages of reqless once carried a script with the behaviour of the
# new dialect under the old command names.  Such a text is called by them.
OLD_NAMES = {
    "config.get": "config.get", "config.getAll": "config.get",
    "config.set": "config.set", "config.unset": "config.unset",
    "failureGroups.counts": "failed", "jobs.failedByGroup": "failed",
    "job.get": "get", "job.getMulti": "multiget", "job.complete": "complete",
    "job.fail": "fail", "job.heartbeat": "heartbeat", "job.retry": "retry",
    "job.log": "log", "job.timeout": "timeout", "job.requeue": "requeue",
    "queue.put": "put", "job.setPriority": "priority", "jobs.tracked": "track",
    "job.cancel": "cancel", "queue.jobsByState": "jobs",
    "queue.counts": "queues", "queues.counts": "queues", "queue.length": "length",
    "queue.stats": "stats", "queue.pause": "pause", "queue.unpause": "unpause",
    "queue.forget": "queue.forget", "queue.peek": "peek", "queue.pop": "pop",
    "queue.unfail": "unfail", "recurringJob.get": "recur.get",
    "recurringJob.cancel": "unrecur", "recurringJob.update": "recur.update",
    "recurringJob.addTag": "recur.tag", "recurringJob.removeTag": "recur.untag",
    "worker.forget": "worker.deregister", "worker.jobs": "workers",
    "workers.counts": "workers",
}


def old_call(words):
    """The words of a reqless call, translated to the old command names."""
    if len(words) < 2:
        return words
    name, now, rest = words[0].decode("utf-8", "replace"), words[1], words[2:]
    if name in OLD_NAMES:
        return [OLD_NAMES[name], now, *rest]
    if name == "job.completeAndRequeue":
        return ["complete", now, *rest[:4], "next", *rest[4:]]
    if name in ("job.addDependency", "job.removeDependency"):
        return ["depends", now, *rest[:1], "on" if "add" in name else "off", *rest[1:]]
    if name in ("job.addTag", "job.removeTag"):
        return ["tag", now, "add" if "add" in name else "remove", *rest]
    if name in ("job.track", "job.untrack"):
        return ["track", now, name[4:], *rest]
    if name == "jobs.tagged":
        return ["tag", now, "get", *rest]
    if name == "tags.top":
        return ["tag", now, "top", *rest]
    if name == "jobs.completed":
        return ["jobs", now, "complete", *rest]
    if name == "queue.recurAtInterval":
        return ["recur", now, *rest[:4], "interval", *rest[4:]]
    return words


# ------------------------------------------------------------------ running

class Target:
    def __init__(self, host, port, texts, real_redis):
        self.main = Wire(host, port)
        self.listener = Wire(host, port)
        self.marker = Wire(host, port)  # its own: the main one may be in MULTI
        self.listener.send("PSUBSCRIBE", "*")
        self.listener.read()
        self.real_redis = real_redis
        self.shas = {}
        self.old_reqless = False
        for dialect, text in texts.items():
            reply = self.main.call("SCRIPT", "LOAD", text)
            if isinstance(reply, Failure):
                raise SystemExit("SCRIPT LOAD of %s: %s" % (dialect, reply.decode()))
            assert reply.decode() == hashlib.sha1(text).hexdigest()
            self.shas[dialect] = reply
            if dialect == "reqless" and b"ReqlessAPI" not in text:
                self.old_reqless = True

    def events(self):
        """Everything published since the last call."""
        self.marker.call("PUBLISH", MARK, "")
        out = []
        while True:
            frame = self.listener.read()
            if frame[0] != b"pmessage":
                continue
            if frame[2] == MARK:
                return out
            out.append((frame[2], frame[3]))

    def run(self, step):
        if step.dialect == "raw":
            words = [self.shas[w[1:].decode()] if w in (b"$qless", b"$reqless") else w
                     for w in step.words]
            return self.main.call(*words)
        if step.dialect == "fcall":
            return self.main.call("FCALL", *step.words)
        words = step.words
        if step.dialect == "reqless" and self.old_reqless:
            words = old_call(words)
        return self.main.call("EVALSHA", self.shas[step.dialect], "0", *words)

    def check(self, case, report):
        """Runs one case; calls report(line, text) per mismatch."""
        self.main.call("FLUSHDB")
        self.events()
        good = True
        for step in case.steps:
            reply = self.run(step)
            events = self.events()
            for line, want in step.expected:
                if not matches(reply, want):
                    report(line, "want %s\n      got  %s" % (want, show(reply)))
                    good = False
            if not step.expected and isinstance(reply, Failure):
                report(step.line, "got  %s" % show(reply))
                good = False
            if step.events is not None:
                want = [(encode(c), encode(p)) for c, p in step.events]
                if want != events:
                    report(step.line, "events want %s\n             got  %s" % (
                        "; ".join("%s %s" % e for e in step.events) or "none",
                        "; ".join("%s %s" % (c.decode("utf-8", "replace"),
                                             p.decode("utf-8", "replace"))
                                  for c, p in events) or "none"))
                    good = False
        return good


def start_redis():
    server = shutil.which("redis-server")
    if server is None:
        print("redis-server is not installed: nothing to compare with", file=sys.stderr)
        raise SystemExit(2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="haul-reference-")
    process = subprocess.Popen(
        [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "",
         "--appendonly", "no", "--dir", folder],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            Wire("127.0.0.1", port).close()
            return process, folder, port
        except OSError:
            time.sleep(0.05)
    process.terminate()
    raise SystemExit(2)


def lua_text(path):
    with open(path, "rb") as source:
        return source.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qless", help="Lua text of the qless script")
    parser.add_argument("--reqless", help="Lua text of the reqless script")
    parser.add_argument("--address", help="host:port of a running Haul server")
    parser.add_argument("--current", action="store_true",
                        help="the Lua texts are builds of the specified commits: run the "
                             "cases in which only an older, packaged text differs too")
    parser.add_argument("--with-fix", action="store_true",
                        help="run @fix cases on the reference too (they should fail)")
    parser.add_argument("scripts", nargs="*")
    options = parser.parse_args()

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts")
    paths = options.scripts or sorted(
        os.path.join(os.path.relpath(folder), name)
        for name in os.listdir(folder) if name.endswith(".script"))
    cases = [case for path in paths for case in parse(path)]

    texts = {"qless": b"-- QlessAPI\n", "reqless": b"-- ReqlessAPI\n"}
    for dialect in texts:
        path = getattr(options, dialect)
        if path:
            texts[dialect] = lua_text(path)
        elif not options.address:
            parser.error("--qless and --reqless, or --address, are needed")
    process = None
    if options.address:
        host, _, port = options.address.rpartition(":")
        port = int(port)
    else:
        # Redis 7 makes the library table `table` read-only; the qless script
        # defines a helper in it.  Only the copy that is loaded is changed.
        texts = {d: re.sub(rb"\btable\.extend\b", b"table_extend_", t)
                 .replace(b"function table_extend_(", b"local function table_extend_(")
                 for d, t in texts.items()}
        process, temporary, port = start_redis()
        host = "127.0.0.1"

    passed = failed = skipped = 0
    try:
        target = Target(host, port, texts, process is not None)
        for case in cases:
            wanted = options.address or options.with_fix or (
                options.current and case.packaged)
            if case.fix and not wanted:
                skipped += 1
                continue
            first_line = [True]

            def report(line, text, case=case, first_line=first_line):
                if first_line[0]:
                    print("%s:%d: %s" % (case.path, case.line, case.title))
                    first_line[0] = False
                print("  %s:%d: %s" % (case.path, line, text))

            if target.check(case, report):
                passed += 1
            else:
                failed += 1
    finally:
        if process is not None:
            process.terminate()
            process.wait()
            shutil.rmtree(temporary, ignore_errors=True)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
