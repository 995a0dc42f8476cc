// graphile-worker on PostgreSQL: jobs put with addJobs, worked with its local queue and batched completion, as its guide on
// performance advises.
//
//   node graphile.mjs put PORT JOBS BATCH PAYLOAD     node graphile.mjs work PORT JOBS
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const [mode, port, jobs, batch, payload] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const connectionString = `postgres://postgres@127.0.0.1:${port}/postgres`;
const logger = new Logger(() => () => {});

if (mode === "put") {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  const data = { x: "x".repeat(payload - 8) };
  const start = performance.now();
  for (let done = 0; done < jobs; done += batch) {
    const length = Math.min(batch, jobs - done);
    await utils.addJobs(Array.from({ length }, () => ({ identifier: "bench", payload: data })));
  }
  console.log(JSON.stringify({ seconds: (performance.now() - start) / 1000 }));
  await utils.release();
} else {
  let left = jobs;
  let ended;
  const all = new Promise((resolve) => (ended = resolve));
  const start = performance.now();
  const runner = await run({
    connectionString,
    logger,
    noHandleSignals: true,
    taskList: { bench: async () => void (--left === 0 && ended()) },
    preset: {
      worker: {
        connectionString,
        concurrentJobs: 24,
        maxPoolSize: 12,
        pollInterval: 100,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  await all;
  await runner.stop(); // Returns once what was done is written.
  console.log(JSON.stringify({ seconds: (performance.now() - start) / 1000 }));
}
