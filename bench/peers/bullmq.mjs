// BullMQ on Redis: jobs put with addBulk, worked by one Worker in a process of its own with a high concurrency, as its
// guide advises for jobs that do nothing but wait.
//
//   node bullmq.mjs put PORT JOBS BATCH PAYLOAD     node bullmq.mjs work PORT JOBS
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const [mode, port, jobs, batch, payload] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const connection = new Redis({ port, maxRetriesPerRequest: null });

if (mode === "put") {
  const queue = new Queue("bench", { connection, defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  const data = { x: "x".repeat(payload - 8) };
  const start = performance.now();
  for (let done = 0; done < jobs; done += batch) {
    await queue.addBulk(Array.from({ length: Math.min(batch, jobs - done) }, () => ({ name: "bench", data })));
  }
  console.log(JSON.stringify({ seconds: (performance.now() - start) / 1000 }));
  await queue.close();
  connection.disconnect();
} else {
  let left = jobs;
  let ended;
  const all = new Promise((resolve) => (ended = resolve));
  const worker = new Worker("bench", async () => {}, { connection, concurrency: 100, autorun: false });
  worker.on("completed", () => --left === 0 && ended());
  await worker.waitUntilReady();
  const start = performance.now();
  worker.run();
  await all;
  console.log(JSON.stringify({ seconds: (performance.now() - start) / 1000 }));
  await worker.close();
  connection.disconnect();
}
