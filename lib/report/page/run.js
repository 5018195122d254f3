// Runs, from the JSON of report/run_json.h: one, or several over each other.
const kCharts = [['loss', 'Loss'], ['grad_norm', 'Gradient norm, before clipping', true], ['lr', 'Learning rate'], ['tps', 'Tokens per second, all ranks'],
  ['step_time', 'Seconds per step', true], ['mem', 'Peak memory per rank, GiB'], ['mfu', 'Model FLOPs utilization']];
// Shown elsewhere, or not at all.
const kPassedOver = ['epoch', 'tps_per_gpu', 'num_tokens_per_step', 'num_label_tokens'];

function runTiles(run) {
  const {metrics, events} = run, out = [], count = (...kinds) => events.filter(each => kinds.includes(each.event)).length;
  if (metrics.loss) out.push(tile(String(metrics.loss.last_step), 'last step'), tile(shortNumber(metrics.loss.last), 'last loss'));
  for (const [name, column] of Object.entries(run.validation))
    if (column.buckets.length) out.push(tile(shortNumber(Math.min(...column.buckets.map(b => b[2]))), `lowest ${name} loss`));
  const tokens = metrics.num_tokens_per_step, time = metrics.step_time;
  if (tokens) out.push(tile(shortNumber(tokens.sum), 'tokens'));
  if (time) out.push(tile(seconds(time.sum), 'in steps'));
  if (tokens && time && time.sum > 0) out.push(tile(shortNumber(tokens.sum / time.sum), 'tokens per second'));
  out.push(tile(String(count('restart')), 'restarts'));
  if (count('skip', 'rollback')) out.push(tile(String(count('skip', 'rollback')), 'bad steps'));
  return el('div', {class: 'tiles'}, out);
}
function runCharts(runs) {
  const marks = runs.flatMap(run => run.events.filter(each => each.step >= 0 && ['restart', 'skip', 'rollback'].includes(each.event))
      .map(each => ({step: each.step, text: `${each.event} at step ${each.step}: ${each.message}`})));
  const known = new Set([...kCharts.map(each => each[0]), ...kPassedOver]);
  // Metrics that a newer release records in addition.
  const more = new Set(runs.flatMap(run => Object.keys(run.metrics)).filter(key => !known.has(key)));
  const charts = [...kCharts, ...[...more].sort().map(key => [key, key])].map(([key, title, logarithmic]) => {
    const series = [];
    runs.forEach((run, color) => {
      if (run.metrics[key]) series.push({name: run.name, color, buckets: run.metrics[key].buckets});
      if (key !== 'loss') return;
      // Of a single run, validation has a colour of its own.
      for (const [name, column] of Object.entries(run.validation))
        series.push({name: runs.length === 1 ? name : `${run.name}, ${name}`, color: runs.length === 1 ? series.length : color, points: true, buckets: column.buckets});
    });
    return chart({key, title, logarithmic, series, marks});
  });
  return el('div', {class: 'charts'}, charts);
}

function plannedAndMeasured(run) {
  const rows = run.estimate.filter(each => each.planned !== null && each.measured !== null).map(({what, planned, measured, bytes: isBytes}) => {
    const text = isBytes ? bytes : seconds;
    return [what, text(planned), text(measured), (planned >= measured ? '+' : '') + percent(measured ? planned / measured - 1 : 0)];
  });
  return rows.length ? [el('h2', {}, 'Planned and measured'), table(['', ['planned'], ['measured'], ['difference']], rows, 'estimate')] : null;
}
const kPhaseColors = [3, 0, 1, 2, 7];
function rankPhases(run) {
  const {ranks} = run;
  if (!ranks) return null;
  const marks = run.events.filter(each => each.event === 'slow-rank' && each.step >= 0).map(each => ({step: each.step, text: each.message}));
  const longest = Math.max(...ranks.bars.map(bar => bar.seconds.reduce((sum, each) => sum + each, 0)));
  const rows = ranks.bars.map(bar => ({
    name: [`rank ${bar.rank}`, bar.slow ? el('b', {class: 'slow', title: bar.slow}, '\u25b2') : ''],
    pieces: bar.seconds.map((value, phase) => [value, kPhaseColors[phase], ranks.phases[phase].title]),
    text: seconds(bar.seconds.reduce((sum, each) => sum + each, 0)),
  }));
  const charts = ranks.phases.map(phase => {
    // An axis that would read 8e-05 is in milliseconds.
    const small = phase.lines.every(line => line.buckets.every(b => b[4] < .1)), unit = small ? 1000 : 1;
    return phase.lines.length ? chart({key: 'ranks.' + phase.key, title: `${phase.title}, ${small ? 'ms' : 'seconds'} per step`, marks,
      series: phase.lines.map((line, i) => ({name: line.name, color: line.median ? 7 : i,
        buckets: line.buckets.map(b => [b[0], b[1], unit * b[2], unit * b[3], unit * b[4]])}))}) : null;
  });
  return [el('h2', {}, 'Ranks'), el('p', {}, 'Time per step by phase and rank, averaged over the run' + (charts.some(Boolean) ? '; then each phase over the steps.' : '.')),
    longest > 0 ? [el('p', {class: 'legend'}, legend(ranks.phases.map((phase, i) => [phase.title, kPhaseColors[i]])),
        ranks.bars.some(bar => bar.slow) ? el('span', {}, '\u25b2 was named as slow') : null), bars(rows, longest, seconds)] : null,
    ranks.bars.length < ranks.total ? el('p', {}, `${ranks.bars.length} of ${ranks.total} ranks: those that work longest.`) : null,
    charts.some(Boolean) ? el('div', {class: 'charts'}, charts) : null];
}
function runTimeLines(run) {
  if (!run.traces.length) return null;
  return [el('h2', {}, 'Timelines'), el('p', {}, 'An executed action lasts until the next one begins: waiting for a message shows as a long message, or as the computation that needs it.'),
    run.traces.map(trace => [el('h3', {}, trace.file), timeLineLegend(), trace.lanes.map(lanes => timeLine(lanes))])];
}
// "01-31 23:59:58" of an ISO 8601 time; anything else as it is.
const shortTime = iso => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(iso) ? iso.slice(5, 10) + ' ' + iso.slice(11, 19) : iso;
function fieldText(name, value) {
  const number = Number(value);
  if (value === '' || !isFinite(number) || number < 0) return value;
  if (/(^|_)seconds$/.test(name)) return seconds(number);
  return /(^|_)bytes$/.test(name) ? bytes(number) : value;
}
function runEvents(run) {
  if (!run.events.length) return null;
  return [el('h2', {}, 'Events'), table(['time', ['step'], 'event', 'what'], run.events.map(event => {
    const more = event.fields.map(([name, value]) => `${name}: ${fieldText(name, value)}`).join('; ');
    return [el('span', {title: event.time}, shortTime(event.time)), event.step >= 0 ? event.step : '', event.event,
      [el('span', {class: 'said'}, event.message), more ? [el('br', {}), more] : null].flat().filter(Boolean)];
  }), 'events')];
}
// The first recipe, and what changed at each later start.
function runRecipes(run) {
  if (!run.recipes.length) return null;
  const rows = run.recipes.slice(1).flatMap(({step, keys}, i) => {
    const before = run.recipes[i].keys, names = [...new Set([...Object.keys(before), ...Object.keys(keys)])].sort();
    return names.filter(name => before[name] !== keys[name]).map(name => [step, name, before[name] ?? '(none)', keys[name] ?? '(none)']);
  });
  return [el('h2', {}, 'Recipe'),
    run.recipes.length < 2 ? null : rows.length ? table([['from step'], 'key', 'before', 'now'], rows, 'changes') : el('p', {}, 'The same at every start.'),
    el('details', {}, el('summary', {}, 'All keys at the first start'),
        el('pre', {}, Object.entries(run.recipes[0].keys).map(([key, value]) => `${key}: ${value}\n`).join('')))];
}

// head(run): what stands above the tiles of a run.
function showRuns(runs, head = () => null) {
  return [runs.map(run => [runs.length > 1 ? el('h3', {}, run.name) : null, head(run), runTiles(run)]), el('h2', {}, 'Steps'), runCharts(runs),
    runs.map(run => {
      const rest = [plannedAndMeasured(run), rankPhases(run), runTimeLines(run), runEvents(run), runRecipes(run)];
      return [runs.length > 1 && rest.some(Boolean) ? el('h1', {class: 'run'}, run.name) : null, rest];
    })];
}
const kReading = 'Lines are means of neighbouring steps, bands their minimum and maximum; dashed lines are events.';
function startReport() {
  document.body.append(el('h1', {}, boot.runs.map(run => run.name).join(', ')), el('main', {}, showRuns(boot.runs)),
      el('footer', {}, `automodel ${boot.version} report. ${kReading}`));
}
