// Workers, tracked, tags, completed, recurring, handlers, tenants.
import { button, facts, h, table } from './dom.js';
import { chip, clock, count, every, name, plain, plainLines, span, time } from './format.js';
import { ask, del, get, jobs, may, part, patch, post } from './api.js';
import { act, confirm, dialog } from './actions.js';
import { href, visit } from './app.js';
import { jobLink, jobTable, listPager, page, pager, queueLink, tagLink, workerLink } from './jobs.js';
import { parse, write } from './json.js';

const LIMIT = 100;

export const workers = {
  title: () => 'Workers',
  load: (params, signal) => get('/workers', { cursor: params.cursor, limit: LIMIT }, { signal }),
  render: (found, params) => [table('Workers', [{ label: 'worker' }, { label: 'state' }, { label: 'running', n: true }, { label: 'stalled', n: true }, { label: 'seen' }, { label: 'about' }, { label: '' }],
    found.workers.map((worker) => ({
      key: worker.name,
      cells: [workerLink(worker.name), worker.stalled ? chip('stalled') : worker.state === 'alive' && worker.jobs ? chip('running') : worker.state,
        worker.jobs, worker.stalled, time(worker.seen_at), worker.facts ? h('span', { class: 'mono' }, name(write(worker.facts))) : '', h('div', { class: 'bar' }, workerButtons(worker))],
    })), 'No worker has been seen lately.'), listPager('workers', params, found, 'workers')],
};

function workerButtons(worker) {
  const forget = async () => {
    if (await confirm(`Forget the worker ${plain(worker.name)}?`, 'Its jobs stay locked until their locks end.', 'Forget')) {
      await act('The worker is forgotten.', () => del(`/workers/${part(worker.name)}`));
    }
  };
  const drain = (on) => () => act(on ? 'It takes no more jobs.' : 'It takes jobs again.', () => patch(`/workers/${part(worker.name)}`, { drain: on }));
  return [
    may('operate') && worker.facts && worker.state === 'alive' ? button('Drain', drain(true), undefined, { 'aria-label': `Drain ${plain(worker.name)}` }) : null,
    may('operate') && worker.state === 'draining' ? button('Undrain', drain(false), undefined, { 'aria-label': `Undrain ${plain(worker.name)}` }) : null,
    may('work') ? button('Forget…', forget, undefined, { 'aria-label': `Forget ${plain(worker.name)}` }) : null];
}

export const worker = {
  title: (params) => `Worker ${params.name ?? ''}`,
  hears: (params) => ({ worker: params.name }),
  load: async (params, signal) => {
    const held = await get(`/workers/${part(params.name ?? '')}`, { cursor: params.cursor, limit: LIMIT }, { signal });
    return { running: await jobs(held.jobs, { signal }), stalled: await jobs(held.stalled, { signal }), held };
  },
  render: ({ running, stalled, held }, params) => [
    stalled.length ? [h('h2', null, 'Lost'), jobTable('Stalled jobs', stalled)] : null,
    h('h2', null, `Running ${count(held.total - (held.next || params.cursor ? 0 : held.stalled.length))}`), jobTable('Running jobs', running, 'It holds no job.'),
    listPager('worker', params, held, 'jobs')],
};

export const tracked = {
  title: () => 'Tracked',
  load: (params, signal) => get('/tracked', { cursor: params.cursor, limit: LIMIT }, { signal }),
  render: (found, params) => [jobTable('Tracked jobs', found.jobs, 'No job is tracked. A job\'s page has a button for it.'),
    found.expired.length ? [h('h2', null, 'Gone'), h('p', null, found.expired.map((jid) => [jobLink(jid), ' ']))] : null,
    listPager('tracked', params, found, 'tracked jobs')],
};

export const tags = {
  title: () => 'Tags',
  load: async (params, signal) => (await get('/tags', { limit: 500 }, { signal })).tags,
  render: (all) => all.length ? h('p', null, all.map((tag) => h('span', { class: 'tag' }, tagLink(tag))))
    : h('p', { class: 'soft' }, 'No tag is used by two jobs or more.'),
};

export const completed = {
  title: () => 'Completed',
  load: (params, signal) => page({ state: 'complete' }, params.cursor, signal),
  render: (found, params) => [jobTable('Completed jobs', found.jobs, 'No job has been completed yet.'), pager('completed', params, found)],
};

// In the schedule's own time zone, as whoever wrote it thinks of it.
function moment(at, timeZone) {
  try {
    const words = new Intl.DateTimeFormat('en-GB', { timeZone: timeZone ?? 'UTC', weekday: 'short', day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' });
    return `${words.format(at * 1000)} ${timeZone ?? 'UTC'}`;
  } catch { return `${clock(at)} UTC`; }
}

const howOften = (one) => one.cron === null ? every(Number(one.interval)) : one.words;

// The fields of a schedule, and what a form with them says.
const scheduleFields = (one) => [
  { name: 'cron', label: 'Cron: minute, hour, day of month, month, day of week; or @hourly, @daily, …', value: one?.cron ?? '' },
  { name: 'timezone', label: 'Time zone of the cron pattern; empty: UTC', value: one?.timezone ?? '' },
  { name: 'interval', label: 'Or: seconds from one job to the next', type: 'number', value: one && one.cron === null ? one.interval : '' },
];
function schedule(answer) {
  if (answer.cron.trim()) return { cron: answer.cron.trim(), timezone: answer.timezone.trim() || undefined };
  if (!answer.interval) throw new Error('say how often: a cron pattern or an interval');
  return { interval: Number(answer.interval) };
}

async function change(one) {
  const answer = await dialog(`Change ${plain(one.jid)}`, null, [
    ...scheduleFields(one),
    { name: 'queue', label: 'Queue', value: one.queue, required: true }, { name: 'klass', label: 'Klass', value: one.klass, required: true },
    { name: 'priority', label: 'Priority', type: 'number', value: write(one.priority) },
    { name: 'backlog', label: 'Missed jobs made up for; 0: all', type: 'number', value: write(one.backlog) },
    { name: 'data', label: 'Data, as JSON', type: 'textarea', value: write(one.data, 2) },
  ], { go: 'Change' });
  if (!answer) return;
  await act('It is changed.', () => {
    parse(answer.data);
    const rest = { ...schedule(answer), queue: answer.queue, klass: answer.klass, priority: Number(answer.priority) || 0, backlog: Number(answer.backlog) || 0 };
    return ask('PATCH', `/api/v1/recurring/${part(one.jid)}`, `{"data":${answer.data},${JSON.stringify(rest).slice(1)}`);
  });
}

async function add(queue) {
  const answer = await dialog('A new recurring job', null, [
    { name: 'queue', label: 'Queue', value: queue ?? '', required: true }, { name: 'klass', label: 'Klass', required: true },
    ...scheduleFields(null),
    { name: 'jid', label: 'Its id; empty: made up' },
    { name: 'data', label: 'Data, as JSON', type: 'textarea', value: '{}' },
  ], { go: 'Add' });
  if (!answer) return;
  await act('It is added.', () => {
    parse(answer.data);
    const rest = { ...schedule(answer), queue: answer.queue, klass: answer.klass, jid: answer.jid || undefined };
    return ask('POST', '/api/v1/recurring', `{"data":${answer.data},${JSON.stringify(rest).slice(1)}`);
  });
}

const runNow = (one) => act('A job of it is put.', () => post(`/recurring/${part(one.jid)}/run`));
const pause = (one) => act(one.paused ? 'It goes on.' : 'It is paused.', () => patch(`/recurring/${part(one.jid)}`, { paused: !one.paused }));

async function end(one) {
  if (await confirm(`End ${plain(one.jid)}?`, 'It makes no more jobs. Those it has made stay.', 'End it')) {
    // Away from its own page first: that would ask for what is gone.
    if (new URLSearchParams(location.search).has('jid')) visit(href('recurring'));
    await act('It is ended.', () => del(`/recurring/${part(one.jid)}`));
  }
}

const next = (one) => one.paused ? chip('paused') : one.next === null ? 'never' : time(Number(one.next));

export const recurTable = (all) => table('Recurring jobs', [{ label: 'id' }, { label: 'klass' }, { label: 'queue' }, { label: 'runs' }, { label: 'next' }, { label: 'made', n: true }, { label: '' }],
  all.map((one) => ({
    key: one.jid,
    cells: [h('a', { href: href('recurring', { jid: one.jid }), class: 'mono' }, name(one.jid)), name(one.klass), queueLink(one.queue), plain(howOften(one)), next(one), count(one.count),
      h('div', { class: 'bar' }, may('work') ? [button('Run now', () => runNow(one)), button(one.paused ? 'Resume' : 'Pause', () => pause(one)), button('Change…', () => change(one))] : null, may('operate') ? button('End…', () => end(one), 'danger') : null)],
  })), 'There are no recurring jobs.');

export const recurring = {
  title: (params) => params.jid ? `Recurring ${params.jid}` : 'Recurring',
  load: (params, signal) => params.jid ? get(`/recurring/${part(params.jid)}`, null, { signal, exact: true }) : get('/recurring', { cursor: params.cursor, limit: LIMIT }, { signal, exact: true }),
  render: (found, params) => params.jid ? [
    recurTable([found]),
    facts([['Schedule', found.cron === null ? null : h('span', null, h('span', { class: 'mono' }, plain(found.cron)), ` ${plain(found.timezone)}`)],
      ['Next runs', found.upcoming.length ? h('ul', { class: 'plain' }, found.upcoming.map((at) => h('li', null, `${moment(Number(at), found.timezone)}, `, time(Number(at))))) : null],
      ['Priority', plain(write(found.priority))], ['Retries', plain(write(found.retries))], ['Missed ones made up for', found.backlog ? `at most ${count(found.backlog)}` : 'all'],
      ['Tags', found.tags.length ? found.tags.map((tag) => h('span', { class: 'tag' }, tagLink(tag))) : null]]),
    h('h2', null, 'Data'), h('pre', { tabindex: 0, role: 'region', 'aria-label': 'Data' }, plainLines(write(found.data, 2))),
  ] : [
    may('work') ? h('div', { class: 'bar' }, button('New recurring job…', () => add())) : null,
    recurTable(found.recurring), listPager('recurring', params, found, 'recurring jobs')],
};

const outcomes = (one) => [one.outcomes.ok, one.outcomes.failed, one.outcomes.retry + one.outcomes.error, one.outcomes.ms === null ? '–' : span(one.outcomes.ms / 1000)];
const outcomeColumns = [{ label: 'ok', n: true }, { label: 'failed', n: true }, { label: 'tried again', n: true }, { label: 'mean run', n: true }];
const code = (label, text) => text === undefined ? null : [h('h2', null, label), h('pre', { tabindex: 0, role: 'region', 'aria-label': label }, plainLines(text))];

export const handlers = {
  title: (params) => params.type ? `Handler ${params.type}` : 'Handlers',
  load: (params, signal) => params.type ? get(`/handlers/${part(params.type)}`, null, { signal }) : get('/handlers', { cursor: params.cursor, limit: LIMIT }, { signal }),
  render: (found, params) => params.type ? [
    h('p', null, 'Its jobs are in the queue ', queueLink(found.type), '; the newest version runs them. Outcomes are counted since the server was started.'),
    table('Versions', [{ label: 'version' }, { label: 'language' }, { label: 'stored' }, ...outcomeColumns],
      found.versions.map((one, at) => ({ key: one.id, cells: [h('span', { class: 'mono' }, name(one.id), at ? '' : ' (runs)'), one.lang, time(one.made_at), ...outcomes(one)] }))),
    found.versions_total > found.versions.length ? h('p', { class: 'soft' }, `and ${count(found.versions_total - found.versions.length)} older ones`) : null,
    code('Code', found.versions[0].body), code('Before all', found.versions[0].before), code('Before each', found.versions[0].before_each),
    code('After each', found.versions[0].after_each), code('Options', found.versions[0].options),
  ] : [table('Handlers', [{ label: 'type' }, { label: 'language' }, { label: 'versions', n: true }, { label: 'newest stored' }, ...outcomeColumns],
    found.handlers.map((one) => ({
      key: one.type,
      cells: [h('a', { href: href('handlers', { type: one.type }) }, name(one.type)), one.versions[0].lang, one.versions_total, time(one.versions[0].made_at), ...outcomes(one.versions[0])],
    })), 'There are no handlers. Store one: haul handler add --help'), listPager('handlers', params, found, 'handlers')],
};

export const tenants = {
  title: () => 'Tenants',
  load: (params, signal) => get('/tenants', { cursor: params.cursor, limit: LIMIT }, { signal }),
  render: (found, params) => [table('Tenants', [{ label: 'tenant' }, { label: 'jobs', n: true }, { label: 'queues', n: true }, { label: 'workers', n: true }, { label: 'handlers', n: true }],
    found.tenants.map((one) => ({
      key: one.name,
      cells: [h('a', { href: `/ui/${one.name === 'default' ? '' : `?tenant=${encodeURIComponent(one.name)}`}`, 'data-tenant': true }, name(one.name)), one.jobs, one.queues, one.workers, one.handlers],
    })), 'No tenant has anything yet.'), listPager('tenants', params, found, 'tenants')],
};
