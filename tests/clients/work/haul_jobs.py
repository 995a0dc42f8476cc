"""Jobs for the worker processes of both packages. What a job does is told to the test through its desk."""

import json
import os
import socket
import subprocess
import sys


def _data(job):
    # qless-py gives the decoded document, reqless its text.
    return job.data if isinstance(job.data, dict) else json.loads(job.data)


def report(job, what, wait=True, **more):
    """Tells the desk; waits for the answer if asked to."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(_data(job)["desk"])
    more.update(what=what, jid=job.jid, pid=os.getpid(), parent=os.getppid(), worker=job.worker_name)
    connection.sendall((json.dumps(more) + "\n").encode())
    answer = connection.makefile("r").readline().strip() if wait else None
    connection.close()
    return answer


class Steady(object):
    """Reports, waits for the word, completes."""

    @staticmethod
    def process(job):
        sandbox = os.path.realpath(job.sandbox)
        with open(os.path.join(sandbox, "scratch"), "w") as file:
            file.write(job.jid)
        report(job, "started", sandbox=sandbox, cwd=os.getcwd())
        report(job, "completed", wait=False, state=job.complete())


class Quick(object):
    """Completes at once, saying nothing."""

    @staticmethod
    def process(job):
        job.complete()


class Chain(object):
    """A method for each queue: the first advances the job to the second."""

    @staticmethod
    def first(job):
        job.complete("second")

    @staticmethod
    def second(job):
        report(job, "second", wait=False)
        job.complete()


class Broken(object):
    """Fails by raising."""

    @staticmethod
    def process(job):
        raise ValueError("broken on purpose")


class Beating(object):
    """Holds the job over several heartbeats and notices when the lock is gone."""

    @staticmethod
    def process(job):
        word = report(job, "started")
        while word == "beat":
            try:
                expires = job.heartbeat()
            except Exception as error:
                report(job, "lost", kind=type(error).__name__)
                return
            word = report(job, "beaten", expires=expires)
        try:
            job.complete()
        except Exception as error:
            report(job, "refused", kind=type(error).__name__, text=str(error))
            return
        report(job, "completed", wait=False)


class Killable(object):
    """Notices when the worker stops it (greenlets can be stopped)."""

    @staticmethod
    def process(job):
        try:
            report(job, "started")
        except BaseException as error:
            # The greenlet is being killed; tell it from a process of its own, as we may not wait here.
            subprocess.Popen([sys.executable, __file__, _data(job)["desk"], job.jid, type(error).__name__])
            raise
        job.complete()


class Deadly(object):
    """Takes its worker process down the first time; the second time it completes."""

    @staticmethod
    def process(job):
        if report(job, "started") == "die":
            os.kill(os.getpid(), 9)
        job.complete()
        report(job, "completed", wait=False)


class Odd(object):
    """Has only a method that is not static."""

    process = len


if __name__ == "__main__":
    desk, jid, kind = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(desk)
    connection.sendall((json.dumps({"what": "killed", "jid": jid, "kind": kind}) + "\n").encode())
    connection.close()
