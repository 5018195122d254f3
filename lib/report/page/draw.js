// Elements, numbers, charts and bars. Text of recipes and runs becomes text nodes and attributes, never markup.
'use strict';
const kSvg = 'http://www.w3.org/2000/svg';
function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(node.style, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat(9).filter(child => child !== null && child !== undefined && child !== false && child !== ''));
  return node;
}
const el = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => make(document.createElementNS(kSvg, tag), attributes, children);

function shortNumber(value) {
  if (typeof value !== 'number' || !isFinite(value)) return 'not finite';
  for (const [unit, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'K']])
    if (Math.abs(value) >= 10 * unit || (unit > 1e3 && Math.abs(value) >= unit)) return digits(value / unit, 3) + letter;
  return digits(value, 4);
}
function digits(value, most) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e15 ? value.toExponential(2) : String(Number(value.toPrecision(most)));
}
function bytes(value) {
  for (const [unit, name] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']])
    if (Math.abs(value) >= unit) return (value / unit).toPrecision(3) + ' ' + name;
  return Math.round(value) + ' B';
}
function seconds(value) {
  if (value >= 7200) return (value / 3600).toFixed(1) + ' h';
  if (value >= 120) return (value / 60).toFixed(1) + ' min';
  if (value >= 1) return value.toPrecision(3) + ' s';
  if (value >= 1e-3) return (value * 1e3).toPrecision(3) + ' ms';
  return value === 0 ? '0 s' : (value * 1e6).toPrecision(3) + ' us';
}
const percent = (value, places = 1) => (100 * value).toFixed(places) + '%';

const tile = (value, name, kind) => el('div', {class: 'tile'}, el('b', {class: kind}, value), el('span', {}, name));
// Columns: name, or [name] where numbers stand to the right.
function table(columns, rows, kind) {
  const right = columns.map(column => Array.isArray(column));
  const cell = (tag, text, i) => el(tag, {class: right[i] ? 'n' : null}, text);
  return el('div', {class: 'scroll'}, el('table', {class: kind},
      el('tr', {}, columns.flat().map((name, i) => cell('th', name, i))),
      rows.map(row => el('tr', {}, row.map((text, i) => cell('td', text, i))))));
}
const legend = names => el('p', {class: 'legend'}, names.map(([name, color, round]) =>
    el('span', {class: 'key c' + color % 9 + (round ? ' round' : '')}, name)));

// Round numbers within [low, high], at most `most`.
function ticks(low, high, most) {
  const rough = (high - low) / Math.max(1, most - 1), magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * magnitude).find(each => each >= rough) || 10 * magnitude;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) out.push(i * step);
  return out;
}
function scale(low, high, logarithmic) {
  if (low <= 0) logarithmic = false;
  const room = logarithmic ? 0 : .05 * (high - low);
  low -= room;
  high += room;
  if (low >= high) [low, high] = low === 0 ? [0, 1] : [low - .1 * Math.abs(low), high + .1 * Math.abs(high)];
  const map = logarithmic ? Math.log10 : value => value;
  let marks = ticks(low, high, 7);
  if (logarithmic) {
    const powers = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) powers.push(10 ** power);
    const within = each => each >= low && each <= high, fine = powers.flatMap(each => [each, 2 * each, 5 * each]).filter(within);
    marks = fine.length > 7 ? powers.filter(within) : fine.length > 1 ? fine : [low, high];
  }
  return {low, high, marks, place: value => (map(value) - map(low)) / (map(high) - map(low))};
}
function showBeside(box, share, text) {
  box.textContent = text;
  box.style.display = text ? 'block' : 'none';
  box.style.left = share < .5 ? 100 * share + '%' : 'auto';
  box.style.right = share < .5 ? 'auto' : 100 * (1 - share) + '%';
}
// The frame of a plot: grid, labels, and a box beside the pointer. `inside` is drawn over the grid.
function plot(title, x, y, inside, xMarks) {
  const box = el('output', {});
  const grid = y.marks.map(value => draw('path', {class: 'grid', d: `M0 ${400 * (1 - y.place(value))} L1000 ${400 * (1 - y.place(value))}`}));
  const svg = draw('svg', {viewBox: '0 0 1000 400', preserveAspectRatio: 'none', role: 'img', 'aria-label': title}, grid, inside);
  return {svg, box, node: el('div', {class: 'plot'}, svg,
      y.marks.map(value => el('span', {class: 'y', style: {top: 100 * (1 - y.place(value)) + '%'}}, shortNumber(value))),
      xMarks.map(value => el('span', {class: 'x', style: {left: 100 * x.place(value) + '%'}}, shortNumber(value))), box)};
}

// Lines over steps. A bucket is [first step, last step, lowest, mean, highest]: neighbouring steps that fall on the same
// pixels, so that a hundred thousand steps lose no peak. series: {name, color, points, buckets}; marks: {step, text}.
function chart({key, title, logarithmic, series, marks}) {
  series = series.filter(each => each.buckets.length);
  if (!series.length) return null;
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const each of series)
    for (const b of each.buckets) {
      left = Math.min(left, b[0]);
      right = Math.max(right, b[1]);
      low = Math.min(low, b[2]);
      high = Math.max(high, b[4]);
    }
  const y = scale(low, high, logarithmic);
  if (left === right) right = left + 1;
  const x = {place: step => (step - left) / (right - left)};
  const at = (b, value) => `${(1000 * x.place((b[0] + b[1]) / 2)).toFixed(1)} ${(400 * (1 - y.place(value))).toFixed(1)}`;
  const inside = [];
  for (const mark of marks || [])
    if (mark.step >= left && mark.step <= right)
      inside.push(draw('path', {class: 'mark', d: `M${1000 * x.place(mark.step)} 0 L${1000 * x.place(mark.step)} 400`}, draw('title', {}, mark.text)));
  for (const each of series) {
    const color = each.color % 8;
    if (each.points) {
      // A line of no length with round ends stays a circle however the drawing is stretched.
      for (const b of each.buckets)
        inside.push(draw('path', {class: 'dot s' + color, d: `M${at(b, b[3])} L${at(b, b[3])}`}));
      continue;
    }
    const along = i => each.buckets.map(b => at(b, b[i])).join(' L');
    if (each.buckets.some(b => b[4] > b[2]))
      inside.push(draw('path', {class: `band b${color} s${color}`, d: `M${along(4)} L${each.buckets.map(b => at(b, b[2])).reverse().join(' L')} Z`}));
    inside.push(draw('path', {class: 'line s' + color, d: 'M' + along(3)}));
  }
  const {svg, box, node} = plot(title, x, y, inside, ticks(left, right, 6));
  const show = share => {
    const step = left + share * (right - left);
    showBeside(box, share, series.map(each => {
      const b = each.buckets.reduce((best, b) => Math.abs((b[0] + b[1]) / 2 - step) < Math.abs((best[0] + best[1]) / 2 - step) ? b : best);
      const where = b[0] === b[1] ? 'step ' + b[0] : `steps ${b[0]} to ${b[1]}`;
      return `${where}: ${shortNumber(b[3])}${series.length > 1 ? '  ' + each.name : ''}`;
    }).join('\n'));
  };
  let share = 1;
  node.tabIndex = 0;
  make(node, {
    'aria-label': title + ': arrow keys read values',
    onpointermove: event => {
      const area = svg.getBoundingClientRect();
      show(share = Math.min(1, Math.max(0, (event.clientX - area.left) / area.width)));
    },
    onpointerleave: () => showBeside(box, 0, ''),
    onblur: () => showBeside(box, 0, ''),
    onkeydown: event => {
      const move = {ArrowLeft: -.02, ArrowRight: .02}[event.key];
      if (!move) return;
      event.preventDefault();
      show(share = Math.min(1, Math.max(0, share + move)));
    },
  }, []);
  return el('figure', {class: 'chart', 'data-key': key}, el('figcaption', {}, title),
      series.length > 1 ? legend(series.map(each => [each.name, each.color % 8, each.points])) : null, node);
}

// One bar a row, of pieces [value, color, name]; `limit` is drawn as a line. rows: {name, pieces, text, mark}.
function bars(rows, longest, format, limit) {
  return el('div', {class: 'bars'}, rows.map(({name, pieces, text}) => {
    let at = 0;
    const parts = pieces.filter(piece => piece[0] > 0).map(([value, color, what]) => {
      const rect = draw('rect', {class: 'b' + color, x: 1000 * at / longest, width: 1000 * value / longest, height: 20},
          draw('title', {}, `${what}: ${format(value)}`));
      at += value;
      return rect;
    });
    const line = limit ? draw('path', {class: 'limit', d: `M${1000 * limit / longest} 0 V20`}) : null;
    return el('div', {class: 'lane'}, el('span', {}, name),
        draw('svg', {viewBox: '0 0 1000 20', preserveAspectRatio: 'none', role: 'img',
            'aria-label': pieces.filter(piece => piece[0] > 0).map(piece => `${piece[2]} ${format(piece[0])}`).join(', ')}, parts, line),
        el('span', {}, text));
  }));
}

const kActions = [['forward', 0], ['full backward', 1], ['input gradient', 3], ['weight gradient', 2]];
const kMessage = 8;
// A step as one lane a rank, drawn on canvas: there may be a hundred thousand actions.
// lanes: {name, ranks, makespan, bars: [[rank, 1 for computation, begin, end, kind, name]]}.
function timeLine(lanes, most = 64) {
  const byRank = Array.from({length: lanes.ranks}, () => []);
  for (const bar of lanes.bars) byRank[bar[0]].push(bar);
  const color = kind => (kActions.find(each => each[0] === kind) || ['', kMessage])[1];
  const rows = byRank.slice(0, most).map((own, rank) => {
    const busy = own.reduce((sum, bar) => sum + (bar[1] ? bar[3] - bar[2] : 0), 0);
    const canvas = el('canvas', {role: 'img', 'aria-label': `rank ${rank}: ${own.length} actions`}), box = el('output', {});
    canvas.paint = () => {
      const wide = canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
      const high = canvas.height = Math.round(20 * devicePixelRatio);
      const style = getComputedStyle(document.documentElement), pen = canvas.getContext('2d');
      const colors = Array.from({length: 9}, (_, i) => style.getPropertyValue(i === kMessage ? '--soft' : '--s' + i));
      for (const bar of own) {
        pen.fillStyle = colors[color(bar[4])];
        const from = wide * bar[2] / lanes.makespan, to = wide * bar[3] / lanes.makespan;
        // A gap of a pixel between actions, where there is room for one.
        pen.fillRect(from, bar[1] ? high * .1 : high * .82, Math.max(.5, to - from > 4 ? to - from - 1 : to - from), bar[1] ? high * .7 : high * .16);
      }
    };
    canvas.addEventListener('pointermove', event => {
      const area = canvas.getBoundingClientRect(), share = (event.clientX - area.left) / area.width, time = share * lanes.makespan;
      const bar = own.find(each => each[1] && each[2] <= time && time < each[3]);
      showBeside(box, share, bar ? `${bar[5]}  ${bar[4]}, ${seconds(bar[3] - bar[2])}` : 'waits');
    });
    canvas.addEventListener('pointerleave', () => showBeside(box, 0, ''));
    return el('div', {class: 'lane'}, el('span', {}, 'rank ' + rank), el('div', {style: {position: 'relative'}}, canvas, box),
        el('span', {}, percent(lanes.makespan > 0 ? Math.max(0, 1 - busy / lanes.makespan) : 0)));
  });
  const figure = el('figure', {class: 'lanes'}, el('figcaption', {}, `${lanes.name}: ${seconds(lanes.makespan)}; right: bubble of the rank`), rows,
      lanes.ranks > most ? el('p', {}, `${most} of ${lanes.ranks} ranks`) : null);
  new ResizeObserver(() => repaint(figure)).observe(figure);
  return figure;
}
const repaint = node => node.querySelectorAll('canvas').forEach(canvas => canvas.paint());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => repaint(document));
const timeLineLegend = () => legend([...kActions, ['messages', kMessage]]);

// The lanes of Chrome trace events, as `plan --trace` writes them.
function lanesOf(trace) {
  const lanes = new Map();
  for (const event of trace.traceEvents) {
    if (!lanes.has(event.pid)) lanes.set(event.pid, {name: '', ranks: 0, makespan: 0, bars: []});
    const lane = lanes.get(event.pid);
    if (event.ph === 'M' && event.name === 'process_name') lane.name = event.args.name;
    if (event.ph !== 'X') continue;
    const rank = Math.floor(event.tid / 2), end = (event.ts + event.dur) / 1e6;
    if (event.dur > 0) lane.bars.push([rank, event.tid % 2 ? 0 : 1, event.ts / 1e6, end, event.cat, event.name]);
    lane.ranks = Math.max(lane.ranks, rank + 1);
    lane.makespan = Math.max(lane.makespan, end);
  }
  return [...lanes.values()].filter(lane => lane.bars.length);
}
