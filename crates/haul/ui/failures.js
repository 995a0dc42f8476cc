// Failures by group, and what can be done to many of them.
import { h, table } from './dom.js';
import { chip, count, name, plain, time } from './format.js';
import { get } from './api.js';
import { bulkButtons, told } from './actions.js';
import { lines, spark } from './chart.js';
import { href } from './app.js';
import { jobTable, listPager, page, pager } from './jobs.js';

export const title = (params) => params.group ? `Failures: ${params.group}` : 'Failures';

export async function load(params, signal) {
  const [trend, operations, found, all] = await Promise.all([
    get('/trend/failures', null, { signal }), get('/operations', null, { signal }),
    params.group ? page({ state: 'failed', group: params.group }, params.cursor, signal) : null,
    params.group ? null : get('/failures', { cursor: params.cursor, limit: 100 }, { signal }),
  ]);
  const sizes = new Map(trend.groups.map((group) => [group.name, group.sizes]));
  const groups = (all?.groups ?? []).map((group) => ({ ...group, sizes: sizes.get(group.name) ?? [] }));
  return { groups, all, operations: operations.operations, found, sizes: sizes.get(params.group) ?? [], step: trend.step };
}

export function render({ groups, all, operations, found, sizes, step }, params) {
  const grown = (group) => group.sizes.length ? group.jobs - group.sizes[0] : 0;
  return [
    found ? [
      h('div', { class: 'bar' }, h('a', { href: href('failures') }, 'All groups'), bulkButtons({ group: params.group })),
      sizes.length > 1 ? h('div', { class: 'charts' }, lines('Jobs in this group', [{ label: 'jobs', values: sizes }], { step }, { seconds: 3600 })) : null,
      found.jobs[0]?.failure ? h('pre', { tabindex: 0, role: 'region', 'aria-label': 'The newest failure' }, plain(found.jobs[0].failure.message).slice(0, 3000)) : null,
      jobTable('Failed jobs', found.jobs, 'No job has failed in this group.'), pager('failures', params, found)]
      : [table('Failure groups', [{ label: 'group' }, { label: 'jobs', n: true }, { label: 'last hour' }, { label: 'change', n: true }, { label: 'all of them' }],
        groups.map((group) => ({
          key: group.name,
          cells: [h('a', { href: href('failures', { group: group.name }) }, name(group.name)), count(group.jobs),
            spark([...group.sizes, group.jobs], `${count(group.jobs)} jobs now`),
            grown(group) > 0 ? `+${count(grown(group))}` : grown(group) ? count(grown(group)) : 0,
            h('div', { class: 'bar' }, bulkButtons({ group: group.name }, `${count(group.jobs)} jobs now.`))],
        })), 'No job has failed.'), listPager('failures', params, all, 'groups')],
    operations.length ? [h('h2', null, 'Operations'), table('Operations',
      [{ label: 'what' }, { label: 'which' }, { label: 'state' }, { label: 'done', n: true }, { label: 'refused', n: true }, { label: 'begun' }, { label: 'by' }, { label: '' }],
      operations.slice(0, 20).map((one) => ({
        key: one.id,
        cells: [one.queue ? `${one.action} to ${plain(one.queue)}` : one.action, told(one.filter), chip(one.state), count(one.done), count(one.refused), time(one.starts_at), one.token ?? '–', plain(one.message ?? '')],
      })))] : null,
  ];
}
