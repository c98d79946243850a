'use strict';
// What the page draws is `data`: {"programs": [{"name", "program"}, ...]}, one or two, each as
// `zinc plan --program --json` prints it. Names come from files: they go to the page as text alone.
// The view stands in the address behind '#', so that a link shows the same place.

const $ = id => document.getElementById(id);

function fail(error) {
  $('trouble').style.display = 'block';
  $('trouble').textContent = 'This page could not be drawn: ' + (error && error.message || error);
  document.body.dataset.state = 'failed';
}
window.addEventListener('error', event => fail(event.error || event.message));

const kMiB = 1048576;
const kLaneOps = { weights: ['gather', 'release'], gradients: ['reduce'],
  update: ['norm', 'decide', 'direct', 'transform', 'update', 'publish', 'join'], disk: ['read'] };
const kStreams = ['issuing thread', 'compute', 'gather', 'reduce', 'copy_in', 'copy_out', 'host'];
const kLabelColours = { optimizer: '#8f6fd1', parameters: '#4c86d9', gradients: '#e08a3c',
  activations: '#4caf7d', workspace: '#c7b14a', communication: '#d46a8c', staging: '#8796a8' };
const kOpColours = { gather: '#4c86d9', release: '#9bb7de', reduce: '#e08a3c', norm: '#d46a8c',
  decide: '#d46a8c', direct: '#4b6fb5', transform: '#4b9ab5', update: '#6a4bb5',
  publish: '#8f6fd1', join: '#b9a6e3', read: '#c7b14a' };
const kStreamColours = { compute: '#4caf7d', gather: '#4c86d9', reduce: '#e08a3c',
  copy_in: '#8f6fd1', copy_out: '#d46a8c', host: '#c7b14a' };
const kAdded = '#17a34a', kRemoved = '#dc3545';

const wordOf = op => op.split(' ', 1)[0];
const groupOf = op => op.slice(wordOf(op).length + 1);
const opsOf = place => [...(place.before || []), ...(place.after || [])];
const titleOf = place => place.body === 'step' || place.body === 'evaluation' ? place.body
  : place.body + ' micro-batch, ' + place.phase;
const mib = bytes => (bytes / kMiB).toFixed(2) + ' MiB';
const ms = seconds => (seconds * 1e3).toFixed(3) + ' ms';

// What all names begin with, up to a dot.
function commonPrefix(names) {
  if (new Set(names).size < 2) return '';
  let prefix = names[0];
  for (const name of names) {
    while (!name.startsWith(prefix)) prefix = prefix.slice(0, prefix.slice(0, -1).lastIndexOf('.') + 1);
  }
  return prefix.endsWith('.') ? prefix : '';
}

// A program with what the drawing needs: times of all places that have one, life of the groups.
class View {
  constructor({ name, program }) {
    this.name = name;
    this.program = program;
    this.places = program.places;
    this.spans = program.spans || [];
    this.peak = 0;
    this.changes = new Map();  // by rewrite, by place
    for (const rewrite of program.rewrites) {
      const by = new Map();
      for (const change of rewrite.changes || []) {
        if (!by.has(change.place)) by.set(change.place, []);
        by.get(change.place).push(change);
      }
      this.changes.set(rewrite.name, by);
      this.peak = Math.max(this.peak, rewrite.device_peak_bytes);
    }
    const last = program.rewrites[program.rewrites.length - 1];
    this.stepSeconds = last && last.step_seconds;
    this.end = this.spans.reduce((end, span) => Math.max(end, span.end), 0);
    this.streams = kStreams.filter(stream => this.spans.some(span => span.stream === stream));
    this.lanesOfSpans = new Map(this.streams.map(stream =>
      [stream, this.spans.filter(span => span.stream === stream).sort((a, b) => a.begin - b.begin)]));
    this.totals = new Map();  // by tier, by place
    this.prefix = commonPrefix(this.places.map(place => place.group).filter(Boolean));
    this.lives = this.makeLives();
    this.columns = this.lives.reduce((most, life) => Math.max(most, life.column + 1), 1);
  }

  short(group) { return group.startsWith(this.prefix) ? group.slice(this.prefix.length) : group; }

  most(tier) {
    if (!this.totals.has(tier)) {
      this.totals.set(tier, this.places.reduce((most, place) =>
        Math.max(most, totalOf(labelsOf(place, tier))), 0));
    }
    return this.totals.get(tier);
  }

  keys() {  // an event may come again in its phase
    const seen = new Map();
    return this.places.map(place => {
      const name = place.body + '/' + place.phase + '/' + place.event;
      const count = seen.get(name) || 0;
      seen.set(name, count + 1);
      return name + '#' + count;
    });
  }

  // From the gather of a group to its release. What a body finds gathered begins with it, what it
  // leaves gathered ends with it. Beside each other where they overlap.
  makeLives() {
    const lives = [];
    let open = new Map(), busy = [], body = null, bodyBegin = 0;
    const openAt = (group, place, isGather) => {
      let column = busy.findIndex(x => !x);
      if (column < 0) column = busy.length;
      busy[column] = true;
      const life = { group, begin: place, use: null, end: null, column, isGather };
      open.set(group, life);
      lives.push(life);
      return life;
    };
    const close = (group, place) => {
      const life = open.get(group);
      life.end = place;
      busy[life.column] = false;
      open.delete(group);
    };
    const hasGathers = this.places.some(place => opsOf(place).some(op => wordOf(op) === 'gather'));
    this.places.forEach((place, i) => {
      if (place.body !== body) {
        for (const group of [...open.keys()]) close(group, i);
        body = place.body;
        bodyBegin = i;
      }
      if (!hasGathers || body === 'step') return;
      const doOps = ops => {
        for (const op of ops || []) {
          const group = groupOf(op);
          if (wordOf(op) === 'gather' && !open.has(group)) openAt(group, i, true);
          if (wordOf(op) === 'release') {
            if (!open.has(group)) openAt(group, bodyBegin, false);
            close(group, i);
          }
        }
      };
      doOps(place.before);
      if (place.group && place.event.startsWith('use of ')) {
        const life = open.get(place.group) || openAt(place.group, bodyBegin, false);
        if (life.use === null) life.use = i;
      }
      doOps(place.after);
    });
    for (const group of [...open.keys()]) close(group, this.places.length);
    return lives;
  }
}

// Rows are the events of the first program, with those that only the second has between them.
function makeRows(views) {
  if (views.length === 1) return views[0].places.map((_, i) => [i]);
  const [mine, theirs] = views.map(view => view.keys());
  const row = new Map(mine.map((key, i) => [key, i]));
  const extra = new Map();  // behind which of mine: places of the other
  const match = new Map();
  let behind = -1;
  theirs.forEach((key, i) => {
    if (row.has(key)) {
      behind = row.get(key);
      match.set(behind, i);
    } else {
      if (!extra.has(behind)) extra.set(behind, []);
      extra.get(behind).push(i);
    }
  });
  const rows = [];
  const add = i => (extra.get(i) || []).forEach(other => rows.push([null, other]));
  add(-1);
  mine.forEach((_, i) => {
    rows.push([i, match.has(i) ? match.get(i) : null]);
    add(i);
  });
  return rows;
}

function opDifference(mine, theirs) {  // with the side, as the text of --diff
  const list = place => place ? [...(place.before || []).map(op => op + ' (ahead)'),
    ...(place.after || []).map(op => op + ' (behind)')] : [];
  const rest = list(theirs), added = [];
  for (const op of list(mine)) {
    const at = rest.indexOf(op);
    if (at >= 0) rest.splice(at, 1); else added.push(op);
  }
  return { added, removed: rest };
}

const state = { axis: 'order', tier: 'device', rewrite: '', from: 0, to: 1 };
let views, rows, rowOf, marks, hits, drawn, scheduled = false;

function readState() {
  const view = new URLSearchParams(location.hash.slice(1));
  const canTime = views.some(v => v.spans.length > 0);
  state.axis = view.get('axis') === 'time' && canTime ? 'time' : 'order';
  state.tier = [...$('tier').options].some(o => o.value === view.get('tier'))
    ? view.get('tier') : 'device';
  state.rewrite = view.get('rewrite') || '';
  const number = (name, otherwise) =>
    Number.isFinite(parseFloat(view.get(name))) ? parseFloat(view.get(name)) : otherwise;
  state.from = Math.max(0, number('from', 0));
  state.to = Math.min(whole(), number('to', whole()));
  if (!(state.to > state.from)) { state.from = 0; state.to = whole(); }
  $('tier').value = state.tier;
}
function writeState() {
  const view = new URLSearchParams({ axis: state.axis, tier: state.tier,
    from: state.from.toPrecision(6), to: state.to.toPrecision(6) });
  if (state.rewrite) view.set('rewrite', state.rewrite);
  try { history.replaceState(null, '', '#' + view); } catch (error) { /* a page without address */ }
}
const whole = () => state.axis === 'time'
  ? Math.max(1e-9, ...views.map(view => view.end)) : Math.max(1, rows.length);

function setView(from, to) {
  const all = whole(), least = state.axis === 'time' ? all * 1e-6 : Math.min(all, 4);
  let length = Math.min(all, Math.max(least, to - from));
  from = Math.min(Math.max(0, from), all - length);
  state.from = from;
  state.to = from + length;
  schedule();
}
function zoom(factor, at = (state.from + state.to) / 2) {
  setView(at - (at - state.from) * factor, at + (state.to - at) * factor);
}
function schedule() {
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => { scheduled = false; writeState(); draw(); }, 0);
}

// What stands in the margin of a row: what the chosen rewrite did, or how the programs differ.
function makeMarks() {
  marks = new Map();
  rows.forEach((row, r) => {
    if (state.rewrite) {
      const changes = row[0] === null ? null : (views[0].changes.get(state.rewrite) || new Map()).get(row[0]);
      if (changes) {
        marks.set(r, {
          added: changes.filter(c => c.added).map(c => c.added + (c.side === 'before' ? ' (ahead)' : ' (behind)')),
          removed: changes.filter(c => c.removed).map(c => c.removed + (c.side === 'before' ? ' (ahead)' : ' (behind)')) });
      }
    } else if (views.length === 2) {
      const place = i => row[i] === null || row[i] === undefined ? null : views[i].places[row[i]];
      const difference = opDifference(place(0), place(1));
      if (difference.added.length || difference.removed.length) marks.set(r, difference);
    }
  });
}

let context, ink, faint, line, paper, panel;
let size = { width: 0, height: 0 };

function fitCanvas() {
  const canvas = $('canvas'), ratio = window.devicePixelRatio || 1;
  size = { width: $('stage').clientWidth, height: $('stage').clientHeight };
  canvas.width = Math.max(1, Math.round(size.width * ratio));
  canvas.height = Math.max(1, Math.round(size.height * ratio));
  context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(document.documentElement);
  [ink, faint, line, paper, panel] = ['ink', 'faint', 'line', 'paper', 'panel']
    .map(name => style.getPropertyValue('--' + name).trim());
}

const kTop = 38, kMargin = 12;
const yOf = value => kTop + (value - state.from) / (state.to - state.from) * (size.height - kTop);
const valueAt = y => state.from + (y - kTop) / (size.height - kTop) * (state.to - state.from);

function text(string, x, y, width, colour = ink, align = 'left') {
  if (width < 8) return;
  context.fillStyle = colour;
  context.textAlign = align;
  let shown = string;
  if (context.measureText(shown).width > width) {
    let low = 0, high = shown.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(shown.slice(0, middle) + '…').width <= width) low = middle;
      else high = middle - 1;
    }
    if (low === 0) return;
    shown = shown.slice(0, low) + '…';
  }
  context.fillText(shown, align === 'right' ? x + width : x, y);
  ++drawn.texts;
}
function box(x, y, width, height, colour, tip) {
  context.fillStyle = colour;
  context.fillRect(x, y, Math.max(width, 0.5), Math.max(height, 0.75));
  ++drawn.boxes;
  if (tip) hits.push({ x, y, width: Math.max(width, 3), height: Math.max(height, 3), tip });
}
let hatch;
function waitBox(x, y, width, height, tip) {
  if (!hatch) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const t = tile.getContext('2d');
    t.strokeStyle = '#8796a8';
    t.beginPath();
    t.moveTo(-1, 7); t.lineTo(7, -1); t.moveTo(-1, 1); t.lineTo(1, -1); t.moveTo(5, 7); t.lineTo(7, 5);
    t.stroke();
    hatch = context.createPattern(tile, 'repeat');
  }
  box(x, y, width, height, hatch, tip);
  ++drawn.waits;
}

// Calls `visit(begin, end)` for runs of rows for which `same` gives the same text.
function runs(same, visit) {
  const first = Math.max(0, Math.floor(state.from)), last = Math.min(rows.length, Math.ceil(state.to));
  for (let begin = first; begin < last;) {
    const name = same(begin);
    let end = begin + 1;
    while (end < last && same(end) === name) ++end;
    visit(begin, end, name);
    begin = end;
  }
}
const placeOfRow = r => {
  const which = rows[r][0] !== null ? 0 : 1;
  return views[which].places[rows[r][which]];
};

// Titles of phases and names of groups at the left; single events where there is room.
function drawEvents(x, width) {
  const height = yOf(1) - yOf(0);
  const third = Math.min(175, width * 0.45);
  runs(r => titleOf(placeOfRow(r)), (begin, end, title) => {
    const top = Math.max(kTop, yOf(begin)), bottom = yOf(end);
    context.fillStyle = line;
    context.fillRect(x, yOf(begin), size.width, 1);
    if (bottom - top > 14) text(title, x + 4, top + 13, third - 8, faint);
  });
  const single = height >= 13;
  let below = -Infinity;
  runs(r => titleOf(placeOfRow(r)) + '\n' + (single ? r : placeOfRow(r).group || placeOfRow(r).event),
    (begin, end) => {
      const top = Math.max(kTop, yOf(begin)), bottom = yOf(end), place = placeOfRow(begin);
      if (top < below) return;
      below = top + 13;
      const name = end - begin === 1 && bottom - top >= 12 ? place.event
        : place.group ? views[0].short(place.group) : place.event;
      text(name, x + third, top + 12, width - third - 4);
    });
  for (const [r, mark] of marks) {
    if (r + 1 < state.from || r > state.to) continue;
    const y = yOf(r), each = Math.max(2, height);
    const tip = () => ['+ ', '- '].flatMap((sign, i) =>
      [mark.added, mark.removed][i].map(op => sign + op)).join('\n');
    if (mark.added.length) box(x - 9, y, 4, each, kAdded, tip);
    if (mark.removed.length) box(x - 4.5, y, 4, each, kRemoved, tip);
    ++drawn.marks;
  }
}

function rowsOf(which) {
  if (rowOf[which]) return rowOf[which];
  const found = new Array(views[which].places.length);
  rows.forEach((row, r) => { if (row[which] !== null && row[which] !== undefined) found[row[which]] = r; });
  return rowOf[which] = found;
}

function head(title, x, width) {
  context.font = '12px system-ui, sans-serif';
  text(title, x + 3, kTop - 8, width - 6, faint);
}

function drawOps(which, x, width) {
  const view = views[which], at = rowsOf(which), end = i => i < at.length ? at[i] : rows.length;
  const names = Object.keys(kLaneOps).filter(lane => lane === 'weights' ? view.lives.length
    : view.places.some(place => opsOf(place).some(op => kLaneOps[lane].includes(wordOf(op)))));
  const share = lane => lane === 'weights' ? 2 : 1;
  const shares = names.reduce((sum, lane) => sum + share(lane), 0) || 1;
  let left = x;
  for (const lane of names) {
    const room = width * share(lane) / shares;
    head(lane, left, room);
    if (lane === 'weights') drawLives(view, at, end, left, room);
    else drawCells(view, at, kLaneOps[lane], left, room);
    left += room;
    context.fillStyle = line;
    context.fillRect(left - 1, kTop, 1, size.height);
  }
}

function drawLives(view, at, end, x, width) {
  const column = width / view.columns;
  for (const life of view.lives) {
    const begin = at[life.begin], last = end(life.end);
    if (last < state.from || begin > state.to) continue;
    const used = life.use === null ? last : at[life.use];
    const left = x + life.column * column + 1, room = Math.max(1, column - 2);
    const top = Math.max(kTop, yOf(begin));
    const tip = () => life.group + '\n' + (life.isGather
      ? 'gathered at: ' + view.places[life.begin].event : 'was gathered before') + '\n' +
      (life.use === null ? 'not used' : 'first used at: ' + view.places[life.use].event) + '\n' +
      (life.end < view.places.length && view.places[life.end].body === view.places[life.begin].body
        ? 'given back at: ' + view.places[life.end].event : 'stays gathered');
    if (used > begin) box(left, top, room, yOf(used) - top, '#a9c6ee', tip);
    const from = Math.max(kTop, yOf(used));
    box(left, from, room, Math.max(1.5, yOf(last) - from), '#4c86d9', tip);
    if (room > 40 && yOf(last) - top > 12) {
      text(view.short(life.group), left + 3, Math.min(top + 12, yOf(last) - 2), room - 6, '#0b1f3a');
    }
  }
}

function drawCells(view, at, words, x, width) {
  const height = Math.max(2, yOf(1) - yOf(0));
  view.places.forEach((place, i) => {
    if (at[i] + 1 < state.from || at[i] > state.to) return;
    const ops = opsOf(place).filter(op => words.includes(wordOf(op)));
    if (!ops.length) return;
    const y = yOf(at[i]);
    box(x + 4, y, height > 12 ? 5 : width - 8, height, kOpColours[wordOf(ops[0])],
      () => place.event + '\n' + ops.join('\n'));
    if (height > 12) {
      text(ops[0] + (ops.length > 1 ? ' and ' + (ops.length - 1) + ' more' : ''), x + 12, y + 12, width - 16);
    }
  });
}

// Pieces that fall onto one line of pixels are one.
function drawStreams(which, x, width) {
  const view = views[which];
  const lane = width / Math.max(1, view.streams.length);
  view.streams.forEach((stream, s) => {
    const left = x + s * lane;
    head(stream, left, lane);
    const spans = view.lanesOfSpans.get(stream);
    let low = 0, high = spans.length;
    while (low < high) {  // the first that ends inside; those of a stream do not overlap
      const middle = (low + high) >> 1;
      if (spans[middle].end < state.from) low = middle + 1; else high = middle;
    }
    let reached = -Infinity;
    for (let i = low; i < spans.length && spans[i].begin <= state.to; ++i) {
      const span = spans[i], top = Math.max(kTop, yOf(span.begin)), bottom = yOf(span.end);
      if (bottom <= reached + 0.4) continue;
      reached = bottom;
      const tip = () => (span.work || 'waits for ' + span.waits_for) + '\n' + stream + ': ' +
        ms(span.begin) + ' to ' + ms(span.end) + ', ' + ms(span.end - span.begin) +
        (span.place === undefined ? '' : '\nissued at: ' + view.places[span.place].event);
      if (!span.work) waitBox(left + 3, top, lane - 7, bottom - top, tip);
      else box(left + 3, top, lane - 7, bottom - top, kStreamColours[stream] || '#8796a8', tip);
      if (bottom - top > 13) {
        // The hatching says already that it waits, where a lane has no room for the words.
        const wait = 'waits for ' + span.waits_for, fits = context.measureText(wait).width <= lane - 14;
        text(span.work || (fits ? wait : span.waits_for), left + 7, top + 12, lane - 14,
          span.work ? '#0b1f14' : ink);
      }
    }
    context.fillStyle = line;
    context.fillRect(left + lane - 1, kTop, 1, size.height);
  });
}

function labelsOf(place, tier) {
  const found = {};
  for (const [name, bytes] of Object.entries(place.bytes || {})) {
    if (name.startsWith(tier + ' ')) found[name.slice(tier.length + 1)] = bytes;
  }
  return found;
}
const totalOf = labels => Object.values(labels).reduce((sum, bytes) => sum + bytes, 0);

function memoryScale(tier) {
  let most = 1;
  for (const view of views) {
    most = Math.max(most, view.most(tier));
    if (tier === 'device') most = Math.max(most, view.peak);
  }
  return most;
}

// To the right of what is drawn there, one bar for each event, by label.
function drawMemory(which, x, width, scale) {
  const view = views[which], at = state.axis === 'order' ? rowsOf(which) : null;
  head(state.tier + ', to ' + mib(scale), x, width);
  let known = null, cursor = -Infinity;
  const points = [];
  view.places.forEach((place, i) => {
    if (place.bytes || place.device_bytes === 0) known = place;
    const from = at ? at[i] : place.seconds;
    if (from === undefined || known === null) return;
    points.push({ from, place: known, event: place });
  });
  points.forEach((point, i) => {
    const to = i + 1 < points.length ? Math.max(point.from, points[i + 1].from)
      : at ? point.from + 1 : view.end;
    if (to < state.from || point.from > state.to) return;
    const top = Math.max(kTop, yOf(point.from)), bottom = yOf(to);
    if (bottom <= cursor + 0.3) return;
    cursor = bottom;
    const labels = labelsOf(point.place, state.tier);
    const tip = () => point.event.event + (point.event.seconds === undefined ? '' : '\nat ' + ms(point.event.seconds)) +
      '\n' + state.tier + ': ' + mib(totalOf(labels)) + '\n' +
      Object.entries(labels).map(([label, bytes]) => '  ' + label + ' ' + mib(bytes)).join('\n');
    let left = x;
    for (const label of Object.keys(kLabelColours)) {
      if (!labels[label]) continue;
      const room = width * labels[label] / scale;
      box(left, top, room, bottom - top + 0.5, kLabelColours[label]);
      left += room;
    }
    hits.push({ x, y: top, width, height: Math.max(1, bottom - top), tip });
    ++drawn.memory;
  });
  if (state.tier === 'device' && view.peak) {
    const at = x + width * view.peak / scale;
    context.fillStyle = ink;
    for (let y = kTop; y < size.height; y += 6) context.fillRect(at - 1, y, 1, 3);
    hits.push({ x: at - 4, y: kTop, width: 8, height: size.height,
      tip: () => 'the peak of the plan: ' + mib(view.peak) +
        '\nit may lie between two events: within a kernel, in the update, while saving' });
  }
}

function drawClock(x, width) {
  const room = size.height - kTop, length = state.to - state.from;
  let step = Math.pow(10, Math.floor(Math.log10(length / Math.max(2, room / 60))));
  for (const factor of [1, 2, 5, 10]) {
    if (length / (step * factor) <= room / 40) { step *= factor; break; }
  }
  for (let t = Math.ceil(state.from / step) * step; t <= state.to; t += step) {
    context.fillStyle = line;
    context.fillRect(x, yOf(t), size.width, 1);
    text((t * 1e3).toPrecision(6).replace(/\.?0+$/, '') + ' ms', x + 2, yOf(t) + 12, width * 0.36, faint);
  }
  // Which groups are at work, by the first program's places.
  const timed = views[0].places.filter(place => place.seconds !== undefined);
  let bottom = -Infinity;
  for (let begin = 0; begin < timed.length;) {
    let end = begin + 1;
    while (end < timed.length && timed[end].group === timed[begin].group &&
      timed[end].phase === timed[begin].phase && timed[end].body === timed[begin].body) ++end;
    const y = yOf(timed[begin].seconds);
    if (timed[begin].seconds <= state.to && y >= bottom && y >= kTop - 1) {
      text(views[0].short(timed[begin].group || '') || titleOf(timed[begin]) + ', ' + timed[begin].event,
        x + width * 0.38, y + 12, width * 0.6, timed[begin].group ? ink : faint);
      bottom = y + 14;
    }
    begin = end;
  }
}

function draw() {
  hits = [];
  drawn = { boxes: 0, texts: 0, waits: 0, marks: 0, memory: 0 };
  fitCanvas();
  context.fillStyle = paper;
  context.fillRect(0, 0, size.width, size.height);
  context.font = '12px system-ui, sans-serif';
  const names = Math.min(430, size.width * 0.3);
  const room = (size.width - kMargin - names) / views.length;
  context.save();
  context.beginPath();
  context.rect(0, kTop, size.width, size.height - kTop);
  context.clip();
  if (state.axis === 'order') drawEvents(kMargin, names); else drawClock(kMargin, names);
  context.restore();
  const scale = memoryScale(state.tier);
  views.forEach((view, which) => {
    const x = kMargin + names + which * room, memory = Math.max(90, room * 0.34);
    context.save();
    context.beginPath();
    context.rect(x, 0, room, size.height);
    context.clip();
    if (views.length > 1) text(view.name, x + 3, 14, room - 6, ink);
    if (state.axis === 'order') drawOps(which, x, room - memory - 8);
    else drawStreams(which, x, room - memory - 8);
    drawMemory(which, x + room - memory - 4, memory - 10, scale);
    context.restore();
    context.fillStyle = line;
    context.fillRect(x - 1, 0, 1, size.height);
  });
  context.fillStyle = line;
  context.fillRect(0, kTop - 1, size.width, 1);
  for (const axis of ['order', 'time']) $('axis-' + axis).setAttribute('aria-pressed', state.axis === axis);
  for (const row of $('rewrites').querySelectorAll('button')) {
    row.setAttribute('aria-pressed', row.dataset.rewrite === state.rewrite);
  }
  Object.assign($('canvas').dataset, drawn, { from: state.from, to: state.to });
  document.body.dataset.state = 'drawn';
}

function fillControls() {
  const first = views[0];
  document.title = 'Step program ' + first.program.hash;
  $('summary').textContent = views.map(view =>
    (views.length > 1 ? view.name + ': ' : '') + view.program.hash + ', ' + view.places.length +
    ' events, peak ' + mib(view.peak) + (view.stepSeconds ? ', a step in ' + ms(view.stepSeconds) : ''))
    .join('  |  ');
  const tiers = new Set(['device']);
  for (const view of views) {
    for (const place of view.places) {
      for (const name of Object.keys(place.bytes || {})) tiers.add(name.slice(0, name.lastIndexOf(' ')));
    }
  }
  for (const tier of tiers) $('tier').add(new Option(tier, tier));
  $('jump').add(new Option('a phase', ''));
  runsOfAll(r => titleOf(placeOfRow(r)), (begin, end, title) => $('jump').add(new Option(title, begin + ' ' + end)));
  if (!views.some(view => view.spans.length)) {
    $('axis-time').disabled = true;
    $('axis-time').title = 'Times need the speeds of a machine: zinc plan --program --hardware FILE';
  }
  const table = $('rewrites');
  const row = (cells, kind) => {
    const tr = table.insertRow();
    for (const cell of cells) {
      const td = document.createElement(kind);
      if (cell instanceof Node) td.append(cell); else td.textContent = cell;
      tr.append(td);
    }
  };
  row(['rewrite', 'ops added', 'removed', 'peak then', 'by it', 'step then', 'by it'], 'th');
  let before = null;
  const signed = (value, print) => (value > 0 ? '+' : value < 0 ? '−' : '') + print(Math.abs(value));
  for (const rewrite of first.program.rewrites) {
    const button = document.createElement('button');
    button.textContent = rewrite.name;
    button.title = 'Marks in the margin where this rewrite changed the program';
    button.dataset.rewrite = rewrite.name;
    button.addEventListener('click', () => {
      state.rewrite = state.rewrite === rewrite.name ? '' : rewrite.name;
      if (state.axis === 'time') setAxis('order');
      makeMarks();
      schedule();
    });
    const time = rewrite.step_seconds;
    row([button, rewrite.added, rewrite.removed, mib(rewrite.device_peak_bytes),
      before ? signed(rewrite.device_peak_bytes - before.device_peak_bytes, mib) : '',
      time === undefined ? '' : ms(time),
      before && time !== undefined ? signed(time - before.step_seconds, ms) : ''], 'td');
    before = rewrite;
  }
  const legend = (name, colour) => {
    const swatch = document.createElement('i');
    swatch.style.background = colour;
    $('legend').append(swatch, name);
  };
  $('legend').append('memory:');
  for (const [name, colour] of Object.entries(kLabelColours)) legend(name, colour);
  $('legend').append(document.createElement('br'), 'weights:');
  legend('gathered, not yet used', '#a9c6ee');
  legend('in use until it is given back', '#4c86d9');
  legend('waits', 'repeating-linear-gradient(135deg, #8796a8 0 1px, transparent 1px 4px)');
  legend(views.length > 1 ? 'only in the left program' : 'put there by the chosen rewrite', kAdded);
  legend(views.length > 1 ? 'only in the right one' : 'taken away by it', kRemoved);
}
function runsOfAll(same, visit) {
  const { from, to } = state;
  state.from = 0;
  state.to = rows.length;
  runs(same, visit);
  Object.assign(state, { from, to });
}
function setAxis(axis) {
  if (state.axis === axis) return;
  state.axis = axis;
  setView(0, whole());
}

function listen() {
  const canvas = $('canvas');
  canvas.addEventListener('wheel', event => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * 0.002), valueAt(event.offsetY));
    else {
      const by = event.deltaY / size.height * (state.to - state.from);
      setView(state.from + by, state.to + by);
    }
  }, { passive: false });
  let drag = null;
  canvas.addEventListener('pointerdown', event => {
    drag = { y: event.offsetY, from: state.from, to: state.to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointerup', () => { drag = null; });
  canvas.addEventListener('pointermove', event => {
    if (drag) {
      const by = (drag.y - event.offsetY) / (size.height - kTop) * (drag.to - drag.from);
      setView(drag.from + by, drag.to + by);
      return;
    }
    showTip(event.offsetX, event.offsetY);
  });
  canvas.addEventListener('pointerleave', () => { $('tip').style.display = 'none'; });
  canvas.addEventListener('dblclick', event => zoom(0.4, valueAt(event.offsetY)));
  new ResizeObserver(schedule).observe($('stage'));
  window.addEventListener('hashchange', () => { readState(); makeMarks(); schedule(); });
  window.addEventListener('keydown', event => {
    if (event.target === $('find')) return;
    const page = state.to - state.from;
    if (event.key === '+' || event.key === '=') zoom(0.6);
    else if (event.key === '-') zoom(1 / 0.6);
    else if (event.key === '0') setView(0, whole());
    else if (event.key === 'ArrowDown') setView(state.from + page * 0.1, state.to + page * 0.1);
    else if (event.key === 'ArrowUp') setView(state.from - page * 0.1, state.to - page * 0.1);
    else if (event.key === 'PageDown') setView(state.from + page * 0.9, state.to + page * 0.9);
    else if (event.key === 'PageUp') setView(state.from - page * 0.9, state.to - page * 0.9);
    else return;
    event.preventDefault();
  });
  $('closer').addEventListener('click', () => zoom(0.6));
  $('farther').addEventListener('click', () => zoom(1 / 0.6));
  $('whole').addEventListener('click', () => setView(0, whole()));
  $('axis-order').addEventListener('click', () => setAxis('order'));
  $('axis-time').addEventListener('click', () => setAxis('time'));
  $('tier').addEventListener('change', () => { state.tier = $('tier').value; schedule(); });
  $('jump').addEventListener('change', () => {
    if (!$('jump').value) return;
    setAxis('order');
    setView(...$('jump').value.split(' ').map(Number));
    $('jump').value = '';
  });
  $('find').addEventListener('keydown', event => { if (event.key === 'Enter') find($('find').value); });
}

// The next event behind the top of the page that has the text in it, or in an op of it.
function find(name) {
  if (!name) return;
  setAxis('order');
  const has = r => [placeOfRow(r).event, ...opsOf(placeOfRow(r))].some(t => t.includes(name));
  const begin = Math.ceil(state.from) + 1;
  for (let i = 0; i < rows.length; ++i) {
    const r = (begin + i) % rows.length;
    if (!has(r)) continue;
    const page = Math.min(state.to - state.from, 60);
    return setView(r, r + page);
  }
}

function showTip(x, y) {
  const tip = $('tip');
  let found = null;
  for (let i = hits.length - 1; i >= 0 && !found; --i) {
    const h = hits[i];
    if (x >= h.x && x <= h.x + h.width && y >= h.y && y <= h.y + h.height) found = h;
  }
  if (!found && state.axis === 'order' && y > kTop && valueAt(y) < rows.length) {
    const place = placeOfRow(Math.floor(valueAt(y)));
    found = { tip: () => titleOf(place) + '\n' + place.event +
      (place.seconds === undefined ? '' : '\nat ' + ms(place.seconds)) +
      (place.before || []).map(op => '\nahead: ' + op).join('') +
      (place.after || []).map(op => '\nbehind: ' + op).join('') };
  }
  tip.style.display = found ? 'block' : 'none';
  if (!found) return;
  tip.textContent = found.tip();
  tip.style.left = Math.max(4, Math.min(x + 14, size.width - tip.offsetWidth - 6)) + 'px';
  tip.style.top = Math.max(4, Math.min(y + 14, size.height - tip.offsetHeight - 6)) + 'px';
}

try {
  views = JSON.parse($('data').textContent).programs.map(program => new View(program));
  rows = makeRows(views);
  rowOf = [];
  fillControls();
  readState();
  makeMarks();
  listen();
  draw();
} catch (error) {
  fail(error);
}
