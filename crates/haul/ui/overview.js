// Every queue, how it goes, and what is wrong.
import { h, table } from './dom.js';
import { chip, count, setNow, short, span } from './format.js';
import { lines } from './chart.js';
import { get } from './api.js';
import { href, redraw } from './app.js';
import { queueLink } from './jobs.js';

const sort = { by: 'name', down: false };

export const title = () => 'Overview';

export async function load(params, signal) {
  const range = params.span === 'day' ? 'day' : 'hour';
  const [all, trend] = await Promise.all([get('/overview', null, { signal }), get('/trend', { span: range }, { signal })]);
  setNow(all.at);
  return { all, trend, range };
}

export function trendCharts(trend, range) {
  const at = { step: trend.step };
  const seconds = range === 'day' ? 86400 : 3600;
  const rate = (key) => trend.samples.map((sample) => sample[key] / trend.step);
  const value = (key) => trend.samples.map((sample) => sample[key]);
  const perSecond = (number) => number === 0 ? '0' : number < 10 ? `${Number(number.toPrecision(2))}/s` : `${short(Math.round(number))}/s`;
  return h('div', { class: 'charts' },
    lines('Throughput', [{ label: 'completed', values: rate('completed') }, { label: 'failed', values: rate('failures') }], at, { unit: perSecond, seconds }),
    lines('Latency', [{ label: 'wait', values: value('wait') }, { label: 'run', values: value('run') }], at, { unit: span, seconds }),
    lines('In the queues', [{ label: 'waiting', values: value('waiting') }, { label: 'running', values: value('running') }], at, { seconds }));
}

export const spanTabs = (view, params, range) => h('nav', { class: 'tabs', 'aria-label': 'Span' },
  [['hour', 'Last hour'], ['day', 'Last day']].map(([word, label]) =>
    h('a', { href: href(view, { ...params, span: word }), 'aria-current': word === range ? 'true' : undefined }, label)));

export function render({ all, trend, range }, params) {
  const columns = [['name', 'queue'], ['waiting'], ['oldest'], ['running'], ['stalled'], ['scheduled'], ['depends'], ['throttled'],
    ['recurring'], ['failures', 'failed'], ['completed', 'done'], ['wait'], ['run'], ['paused', '']];
  const value = (queue) => typeof queue[sort.by] === 'string' ? queue[sort.by] : Number(queue[sort.by] ?? -1);
  const queues = [...all.queues].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (sort.down ? -1 : 1));
  const click = (key) => () => {
    if (sort.by === key) sort.down = !sort.down;
    else Object.assign(sort, { by: key, down: key !== 'name' });
    redraw();
  };
  const figure = (label, number, link) => h('div', null, h('dt', null, label), h('dd', null, link ? h('a', { href: link }, count(number)) : count(number)));
  return [
    h('dl', { class: 'cards' },
      figure('Queues', all.queues.length), figure('Jobs', all.jobs), figure('Failed', all.failed, href('failures')),
      figure('Completed', all.completed, href('completed')),
      h('div', null, h('dt', null, 'Workers alive'), h('dd', null, h('a', { href: href('workers') }, `${count(all.workers_alive)} of ${count(all.workers)}`)))),
    h('h2', null, 'What is wrong now'),
    all.troubles.length ? h('ul', { class: 'troubles' }, all.troubles.map((trouble) =>
      h('li', { class: trouble.kind, key: `${trouble.kind}-${trouble.queue}-${trouble.group}` },
        trouble.queue !== null ? h('a', { href: href('queue', { name: trouble.queue }) }, trouble.sentence)
          : trouble.group !== null ? h('a', { href: href('failures', { group: trouble.group }) }, trouble.sentence)
            : trouble.sentence))) : h('p', { class: 'fine' }, 'Nothing that can be seen from here.'),
    spanTabs('', params, range),
    trendCharts(trend, range),
    h('h2', null, 'Queues'), h('p', { class: 'soft' }, 'Failed, done, and the mean wait and run are today\'s (UTC); oldest is how long the first in line has waited.'),
    table('Queues', columns.map(([key, label = key]) => ({
      label: label || 'state', n: !['name', 'paused'].includes(key), click: click(key),
      sorted: sort.by === key ? (sort.down ? 'descending' : 'ascending') : undefined,
    })), queues.map((queue) => ({
      key: queue.name,
      cells: columns.map(([key]) => {
        const link = (state) => queue[key] ? h('a', { href: href('queue', { name: queue.name, state }) }, count(queue[key])) : 0;
        if (key === 'name') return queueLink(queue.name);
        if (key === 'paused') return queue.paused ? chip('paused') : '';
        if (['oldest', 'wait', 'run'].includes(key)) return queue[key] === null ? '' : span(queue[key]);
        if (key === 'failures') return link('failed');
        if (key === 'completed') return queue[key] ? count(queue[key]) : 0;
        return link(key);
      }),
    })), 'There are no queues yet. Put a job: haul put mail email \'{"to":"a@example.org"}\''),
    all.other ? h('p', { class: 'soft' }, `Queues beyond the first ${count(all.queues.length)} have together ${count(all.other.waiting)} jobs waiting and ${count(all.other.running)} running.`) : null,
  ];
}
