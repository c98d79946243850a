'use strict';
// What the page draws is `data` (trace_page.cpp). A slice is [lane, begin, duration, kind, name, id,
// span, waited for, bytes]; times are tenths of a microsecond. Names come from a file: they go to the
// page as text alone. The view stands in the address behind '#', so that a link shows the same place.

const $ = id => document.getElementById(id);

function fail(error) {
  $('trouble').style.display = 'block';
  $('trouble').textContent = 'This page could not be drawn: ' + (error && error.message || error);
  document.body.dataset.state = 'failed';
}
window.addEventListener('error', event => fail(event.error || event.message));

const kColours = { compute: '#4caf7d', gather: '#4c86d9', prefetch: '#6fa0e6', release: '#9bb7de',
  reduce: '#e08a3c', publish: '#8f6fd1', exchange: '#d46a8c', swap_in: '#b9832a',
  swap_out: '#8a6420', stall: '#dc3545', io: '#c7b14a', mark: '#8796a8' };
const kLane = 0, kBegin = 1, kDuration = 2, kKind = 3, kName = 4, kId = 5, kSpan = 6, kWaited = 7,
  kBytes = 8;
const kRow = 17, kGap = 6, kLeft = 130, kAxis = 24, kLetter = 6.6;

const data = JSON.parse($('data').textContent);
const canvas = $('canvas'), paint = canvas.getContext('2d');
const time = tenths => tenths < 1e4 ? (tenths / 10).toFixed(1) + ' \u00b5s' :
  tenths < 1e7 ? (tenths / 1e4).toFixed(3) + ' ms' : (tenths / 1e7).toFixed(3) + ' s';
const bytesOf = n => n < 1024 ? n + ' B' : n < 1048576 ? (n / 1024).toFixed(1) + ' KiB' :
  (n / 1048576).toFixed(1) + ' MiB';
const kindOf = slice => data.kinds[slice[kKind]];
const nameOf = slice => data.names[slice[kName]];

// Rows from top to bottom: of each rank its lanes, of each lane as many rows as slices lie in each
// other. The slices of a row do not overlap and are sorted.
const rows = [];
const byId = new Map();  // 'rank/id': [slice, row]
for (const rank of data.ranks) {
  const lanes = new Map();
  for (const slice of rank.slices) {
    if (!lanes.has(slice[kLane])) lanes.set(slice[kLane], []);
    lanes.get(slice[kLane]).push(slice);
  }
  for (const lane of [...lanes.keys()].sort((a, b) => a - b)) {
    const ends = [], made = [];
    lanes.get(lane).sort((a, b) => a[kBegin] - b[kBegin] || b[kDuration] - a[kDuration]);
    for (const slice of lanes.get(lane)) {
      // What is part of a gather or a reduction lies below it.
      const least = slice[kSpan] ? 1 : 0;
      let depth = ends.findIndex((end, i) => i >= least && !(end > slice[kBegin]));
      if (depth < 0) depth = Math.max(least, ends.length);
      ends[depth] = slice[kBegin] + slice[kDuration];
      if (!made[depth]) {
        made[depth] = { rank: rank.rank, slices: [], name: '' };
      }
      made[depth].slices.push(slice);
      if (slice[kId]) byId.set(rank.rank + '/' + slice[kId], [slice, made[depth]]);
    }
    const shown = made.filter(Boolean);
    shown[0].name = (rank.lanes[lane] || 'lane ' + lane).replaceAll('_', ' ');
    rows.push(...shown);
  }
}
let height = kAxis, before = null;
for (const row of rows) {
  if (row.name) height += kGap;
  if (row.rank !== before) height += kRow + kGap;
  row.first = row.rank !== before;
  before = row.rank;
  row.top = height;
  height += kRow;
}

canvas.setAttribute('aria-label', 'Lanes: ' + rows.filter(row => row.name).map(row =>
  row.name + ' of rank ' + row.rank).join(', '));

const end = Math.max(1, ...data.steps.map(step => step.end * 10));
const view = { from: 0, to: end, top: 0, find: '' };
let chosen = null;  // [slice, row]

function clamp() {
  const least = 10;
  if (view.to - view.from < least) view.to = view.from + least;
  const width = Math.min(view.to - view.from, end * 1.1);
  view.from = Math.min(Math.max(view.from, -0.05 * end), 1.05 * end - width);
  view.to = view.from + width;
  view.top = Math.min(Math.max(view.top, 0), Math.max(0, height + kRow - canvas.clientHeight));
}
function remember() {
  history.replaceState(null, '', '#from=' + (view.from / 10).toFixed(1) + '&to=' +
    (view.to / 10).toFixed(1) + (view.find ? '&find=' + encodeURIComponent(view.find) : ''));
}
function recall() {
  for (const part of location.hash.slice(1).split('&')) {
    const [key, value] = part.split('=');
    if (key === 'from' && isFinite(value)) view.from = 10 * value;
    if (key === 'to' && isFinite(value)) view.to = 10 * value;
    if (key === 'find') view.find = decodeURIComponent(value || '');
  }
  $('find').value = view.find;
}

const xOf = tenths => kLeft + (tenths - view.from) / (view.to - view.from) * (canvas.clientWidth - kLeft);
const timeAt = x => view.from + (x - kLeft) / (canvas.clientWidth - kLeft) * (view.to - view.from);

// The first slice of the row that ends behind a time.
function firstBehind(slices, at) {
  let low = 0, high = slices.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (slices[middle][kBegin] + slices[middle][kDuration] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

function ticks() {
  const rough = (view.to - view.from) / 8;
  const step = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map(m => m * step).find(s => s >= rough);
  const made = [];
  for (let at = Math.ceil(view.from / size) * size; at <= view.to; at += size) made.push(at);
  return made;
}

function drawRow(row, style) {
  const y = row.top - view.top;
  let drawn = 0, edge = -1;
  for (let i = firstBehind(row.slices, view.from); i < row.slices.length; ++i) {
    const slice = row.slices[i];
    if (slice[kBegin] > view.to) break;
    const x0 = Math.max(xOf(slice[kBegin]), kLeft);
    const x1 = Math.max(xOf(slice[kBegin] + slice[kDuration]), x0 + 0.7);
    ++drawn;
    const isFound = view.find !== '' && nameOf(slice).includes(view.find);
    if (x1 < edge && !isFound) continue;  // behind what is there
    edge = x1;
    paint.globalAlpha = view.find === '' || isFound ? 1 : 0.25;
    paint.fillStyle = kColours[kindOf(slice)] || '#8796a8';
    paint.fillRect(x0, y, x1 - x0, kRow - 2);
    // A name that does not fit is left out; the pointer shows it.
    if (x1 - x0 > kLetter * nameOf(slice).length + 6) {
      paint.fillStyle = '#fff';
      paint.fillText(nameOf(slice), x0 + 3, y + kRow - 6);
    }
  }
  paint.globalAlpha = 1;
  paint.fillStyle = style.paper;
  paint.fillRect(0, y, kLeft - 2, kRow);
  if (row.name) {
    paint.fillStyle = style.faint;
    paint.fillText(row.name, 14, y + kRow - 6);
  }
  return drawn;
}

function drawArrow(style) {
  if (!chosen) return;
  const [slice, row] = chosen;
  paint.strokeStyle = style.ink;
  paint.lineWidth = 2;
  paint.strokeRect(xOf(slice[kBegin]), row.top - view.top, Math.max(2, xOf(slice[kBegin] +
    slice[kDuration]) - xOf(slice[kBegin])), kRow - 2);
  const cause = byId.get(row.rank + '/' + slice[kWaited]);
  if (cause) {
    const [other, place] = cause;
    paint.beginPath();
    paint.moveTo(xOf(other[kBegin] + other[kDuration]), place.top - view.top + kRow / 2);
    paint.lineTo(xOf(slice[kBegin] + slice[kDuration]), row.top - view.top + kRow / 2);
    paint.stroke();
  }
  paint.lineWidth = 1;
}

function draw() {
  clamp();
  const ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  paint.setTransform(ratio, 0, 0, ratio, 0, 0);
  const css = getComputedStyle(document.body);
  const style = { paper: css.getPropertyValue('--paper'), faint: css.getPropertyValue('--faint'),
    ink: css.getPropertyValue('--ink'), line: css.getPropertyValue('--line') };
  paint.fillStyle = style.paper;
  paint.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  paint.font = '11px system-ui, sans-serif';
  for (const at of ticks()) {
    if (xOf(at) < kLeft) continue;
    paint.fillStyle = style.line;
    paint.fillRect(xOf(at), kAxis, 1, canvas.clientHeight);
  }
  let drawn = 0;
  for (const row of rows) {
    if (row.top - view.top < kAxis - kRow || row.top - view.top > canvas.clientHeight) continue;
    if (row.first) {
      paint.fillStyle = style.ink;
      paint.fillText('rank ' + row.rank, 6, row.top - view.top - kRow / 2);
    }
    drawn += drawRow(row, style);
  }
  drawArrow(style);
  paint.fillStyle = style.paper;
  paint.fillRect(0, 0, canvas.clientWidth, kAxis);
  paint.fillStyle = style.faint;
  for (const at of ticks()) {
    const text = time(at), half = kLetter * text.length / 2;
    const x = Math.min(Math.max(xOf(at), kLeft + half), canvas.clientWidth - half);
    paint.textAlign = 'center';
    if (xOf(at) >= kLeft) paint.fillText(text, x, 15);
  }
  paint.textAlign = 'left';
  document.body.dataset.slices = drawn;
  document.body.dataset.state = 'drawn';
}

function zoom(factor, x) {
  const at = timeAt(x);
  view.from = at - (at - view.from) * factor;
  view.to = at + (view.to - at) * factor;
  remember();
  draw();
}

function sliceAt(x, y) {
  const row = rows.find(row => y >= row.top - view.top && y < row.top - view.top + kRow);
  if (!row || x < kLeft) return null;
  const near = 3 * (view.to - view.from) / canvas.clientWidth;
  for (let i = firstBehind(row.slices, timeAt(x) - near); i < row.slices.length; ++i) {
    const slice = row.slices[i];
    if (slice[kBegin] > timeAt(x) + near) return null;
    return [slice, row];
  }
  return null;
}

function textOf([slice, row]) {
  const lines = [nameOf(slice), kindOf(slice).replaceAll('_', ' ') + ', ' + time(slice[kDuration]) +
    ', at ' + time(slice[kBegin]) + ', rank ' + row.rank];
  if (slice[kBytes]) lines.push(bytesOf(slice[kBytes]));
  const span = byId.get(row.rank + '/' + slice[kSpan]);
  if (slice[kSpan] && span) lines.push('part of ' + nameOf(span[0]));
  const cause = byId.get(row.rank + '/' + slice[kWaited]);
  if (slice[kWaited] && cause) {
    const whole = byId.get(row.rank + '/' + cause[0][kSpan]);
    lines.push('waited for ' + nameOf((cause[0][kSpan] && whole || cause)[0]));
  }
  return lines.join('\n');
}

function find(text) {
  view.find = text;
  $('found').textContent = '';
  if (text === '') return;
  let count = 0, sum = 0;
  for (const row of rows) {
    for (const slice of row.slices) {
      if (!nameOf(slice).includes(text)) continue;
      ++count;
      sum += slice[kDuration];
    }
  }
  $('found').textContent = count + ' found, ' + time(sum) + ' together';
}

function fillTable() {
  const table = $('steps');
  const row = (cells, tag) => {
    const made = table.appendChild(document.createElement('tr'));
    for (const cell of cells) made.appendChild(document.createElement(tag)).textContent = cell;
    return made;
  };
  row(['step', 'rank', 'ms', 'compute', 'communication', 'exposed', 'stalls'], 'th');
  const ms = seconds => (seconds * 1e3).toFixed(3);
  for (const step of data.steps) {
    const made = row([step.step, step.rank, ms((step.end - step.begin) * 1e-6), ms(step.compute),
      ms(step.communication), ms(step.exposed), ms(step.stall)], 'td');
    made.className = 'step';
    made.addEventListener('click', () => {
      view.from = 10 * step.begin;
      view.to = 10 * step.end;
      remember();
      draw();
    });
  }
}

function fillLegend() {
  for (const kind of data.kinds) {
    const box = $('legend').appendChild(document.createElement('i'));
    box.style.background = kColours[kind] || '#8796a8';
    $('legend').appendChild(document.createTextNode(kind.replaceAll('_', ' ')));
  }
}

const numSlices = data.ranks.reduce((sum, rank) => sum + rank.slices.length, 0);
$('summary').textContent = data.name + ': ' + data.ranks.length + ' ranks, ' + numSlices + ' slices' +
  (data.steps_left_out ? '; ' + data.steps_left_out + ' earlier steps are left out (--steps)' : '') +
  (data.complete ? '' : '; the run did not end by itself');
fillTable();
fillLegend();
recall();
find(view.find);
draw();

$('closer').addEventListener('click', () => zoom(0.5, (kLeft + canvas.clientWidth) / 2));
$('farther').addEventListener('click', () => zoom(2, (kLeft + canvas.clientWidth) / 2));
$('whole').addEventListener('click', () => {
  Object.assign(view, { from: 0, to: end, top: 0 });
  remember();
  draw();
});
$('find').addEventListener('input', () => {
  find($('find').value);
  remember();
  draw();
});
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  if (event.ctrlKey || event.metaKey) {
    zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX);
  } else {
    view.top += event.deltaY;
    draw();
  }
}, { passive: false });
let drag = null;
canvas.addEventListener('pointerdown', event => {
  drag = { x: event.offsetX, y: event.offsetY, view: { ...view }, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener('pointermove', event => {
  if (drag) {
    const width = (drag.view.to - drag.view.from) / (canvas.clientWidth - kLeft);
    drag.moved = drag.moved || Math.abs(event.offsetX - drag.x) + Math.abs(event.offsetY - drag.y) > 3;
    view.from = drag.view.from - (event.offsetX - drag.x) * width;
    view.to = drag.view.to - (event.offsetX - drag.x) * width;
    view.top = drag.view.top - (event.offsetY - drag.y);
    draw();
  }
  const found = drag && drag.moved ? null : sliceAt(event.offsetX, event.offsetY);
  const tip = $('tip');
  tip.style.display = found ? 'block' : 'none';
  if (!found) return;
  tip.textContent = textOf(found);
  tip.style.left = Math.max(0, Math.min(event.offsetX + 14, canvas.clientWidth - tip.offsetWidth - 4)) + 'px';
  tip.style.top = Math.max(0, Math.min(event.offsetY + 14, canvas.clientHeight - tip.offsetHeight - 4)) + 'px';
});
canvas.addEventListener('pointerup', event => {
  if (drag && !drag.moved) chosen = sliceAt(event.offsetX, event.offsetY);
  drag = null;
  remember();
  draw();
});
canvas.addEventListener('pointerleave', () => { $('tip').style.display = 'none'; });
window.addEventListener('hashchange', () => { recall(); find(view.find); draw(); });
new ResizeObserver(draw).observe($('stage'));
