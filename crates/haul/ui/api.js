// Asking the server. Every request carries a header that a page of another site cannot add.
import { parse } from './json.js';

export class Problem extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let tenant = null;
export const setTenant = (name) => { tenant = name || null; };
export const getTenant = () => tenant;

export async function ask(method, path, body, { exact = false, text = false, signal } = {}) {
  const headers = { 'x-haul-page': '1' };
  if (tenant) headers['x-haul-tenant'] = tenant;
  if (body !== undefined) headers['content-type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, {
      method, headers, signal, credentials: 'same-origin',
      body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'OFFLINE', 'the server does not answer');
  }
  const words = await answer.text();
  if (!answer.ok) {
    let error = {};
    try { error = JSON.parse(words).error ?? {}; } catch { /* not a document of ours */ }
    throw new Problem(answer.status, error.code ?? 'HTTP', error.message ?? `the server answered ${answer.status}`);
  }
  if (text) return words;
  if (!words) return null;
  return exact ? parse(words) : JSON.parse(words);
}

const V = '/api/v1';
export const query = (params) => {
  const pairs = Object.entries(params ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return pairs.length ? `?${new URLSearchParams(pairs)}` : '';
};
export const get = (path, params, options) => ask('GET', V + path + query(params), undefined, options);
export const post = (path, body = {}, options) => ask('POST', V + path, body, options);
export const put = (path, body = {}) => ask('PUT', V + path, body);
export const patch = (path, body) => ask('PATCH', V + path, body);
export const del = (path) => ask('DELETE', V + path);
// A name in a path. Paths are tidied up: what dots alone would do is said by the characters that stand for bytes.
export const part = (name) => encodeURIComponent(/^\.{1,2}$/.test(name) ? name.replaceAll('.', '\u{10fe2e}') : name);

// By a document, not by the path: a jid may be anything, and browsers tidy paths up.
export const jobs = async (jids, options) => jids.length ? (await post('/jobs/get', { jids: jids.slice(0, 500) }, options)).jobs : [];

const ranks = ['view', 'work', 'operate', 'admin'];
export const me = { role: 'view', token: null, tenant: 'default', any_tenant: false, session: false };
export const may = (role) => ranks.indexOf(me.role) >= ranks.indexOf(role);
