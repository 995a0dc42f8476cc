// Lines, bars and small graphs, drawn as SVG.
import { h, s } from './dom.js';
import { plain, short, span } from './format.js';

const W = 400;
const WIDE = 600;
const H = 110;
const LEFT = 44;
const BOTTOM = 16;

const nice = (value) => {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
};

// series: [{label, values: [number|null]}]; at: seconds of the first and last sample.
export function lines(title, series, at, { unit = short, seconds = 3600 } = {}) {
  const top = nice(Math.max(0, ...series.flatMap((one) => one.values.filter((value) => value !== null))));
  // Until there is a whole span of samples the time there is fills the width.
  const length = Math.min(Math.round(seconds / at.step), Math.max(30, ...series.map((one) => one.values.length)));
  const x = (index, of) => LEFT + ((length - of + index) / Math.max(1, length - 1)) * (W - LEFT);
  const y = (value) => H - BOTTOM - (value / top) * (H - BOTTOM - 6);
  const path = (values) => {
    let text = '';
    let pen = false;
    values.forEach((value, index) => {
      if (value === null) return;
      text += `${pen ? 'L' : 'M'}${x(index, values.length).toFixed(1)} ${y(value).toFixed(1)}${pen ? '' : 'h.1'}`;
      pen = true;
    });
    return text;
  };
  const last = (values) => values.findLast((value) => value !== null);
  const words = series.map((one) => `${one.label}: ${last(one.values) === undefined ? 'none' : unit(last(one.values))}`).join(', ');
  return h('figure', { key: `chart-${title}` },
    h('figcaption', null, h('b', null, title), series.map((one, index) =>
      h('span', { class: `key${index + 1}` }, `${one.label} ${last(one.values) === undefined ? '–' : unit(last(one.values))}`))),
    s('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `${title}: ${words}` },
      [0, 0.5, 1].map((part) => [
        s('line', { class: 'grid', x1: LEFT, x2: W, y1: y(top * part), y2: y(top * part) }),
        s('text', { x: LEFT - 6, y: y(top * part) + 3, 'text-anchor': 'end' }, unit(top * part)),
      ]),
      s('text', { x: LEFT, y: H - 3 }, `${span(length * at.step)} ago`),
      s('text', { x: W, y: H - 3, 'text-anchor': 'end' }, 'now'),
      series.map((one, index) => s('path', { class: index ? 'line second' : 'line', d: path(one.values) }))));
}

export function spark(values, label) {
  const top = Math.max(1, ...values);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(19 - (value / top) * 18).toFixed(1)}`).join(' ');
  return s('svg', { class: 'spark', viewBox: '0 0 100 20', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    s('polyline', { class: 'line', points }));
}

// The engine keeps seconds to a minute, minutes to an hour, hours to a day, days.
const bins = (() => {
  const edges = [0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
  const begins = [];
  for (let second = 0; second < 60; second += 1) begins.push(second);
  for (let minute = 1; minute < 60; minute += 1) begins.push(minute * 60);
  for (let hour = 1; hour < 24; hour += 1) begins.push(hour * 3600);
  return { edges, begins };
})();

export function histogram(title, series) {
  const sums = bins.edges.map(() => 0);
  series.histogram.forEach((value, index) => {
    const begin = bins.begins[index] ?? 86400;
    const bin = bins.edges.findLastIndex((edge) => edge <= begin);
    sums[bin] += value;
  });
  const top = Math.max(1, ...sums);
  const width = (WIDE - 4) / sums.length;
  const label = (index) => index === sums.length - 1 ? '≥1d' : `<${span(bins.edges[index + 1]).replace('.0', '').replace('min', 'm').replace(' ', '')}`;
  const words = sums.map((sum, index) => sum ? `${label(index)}: ${sum}` : '').filter(Boolean).join(', ');
  return h('figure', { key: `histogram-${title}` },
    h('figcaption', null, h('b', null, title), h('span', null, `${short(series.count)} jobs`),
      h('span', null, `mean ${span(series.mean)}`), h('span', null, `deviation ${span(series.std)}`)),
    s('svg', { viewBox: `0 0 ${WIDE} ${H}`, role: 'img', 'aria-label': `${title}: ${words || 'none'}` },
      s('line', { class: 'grid', x1: 0, x2: WIDE, y1: H - BOTTOM, y2: H - BOTTOM }),
      s('g', { class: 'bars' }, sums.map((sum, index) => {
        const tall = sum ? Math.max(2, (sum / top) * (H - BOTTOM - 14)) : 0;
        return s('rect', { x: 2 + index * width + 2, y: H - BOTTOM - tall, width: width - 4, height: tall });
      })),
      sums.map((sum, index) => [
        s('text', { x: 2 + (index + 0.5) * width, y: H - 4, 'text-anchor': 'middle' }, label(index)),
        sum ? s('text', { x: 2 + (index + 0.5) * width, y: H - BOTTOM - (sum / top) * (H - BOTTOM - 14) - 3, 'text-anchor': 'middle' }, short(sum)) : null,
      ])));
}

// A job between those it waits for and those that wait for it. nodes: {jid, label, state, href}
export function graph(before, self, after) {
  const rows = Math.max(before.length, after.length, 1);
  const tall = rows * 30 + 6;
  const middle = tall / 2;
  const place = (list, index) => middle + (index - (list.length - 1) / 2) * 30;
  const node = (one, x, y, kind = '') => s('a', { href: one.href, class: `node ${one.state ?? ''} ${kind}`, 'aria-label': `${one.label}, ${one.state ?? 'gone'}` },
    s('rect', { x, y: y - 11, width: 170, height: 22, rx: 4 }),
    s('text', { x: x + 7, y: y + 4 }, plain(one.label).slice(0, 26)));
  const edge = (x1, y1, x2, y2) => s('path', { class: 'edge', d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` });
  return s('svg', { viewBox: `0 0 ${WIDE} ${tall}`, role: 'group', 'aria-label': 'Dependencies' },
    before.map((_, index) => edge(170, place(before, index), 215, middle)),
    after.map((_, index) => edge(385, middle, 430, place(after, index))),
    before.map((one, index) => node(one, 0, place(before, index))),
    node(self, 215, middle, 'self'),
    after.map((one, index) => node(one, 430, place(after, index))));
}
