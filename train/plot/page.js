'use strict';
const own = JSON.parse(document.getElementById('data').textContent);
// A copy of this page in a frame of itself only hands over its data: see refresh().
if (window.parent !== window)
  window.parent.postMessage({zincPlot: own}, '*');
else
  start(own);

function start(first) {
  const COLORS =
      ['#3b78d8', '#d9663a', '#3a9d5d', '#b04fb8', '#b8902a', '#2aa5b0', '#d04a6a', '#7a7f3a'];
  const AXES = {step: 'steps', tokens: 'tokens', seconds: 'time'};
  const AXIS_INDEX = {step: 0, tokens: 1, seconds: 2};
  const DASHES = ['', '6 3', '2 2', '8 3 2 3'];
  const HEIGHT = 240, RIGHT = 10, TOP = 8, BOTTOM = 24;
  const LETTER = 7;  // width of a letter of a label, at most
  const MOST_CURVES = COLORS.length;  // of a chart, until more are asked for
  const CHARTS = [
    {title: 'Loss', keys: ['loss', 'val_loss']},
    {title: 'Evaluation', prefix: 'val_'},
    {title: 'Learning rate', keys: ['lr']},
    {title: 'Gradient norm', keys: ['grad_norm']},
    {title: 'Tokens per second', keys: ['tokens_per_second']},
    {title: 'Loss scale', keys: ['loss_scale']},
    {title: 'Seconds of a step by phase', prefix: 'breakdown/'},
    {title: 'Swap of a step', prefix: 'swap/'},
  ];
  let data = first;
  const hidden = new Set();
  const whole = new Set();  // titles of charts that show all their curves
  const state = {x: 'step', log: false};
  for (const part of location.hash.slice(1).split('&')) {
    const [key, value] = part.split('=');
    if (key === 'x' && Object.hasOwn(AXES, value)) state.x = value;
    if (key === 'log') state.log = value === '1';
  }

  function element(name, attributes, parent, text) {
    const made = document.createElement(name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }
  function shape(name, attributes, parent, text) {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }

  function duration(seconds) {
    if (seconds < 120) return short(seconds) + ' s';
    if (seconds < 7200) return short(seconds / 60) + ' min';
    return short(seconds / 3600) + ' h';
  }
  function short(value) {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential(1);
    for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
      if (size >= unit) return String(+(value / (unit === 1e4 ? 1e3 : unit)).toPrecision(3)) + name;
    }
    return String(+value.toPrecision(4));
  }
  function bytes(value) {
    for (const [unit, name] of [
             [2 ** 40, ' TiB'], [2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [2 ** 10, ' KiB']]) {
      if (value >= unit) return String(+(value / unit).toPrecision(3)) + name;
    }
    return value + ' B';
  }
  function xText(value) {
    return state.x === 'seconds' ? duration(value) : short(value);
  }

  function ticks(low, high, count) {
    const step = 10 ** Math.floor(Math.log10((high - low) / count || 1));
    const best = [1, 2, 5, 10].map(m => m * step).find(s => (high - low) / s <= count) || step;
    const made = [];
    for (let i = Math.ceil(low / best); i * best <= high * (1 + 1e-12) + 1e-300 && made.length < 20;
         ++i) {
      made.push(i * best);
    }
    return made;
  }
  // At whole numbers of the largest unit that there is.
  function byteTicks(low, high, count) {
    const unit = 1024 ** Math.max(0, Math.floor(Math.log(high) / Math.log(1024)));
    return ticks(low / unit, high / unit, count).map(value => value * unit);
  }
  // Powers of the base, every so many; of a range without some, as on a linear axis.
  function logTicks(low, high, base) {
    const made = [];
    const first = Math.floor(Math.log(low) / Math.log(base)),
          last = Math.ceil(Math.log(high) / Math.log(base));
    const stride = Math.max(1, Math.ceil((last - first) / 6));
    for (let e = first; e <= last; e += stride) {
      const value = base ** e;
      if (value >= low && value <= high) made.push(value);
    }
    return made.length > 1 ? made : ticks(low, high, 4).filter(value => value > 0);
  }

  // Charts of what the runs have: the fixed ones, and memory by tier.
  function chartsOf(runs) {
    const names = new Set();
    for (const run of runs)
      for (const name in run.curves) names.add(name);
    const tiers = new Set();
    for (const name of names)
      if (name.startsWith('memory/')) tiers.add(name.split('/')[1]);
    const all = CHARTS.concat([...tiers].map(tier => ({
                                               title: 'Peak memory: ' + tier.replaceAll('_', ' '),
                                               prefix: 'memory/' + tier + '/',
                                               bytes: true
                                             })));
    return all
        .map(chart => ({
               ...chart,
               found: [...names].filter(
                   name => chart.keys ? chart.keys.includes(name) : name.startsWith(chart.prefix))
             }))
        .filter(chart => chart.found.length);
  }

  // As long as the folder that all runs lie in, with its slash.
  function commonFolder(names) {
    const common = names.reduce((a, b) => {
      let n = 0;
      while (n < a.length && a[n] === b[n]) ++n;
      return a.slice(0, n);
    });
    return common.lastIndexOf('/') + 1;
  }

  function curvesOf(chart) {
    const made = [];
    const folder = commonFolder(data.runs.map(run => run.name));
    chart.found.forEach((name, n) => data.runs.forEach((run, r) => {
      if (!Object.hasOwn(run.curves, name) || hidden.has(run.name)) return;
      const several = chart.prefix !== undefined && chart.found.length > 1;
      const part = chart.prefix ? name.slice(chart.prefix.length) : name;
      made.push({
        name:
            (data.runs.length > 1 ? run.name.slice(folder) + ' ' : '') + part.replaceAll('_', ' '),
        // Of a figure of runs the colour is the run's, as in the table.
        color: several ? '' : COLORS[r % COLORS.length],
        dash: several ? '' : DASHES[n % DASHES.length],
        points: run.curves[name]
                    .map(p => [p[AXIS_INDEX[state.x]], p[3]])
                    .filter(p => p[1] !== null && (!state.log || p[1] > 0)),
      });
    }));
    return made.filter(curve => curve.points.length);
  }

  // The curves that are drawn: the largest ones of many, each with a colour of its own.
  function chosenOf(chart, curves) {
    const most = curve => curve.points.reduce((a, p) => Math.max(a, Math.abs(p[1])), 0);
    const order = curves.map((curve, i) => [most(curve), i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const count = whole.has(chart.title) ? curves.length : MOST_CURVES;
    const kept = curves.length > MOST_CURVES ? order.map(([, i]) => curves[i]) : curves;
    return kept.slice(0, count).map((curve, i) => curve.color ? curve : {
      ...curve,
      color: COLORS[i % COLORS.length],
      dash: DASHES[Math.floor(i / COLORS.length) % DASHES.length]
    });
  }

  function draw(chart, place) {
    element('h2', {}, place, chart.title);
    const found = curvesOf(chart);
    const curves = chosenOf(chart, found);
    const WIDTH = Math.max(300, place.clientWidth);
    const svg = shape('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`}, place);
    if (!curves.length) {
      shape(
          'text', {x: WIDTH / 2, y: HEIGHT / 2, 'text-anchor': 'middle'}, svg,
          state.log ? 'no value above 0' : 'no run is chosen');
      return;
    }
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const curve of curves)
      for (const [x, y] of curve.points) {
        x0 = Math.min(x0, x);
        x1 = Math.max(x1, x);
        y0 = Math.min(y0, y);
        y1 = Math.max(y1, y);
      }
    if (x0 === x1) {
      x0 -= 0.5;
      x1 += 0.5;
    }
    if (chart.bytes && !state.log) y0 = 0;
    if (state.log) {
      if (y0 === y1) {
        y0 /= 2;
        y1 *= 2;
      }
    } else {
      const margin = (y1 - y0) * 0.04 || Math.abs(y1) * 0.1 || 1;
      y0 = chart.bytes ? 0 : y0 - margin;
      y1 += margin;
    }
    const scale = state.log ? Math.log : (v => v);
    const yText = chart.bytes ? bytes : short;
    const linear = chart.bytes ? byteTicks : ticks;
    const marks = state.log ? logTicks(y0, y1, chart.bytes ? 16 : 10) : linear(y0, y1, 5);
    const LEFT = 12 + LETTER * Math.max(4, ...marks.map(y => yText(y).length));
    const px = x => LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
    const py = y => HEIGHT - BOTTOM -
        (scale(y) - scale(y0)) / (scale(y1) - scale(y0)) * (HEIGHT - TOP - BOTTOM);
    for (const y of marks) {
      shape('line', {class: 'grid', x1: LEFT, x2: WIDTH - RIGHT, y1: py(y), y2: py(y)}, svg);
      shape('text', {x: LEFT - 6, y: py(y) + 4, 'text-anchor': 'end'}, svg, yText(y));
    }
    for (const x of ticks(x0, x1, 5)) {
      shape('line', {class: 'grid', x1: px(x), x2: px(x), y1: TOP, y2: HEIGHT - BOTTOM}, svg);
      const half = xText(x).length * LETTER / 2;
      const at = Math.min(px(x), WIDTH - half);
      shape('text', {x: at, y: HEIGHT - 8, 'text-anchor': 'middle'}, svg, xText(x));
    }
    for (const curve of curves) {
      const d =
          curve.points
              .map((p, i) => (i ? 'L' : 'M') + px(p[0]).toFixed(1) + ' ' + py(p[1]).toFixed(1))
              .join('');
      shape(
          'path', {
            class: 'curve',
            d: curve.points.length > 1 ? d : d + 'h0.1',
            stroke: curve.color,
            'stroke-dasharray': curve.dash,
            'stroke-linecap': 'round'
          },
          svg);
      if (curve.points.length <= 40) {
        for (const p of curve.points) {
          shape('circle', {cx: px(p[0]), cy: py(p[1]), r: 2, fill: curve.color}, svg);
        }
      }
    }
    const key = element('div', {class: 'key'}, place);
    for (const curve of curves) {
      const item = element('span', {}, key);
      element(
          'i', {
            class: 'swatch',
            style: 'border-color:' + curve.color + (curve.dash ? ';border-top-style:dashed' : '')
          },
          item);
      item.appendChild(document.createTextNode(curve.name));
    }
    if (found.length > MOST_CURVES) {
      const rest = found.length - MOST_CURVES;
      const words = whole.has(chart.title) ? 'the largest ' + MOST_CURVES : rest + ' more';
      element('button', {}, key, words).addEventListener('click', () => {
        if (!whole.delete(chart.title)) whole.add(chart.title);
        drawAll();
      });
    }
    follow(svg, place, curves, {x0, x1, px, yText, LEFT, WIDTH});
  }

  // The values under the pointer.
  function follow(svg, place, curves, axis) {
    const line =
        shape('line', {class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden'}, svg);
    const tip = element('div', {class: 'tip', hidden: ''}, place);
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * axis.WIDTH;
      const x =
          axis.x0 + (at - axis.LEFT) / (axis.WIDTH - axis.LEFT - RIGHT) * (axis.x1 - axis.x0);
      const nearest = points => {
        let low = 0, high = points.length - 1;
        while (high - low > 1) {
          const middle = (low + high) >> 1;
          if (points[middle][0] < x)
            low = middle;
          else
            high = middle;
        }
        return Math.abs(points[low][0] - x) < Math.abs(points[high][0] - x) ? points[low] :
                                                                              points[high];
      };
      const found = curves.map(curve => [curve.name, nearest(curve.points)]);
      const snapped = found[0][1][0];
      line.setAttribute('x1', axis.px(snapped));
      line.setAttribute('x2', axis.px(snapped));
      line.setAttribute('visibility', 'visible');
      tip.hidden = false;
      tip.textContent = AXES[state.x] + ' ' + xText(snapped) +
          found
              .map(
                  ([name, p]) => '\n' + name + '  ' +
                      (axis.yText === bytes ? bytes(p[1]) : +p[1].toPrecision(6)))
              .join('');
      tip.style.left = Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth) + 'px';
      tip.style.top = '40px';
    });
    svg.addEventListener('pointerleave', () => {
      tip.hidden = true;
      line.setAttribute('visibility', 'hidden');
    });
  }

  function table(place) {
    const made = element('table', {}, place);
    const head = element('tr', {}, made);
    for (const name
             of ['run', 'steps', 'tokens', 'time of steps', 'loss', 'evaluation', 'skipped']) {
      element('th', {}, head, name);
    }
    const last = (run, name) => {
      const points = Object.hasOwn(run.curves, name) ? run.curves[name] : [];
      return points.length ? String(+points[points.length - 1][3].toPrecision(6)) : '';
    };
    data.runs.forEach((run, r) => {
      const row = element('tr', {}, made);
      const name = element('td', {}, row);
      const label = element('label', {}, name);
      const box = element('input', {type: 'checkbox'}, label);
      box.checked = !hidden.has(run.name);
      box.addEventListener('change', () => {
        if (box.checked)
          hidden.delete(run.name);
        else
          hidden.add(run.name);
        drawAll();
      });
      element('i', {class: 'swatch', style: 'border-color:' + COLORS[r % COLORS.length]}, label);
      label.appendChild(document.createTextNode(run.name));
      const figures = [
        String(run.steps), short(run.tokens), duration(run.seconds), last(run, 'loss'),
        last(run, 'val_loss'), run.skipped ? String(run.skipped) : ''
      ];
      for (const figure of figures) element('td', {}, row, figure);
    });
  }

  function texts(place) {
    for (const [field, title] of [['samples', 'Samples'], ['configuration', 'Configuration']]) {
      for (const run of data.runs) {
        if (!run[field]) continue;
        const details = element('details', {'data-key': field + ' ' + run.name}, place);
        element('summary', {}, details, title + ' of ' + run.name);
        element('pre', {}, details, run[field]);
      }
    }
  }

  function drawAll() {
    const open = new Set([...document.querySelectorAll('details[open]')].map(d => d.dataset.key));
    page.replaceChildren();
    table(page);
    const charts = element('div', {id: 'charts'}, page);
    for (const chart of chartsOf(data.runs)) draw(chart, element('div', {class: 'chart'}, charts));
    const notes = data.runs.filter(run => run.not_finite)
                      .map(
                          run => run.name + ': ' + run.not_finite +
                              ' figures are no numbers and are not drawn');
    for (const note of notes) element('p', {}, page, note);
    texts(page);
    for (const d of document.querySelectorAll('details')) d.open = open.has(d.dataset.key);
    document.body.dataset.drawn = charts.childElementCount;
  }

  function remember() {
    history.replaceState(null, '', '#x=' + state.x + (state.log ? '&log=1' : ''));
  }

  const header = element('header', {}, document.body);
  element('h1', {}, header, 'zinc plot');
  const axes = element('div', {}, header);
  for (const name in AXES) {
    const label = element('label', {}, axes);
    const radio = element('input', {type: 'radio', name: 'x', value: name}, label);
    radio.checked = state.x === name;
    radio.addEventListener('change', () => {
      state.x = name;
      remember();
      drawAll();
    });
    label.appendChild(document.createTextNode(' ' + AXES[name]));
  }
  const logLabel = element('label', {}, header);
  const logBox = element('input', {type: 'checkbox', id: 'log'}, logLabel);
  logBox.checked = state.log;
  logBox.addEventListener('change', () => {
    state.log = logBox.checked;
    remember();
    drawAll();
  });
  logLabel.appendChild(document.createTextNode(' logarithmic values'));
  const status = element('span', {class: 'key'}, header);
  const page = element('main', {}, document.body);
  drawAll();
  let resizing = 0;
  addEventListener('resize', () => {
    clearTimeout(resizing);
    resizing = setTimeout(drawAll, 100);
  });

  // No server: a file cannot be fetched, but it can be shown in a frame, and say what it has.
  function refresh() {
    const frame = element(
        'iframe',
        {hidden: '', src: location.href.split('#')[0].split('?')[0] + '?t=' + Date.now()});
    const done = () => {
      removeEventListener('message', take);
      frame.remove();
    };
    const take = event => {
      if (event.source !== frame.contentWindow || !event.data || !event.data.zincPlot) return;
      data = event.data.zincPlot;
      status.textContent = 'read at ' + new Date().toLocaleTimeString();
      done();
      drawAll();
      schedule();
    };
    addEventListener('message', take);
    document.body.appendChild(frame);
    setTimeout(() => {
      if (frame.isConnected) {
        done();
        schedule();
      }
    }, 10000);
  }
  function schedule() {
    if (data.reload_seconds > 0) setTimeout(refresh, 1000 * data.reload_seconds);
  }
  schedule();
}
