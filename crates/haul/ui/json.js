// JSON whose numbers stay as they were written: a browser's numbers have only 53 bits.
class Exact {
  constructor(source) { this.source = source; }
}

export const parse = (text) => JSON.parse(text, function (key, value, context) {
  if (typeof value === 'number' && context?.source !== undefined && String(value) !== context.source) {
    return new Exact(context.source);
  }
  return value;
});

export function write(value, indent = 0, gap = '') {
  const inner = gap + ' '.repeat(indent);
  const list = (items, open, close) => {
    if (!items.length) return open + close;
    if (!indent) return open + items.join(',') + close;
    return `${open}\n${inner}${items.join(`,\n${inner}`)}\n${gap}${close}`;
  };
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) return list(value.map((item) => write(item, indent, inner)), '[', ']');
  if (value && typeof value === 'object') {
    const members = Object.entries(value).map(([key, item]) =>
      `${JSON.stringify(key)}:${indent ? ' ' : ''}${write(item, indent, inner)}`);
    return list(members, '{', '}');
  }
  return JSON.stringify(value) ?? 'null';
}
