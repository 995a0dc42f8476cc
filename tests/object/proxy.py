#!/usr/bin/env python3
"""A bad line to an object store: forwards HTTP requests to a real server, late, throttled, or cut off in the middle.

    proxy.py --to 127.0.0.1:9000 --port 9100 --delay-ms 50-100 --throttle 0.05 --cut 0.02

Each request has a connection of its own. `--throttle P` answers 503 without forwarding, `--cut P` closes the
connection: half of the time before the request was forwarded whole, half of the time in the middle of the answer, when
the server has done it. `--overwrite KEY:SECRET` takes the condition off every PUT (and signs it again), as if the store knew
no conditional put.

When it is ended (SIGTERM) it tells what it did.
"""
import argparse
import asyncio
import hashlib
import hmac
import os
import random
import re
import signal


async def read_request(reader):
    """The head and the body of one request, or none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
        if name.strip().lower() == b"expect":
            return None
    return head, await reader.readexactly(length)


def alone(head):
    """The same head for a connection that ends with the answer."""
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join(lines + [b"Connection: close"]) + b"\r\n\r\n"


def without_condition(head, key, secret):
    """The same S3 request without If-None-Match, signed by whoever has the key."""
    request, *lines = head[:-4].decode().split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if not request.startswith("PUT ") or "if-none-match" not in headers:
        return head
    del headers["if-none-match"]
    signed = re.search(r"SignedHeaders=([^,]+)", headers["authorization"])[1].split(";")
    signed = [name for name in signed if name != "if-none-match"]
    scope = re.search(r"Credential=[^/]+/([^,]+)", headers["authorization"])[1]
    path, _, query = request.split(" ")[1].partition("?")
    named = "".join(f"{name}:{headers[name]}\n" for name in signed)
    canonical = f"PUT\n{path}\n{query}\n{named}\n{';'.join(signed)}\n{headers['x-amz-content-sha256']}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    signing = f"AWS4{secret}".encode()
    for part in scope.split("/") + [text]:
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={';'.join(signed)}, Signature={signing.hex()}"
    )
    return "\r\n".join([request, *(f"{name}: {value}" for name, value in headers.items())]).encode() + b"\r\n\r\n"


class Line:
    def __init__(self, options):
        self.host, self.port = options.to.rsplit(":", 1)
        low, _, high = options.delay_ms.partition("-")
        self.delay = (float(low) / 1000, float(high or low) / 1000)
        self.throttle, self.cut = options.throttle, options.cut
        self.random = random.Random(options.seed)
        self.overwrite = options.overwrite and options.overwrite.split(":")
        self.counts = {"forwarded": 0, "throttled": 0, "cut": 0}

    async def serve(self, reader, writer):
        try:
            request = await read_request(reader)
            if request:
                await self.forward(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def forward(self, request, writer):
        head, body = request
        if self.overwrite:
            head = without_condition(head, *self.overwrite)
        await asyncio.sleep(self.random.uniform(*self.delay))
        chance = self.random.random()
        if chance < self.throttle:
            self.counts["throttled"] += 1
            text = b"<Error><Code>SlowDown</Code></Error>"
            writer.write(b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            return await writer.drain()
        cut = chance < self.throttle + self.cut
        up_reader, up_writer = await asyncio.open_connection(self.host, int(self.port))
        try:
            if cut and self.random.random() < 0.5:
                self.counts["cut"] += 1
                up_writer.write(alone(head) + body[: len(body) // 2])
                return await up_writer.drain()
            up_writer.write(alone(head) + body)
            await up_writer.drain()
            self.counts["forwarded"] += 1
            while piece := await up_reader.read(65536):
                if cut:
                    self.counts["cut"] += 1
                    writer.write(piece[: len(piece) // 2])
                    return await writer.drain()
                writer.write(piece)
                await writer.drain()
        finally:
            up_writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay-ms", default="0")
    parser.add_argument("--throttle", type=float, default=0)
    parser.add_argument("--cut", type=float, default=0)
    parser.add_argument("--overwrite", metavar="KEY:SECRET")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    line = Line(options)
    server = await asyncio.start_server(line.serve, "127.0.0.1", options.port, limit=1 << 20)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with server:
        await ended.wait()
        print("the line:", ", ".join(f"{count} {what}" for what, count in line.counts.items()), flush=True)
        # Without waiting for connections that are still open.
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
