// Workers, tracked, tags, completed, recurring.
import { button, facts, h, table } from './dom.js';
import { chip, clock, count, every, name, plain, time } from './format.js';
import { ask, del, get, jobs, may, part, patch, post } from './api.js';
import { act, confirm, dialog } from './actions.js';
import { href } from './app.js';
import { jobLink, jobTable, page, pager, queueLink, tagLink, workerLink } from './jobs.js';
import { parse, write } from './json.js';

export const workers = {
  title: () => 'Workers',
  load: async (params, signal) => (await get('/workers', null, { signal })).workers,
  render: (all) => table('Workers', [{ label: 'worker' }, { label: 'state' }, { label: 'running', n: true }, { label: 'stalled', n: true }, { label: 'seen' }, { label: 'about' }, { label: '' }],
    all.slice(0, 1000).map((worker) => ({
      key: worker.name,
      cells: [workerLink(worker.name), worker.stalled ? chip('stalled') : worker.state === 'alive' && worker.jobs ? chip('running') : worker.state,
        worker.jobs, worker.stalled, time(worker.seen_at), worker.facts ? h('span', { class: 'mono' }, name(write(worker.facts))) : '', may('work') ? button('Forget…', async () => {
          if (await confirm(`Forget the worker ${plain(worker.name)}?`, 'Its jobs stay locked until their locks end.', 'Forget')) {
            await act('The worker is forgotten.', () => del(`/workers/${part(worker.name)}`));
          }
        }, undefined, { 'aria-label': `Forget ${plain(worker.name)}` }) : ''],
    })), 'No worker has been seen lately.'),
};

export const worker = {
  title: (params) => `Worker ${params.name ?? ''}`,
  hears: (params) => ({ worker: params.name }),
  load: async (params, signal) => {
    const held = await get(`/workers/${part(params.name ?? '')}`, null, { signal });
    return { running: await jobs(held.jobs.slice(0, 200), { signal }), stalled: await jobs(held.stalled.slice(0, 200), { signal }), held };
  },
  render: ({ running, stalled, held }) => [
    h('h2', null, `Running ${count(held.jobs.length)}`), jobTable('Running jobs', running, 'It holds no job.'),
    stalled.length ? [h('h2', null, `Lost ${count(held.stalled.length)}`), jobTable('Stalled jobs', stalled)] : null],
};

export const tracked = {
  title: () => 'Tracked',
  load: (params, signal) => get('/tracked', null, { signal }),
  render: (found) => [jobTable('Tracked jobs', found.jobs.slice(0, 500), 'No job is tracked. A job\'s page has a button for it.'),
    found.expired.length ? [h('h2', null, 'Gone'), h('p', null, found.expired.slice(0, 200).map((jid) => [jobLink(jid), ' ']))] : null],
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

async function change(one) {
  const answer = await dialog(`Change ${plain(one.jid)}`, null, [
    { name: 'interval', label: 'Seconds from one job to the next', type: 'number', value: one.interval, required: true },
    { name: 'queue', label: 'Queue', value: one.queue, required: true }, { name: 'klass', label: 'Klass', value: one.klass, required: true },
    { name: 'priority', label: 'Priority', type: 'number', value: one.priority },
    { name: 'data', label: 'Data, as JSON', type: 'textarea', value: write(one.data, 2) },
  ], { go: 'Change' });
  if (!answer) return;
  await act('It is changed.', () => {
    parse(answer.data);
    const rest = { interval: Number(answer.interval), queue: answer.queue, klass: answer.klass, priority: Number(answer.priority) || 0 };
    return ask('PATCH', `/api/v1/recurring/${part(one.jid)}`, `{"data":${answer.data},${JSON.stringify(rest).slice(1)}`);
  });
}

const runNow = (one) => act('A job of it is put.', () => ask('POST', '/api/v1/jobs',
  `{"data":${write(one.data)},${JSON.stringify({ queue: one.queue, klass: one.klass, priority: one.priority, retries: one.retries, tags: one.tags, throttles: one.throttles }).slice(1)}`));

async function end(one) {
  if (await confirm(`End ${plain(one.jid)}?`, 'It makes no more jobs. Those it has made stay.', 'End it')) {
    await act('It is ended.', () => del(`/recurring/${part(one.jid)}`));
  }
}

export const recurTable = (all) => table('Recurring jobs',
  [{ label: 'jid' }, { label: 'klass' }, { label: 'queue' }, { label: 'runs' }, { label: 'next' }, { label: 'made', n: true }, { label: '' }],
  all.map((one) => ({
    key: one.jid,
    cells: [h('a', { href: href('recurring', { jid: one.jid }), class: 'mono' }, name(one.jid)), name(one.klass), queueLink(one.queue), every(Number(one.interval)), time(Number(one.next)), count(one.count),
      h('div', { class: 'bar' }, may('work') ? [button('Run now', () => runNow(one)), button('Change…', () => change(one))] : null, may('operate') ? button('End…', () => end(one), 'danger') : null)],
  })), 'There are no recurring jobs.');

export const recurring = {
  title: (params) => params.jid ? `Recurring ${params.jid}` : 'Recurring',
  load: (params, signal) => params.jid ? get(`/recurring/${part(params.jid)}`, null, { signal, exact: true }) : get('/recurring', null, { signal, exact: true }),
  render: (found, params) => params.jid ? [
    recurTable([found]),
    facts([['Next', `${clock(Number(found.next))} UTC`], ['Priority', plain(write(found.priority))], ['Retries', plain(write(found.retries))], ['Missed ones made up for', found.backlog ? count(found.backlog) : 'all'],
      ['Tags', found.tags.length ? found.tags.map((tag) => h('span', { class: 'tag' }, tagLink(tag))) : null]]),
    h('h2', null, 'Data'), h('pre', { tabindex: 0, role: 'region', 'aria-label': 'Data' }, write(found.data, 2)),
  ] : recurTable(found.recurring),
};
