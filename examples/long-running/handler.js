#!/usr/bin/env node
// haul work events --serve 2 -- node handler.js
const lines = require("node:readline").createInterface({ input: process.stdin });

// Your code: the result, or an exception. Jobs run at the same time as far as they wait.
async function handle(job) {
  return `hello, ${JSON.stringify(job.data)}`;
}

lines.on("line", async (line) => {
  const job = JSON.parse(line);
  if (job.cancel !== undefined) return;
  let answer;
  try {
    answer = { id: job.id, result: await handle(job) };
  } catch (error) {
    answer = { id: job.id, fail: error.message, group: error.name };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
