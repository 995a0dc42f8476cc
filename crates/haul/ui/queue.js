// One queue: what is in it, how it goes, what it may do.
import { button, facts, h } from './dom.js';
import { chip, count } from './format.js';
import { del, get, may, part, patch } from './api.js';
import { act, bulkButtons, confirm, dialog } from './actions.js';
import { histogram } from './chart.js';
import { href, visit } from './app.js';
import { jobTable, listPager, page, pager } from './jobs.js';
import { spanTabs, trendCharts } from './overview.js';
import { recurTable } from './lists.js';

const states = ['waiting', 'running', 'stalled', 'scheduled', 'depends', 'throttled', 'recurring', 'failed'];

export const title = (params) => `Queue ${params.name ?? ''}`;
export const hears = (params) => ({ queue: params.name });

export async function load(params, signal) {
  const queue = part(params.name ?? '');
  const state = states.includes(params.state) ? params.state : 'waiting';
  const day = Number(params.day) || 0;
  const range = params.span === 'day' ? 'day' : 'hour';
  const date = Date.now() / 1000 - day * 86400;
  const [counts, stats, options, trend, found, recurring] = await Promise.all([
    get(`/queues/${queue}`, null, { signal }), get(`/queues/${queue}/stats`, { date }, { signal }), get('/config', { prefix: `${params.name}-`, limit: 1000 }, { signal }),
    get('/trend', { queue: params.name, span: range }, { signal }),
    state === 'recurring' ? { jobs: [], next: null } : page({ queue: params.name, state }, params.cursor, signal),
    state === 'recurring' ? get('/recurring', { queue: params.name, cursor: params.cursor, limit: 100 }, { signal, exact: true }) : null,
  ]);
  return { counts, stats, options: options.options, trend, range, found, recurring, state, day };
}

function setting(params, label, field, value, unit) {
  const change = async () => {
    const answer = await dialog(`${label} of ${params.name}`, 'Leave it empty for the default.', [{ name: 'value', label: unit, type: 'number', value: value ?? '' }], { go: 'Set' });
    if (!answer) return;
    await act(`${label} is set.`, () => patch(`/queues/${part(params.name)}`, { [field]: answer.value === '' ? null : Number(answer.value) }));
  };
  return [value ?? h('span', { class: 'soft' }, 'default'), ' ', may('admin') ? button('Change…', change, undefined, { 'aria-label': `Change ${label}` }) : null];
}

async function forget(params) {
  if (!await confirm(`Forget the queue ${params.name}?`, 'It is no longer listed until it is used again. Its jobs stay.', 'Forget')) return;
  await act('The queue is forgotten.', () => del(`/queues/${part(params.name)}`));
  visit(href(''));
}

export function render({ counts, stats, options, trend, range, found, recurring, state, day }, params) {
  const paused = counts.paused;
  const toggle = () => act(paused ? 'The queue goes on.' : 'The queue is paused.', () => patch(`/queues/${part(params.name)}`, { paused: !paused }));
  const days = [0, 1, 2, 3, 4, 5, 6].map((back) => [back, back === 0 ? 'Today' : back === 1 ? 'Yesterday' : `${back} days ago`]);
  const tabs = (word) => h('a', { href: href('queue', { ...params, state: word, cursor: undefined }), 'aria-current': word === state ? 'true' : undefined },
    word, counts[word] === undefined ? '' : ` ${count(counts[word])}`);
  return [
    h('div', { class: 'bar' },
      paused ? chip('paused') : null,
      may('operate') ? button(paused ? 'Resume' : 'Pause', toggle, paused ? 'main' : undefined) : null,
      may('operate') ? h('a', { href: href('throttles', { id: `ql:q:${params.name}` }) }, 'Throttle') : null,
      may('operate') ? button('Forget…', () => forget(params)) : null),
    facts([
      ['Jobs at once, at most', setting(params, 'Concurrency', 'concurrency', options[`${params.name}-max-concurrency`], 'Jobs at once')],
      ['Lock lasts, seconds', setting(params, 'Heartbeat', 'heartbeat', options[`${params.name}-heartbeat`], 'Seconds')],
      ['Failed on that day', `${count(stats.failures)}, of which ${count(stats.failed)} still are`],
      ['Locks that ran out', count(stats.retries)],
    ]),
    h('nav', { class: 'tabs', 'aria-label': 'State' }, states.map(tabs)),
    state === 'failed' && found.jobs.length ? h('div', { class: 'bar' }, bulkButtons({ queue: params.name, state: 'failed' })) : null,
    state === 'recurring' ? [recurTable(recurring.recurring), listPager('queue', params, recurring, 'recurring jobs')] : [jobTable(`${state} jobs`, found.jobs, `No job is ${state} here.`), pager('queue', params, found)],
    h('h2', null, 'Lately'), spanTabs('queue', params, range), trendCharts(trend, range),
    h('h2', null, 'Waits and runs of a day'),
    h('nav', { class: 'tabs', 'aria-label': 'Day' }, days.map(([back, label]) =>
      h('a', { href: href('queue', { ...params, day: back || undefined }), 'aria-current': back === day ? 'true' : undefined }, label))),
    h('div', { class: 'charts' }, histogram('Wait', stats.wait), histogram('Run', stats.run)),
  ];
}
