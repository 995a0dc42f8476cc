// Elements, and changing them in place. All text goes in as text nodes: nothing here ever reads HTML.

function dispatch(event) {
  const handler = this.heard?.[event.type];
  if (handler) handler.call(this, event);
}

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === 'on') {
      element.heard = value;
      for (const type of Object.keys(value)) element.addEventListener(type, dispatch);
    } else if (key === 'key') {
      element.key = value;
    } else {
      element.setAttribute(key, value === true ? '' : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === '') continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

// Attributes that belong to whoever uses the page, not to what is drawn.
const kept = (element, name) => name === 'open' && (element.tagName === 'DETAILS' || element.tagName === 'DIALOG');

function sameKind(old, fresh) {
  if (old.nodeType !== fresh.nodeType) return false;
  if (old.nodeType === Node.TEXT_NODE) return true;
  return old.tagName === fresh.tagName && old.key === fresh.key;
}

// Makes `old` look like `fresh` with as few changes as possible: focus, selection and scrolling stay.
export function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !kept(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && !kept(old, name)) old.setAttribute(name, value);
  }
  for (const type of Object.keys(fresh.heard ?? {})) {
    if (!old.heard?.[type]) old.addEventListener(type, dispatch);
  }
  old.heard = fresh.heard;
  morphChildren(old, [...fresh.childNodes]);
}

function morphChildren(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.key !== undefined) keyed.set(child.key, child);
  let at = parent.firstChild;
  for (const wanted of fresh) {
    let found = null;
    if (wanted.key !== undefined) {
      const known = keyed.get(wanted.key);
      if (known && sameKind(known, wanted)) { found = known; keyed.delete(wanted.key); }
    } else if (at && at.key === undefined && sameKind(at, wanted)) {
      found = at;
    }
    if (!found) {
      parent.insertBefore(wanted, at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else parent.insertBefore(found, at);
    morph(found, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

export function show(parent, ...nodes) {
  const box = document.createDocumentFragment();
  fill(box, null, nodes);
  morphChildren(parent, [...box.childNodes]);
}

// Columns: {label, n, sort}. Rows: {key, cells}. A cell is what `h` takes as a child.
export function table(caption, columns, rows, empty = 'Nothing here.') {
  if (!rows.length) return h('p', { class: 'soft', key: `empty-${caption}` }, empty);
  const kind = (column) => (column.n ? 'n' : undefined);
  return h('div', { class: 'scroll', key: `table-${caption}`, tabindex: 0, role: 'region', 'aria-label': caption },
    h('table', null,
      h('caption', { class: 'hidden' }, caption),
      h('thead', null, h('tr', null, columns.map((column) => h('th', {
        scope: 'col', class: kind(column),
        'aria-sort': column.sorted,
      }, column.click ? h('button', { type: 'button', on: { click: column.click } }, column.label,
        column.sorted === 'ascending' ? ' ↑' : column.sorted === 'descending' ? ' ↓' : '') : column.label)))),
      h('tbody', null, rows.map((row) => h('tr', { key: `row-${row.key}`, 'data-row': true },
        row.cells.map((cell, at) => h('td', {
          class: columns[at]?.n ? (cell === 0 || cell === '' ? 'n zero' : 'n') : undefined,
        }, cell)))))));
}

export const facts = (pairs) => h('dl', { class: 'facts' },
  pairs.filter(([, value]) => value !== null && value !== undefined && value !== '' && !(Array.isArray(value) && !value.length))
    .map(([label, value]) => [h('dt', null, label), h('dd', null, value)]));

// Known by its label: one that comes or goes must not become another under somebody's finger.
export const button = (label, click, kind, props = {}) =>
  h('button', { type: 'button', key: `button-${label}`, class: kind, ...props, on: { click } }, label);
