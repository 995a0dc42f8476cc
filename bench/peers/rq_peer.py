"""RQ on Redis: jobs put with enqueue_many, worked by two SimpleWorkers (no process for each job) in processes of their own.

    python rq_peer.py put PORT JOBS BATCH PAYLOAD      python rq_peer.py work PORT JOBS
"""

import json
import logging
import multiprocessing
import sys
import time

from redis import Redis
from rq import Queue, SimpleWorker

mode, port, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def work():
    logging.disable(logging.CRITICAL)
    connection = Redis(port=port)
    worker = SimpleWorker([Queue("bench", connection=connection)], connection=connection)
    worker.work(burst=True, logging_level="CRITICAL")


if mode == "put":
    batch, payload = int(sys.argv[4]), int(sys.argv[5])
    queue = Queue("bench", connection=Redis(port=port))
    data = {"x": "x" * (payload - 8)}
    start = time.perf_counter()
    for done in range(0, jobs, batch):
        length = min(batch, jobs - done)
        # A function that does next to nothing and that the workers can import.
        queue.enqueue_many([Queue.prepare_data("operator.not_", (data,), result_ttl=0) for _ in range(length)])
else:
    start = time.perf_counter()
    workers = [multiprocessing.Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert Queue("bench", connection=Redis(port=port)).count == 0
print(json.dumps({"seconds": time.perf_counter() - start}))
