// Runs handlers in one warm interpreter. Requests come on standard input, answers go to standard output; what handlers
// print is theirs and is sent back with each job.
'use strict';
const send = process.stdout.write.bind(process.stdout);
const AsyncFunction = (async () => {}).constructor;
let captured = [];
process.stdout.write = (text, encoding, done) => {
  captured.push(Buffer.isBuffer(text) ? text : Buffer.from(String(text), typeof encoding === 'string' ? encoding : 'utf8'));
  const call = typeof encoding === 'function' ? encoding : done;
  if (call) call();
  return true;
};

class Retry extends Error { constructor(text) { super(text); this.exitcode = 100; } }
class Failed extends Error { constructor(text) { super(text); this.exitcode = 400; } }
const haul = { Retry, Failed };
const shared = {};
const types = new Map();
let current = null;

const compile = (text) => new AsyncFunction('payload', 'job', 'require', 'module', 'exports', 'haul', 'shared', text);

class Handler {
  constructor(parts) {
    this.body = compile(parts.body);
    this.steps = {};
    for (const key of ['beforeEach', 'afterEach']) if (parts[key]) this.steps[key] = compile(parts[key]);
    this.handle = null;
  }
  run(code, payload, job) {
    const module = { exports: {} };
    this.module = module;
    return code(payload, job, require, module, module.exports, haul, shared);
  }
  async step(key) { if (this.steps[key]) await this.run(this.steps[key]); }
  async job(payload, job) {
    if (this.handle) return this.handle(payload, job);
    const value = await this.run(this.body, payload, job);
    const found = this.module.exports;
    const handle = typeof found === 'function' ? found : found.handle;
    if (typeof handle !== 'function') return value;
    // The text is a module: loaded once, its function is called for every job.
    this.handle = handle;
    return handle(payload, job);
  }
}

async function call(run) {
  try {
    return [200, '', await run()];
  } catch (error) {
    const code = error && Number.isInteger(error.exitcode) && error.exitcode >= 100 && error.exitcode <= 599
      ? error.exitcode : 500;
    const told = error instanceof Retry || error instanceof Failed ? error.message : String((error && error.stack) || error);
    return [code, told.slice(-4000), undefined];
  }
}

function bytes(value) {
  if (value === undefined || value === null) return null;
  if (Buffer.isBuffer(value)) return value;
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
}

let answers = [];
function say(kind, code, began, output, result, reason) {
  const micros = Number((process.hrtime.bigint() - began) / 1000n);
  const why = Buffer.from(reason || '');
  const size = result === null || result === undefined ? -1 : result.length;
  answers.push(Buffer.from(`${kind} ${code} ${micros} ${output ? output.length : 0} ${size} ${why.length}\n`));
  if (output && output.length) answers.push(output);
  if (size > 0) answers.push(result);
  if (why.length) answers.push(why);
}
function flush() {
  if (answers.length) send(Buffer.concat(answers));
  answers = [];
}

async function job(words, payload) {
  captured = [];
  const raw = words[2] === '1';
  let body = !raw && payload[payload.length - 1] === 10 ? payload.subarray(0, -1) : payload;
  const text = body.toString();
  body = Buffer.from(text).equals(body) ? text : Buffer.from(body);
  process.env.HAUL_JOB_ID = words[1];
  const began = process.hrtime.bigint();
  let [code, reason, value] = await call(() => types.get(current).job(body, { id: words[1], type: current }));
  let result = null;
  if (code === 200) {
    try { result = bytes(value); } catch (error) { code = 500; reason = 'the result cannot be written as JSON: ' + error; }
  }
  say('j', code, began, Buffer.concat(captured), result, reason);
}

async function load(name, parts) {
  if (parts.first && parts.before) {
    const module = { exports: {} };
    await compile(parts.before)(undefined, undefined, require, module, module.exports, haul, shared);
  }
  types.set(name, new Handler(parts));
}

async function handle(words, body) {
  const began = process.hrtime.bigint();
  if (words[0] === 'L') {
    const [code, reason] = await call(() => load(words[1], JSON.parse(body.toString())));
    say('l', code, began, null, null, reason);
  } else if (words[0] === 'B') {
    current = words[1];
    process.env.HAUL_JOBTYPE = current;
    const [code, reason] = await call(() => types.get(current).step('beforeEach'));
    say('b', code, began, null, null, reason);
  } else if (words[0] === 'J') {
    await job(words, body);
    if (words[4] === '1') flush();
    return;
  } else if (words[0] === 'A') {
    const [code, reason] = await call(() => types.get(current).step('afterEach'));
    say('a', code, began, null, null, reason);
  }
  flush();
}

let buffer = Buffer.alloc(0);
let busy = false;
const sizes = { L: 2, J: 3 };
async function pump() {
  if (busy) return;
  busy = true;
  for (;;) {
    const end = buffer.indexOf(10);
    if (end < 0) break;
    const words = buffer.subarray(0, end).toString().split(' ');
    const size = words[0] in sizes ? Number(words[sizes[words[0]]]) : 0;
    if (buffer.length < end + 1 + size) break;
    const body = buffer.subarray(end + 1, end + 1 + size);
    buffer = buffer.subarray(end + 1 + size);
    await handle(words, body);
  }
  busy = false;
}
process.on('exit', flush);
process.stdin.on('data', (chunk) => {
  buffer = buffer.length ? Buffer.concat([buffer, chunk]) : chunk;
  pump();
});
process.stdin.on('end', () => process.exit(0));
