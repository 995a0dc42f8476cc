// Servers, a browser, and a small frame for tests: each is a name and a function; all run, one after the other.
import { spawn, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const BIN = process.env.HAUL_BIN;

export class Server {
  // With `store`, a node of the shared store that lies in its folder; `of`: of that node's store.
  static async start({ tokens = [], store = false, of = null } = {}) {
    const server = new Server();
    server.folder = mkdtempSync(join(tmpdir(), 'haul-browser-'));
    server.more = store || of ? ['--store', `file://${(of ?? server).folder}/store`, '--node', '127.0.0.1:0', '--shards', '16'] : [];
    server.tokens = {};
    for (const [name, role, tenant = '*'] of tokens) {
      server.tokens[name] = execFileSync(BIN, ['token', 'add', name, '--role', role, '--tenant', tenant, '--data', server.folder]).toString().trim().split(/\s+/)[0];
    }
    await server.run('127.0.0.1:0', '127.0.0.1:0');
    return server;
  }

  async run(redis, http) {
    this.process = spawn(BIN, ['serve', '--data', this.folder, '--redis', redis, '--http', http, ...this.more], { stdio: ['ignore', 'ignore', 'pipe'] });
    let log = '';
    this.process.stderr.on('data', (text) => { log += text; });
    const found = await until('the server starts', () => /redis=(\S+).* http=(\S+)/.exec(log.replace(/\u001b\[[0-9;]*m/g, '')));
    [, this.redis, this.http] = found;
    this.url = `http://${this.http}`;
  }

  async stop() {
    const gone = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.kill('SIGTERM');
    await gone;
  }

  async end() {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async ask(method, path, body, token = this.tokens.admin) {
    const headers = { ...(token ? { authorization: `Bearer ${token}` } : {}), ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const answer = await fetch(`${this.url}/api/v1${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw Object.assign(new Error(`${method} ${path}: ${answer.status} ${text}`), { status: answer.status });
    return text ? JSON.parse(text) : null;
  }

  get = (path) => this.ask('GET', path);
  post = (path, body = {}) => this.ask('POST', path, body);
  put = (job) => this.post('/jobs', job);
  pop = async (queue, worker = 'w1', count = 1) => (await this.post('/pop', { worker, queues: [queue], count, lock: 3600 })).jobs;
  job = (jid) => this.get(`/jobs/${encodeURIComponent(jid)}`);

  async fail(queue, jid, group = 'smtp-down', message = 'Traceback:\n  line 1\nConnectionError: refused') {
    await this.put({ queue, klass: 'Send', jid, data: { to: jid } });
    await this.pop(queue);
    await this.post(`/jobs/${encodeURIComponent(jid)}/fail`, { worker: 'w1', group, message });
  }

  // Raw bytes over the Redis protocol.
  async redisSay(...words) {
    const parts = words.map((word) => Buffer.isBuffer(word) ? word : Buffer.from(String(word)));
    const bytes = Buffer.concat([Buffer.from(`*${parts.length}\r\n`), ...parts.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from('\r\n')])]);
    const [host, port] = this.redis.split(':');
    return new Promise((resolve, reject) => {
      const socket = createConnection(Number(port), host, () => socket.write(bytes));
      socket.once('data', (data) => { socket.end(); resolve(data.toString('latin1')); });
      socket.once('error', reject);
    });
  }
}

export async function until(what, look, seconds = 20) {
  const end = Date.now() + seconds * 1000;
  let last;
  while (Date.now() < end) {
    try {
      const found = await look();
      if (found) return found;
    } catch (error) { last = error; }
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  throw new Error(`waited in vain until ${what}${last ? `: ${last.message}` : ''}`);
}

export function check(holds, what) {
  if (!holds) throw new Error(what);
}

export const equal = (found, wanted, what = '') => check(JSON.stringify(found) === JSON.stringify(wanted), `${what}: found ${JSON.stringify(found)}, wanted ${JSON.stringify(wanted)}`);

export async function browse() {
  const folder = mkdtempSync(join(tmpdir(), 'haul-chromium-'));
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: process.env.CHROMIUM, headless: true, viewport: { width: 1280, height: 800 }, timeout: 90000,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  });
  context.setDefaultTimeout(20000);
  return { context, close: async () => { await context.close(); rmSync(folder, { recursive: true, force: true }); } };
}

// Errors on the console, uncaught ones, and requests to anywhere else are faults of the page.
export function watch(page, url, faults, { allow = () => false } = {}) {
  page.on('console', (message) => {
    // A job may go between the two questions about it.
    const gone = message.text().includes('404') && message.location().url.endsWith('/why');
    if (message.type() === 'error' && !gone && !allow(message.text())) faults.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => faults.push(`uncaught: ${error.message}`));
  page.on('request', (request) => { if (!request.url().startsWith(url()) && !request.url().startsWith('data:')) faults.push(`outside: ${request.url()}`); });
}

export const axe = readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

export async function run(tests, filter) {
  let failed = 0;
  for (const [name, test] of tests) {
    if (filter && !name.includes(filter)) continue;
    const began = Date.now();
    try {
      await test();
      console.log(`ok    ${name} (${Date.now() - began} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}\n      ${error.stack ?? error}`);
    }
  }
  return failed;
}
