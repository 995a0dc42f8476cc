// Throttles, config, audit, system.
import { button, facts, h, table } from './dom.js';
import { clock, count, name, plain, span, time } from './format.js';
import { ask, del, get, may, me, part, put } from './api.js';
import { act, confirm, dialog } from './actions.js';
import { href, visit } from './app.js';
import { jobLink, listPager } from './jobs.js';

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

const more = (number) => number > 0 ? `and ${count(number)} more` : null;

export const throttles = {
  title: (params) => params.id ? `Throttle ${params.id}` : 'Throttles',
  load: async (params, signal) => params.id
    ? get(`/throttles/${part(params.id)}`, null, { signal }).catch((error) => { if (error.code === 'NOTHROTTLE') return { id: params.id, maximum: 0, ttl: -2, locks: [], locks_total: 0, pending: [], pending_total: 0 }; throw error; })
    : get('/throttles', { cursor: params.cursor, limit: 100 }, { signal }),
  render: (found, params) => params.id ? [
    facts([['Jobs at once', found.maximum || 'any number'], ['Ends', found.ttl < 0 ? 'never' : `in ${span(found.ttl)}`]]),
    may('operate') ? h('div', { class: 'bar' }, button('Change…', () => setThrottle(found)), found.ttl > -2 ? button('Delete…', () => removeThrottle(found), 'danger') : null) : null,
    h('h2', null, `Running under it: ${count(found.locks_total)}`), h('p', null, found.locks.map((jid) => [jobLink(jid), ' ']), more(found.locks_total - found.locks.length)),
    h('h2', null, `Held back: ${count(found.pending_total)}`), h('p', null, found.pending.map((jid) => [jobLink(jid), ' ']), more(found.pending_total - found.pending.length)),
  ] : [
    may('operate') ? h('div', { class: 'bar' }, button('New throttle…', () => setThrottle(null))) : null,
    table('Throttles', [{ label: 'throttle' }, { label: 'jobs at once', n: true }, { label: 'ends' }],
      found.throttles.map((one) => ({ key: one.id, cells: [h('a', { href: href('throttles', { id: one.id }) }, name(one.id)), one.maximum || 'any', one.ttl < 0 ? 'never' : `in ${span(one.ttl)}`] })), 'There are no throttles.'), listPager('throttles', params, found, 'throttles')],
};

async function setOption(option, value) {
  const answer = await dialog(option ? `Set ${plain(option)}` : 'Set an option', null, [
    ...(option ? [] : [{ name: 'option', label: 'Option', required: true }]), { name: 'value', label: 'Value', value, required: true }], { go: 'Set' });
  if (answer) await act('The option is set.', () => put(`/config/${part(option ?? answer.option)}`, { value: answer.value }));
}

export const config = {
  title: () => 'Config',
  load: (params, signal) => get('/config', { cursor: params.cursor, limit: 100 }, { signal }),
  render: (found, params) => [
    may('admin') ? h('div', { class: 'bar' }, button('Set an option…', () => setOption(null, ''))) : null,
    table('Options', [{ label: 'option' }, { label: 'value' }, { label: '' }], Object.entries(found.options).sort().map(([option, value]) => ({
      key: option,
      cells: [name(option), name(value), may('admin') ? h('div', { class: 'bar' },
        button('Change…', () => setOption(option, value), undefined, { 'aria-label': `Change ${plain(option)}` }),
        button('Default', () => act('The option has its default.', () => del(`/config/${part(option)}`)), undefined, { 'aria-label': `Default of ${plain(option)}` })) : ''],
    }))), listPager('config', params, found, 'options that are set')],
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

// Samples of the metrics: {name, labels, value}, and what each figure is.
function read(metrics) {
  const helps = new Map();
  const samples = [];
  for (const line of metrics.split('\n')) {
    const help = /^# HELP (\S+) (.*)$/.exec(line);
    if (help) helps.set(help[1], help[2]);
    const sample = /^(haul_\w+|process_\w+)(\{[^}]*\})? (\S+)/.exec(line);
    if (sample && !/_bucket$|^haul_queue_/.test(sample[1])) samples.push({ name: sample[1], labels: sample[2] ?? '', value: sample[3] });
  }
  return { helps, samples };
}

const bytes = (value) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  let size = value;
  while (size >= 1024 && at < units.length - 1) { size /= 1024; at += 1; }
  return `${at ? size.toFixed(1) : size} ${units[at]}`;
};

function parts({ samples }, shared) {
  const value = (name) => { const found = samples.find((one) => one.name === name); return found ? Number(found.value) : null; };
  const labelled = (name, labels) => { const found = samples.find((one) => one.name === name && one.labels === labels); return found ? Number(found.value) : 0; };
  const requests = (kind) => labelled('haul_store_requests_total', `{kind="${kind}"}`);
  const took = (kind) => requests(kind) ? `${count(requests(kind))}, ${span(labelled('haul_store_request_seconds_total', `{kind="${kind}"}`) / requests(kind))} each` : '0';
  const told = (name, words) => { const found = value(name); return found === null ? null : words(found); };
  const mean = (name, words) => value(`${name}_count`) ? words(value(`${name}_sum`) / value(`${name}_count`)) : null;
  const part = (title, pairs) => [h('h2', null, title), facts(pairs)];
  return h('div', { class: 'parts' },
    h('div', null, part('Rounds', [['Rounds', told('haul_commit_seconds_count', count)], ['Commands in one, mean', mean('haul_round_commands', (one) => one.toFixed(1))],
      ['Durable after, mean', mean('haul_commit_seconds', span)], ['Failed', told('haul_store_faults_total', count)]])),
    h('div', null, part('Store', [['On disk', told('haul_store_bytes', bytes)], ['Of that the round log', told('haul_log_bytes', bytes)], ['Records written', told('haul_records_written_total', count)],
      ['Written', told('haul_bytes_written_total', bytes)], ['Syncs', told('haul_fsyncs_total', count)], ['Full', told('haul_read_only', (one) => one ? 'yes: writes are refused' : 'no')]])),
    shared ? h('div', null, part('Shared store', [['Writes', took('put')], ['Reads', took('get')], ['Lists', count(requests('list'))], ['Failed', told('haul_store_request_errors_total', count)],
      ['Sent', told('haul_store_sent_bytes_total', bytes)], ['Received', told('haul_store_received_bytes_total', bytes)], ['Rounds not durable yet', told('haul_rounds_in_flight', count)]])) : null,
    h('div', null, part('Journal', [['Not in the store yet', told('haul_journal_backlog_bytes', bytes)], ['Syncs', told('haul_journal_syncs_total', count)],
      ['Handlers', told('haul_handlers_running', (one) => one ? 'are run' : 'are stopped')]])),
    h('div', null, part('This node', [['Memory', told('process_resident_memory_bytes', bytes)], ['Processor time', told('process_cpu_seconds_total', span)], ['Connections', told('haul_connections', count)],
      ['Pops that wait', told('haul_blocked_pops', count)], ['Event streams', told('haul_event_streams', count)], ['Ready', told('haul_ready', (one) => one ? 'yes' : 'no')]])));
}

// Who shares the store, and who has which shard.
function nodes(cluster) {
  return [
    h('h2', null, 'Nodes'),
    h('p', null, 'Store ', h('span', { class: 'mono' }, plain(cluster.store)), cluster.reached ? '' : h('strong', null, ' does not answer')),
    table('Nodes', [{ label: 'node' }, { label: 'address' }, { label: 'HTTP' }, { label: 'version' }, { label: 'shards', n: true }, { label: 'seen' }, { label: '' }],
      cluster.nodes.map((node) => ({ key: node.id, cells: [node.id, h('span', { class: 'mono' }, plain(node.address)), h('span', { class: 'mono' }, plain(node.http ?? 'off')), plain(node.version), node.shards,
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
    const figures = read(metrics);
    const rows = figures.samples.slice(0, 300);
    return [
      facts([['Version', info.version], ['Up for', span(info.uptime)], ['Durability', info.durability], ['Tenant', name(info.tenant)],
        ['Jobs', count(info.jobs)], ['Queues', count(info.queues)], ['Workers', count(info.workers)],
        ['Interface', h('a', { href: '/openapi.json' }, '/openapi.json')]]),
      cluster.store ? nodes(cluster) : null,
      rows.length ? [parts(figures, cluster.store), h('h2', null, 'All figures'), table('All figures of the server', [{ label: 'figure' }, { label: 'of' }, { label: 'value', n: true }, { label: 'what it is' }],
        rows.map((row) => ({ key: `${row.name}${row.labels}`, cells: [row.name, h('span', { class: 'mono' }, plain(row.labels)), row.value, figures.helps.get(row.name.replace(/_(sum|count)$/, '')) ?? figures.helps.get(row.name) ?? ''] })))] : null,
    ];
  },
};
