"""A program as Blueque's users write it: a forking runner for one queue.

    blueque_runner.py URL PROTOCOL QUEUE run       takes tasks for ever
    blueque_runner.py URL PROTOCOL QUEUE reserve   takes one and leaves without running it

A task's parameters say what it does: `return TEXT`, `raise TEXT`, or `wait FILE TEXT`: until there is such a file."""

import os
import sys
import time

from blueque import Client
from blueque.forking_runner import ForkingRunner


def perform(task):
    word, _, rest = task.parameters.partition(" ")
    if word == "raise":
        raise RuntimeError(rest)
    if word == "wait":
        path, _, rest = rest.partition(" ")
        while not os.path.exists(path):
            time.sleep(0.01)
    return rest


if __name__ == "__main__":
    url, protocol, queue, verb = sys.argv[1:]
    client = Client(url, protocol=int(protocol))
    if verb == "run":
        ForkingRunner(client, queue, perform).run()
    else:
        print(client.get_listener(queue).listen().id)
