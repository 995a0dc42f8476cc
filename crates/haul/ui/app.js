// The frame of the page: which view is shown, keeping it fresh, logging in, the keyboard.
import { button, h, show } from './dom.js';
import { plain } from './format.js';
import { ask, get, getTenant, jobs, may, me, query, setTenant } from './api.js';
import { dialog } from './actions.js';
import * as overview from './overview.js';
import * as queue from './queue.js';
import * as job from './job.js';
import * as failures from './failures.js';
import * as search from './search.js';
import * as lists from './lists.js';
import * as settings from './settings.js';

// name, view, where the menu shows it, the key after g, the role it needs (any: a token for all tenants)
const views = [
  ['', overview, 'Overview', 'o'], ['failures', failures, 'Failures', 'f'], ['search', search, 'Search', 's'],
  ['workers', lists.workers, 'Workers', 'w'], ['recurring', lists.recurring, 'Recurring', 'r'], ['handlers', lists.handlers, 'Handlers', 'h'], ['throttles', settings.throttles, 'Throttles', 't'],
  ['tracked', lists.tracked, 'Tracked', 'k'], ['tags', lists.tags, 'Tags', 'a'], ['completed', lists.completed, 'Completed', 'c'],
  ['config', settings.config, 'Config', 'n'], ['audit', settings.audit, 'Audit', 'u', 'admin'], ['tenants', lists.tenants, 'Tenants', 'e', 'any'], ['system', settings.system, 'System', 'y'],
  ['queue', queue], ['job', job], ['worker', lists.worker],
];

const allowed = (role) => !role || (role === 'any' ? me.any_tenant : may(role));

export function href(view, params = {}) {
  return `/ui/${view}${query({ ...params, tenant: getTenant() })}`;
}

const main = document.getElementById('main');
const current = { view: null, name: null, params: {}, data: null, load: null };

function where() {
  const name = location.pathname.replace(/^\/ui\/?/, '');
  const { tenant, ...params } = Object.fromEntries(new URLSearchParams(location.search));
  return { name, params, tenant, view: views.find(([known]) => known === name)?.[1] };
}

function menu() {
  const name = { queue: '', job: 'search', worker: 'workers' }[current.name] ?? current.name;
  show(document.getElementById('nav'), views.filter(([, , label, , role]) => label && allowed(role)).map(([view, , label, key]) =>
    h('a', { href: href(view), 'aria-current': view === name ? 'page' : undefined, title: `g ${key}` }, label)));
  document.querySelector('.brand').href = href('');
  show(document.getElementById('who'),
    me.any_tenant ? button(`tenant ${plain(me.tenant)}`, chooseTenant, undefined, { title: 'Choose another tenant' }) : h('span', null, `tenant ${plain(me.tenant)}`),
    me.token ? h('span', null, `${plain(me.token)} (${me.role})`) : null,
    me.session ? button('Log out', logout) : null,
    button('?', help, undefined, { 'aria-label': 'Keys' }));
}

async function chooseTenant() {
  const answer = await dialog('Tenant', 'Each tenant is a world of its own.', [{ name: 'tenant', label: 'Name; empty: default', value: getTenant() ?? '' }], { go: 'Choose' });
  if (!answer) return;
  setTenant(answer.tenant === 'default' ? '' : answer.tenant);
  visit(href(''), { again: true });
}

async function logout() {
  await ask('POST', '/ui/logout').catch(() => {});
  listen(false);
  login();
}

function login(message) {
  document.title = 'Log in · Haul';
  listen(false);
  current.view = null;
  document.body.classList.add('closed');
  show(document.getElementById('nav'));
  show(document.getElementById('who'));
  const submit = async function (event) {
    event.preventDefault();
    const token = new FormData(this).get('token');
    try {
      await ask('POST', '/ui/login', { token });
      document.body.classList.remove('closed');
      await enter();
    } catch (error) {
      login(error.message);
    }
  };
  show(main, h('form', { class: 'login', key: 'login', on: { submit } }, h('h1', null, 'Log in'),
    h('p', null, 'This server asks for a token. ', h('span', { class: 'mono' }, 'haul token add'), ' makes one.'),
    message ? h('p', { class: 'error', role: 'alert' }, plain(message)) : null,
    h('p', null, h('label', { for: 'token' }, 'Token '), h('input', { id: 'token', name: 'token', type: 'password', required: true, autocomplete: 'current-password' })),
    h('button', { type: 'submit', class: 'main' }, 'Log in')));
  document.getElementById('token').focus();
}

async function enter() {
  try {
    Object.assign(me, await get('/me'));
  } catch (error) {
    if (error.status === 401) return login();
    if (error.status === 403 && getTenant()) { setTenant(null); return enter(); }
    show(main, h('h1', null, 'Haul cannot be reached'), h('p', { class: 'error' }, plain(error.message)), button('Try again', enter));
    return undefined;
  }
  return arrive();
}

// Shows what the address says.
async function arrive() {
  const { name, params, view } = where();
  Object.assign(current, { view, name, params, data: null });
  menu();
  if (!view) {
    show(main, h('h1', null, 'There is no such page'), h('p', null, h('a', { href: href('') }, 'To the overview')));
    return;
  }
  const box = document.getElementById('q');
  if (document.activeElement !== box) box.value = name === 'search' ? told(params) : '';
  view.begin?.();
  listen(true);
  await refresh();
  window.scrollTo(0, 0);
  if (document.activeElement === document.body || main.contains(document.activeElement)) document.querySelector('h1')?.focus({ preventScroll: true });
}

const told = ({ text, cursor, ...rest }) => [...Object.entries(rest).map(([key, value]) => /\s/.test(value) ? `${key}:"${value}"` : `${key}:${value}`), text].filter(Boolean).join(' ');

export function redraw() {
  const { view, params, data } = current;
  if (!view || data === null) return;
  const title = plain(view.title(params));
  document.title = `${title} · Haul`;
  show(main, h('h1', { tabindex: '-1' }, title), view.render(data, params));
}

// One load at a time; what happens meanwhile leads to one more.
let again = false;
export async function refresh() {
  if (current.load) { again = true; if (current.load.view === current.view && current.load.params === current.params) return current.load.done; current.load.abort.abort(); }
  const abort = new AbortController();
  const mine = { view: current.view, params: current.params, abort };
  current.load = mine;
  again = false;
  mine.done = (async () => {
    try {
      const data = await mine.view.load(mine.params, abort.signal);
      if (current.view !== mine.view || current.params !== mine.params) return;
      current.data = data;
      redraw();
      heard();
    } catch (error) {
      if (error.name === 'AbortError' || current.params !== mine.params) return;
      if (error.status === 401) { login(); return; }
      if (error.code === 'OFFLINE') { lost(); if (current.data !== null) return; }
      current.data = null;
      document.title = `${plain(mine.view.title(mine.params))} · Haul`;
      show(main, h('h1', { tabindex: '-1' }, plain(mine.view.title(mine.params))), h('p', { class: 'error', role: 'alert' }, plain(error.message)), button('Try again', () => refresh()));
    } finally {
      if (current.load === mine) current.load = null;
    }
  })();
  await mine.done;
  if (again && current.view === mine.view) soon();
}

export function visit(to, { again: reload = false } = {}) {
  history.pushState(null, '', to);
  return reload ? enter() : arrive();
}

// Live: the server says that something has changed, at most once a second; then what is shown is read anew.
const LULL = 1000;
const STALE = 10000;
let source = null;
let timer = null;
let last = 0;

function soon() {
  if (timer || document.hidden) return;
  timer = setTimeout(() => { timer = null; last = Date.now(); if (current.view) refresh(); }, Math.max(0, LULL - (Date.now() - last)));
}

const live = document.getElementById('live');
function heard() {
  if (live.className || live.textContent !== 'live') { live.className = ''; live.textContent = 'live'; }
}
function lost() {
  live.className = 'lost';
  live.textContent = 'connection lost, trying again';
}

function listen(on) {
  source?.close();
  source = null;
  if (!on || document.hidden || !current.view) return;
  const filter = current.view.hears?.(current.params) ?? {};
  source = new EventSource(`/api/v1/events${query({ every: LULL, tenant: getTenant(), ...filter })}`);
  const own = source;
  source.addEventListener('open', () => { if (own === source) { if (live.className) soon(); heard(); } });
  for (const type of ['changed', 'lost', 'reset']) source.addEventListener(type, () => soon());
  source.addEventListener('error', () => {
    if (own !== source) return;
    lost();
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (own === source) { listen(true); soon(); } }, 2000);
  });
}

document.addEventListener('visibilitychange', () => { listen(!document.hidden); if (!document.hidden && current.view) soon(); });
document.addEventListener('haul-changed', () => { last = 0; clearTimeout(timer); timer = null; soon(); });
// Ages grow by themselves.
setInterval(() => { if (!document.hidden && current.view && Date.now() - last > STALE) soon(); }, STALE);

setInterval(() => { if (!document.hidden && current.data !== null && current.view?.lively?.(current.data)) soon(); }, 2000);

window.addEventListener('popstate', () => {
  const { tenant } = where();
  if ((tenant ?? null) !== getTenant()) { setTenant(tenant); enter(); } else arrive();
});

document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href]');
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const to = link.getAttribute('href') ?? '';
  if (!to.startsWith('/ui/')) return;
  event.preventDefault();
  const chooses = 'tenant' in link.dataset;
  if (chooses) setTenant(new URL(link.href).searchParams.get('tenant'));
  visit(to, { again: chooses });
});

document.getElementById('find').addEventListener('submit', async (event) => {
  event.preventDefault();
  const box = document.getElementById('q');
  const wanted = search.read(box.value.trim());
  box.blur();
  // A bare word may be a jid.
  if (wanted.text && Object.keys(wanted).length === 1) {
    const found = await jobs([wanted.text]).catch(() => []);
    if (found.length) { visit(href('job', { jid: found[0].jid })); return; }
  }
  visit(href('search', wanted));
});

async function help() {
  if (document.querySelector('dialog')) return;
  const keys = [['/', 'find'], ['j, k', 'next, previous row'], ['Enter', 'open the row'], ['r', 'read anew'], ['?', 'this'],
    ...views.filter(([, , label, key, role]) => label && key && allowed(role)).map(([, , label, key]) => [`g ${key}`, label])];
  const box = h('dialog', { 'aria-labelledby': 'keys' }, h('h2', { id: 'keys' }, 'Keys'),
    h('dl', { class: 'facts' }, keys.map(([key, what]) => [h('dt', null, h('kbd', null, key)), h('dd', null, what)])),
    h('div', { class: 'bar' }, button('Close', () => box.close(), 'main')));
  box.addEventListener('close', () => box.remove());
  document.body.append(box);
  box.showModal();
}

let prefix = 0;
function step(by) {
  const rows = [...main.querySelectorAll('tr[data-row]')].filter((row) => row.querySelector('a'));
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  const link = rows[next].querySelector('a');
  link.focus();
  rows[next].scrollIntoView({ block: 'nearest' });
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.target.closest?.('input, textarea, select')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  if (!current.view) return;
  if (Date.now() - prefix < 1500) {
    prefix = 0;
    const found = views.find(([, , label, key, role]) => label && key === event.key && allowed(role));
    if (found) { event.preventDefault(); visit(href(found[0])); return; }
  }
  const keys = { '/': () => document.getElementById('q').focus(), g: () => { prefix = Date.now(); }, j: () => step(1), k: () => step(-1), r: () => refresh(), '?': help };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

setTenant(where().tenant);
enter();
