// Lists of jobs, paged by cursor.
import { button, h, table } from './dom.js';
import { chip, count, name, stateOf, time } from './format.js';
import { get } from './api.js';
import { href } from './app.js';

export const jobLink = (jid) => h('a', { href: href('job', { jid }), class: 'mono' }, name(jid));
export const queueLink = (queue) => queue ? h('a', { href: href('queue', { name: queue }) }, name(queue)) : '–';
export const workerLink = (worker) => worker ? h('a', { href: href('worker', { name: worker }) }, name(worker)) : '–';
export const groupLink = (group) => h('a', { href: href('search', { state: 'failed', group }) }, name(group));
export const tagLink = (tag) => h('a', { href: href('search', { tag }) }, name(tag));

export const last = (job) => job.history.length ? job.history[job.history.length - 1].when : null;

export function jobTable(caption, jobs, empty) {
  return table(caption, [
    { label: 'jid' }, { label: 'klass' }, { label: 'queue' }, { label: 'state' }, { label: 'priority', n: true },
    { label: 'attempt', n: true }, { label: 'last happened' }, { label: 'worker, group or due' }, { label: 'tags' },
  ], jobs.map((job) => ({
    key: job.jid,
    cells: [
      jobLink(job.jid), name(job.klass), queueLink(job.queue), chip(stateOf(job)), job.priority, job.attempt,
      time(last(job)),
      job.worker ? workerLink(job.worker) : job.failure ? groupLink(job.failure.group) : job.due ? time(job.due) : '',
      job.tags.slice(0, 5).map((tag) => h('span', { class: 'tag' }, tagLink(tag))),
    ],
  })), empty);
}

const PAGE = 50;

// A search may answer pages with few jobs or none before the last: goes on a little by itself.
export async function page(filter, cursor, signal) {
  let found = { jobs: [], next: cursor ?? null };
  for (let tries = 0; tries < 3; tries += 1) {
    const more = await get('/jobs', { ...filter, cursor: found.next, limit: PAGE - found.jobs.length }, { signal });
    found = { jobs: found.jobs.concat(more.jobs), next: more.next };
    if (found.jobs.length >= PAGE || !found.next) break;
  }
  return found;
}

export const pager = (view, params, found) => !found.next && !params.cursor && !found.jobs.length ? null : pages(view, params, found.next, `${count(found.jobs.length)} ${found.jobs.length === 1 ? 'job' : 'jobs'} on this page`);

// Of lists whose answers have `total` and `next`.
export const listPager = (view, params, found, what) => found.next || params.cursor ? pages(view, params, found.next, `${count(found.total)} ${what} in all`) : null;

function pages(view, params, next, words) {
  return h('nav', { class: 'bar', 'aria-label': 'Pages' },
    params.cursor ? h('a', { href: href(view, { ...params, cursor: undefined }) }, 'First page') : null,
    h('span', { class: 'soft' }, words),
    next ? h('a', { href: href(view, { ...params, cursor: next }), rel: 'next' }, 'Next page') : null,
    params.cursor ? button('Back', () => history.back()) : null);
}
