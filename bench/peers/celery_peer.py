"""Celery on Redis: no results, messages sent over one connection, worked by two processes that fetch far ahead.

    python celery_peer.py put PORT JOBS BATCH PAYLOAD      python celery_peer.py work PORT JOBS
"""

import json
import os
import subprocess
import sys
import time

from celery import Celery

port = int(os.environ.get("PEER_PORT") or sys.argv[2])
app = Celery("celery_peer", broker=f"redis://127.0.0.1:{port}/0")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=500,
    worker_concurrency=2,
    task_acks_late=False,
    task_send_sent_event=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="no_op")
def no_op(data):
    return None


def queued():
    from redis import Redis

    redis = Redis(port=port)
    return redis.llen("celery") + redis.hlen("unacked")


if __name__ == "__main__":
    mode, jobs = sys.argv[1], int(sys.argv[3])
    if mode == "put":
        data = {"x": "x" * (int(sys.argv[5]) - 8)}
        start = time.perf_counter()
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(jobs):
                no_op.apply_async((data,), producer=producer)
    else:
        command = [sys.executable, "-m", "celery", "-A", "celery_peer", "worker", "--loglevel", "ERROR",
                   "--without-gossip", "--without-mingle", "--without-heartbeat", "-O", "fair"]
        environment = {**os.environ, "PEER_PORT": str(port)}
        here = os.path.dirname(os.path.abspath(__file__))
        worker = subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.DEVNULL)
        # The time it takes to start is not its speed.
        while queued() == jobs:
            time.sleep(0.01)
        start = time.perf_counter()
        while queued() > 0:
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        worker.terminate()
        worker.wait()
        start = time.perf_counter() - seconds
    print(json.dumps({"seconds": time.perf_counter() - start}))
