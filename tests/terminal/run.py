#!/usr/bin/env python3
"""Drives `haul top` under a pseudo-terminal of 80 by 24 against a running server: looks, sorts, filters, pauses, retries,
cancels, and checks the effects with the command line. Needs nothing beyond Python.

    tests/terminal/run.py --address 127.0.0.1:4286
"""

import argparse
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("HAUL_BIN") or os.path.join(
    os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "debug", "haul"
)
COLUMNS, LINES = 80, 24
TENANT = "terminal-test"
STEP = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78]|\x1b\][^\x07]*\x07")


class Screen:
    """As much of a terminal as is needed to read what was drawn."""

    def __init__(self):
        self.cells = [[" "] * COLUMNS for _ in range(LINES)]
        self.x = self.y = 0
        self.rest = ""

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = STEP.match(text, at)
                if not found:
                    if len(text) - at < 40:
                        self.rest = text[at:]
                        return
                    at += 1
                    continue
                self.control(found.group(1) or "", found.group(2))
                at = found.end()
                continue
            if text[at] == "\r":
                self.x = 0
            elif text[at] == "\n":
                self.y = min(self.y + 1, LINES - 1)
            elif self.y < LINES and self.x < COLUMNS:
                self.cells[self.y][self.x] = text[at]
                self.x += 1
            at += 1

    def control(self, numbers, letter):
        parts = [int(part) for part in numbers.split(";") if part.isdigit()]
        if letter == "H":
            self.y, self.x = [part - 1 for part in (parts + [1, 1])[:2]]
        elif letter == "J":
            self.cells = [[" "] * COLUMNS for _ in range(LINES)]
        elif letter == "K":
            self.cells[self.y][self.x :] = [" "] * (COLUMNS - self.x)
        elif letter == "C":
            self.x += parts[0] if parts else 1

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.cells)


class Top:
    def __init__(self, address):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(BIN, [BIN, "top", "--every", "1s", "--server", address, "--tenant", TENANT])
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.screen = Screen()
        self.bytes = 0

    def press(self, keys):
        os.write(self.file, keys.encode())

    def read(self, seconds=0.1):
        if select.select([self.file], [], [], seconds)[0]:
            try:
                text = os.read(self.file, 65536)
                self.bytes += len(text)
                self.screen.feed(text.decode(errors="replace"))
            except OSError:
                return False
        return True

    def shows(self, *words, absent=(), seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read()
            text = self.screen.text()
            if all(word in text for word in words) and not any(word in text for word in absent):
                return text
        raise AssertionError(f"waited in vain for {words} without {absent}:\n{self.screen.text()}")

    def ends(self):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("it does not end")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    address = parser.parse_args().address

    def haul(*words, fine=True):
        command = [BIN, *words, "--server", address, "--tenant", TENANT, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not fine, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() and done.returncode == 0 else None

    def until(what, look):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if look():
                return
            time.sleep(0.1)
        raise AssertionError(f"waited in vain until {what}")

    for number in range(3):
        haul("put", "mail", "Send", '{"n":1}', "--jid", f"m{number}")
    haul("put", "alpha", "Odd\x1b[2J", "{}", "--jid", "odd")
    haul("put", "work", "Run", "{}", "--jid", "run-1")
    haul("pop", "work", "--worker", "host-9")
    haul("put", "flaky", "Bad", "{}", "--jid", "bad-1")
    haul("pop", "flaky", "--worker", "host-8")
    haul("fail", "bad-1", "smtp-down", "refused", "--worker", "host-8")

    top = Top(address)
    top.shows("1 Queues", "mail", "alpha", "RECUR", "q quit")
    # The most waiting first.
    top.press("s")
    text = top.shows("WAIT↓")
    until("it is sorted", lambda: top.read() and top.screen.text().splitlines()[2].startswith("mail"))
    top.press("/mai\r")
    top.shows("filter: mai", "mail", absent=("alpha",))
    top.press("p")
    top.shows("Pause mail? y/n")
    top.press("y")
    top.shows("mail is paused")
    until("the queue is paused", lambda: [q for q in haul("queues") if q["name"] == "mail"][0]["paused"])
    top.press("p")
    top.shows("Unpause mail? y/n")
    top.press("y")
    until("it goes on", lambda: not [q for q in haul("queues") if q["name"] == "mail"][0]["paused"])
    top.press("\r")
    top.shows("Queue mail", "m0", "m2", "waiting")
    top.press("\r")
    top.shows("Job m0", '{"n":1}', "history")
    top.press("x")
    top.shows("Cancel m0? y/n")
    top.press("n")
    top.press("xy")
    until("it is cancelled", lambda: haul("job", "m0", fine=False) is None)
    top.press("\x1b[D\x1b[D")
    top.shows("alpha", "mail")
    top.press("2")
    top.shows("host-9", "SEEN")
    top.press("3")
    top.shows("run-1", "host-9", "running")
    top.press("4")
    top.shows("smtp-down", "r retry all")
    top.press("\r")
    top.shows("bad-1", "failed")
    top.press("r")
    top.shows("Retry bad-1? y/n")
    top.press("y")
    until("it waits again", lambda: haul("job", "bad-1")["state"] == "waiting")
    # Names that would drive a terminal are drawn as text.
    top.press("1/alpha\r\r")
    text = top.shows("Queue alpha", "odd", "Odd")
    assert "\x1b" not in text and text.splitlines()[0].strip(), text
    top.press("\x1b[D")
    top.shows("alpha", "mail")
    # A slow line: what has not changed is not drawn again.
    top.bytes = 0
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        top.read()
    assert top.bytes < 2000, f"{top.bytes} bytes were drawn while nothing happened"
    # Something new shows by itself.
    top.press("1")
    haul("put", "brand-new", "K", "{}", "--jid", "b1")
    top.shows("brand-new")
    top.press("q")
    assert top.ends() == 0, "it ends with 0"
    for jid in ["m1", "m2", "odd", "run-1", "bad-1", "b1"]:
        haul("cancel", jid)
    print("haul top: ok")


if __name__ == "__main__":
    sys.exit(main())
