// Finding jobs: one box, filters, and what can be done to all that match.
import { button, h } from './dom.js';
import { get } from './api.js';
import { bulkButtons } from './actions.js';
import { href, visit } from './app.js';
import { jobTable, page, pager, tagLink } from './jobs.js';

const keys = ['state', 'queue', 'klass', 'tag', 'worker', 'group'];
const states = ['', 'waiting', 'running', 'stalled', 'scheduled', 'depends', 'throttled', 'failed', 'complete'];

// `queue:mail group:"a b" some text` -> {queue, group, text}
export function read(words) {
  const found = {};
  const rest = [];
  for (const match of words.matchAll(/(\w+):"([^"]*)"|(\w+):(\S+)|"([^"]*)"|(\S+)/g)) {
    const key = match[1] ?? match[3];
    if (key && keys.includes(key)) found[key] = match[2] ?? match[4];
    else rest.push(match[5] ?? match[0]);
  }
  if (rest.length) found.text = rest.join(' ');
  return found;
}

export const title = () => 'Search';

const filterOf = (params) => Object.fromEntries([...keys, 'text'].filter((key) => params[key]).map((key) => [key, params[key]]));

export async function load(params, signal) {
  const filter = filterOf(params);
  const [found, tags] = await Promise.all([page(filter, params.cursor, signal), get('/tags', { limit: 20 }, { signal })]);
  return { found, filter, tags: tags.tags };
}

export function render({ found, filter, tags }, params) {
  const submit = function (event) {
    event.preventDefault();
    const values = Object.fromEntries([...new FormData(this)].filter(([, value]) => value));
    visit(href('search', values));
  };
  const field = (key) => h('label', null, `${key} `, key === 'state'
    ? h('select', { name: key }, states.map((word) => h('option', { value: word, selected: word === (params.state ?? '') }, word || 'any')))
    : h('input', { name: key, value: params[key] ?? '', size: 12, autocomplete: 'off', spellcheck: 'false' }));
  const any = Object.keys(filter).length > 0;
  return [
    h('form', { class: 'bar', on: { submit }, 'aria-label': 'Filters', key: `filters-${JSON.stringify(filter)}` }, [...keys, 'text'].map(field), h('button', { type: 'submit', class: 'main' }, 'Find'),
      any ? button('Clear', () => visit(href('search'))) : null),
    tags.length ? h('p', { class: 'soft' }, 'Tags: ', tags.map((tag) => [tagLink(tag), ' '])) : null,
    any && found.jobs.length ? h('div', { class: 'bar' }, bulkButtons(filter)) : null,
    jobTable('Jobs found', found.jobs, found.next ? 'None so far; there is more to look through.' : 'No job matches.'),
    pager('search', params, found),
  ];
}
