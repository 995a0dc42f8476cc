// Throttles, config, audit, system.
import { button, facts, h, table } from './dom.js';
import { clock, count, name, plain, span, time } from './format.js';
import { ask, del, get, may, me, part, put } from './api.js';
import { act, confirm, dialog } from './actions.js';
import { href, visit } from './app.js';
import { jobLink } from './jobs.js';

async function setThrottle(one) {
  const answer = await dialog(one ? `The throttle ${plain(one.id)}` : 'A new throttle', 'So many jobs under it run at once.', [
    ...(one ? [] : [{ name: 'id', label: 'Name', required: true }]),
    { name: 'maximum', label: 'Jobs at once; 0: any number', type: 'number', value: one?.maximum ?? 1, required: true },
    { name: 'ttl', label: 'Ends by itself after seconds; empty: never', type: 'number' },
  ], { go: 'Set' });
  if (!answer) return;
  await act('The throttle is set.', () => put(`/throttles/${part(one?.id ?? answer.id)}`, { maximum: Number(answer.maximum), ttl: answer.ttl ? Number(answer.ttl) : undefined }));
}

async function removeThrottle(one) {
  if (await confirm(`Delete the throttle ${plain(one.id)}?`, 'What it held back goes on.', 'Delete')) {
    await act('The throttle is deleted.', () => del(`/throttles/${part(one.id)}`));
    visit(href('throttles'));
  }
}

export const throttles = {
  title: (params) => params.id ? `Throttle ${params.id}` : 'Throttles',
  load: async (params, signal) => params.id
    ? get(`/throttles/${part(params.id)}`, null, { signal }).catch((error) => { if (error.code === 'NOTHROTTLE') return { id: params.id, maximum: 0, ttl: -2, locks: [], pending: [] }; throw error; })
    : (await get('/throttles', null, { signal })).throttles,
  render: (found, params) => params.id ? [
    facts([['Jobs at once', found.maximum || 'any number'], ['Ends', found.ttl < 0 ? 'never' : `in ${span(found.ttl)}`]]),
    may('operate') ? h('div', { class: 'bar' }, button('Change…', () => setThrottle(found)), found.ttl > -2 ? button('Delete…', () => removeThrottle(found), 'danger') : null) : null,
    h('h2', null, `Running under it: ${count(found.locks.length)}`), h('p', null, found.locks.map((jid) => [jobLink(jid), ' '])),
    h('h2', null, `Held back: ${count(found.pending.length)}`), h('p', null, found.pending.map((jid) => [jobLink(jid), ' '])),
  ] : [
    may('operate') ? h('div', { class: 'bar' }, button('New throttle…', () => setThrottle(null))) : null,
    table('Throttles', [{ label: 'throttle' }, { label: 'jobs at once', n: true }, { label: 'ends' }],
      found.map((one) => ({ key: one.id, cells: [h('a', { href: href('throttles', { id: one.id }) }, name(one.id)), one.maximum || 'any', one.ttl < 0 ? 'never' : `in ${span(one.ttl)}`] })), 'There are no throttles.')],
};

async function setOption(option, value) {
  const answer = await dialog(option ? `Set ${plain(option)}` : 'Set an option', null, [
    ...(option ? [] : [{ name: 'option', label: 'Option', required: true }]), { name: 'value', label: 'Value', value, required: true }], { go: 'Set' });
  if (answer) await act('The option is set.', () => put(`/config/${part(option ?? answer.option)}`, { value: answer.value }));
}

export const config = {
  title: () => 'Config',
  load: (params, signal) => get('/config', null, { signal }),
  render: (all) => [
    may('admin') ? h('div', { class: 'bar' }, button('Set an option…', () => setOption(null, ''))) : null,
    table('Options', [{ label: 'option' }, { label: 'value' }, { label: '' }], Object.entries(all).sort().map(([option, value]) => ({
      key: option,
      cells: [name(option), name(value), may('admin') ? h('div', { class: 'bar' },
        button('Change…', () => setOption(option, value), undefined, { 'aria-label': `Change ${plain(option)}` }),
        button('Default', () => act('The option has its default.', () => del(`/config/${part(option)}`)), undefined, { 'aria-label': `Default of ${plain(option)}` })) : ''],
    })))],
};

export const audit = {
  title: () => 'Audit',
  load: async (params, signal) => (await get('/audit', { count: 200 }, { signal })).entries,
  render: (entries) => table('What operators did', [{ label: 'when' }, { label: 'who' }, { label: 'from' }, { label: 'tenant' }, { label: 'what' }, { label: 'about' }, { label: 'outcome' }],
    [...entries].reverse().map(({ at, token, peer, via, tenant, action, outcome, ...about }, index) => ({
      key: `${at}-${index}`,
      cells: [h('span', { title: clock(at) }, time(at)), token ?? '–', `${via} ${peer}`, tenant, action,
        h('span', { class: 'mono' }, name(JSON.stringify(about))), outcome],
    })), 'Nothing has been written down yet.'),
};

// Who shares the store, and who has which shard.
function nodes(cluster) {
  return [
    h('h2', null, 'Nodes'),
    h('p', null, 'Store ', h('span', { class: 'mono' }, plain(cluster.store)), cluster.reached ? '' : h('strong', null, ' does not answer')),
    table('Nodes', [{ label: 'node' }, { label: 'address' }, { label: 'version' }, { label: 'shards', n: true }, { label: 'seen' }, { label: '' }],
      cluster.nodes.map((node) => ({ key: node.id, cells: [node.id, h('span', { class: 'mono' }, plain(node.address)), plain(node.version), node.shards,
        `${span(node.seen_seconds_ago)} ago`, node.leaving ? 'leaving' : node.id === cluster.node ? 'this one' : ''] }))),
    h('h2', null, 'Shards'),
    table('Shards', [{ label: 'shard', n: true }, { label: 'node' }, { label: 'epoch', n: true }, { label: 'jobs', n: true }, { label: 'rounds in flight', n: true }, { label: 'last commit, ms', n: true }],
      cluster.shards.map((shard) => ({ key: shard.shard, cells: [String(shard.shard), shard.node ?? h('strong', null, 'on its way'), shard.epoch, count(shard.jobs), shard.in_flight, shard.commit_ms.toFixed(1)] }))),
  ];
}

export const system = {
  title: () => 'System',
  load: async (params, signal) => {
    const info = await get('/info', null, { signal });
    const metrics = me.any_tenant ? await ask('GET', '/metrics', undefined, { text: true, signal }) : '';
    const cluster = me.any_tenant ? await get('/cluster', null, { signal }) : {};
    return { info, metrics, cluster };
  },
  render: ({ info, metrics, cluster }) => {
    const helps = new Map();
    const rows = [];
    for (const line of metrics.split('\n')) {
      const help = /^# HELP (\S+) (.*)$/.exec(line);
      if (help) helps.set(help[1], help[2]);
      const sample = /^(haul_\w+|process_\w+)(\{[^}]*\})? (\S+)/.exec(line);
      if (sample && !/_bucket$|^haul_queue_/.test(sample[1]) && rows.length < 300) rows.push(sample);
    }
    return [
      facts([['Version', info.version], ['Up for', span(info.uptime)], ['Durability', info.durability], ['Tenant', name(info.tenant)],
        ['Jobs', count(info.jobs)], ['Queues', count(info.queues)], ['Workers', count(info.workers)],
        ['Interface', h('a', { href: '/openapi.json' }, '/openapi.json')]]),
      cluster.store ? nodes(cluster) : null,
      rows.length ? table('Figures of the server', [{ label: 'figure' }, { label: '' }, { label: 'value', n: true }, { label: 'what it is' }],
        rows.map((row, index) => ({ key: `${row[1]}${row[2] ?? ''}${index}`, cells: [row[1], h('span', { class: 'mono' }, plain(row[2] ?? '')), row[3], helps.get(row[1].replace(/_(sum|count)$/, '')) ?? helps.get(row[1]) ?? ''] }))) : null,
    ];
  },
};
