// Everything about one job.
import { button, facts, h } from './dom.js';
import { chip, clock, count, hasBytes, name, plain, plainLines, setNow, span, stateOf, time } from './format.js';
import { Problem, ask, del, get, jobs, may, part, post, put } from './api.js';
import { act, confirm, dialog } from './actions.js';
import { graph } from './chart.js';
import { parse, write } from './json.js';
import { href, redraw, visit } from './app.js';
import { groupLink, jobLink, queueLink, tagLink, workerLink } from './jobs.js';

const SHOWN = 100_000;
const NEIGHBOURS = 8;
let shown = SHOWN;

export const title = (params) => `Job ${params.jid ?? ''}`;
export const hears = (params) => ({ jid: params.jid });
// What it prints comes without events.
export const lively = (data) => data.job.state === 'running';
export const begin = () => { shown = SHOWN; };

export async function load(params, signal) {
  const [job] = await jobs([params.jid ?? ''], { exact: true, signal });
  if (!job) throw new Problem(404, 'NOJOB', `there is no job ${params.jid}; it may have been cancelled, or forgotten long after it was completed`);
  const near = [...job.dependencies.slice(0, NEIGHBOURS), ...job.dependents.slice(0, NEIGHBOURS)];
  const [why, others, info] = await Promise.all([
    get(`/jobs/${part(job.jid)}/why`, null, { signal }).catch((error) => { if (error.name === 'AbortError') throw error; return null; }),
    jobs(near, { signal }), get('/info', null, { signal }),
  ]);
  setNow(info.now);
  return { job, why, others };
}

const id = (job) => part(job.jid);
const queueOf = (job) => job.queue ?? job.history.findLast((entry) => entry.what === 'put')?.q ?? '';

async function requeue(job) {
  const answer = await dialog('Requeue this job', 'It is put again, into any queue. If it runs, it is taken from its worker.', [
    { name: 'queue', label: 'Queue', value: queueOf(job), required: true },
    { name: 'delay', label: 'Seconds until it may run', type: 'number', value: 0 },
  ], { go: 'Requeue' });
  if (answer) await act('It is requeued.', () => post(`/jobs/${id(job)}/requeue`, { queue: answer.queue, delay: Number(answer.delay) || 0 }));
}

async function cancel(job) {
  const running = job.state === 'running' ? ` ${plain(job.worker ?? 'Its worker')} is told to stop.` : '';
  const needed = job.dependents.length ? ` ${count(job.dependents.length)} jobs wait for it; it cannot be cancelled without them.` : '';
  // Bytes that are not UTF-8 could not be put again as they were.
  const kept = job.dependents.length || hasBytes(write(job.data)) ? null : job;
  if (!await confirm('Cancel this job?', `It is removed.${running}${needed}`, 'Cancel the job')) return;
  await act('It is cancelled.', () => del(`/jobs/${id(job)}`));
  if (kept) undo(kept);
}

// What was cancelled can be put once more while this page remembers it.
function undo(job) {
  const body = copy(job, { queue: queueOf(job), data: write(job.data), jid: job.jid });
  const item = h('div', { class: 'toast', role: 'status' }, h('div', { class: 'bar' }, 'Cancelled by mistake?',
    button('Put it again', async () => { item.remove(); await act('It is put again, from the start.', () => ask('POST', '/api/v1/jobs', body)); }),
    button('Close', () => item.remove())));
  document.getElementById('toasts').append(item);
  setTimeout(() => item.remove(), 20000);
}

// The document of a job like this one; its data goes in as it was written.
function copy(job, { queue, data, jid, klass = job.klass, priority = job.priority, delay = 0, tags = job.tags }) {
  const fixed = { queue, klass, jid, priority, delay: delay || undefined, tags, retries: job.retries, throttles: job.throttles };
  return `{"data":${data},${write(JSON.parse(JSON.stringify(fixed))).slice(1)}`;
}

async function likeThis(job) {
  const answer = await dialog('Put one like this', 'A new job, with a jid of its own.', [
    { name: 'queue', label: 'Queue', value: queueOf(job), required: true }, { name: 'klass', label: 'Klass', value: job.klass, required: true },
    { name: 'data', label: 'Data, as JSON', type: 'textarea', value: write(job.data, 2) },
    { name: 'priority', label: 'Priority', type: 'number', value: job.priority },
    { name: 'delay', label: 'Seconds until it may run', type: 'number', value: 0 },
    { name: 'tags', label: 'Tags, with commas between', value: job.tags.join(', ') },
  ], { go: 'Put' });
  if (!answer) return;
  let made = null;
  await act('A new job is put.', async () => {
    try { parse(answer.data); } catch (error) { throw new Error(`the data is not JSON: ${error.message}`); }
    const tags = answer.tags.split(',').map((tag) => tag.trim()).filter(Boolean);
    made = await ask('POST', '/api/v1/jobs', copy(job, { ...answer, priority: Number(answer.priority) || 0, delay: Number(answer.delay) || 0, tags }));
  });
  if (made) visit(href('job', { jid: made.jid }));
}

async function priority(job) {
  const answer = await dialog('Priority', 'A higher one runs first.', [{ name: 'value', label: 'Priority', type: 'number', value: job.priority, required: true }], { go: 'Set' });
  if (answer) await act('Its priority is set.', () => put(`/jobs/${id(job)}/priority`, { priority: Number(answer.value) }));
}

async function tag(job) {
  const answer = await dialog('Add tags', null, [{ name: 'tags', label: 'Tags, with commas between', required: true }], { go: 'Add' });
  if (!answer) return;
  const tags = answer.tags.split(',').map((one) => one.trim()).filter(Boolean);
  await act('It is tagged.', () => post(`/jobs/${id(job)}/tags`, { tags }));
}

function actions(job) {
  const state = stateOf(job);
  const track = () => act(job.tracked ? 'It is tracked no more.' : 'It is tracked.', () => job.tracked ? del(`/jobs/${id(job)}/track`) : put(`/jobs/${id(job)}/track`));
  return h('div', { class: 'bar' },
    may('work') ? button('Retry', () => act('It is retried.', () => post(`/jobs/${id(job)}/requeue`, {})), state === 'failed' ? 'main' : undefined, { disabled: state !== 'failed' }) : null,
    may('work') ? button('Requeue…', () => requeue(job)) : null,
    may('operate') && state !== 'complete' ? button('Priority…', () => priority(job)) : null,
    may('work') ? button('Tag…', () => tag(job)) : null,
    may('work') ? button(job.tracked ? 'Untrack' : 'Track', track) : null,
    may('work') ? button('Put one like this…', () => likeThis(job)) : null,
    may('operate') ? button('Cancel…', () => cancel(job), 'danger') : null);
}

const verbs = { put: 'put into', popped: 'taken by', done: 'completed', failed: 'failed', 'timed-out': 'lock lost', throttled: 'held back by a throttle in' };

function timeline(job) {
  const rest = ({ when, what, q, queue, worker, group, ...more }) => [
    verbs[what] ?? plain(what), ' ', q ?? queue ? queueLink(q ?? queue) : null, worker ? [what === 'popped' ? '' : 'by ', workerLink(worker)] : null,
    group ? [' in ', groupLink(group)] : null, Object.keys(more).length ? h('span', { class: 'mono' }, ` ${plain(write(more)).slice(0, 2000)}`) : null];
  return h('ol', { class: 'timeline' }, [...job.history].reverse().map((entry, index) => {
    const before = job.history[job.history.length - 2 - index];
    const after = before ? Number(entry.when) - Number(before.when) : 0;
    return h('li', { key: `entry-${job.history.length - index}` }, h('span', { class: 'soft' }, clock(Number(entry.when)), ' '), rest(entry),
      after >= 1 ? h('span', { class: 'soft' }, ` after ${span(after)}`) : null);
  }));
}

function document_(label, text) {
  const long = text.length > shown;
  return [h('h2', null, label), h('pre', { key: `pre-${label}`, tabindex: 0, role: 'region', 'aria-label': label }, plainLines(long ? text.slice(0, shown) : text)),
    long ? h('p', null, `${count(text.length - shown)} more characters. `, button('Show all', () => { shown = Infinity; redraw(); })) : null];
}

function pretty(text) {
  try { return write(parse(text), 2); } catch { return text; }
}

function progress({ progress: far }) {
  if (!far) return null;
  const percent = far.percent === null ? null : Math.min(100, Math.max(0, Number(far.percent)));
  return [h('h2', null, 'Progress'), percent === null ? null : h('progress', { max: 100, value: percent, 'aria-label': 'Progress' }),
    h('p', null, percent === null ? '' : `${percent}% `, far.message === null ? '' : plain(far.message))];
}

function output(job) {
  if (!job.output) return null;
  const all = Number(job.output_bytes ?? 0);
  return [h('h2', null, 'Output'), all > job.output.length ? h('p', { class: 'soft' }, `The last part of ${count(all)} bytes.`) : null,
    h('pre', { key: 'pre-output', id: 'output', tabindex: 0, role: 'region', 'aria-label': 'Output' }, plainLines(job.output))];
}

function dependencies(job, others) {
  if (!job.dependencies.length && !job.dependents.length) return null;
  const known = new Map(others.map((other) => [other.jid, other]));
  const node = (jid) => ({ label: known.get(jid) ? `${known.get(jid).klass} ${jid}` : jid, state: known.get(jid)?.state, href: href('job', { jid }) });
  const more = (list, words) => list.length > NEIGHBOURS ? h('p', { class: 'soft' }, `and ${count(list.length - NEIGHBOURS)} more ${words}`) : null;
  return [h('h2', null, 'Dependencies'),
    graph(job.dependencies.slice(0, NEIGHBOURS).map(node), { label: 'this job', state: job.state, href: href('job', { jid: job.jid }) }, job.dependents.slice(0, NEIGHBOURS).map(node)),
    more(job.dependencies, 'it waits for'), more(job.dependents, 'that wait for it')];
}

export function render({ job, why, others }) {
  const untag = (one) => act('The tag is taken off.', () => del(`/jobs/${id(job)}/tags/${part(one)}`));
  return [
    h('div', { class: 'bar' }, chip(stateOf(job)), h('span', { class: 'mono' }, name(job.jid)), job.tracked ? h('span', { class: 'tag' }, 'tracked') : null),
    why ? h('p', { class: `why ${why.code}`, id: 'why' }, plain(why.sentence),
      why.jobs.length ? [' ', why.jobs.slice(0, 5).map((jid) => [jobLink(jid), ' '])] : null,
      why.throttle ? [' ', h('a', { href: href('throttles', { id: why.throttle }) }, 'See the throttle')] : null,
      why.at && why.code !== 'running' ? h('span', { class: 'soft' }, ` (${clock(why.at)} UTC)`) : null) : null,
    actions(job),
    h('div', { class: 'two' },
      h('div', null,
        job.failure ? [h('h2', null, 'Failure'), h('p', null, groupLink(job.failure.group), ' ', time(Number(job.failure.when)), job.failure.worker ? [' on ', workerLink(job.failure.worker)] : null),
          h('pre', { tabindex: 0, role: 'region', 'aria-label': 'Failure' }, plainLines(job.failure.message).slice(0, SHOWN))] : null,
        progress(job), output(job),
        document_('Data', write(job.data, 2)),
        job.checkpoint !== undefined && job.checkpoint !== null ? document_('Checkpoint', write(job.checkpoint, 2)) : null,
        job.result !== null ? document_('Result', pretty(job.result)) : null,
        dependencies(job, others)),
      h('div', null,
        h('h2', null, 'About'),
        facts([
          ['Klass', h('a', { href: href('search', { klass: job.klass }) }, name(job.klass))], ['Queue', queueLink(job.queue)],
          ['Priority', plain(write(job.priority))], ['Attempt', job.attempt],
          ['Retries left', job.remaining < 0 ? `none of ${job.retries}` : `${job.remaining} of ${job.retries}`],
          ['Worker', job.worker ? workerLink(job.worker) : null], ['Process', job.pid ? plain(job.pid) : null], ['Lock ends', job.expires ? time(Number(job.expires)) : null], ['Due', job.due ? time(Number(job.due)) : null],
          ['Tags', job.tags.map((one) => h('span', { class: 'tag' }, tagLink(one), may('work') ? button('×', () => untag(one), undefined, { 'aria-label': `Take off the tag ${plain(one)}` }) : null))],
          ['Throttles', job.throttles.length ? job.throttles.map((one) => h('span', { class: 'tag' }, h('a', { href: href('throttles', { id: one }) }, name(one)))) : null],
          ['Made by', job.spawned_from ? h('a', { href: href('recurring', { jid: job.spawned_from }) }, name(job.spawned_from)) : null],
          ['Trace', job.trace ? h('span', { class: 'mono' }, plain(job.trace)) : null],
        ]),
        h('h2', null, 'What happened'), timeline(job))),
  ];
}
