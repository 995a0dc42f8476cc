// How things are told: numbers, times, names.
import { h } from './dom.js';

const odd = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const oddInLine = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const visible = (character) => {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? '␡' : `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
};

// What stands for a byte that is not UTF-8 (docs/guide/http.md) is shown as that byte.
const bytes = (text) => String(text).replace(/[\u{10fe00}-\u{10feff}]/gu, (one) => `\\x${(one.codePointAt(0) - 0x10fe00).toString(16).padStart(2, '0')}`);
export const hasBytes = (text) => /[\u{10fe00}-\u{10feff}]/u.test(text);

// Characters that would hide, reorder or break the text are shown for what they are.
export const plain = (text) => bytes(text).replace(oddInLine, visible);
export const plainLines = (text) => bytes(text).replace(odd, visible);

export const name = (text, props = {}) => h('bdi', { class: 'name', title: plain(text).slice(0, 400), ...props }, plain(text).slice(0, 400));

const number = new Intl.NumberFormat('en-US');
export const count = (value) => number.format(value);
export const short = (value) => value < 10000 ? number.format(value) : new Intl.NumberFormat('en-US', {
  notation: 'compact', maximumFractionDigits: 1,
}).format(value);

export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  if (seconds < 0.001) return '0';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const pair = (large, unit, small, other) => {
    const rest = Math.floor((whole % large) / small);
    return `${Math.floor(whole / large)} ${unit}${rest ? ` ${rest} ${other}` : ''}`;
  };
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(60, 'min', 1, 's');
  if (whole < 86400) return pair(3600, 'h', 60, 'min');
  return pair(86400, 'd', 3600, 'h');
}

// The server's clock, not this machine's.
let offset = 0;
export const setNow = (at) => { offset = at - Date.now() / 1000; };
export const now = () => Date.now() / 1000 + offset;

export function ago(at) {
  if (at === null || at === undefined) return '–';
  const distance = at - now();
  if (Math.abs(distance) < 1) return 'now';
  return distance > 0 ? `in ${span(distance)}` : `${span(-distance)} ago`;
}

export const clock = (at) => {
  const date = new Date(at * 1000);
  return Number.isNaN(date.getTime()) ? String(at) : date.toISOString().replace('T', ' ').replace(/\.?0*Z$/, '').slice(0, 23);
};
export const time = (at) => at === null || at === undefined ? '–'
  : h('time', { title: `${clock(at)} UTC` }, ago(at));

export const chip = (word) => h('span', { class: `chip ${word}` }, word);
// A lock that ran out is stalled, whatever the record says.
export const stateOf = (job) => job.state === 'running' && job.expires !== null && job.expires < now() ? 'stalled' : job.state;

export function every(seconds) {
  const units = [[86400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']];
  for (const [size, unit] of units) {
    if (seconds >= size && seconds % size === 0) {
      const times = seconds / size;
      return times === 1 ? `every ${unit}` : `every ${count(times)} ${unit}s`;
    }
  }
  return `every ${span(seconds)}`;
}
