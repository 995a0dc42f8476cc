// Dialogs, messages, and what is done to many jobs at once.
import { button, h, show } from './dom.js';
import { count, plain } from './format.js';
import { del, get, may, post } from './api.js';

const box = () => document.getElementById('toasts');

export function toast(text, { bad = false } = {}) {
  const words = h('span', null, text);
  const close = button('Close', () => item.remove(), undefined, { class: 'push' });
  const item = h('div', { class: bad ? 'toast bad' : 'toast', role: bad ? 'alert' : 'status' }, h('div', { class: 'bar' }, words, close));
  box().append(item);
  if (!bad) setTimeout(() => item.remove(), 6000);
  return item;
}

// Does it, says so or says why not, and has the page read anew.
export async function act(what, work) {
  try {
    await work();
    toast(what);
  } catch (error) {
    toast(`Not done: ${plain(error.message)}`, { bad: true });
  }
  document.dispatchEvent(new Event('haul-changed'));
}

// fields: [{name, label, value, type, options, required}]. Answers the values, or null.
export function dialog(title, text, fields = [], { go = 'OK', danger = false } = {}) {
  return new Promise((resolve) => {
    const input = (field) => {
      const props = { name: field.name, id: `field-${field.name}`, required: field.required };
      if (field.type === 'textarea') return h('textarea', { ...props, spellcheck: 'false' }, field.value ?? '');
      if (field.options) return h('select', props, field.options.map((option) => h('option', { selected: option === field.value }, option)));
      return h('input', { ...props, type: field.type ?? 'text', value: field.value ?? '', step: 'any', autocomplete: 'off', spellcheck: 'false' });
    };
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'dialog-title' }, title), text ? h('p', null, text) : null,
      fields.map((field) => h('label', null, h('span', null, field.label), input(field))),
      h('div', { class: 'bar' }, button('Leave it', () => box.close()),
        h('button', { type: 'submit', value: 'go', class: danger ? 'danger' : 'main' }, go)));
    const box = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
    box.addEventListener('close', () => {
      const values = box.returnValue === 'go' ? Object.fromEntries(new FormData(form)) : null;
      box.remove();
      resolve(values);
    });
    document.body.append(box);
    box.showModal();
  });
}

export const confirm = (title, text, go) => dialog(title, text, [], { go, danger: true });

const UNDO_SECONDS = 6;
const words = { retry: 'Retry', move: 'Move', cancel: 'Cancel' };
const past = { retry: 'retried', move: 'moved', cancel: 'cancelled' };

export const told = (filter) => Object.entries(filter).map(([key, value]) => `${key} ${plain(value)}`).join(', ');

// Asks, begins an operation on the server and follows it; until it begins it can be undone.
export async function bulk(action, filter, about) {
  const fields = action === 'move' ? [{ name: 'queue', label: 'Into which queue', required: true }] : [];
  const answer = await dialog(`${words[action]} all jobs with ${told(filter)}?`,
    `${about ? `${about} ` : ''}It begins after ${UNDO_SECONDS} seconds; until then you can undo it.`, fields,
    { go: `${words[action]} all`, danger: action === 'cancel' });
  if (!answer) return;
  try {
    const operation = await post('/operations', { action, filter, delay: UNDO_SECONDS, queue: answer.queue || undefined });
    follow(operation);
  } catch (error) {
    toast(`Not done: ${plain(error.message)}`, { bad: true });
  }
}

function follow(operation) {
  const item = h('div', { class: 'toast', role: 'status' });
  box().append(item);
  const id = operation.id;
  const draw = (now) => {
    const what = `${words[now.action]} all with ${told(now.filter)}`;
    const stop = (label) => button(label, async () => { await del(`/operations/${id}`).catch(() => {}); step(); });
    const close = button('Close', () => item.remove());
    const done = `${count(now.done)} ${past[now.action]}${now.refused ? `, ${count(now.refused)} could not be` : ''}`;
    const parts = {
      waiting: ['begins in a moment', stop('Undo')],
      running: [h('progress', { 'aria-label': 'Progress' }), done, stop('Stop')],
      done: [done, close],
      stopped: [now.done ? `stopped: ${done}` : 'undone: nothing was changed', close],
      broken: [`broken off: ${plain(now.message ?? '')} ${done}`, close],
    }[now.state];
    show(item, h('div', null, what), h('div', { class: 'bar' }, parts));
  };
  const step = async () => {
    try {
      const now = await get(`/operations/${id}`);
      draw(now);
      if (now.ended_at !== null) {
        document.dispatchEvent(new Event('haul-changed'));
        return true;
      }
    } catch { /* asked again */ }
    return false;
  };
  draw(operation);
  const timer = setInterval(async () => { if (await step()) clearInterval(timer); }, 500);
}

export const bulkButtons = (filter, about) => !may('operate') ? null : [
  button('Retry all', () => bulk('retry', filter, about)),
  button('Move all…', () => bulk('move', filter, about)),
  button('Cancel all…', () => bulk('cancel', filter, about), 'danger'),
];
