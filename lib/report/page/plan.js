// A plan, from the JSON of `plan --json`: verdict, memory, time, traffic, stages; and two plans side by side.
const kMemory = [['params', 0, 'weights'], ['grads', 1, 'gradients'], ['optimizer', 2, 'optimizer'], ['activations', 3, 'activations'],
  ['logits', 4, 'logits'], ['buffers', 5, 'buffers'], ['framework', 8, 'framework']];
const kVerdicts = {fits: 'good', tight: '', 'does not fit': 'bad'};
const verdictWords = fit => String(fit.verdict).replaceAll('_', ' ');

function timeParts(time) {
  const waits = time.schedule * (time.bubble_fraction || 0);
  return [[time.schedule - waits, 0, 'layers with their communication'], [waits, 1, 'pipeline waits'], [time.data_parallel, 2, 'data parallel'],
    [time.optimizer, 3, 'optimizer'], [time.overhead, 8, 'other']];
}
const meshWords = mesh => mesh.dims.map((name, i) => mesh.shape[i] > 1 ? `${name} ${mesh.shape[i]}` : '').filter(Boolean).join(', ') || 'one rank';

// What is compared between two plans: [name, value, text of a value].
function figures(plan) {
  const out = [['mesh', meshWords(plan.mesh)], ['ranks', plan.mesh.world_size, String]];
  if (plan.pipeline) out.push(['schedule', plan.pipeline.schedule], ['microbatches', plan.pipeline.n_microbatches, String]);
  out.push(['sequences per step', plan.batch.global, String], ['microbatch', plan.batch.microbatch, String], ['recompute', plan.execution.recompute]);
  if (plan.time) out.push(['step', plan.time.step, seconds], ['tokens per second', plan.time.tokens_per_second, shortNumber], ['MFU', plan.time.mfu, percent]);
  if (plan.time && plan.pipeline) out.push(['bubble', plan.time.bubble_fraction, percent]);
  if (plan.fit) out.push(['memory of the heaviest rank', plan.fit.peak, bytes], ['fit', verdictWords(plan.fit)]);
  if (plan.time) out.push(['traffic of a rank', plan.time.traffic.reduce((sum, each) => sum + each.bytes, 0), bytes]);
  return out;
}
function comparison(kept, plan) {
  const before = new Map(figures(kept).map(each => [each[0], each])), rows = [];
  for (const [name, value, text] of figures(plan)) {
    const old = before.get(name), shown = (each, format) => format && typeof each === 'number' ? format(each) : String(each ?? '-');
    if (!old) { rows.push([name, '-', shown(value, text), '']); continue; }
    const change = text && typeof old[1] === 'number' && old[1] !== 0 && old[1] !== value ? (value > old[1] ? '+' : '') + percent(value / old[1] - 1) : '';
    rows.push([name, shown(old[1], old[2]), shown(value, text), change]);
  }
  return table(['', ['kept'], ['now'], ['difference']], rows, 'comparison');
}

function planTiles(plan) {
  const out = [];
  if (plan.fit) out.push(tile(verdictWords(plan.fit), plan.fit.capacity ? `${bytes(plan.fit.peak)} of ${bytes(plan.fit.capacity)}` : bytes(plan.fit.peak), kVerdicts[verdictWords(plan.fit)]));
  if (plan.time) {
    out.push(tile(shortNumber(plan.time.tokens_per_second), 'tokens per second'), tile(seconds(plan.time.step), 'per step'));
    if (plan.time.mfu) out.push(tile(percent(plan.time.mfu), 'of the peak (MFU)'));
  }
  if (plan.pipeline) out.push(tile(percent(plan.time ? plan.time.bubble_fraction : plan.pipeline.bubble_fraction), 'pipeline bubble'));
  out.push(tile(String(plan.mesh.world_size), `ranks: ${meshWords(plan.mesh)}`));
  return el('div', {class: 'tiles'}, out);
}
function memoryRows(plan, name) {
  return plan.memory.map(rank => ({
    name: `${name || ''}pp ${rank.pp_rank}`,
    pieces: kMemory.map(([key, color, title]) => [rank[key] || 0, color, title]),
    text: bytes(rank.total),
  }));
}
function memory(plan, kept) {
  const most = plan => Math.max(plan.fit && plan.fit.capacity || 0, ...plan.memory.map(rank => rank.total));
  const both = kept && kept.memory ? kept : null, longest = Math.max(most(plan), both ? most(both) : 0);
  const limit = plan.fit && plan.fit.capacity;
  return [el('h2', {}, 'Memory per rank'), legend([...kMemory.map(each => [each[2], each[1]])]),
    both ? [el('h3', {}, 'kept'), bars(memoryRows(both), longest, bytes, both.fit && both.fit.capacity), el('h3', {}, 'now')] : null,
    bars(memoryRows(plan), longest, bytes, limit),
    limit ? el('p', {}, `The line is the device's ${bytes(limit)}; bars show the fullest moment of a step (${plan.memory[0].peak_phase}).`) : null];
}
function time(plan, kept) {
  const both = kept && kept.time ? kept : null, longest = Math.max(plan.time.step, both ? both.time.step : 0);
  const row = (name, plan) => ({name, pieces: timeParts(plan.time), text: seconds(plan.time.step)});
  return [el('h2', {}, 'Step time'), legend(timeParts(plan.time).map(([, color, name]) => [name, color])),
    bars([...(both ? [row('kept', both)] : []), row(both ? 'now' : 'step', plan)], longest, seconds),
    plan.hardware ? el('p', {}, `${plan.hardware.name}: ${plan.hardware.origin}`) : null,
    plan.time.traffic.length ? [el('h2', {}, 'Traffic of a rank, per step'),
      table(['axis', ['ranks'], 'link', ['bytes'], ['time'], 'what'], plan.time.traffic.map(each =>
          [each.axis, each.size, each.link, bytes(each.bytes), seconds(each.seconds), each.what]), 'traffic')] : null];
}
function stages(plan) {
  const {pipeline} = plan;
  const names = fqns => {
    const layers = fqns.map(name => (name.match(/\.layers\.(\d+)$/) || name.match(/\.h\.(\d+)$/) || [])[1]).filter(Boolean).map(Number);
    const others = fqns.filter(name => !/\.(layers|h)\.\d+$/.test(name)).map(name => name.split('.').pop());
    if (layers.length) others.push(layers.length > 1 ? `layers ${layers[0]}-${layers[layers.length - 1]}` : `layer ${layers[0]}`);
    return others.join(', ');
  };
  return [el('h2', {}, `${pipeline.schedule}: ${pipeline.num_stages} stages on ${pipeline.pp_size} ranks, ${pipeline.n_microbatches} microbatches`),
    el('p', {}, pipeline.deadlock_free ? 'Proved: every send meets its receive, no rank can wait for another forever.' : 'Not proved to be free of deadlock.'),
    pipeline.merged ? el('p', {}, pipeline.merged) : null,
    el('details', {}, el('summary', {}, 'Stages'), table([['stage'], ['rank'], 'modules', ['parameters'], ['forward'], ['backward']],
        pipeline.stages.map((stage, i) => {
          const cost = plan.time && plan.time.stages && plan.time.stages[i];
          return [stage.stage, stage.pp_rank, names(stage.fqns), shortNumber(stage.params), cost ? seconds(cost.forward) : '', cost ? seconds(cost.backward) : ''];
        }), 'stages'))];
}
function notes(plan) {
  const out = [];
  for (const each of plan.warnings) out.push(el('li', {}, `${each.message}${each.help ? ` (${each.help})` : ''}`));
  for (const each of plan.unsupported || []) out.push(el('li', {}, `cannot be trained here: ${each.key}: ${each.reason}`));
  for (const each of plan.ignored) out.push(el('li', {}, `without effect: ${each.key}: ${each.reason}`));
  return out.length ? [el('h2', {}, 'Notes'), el('ul', {class: 'notes'}, out)] : null;
}
const refusals = errors => errors.map(each => el('div', {class: 'refusal', role: 'alert'}, el('b', {}, each.id), ' ',
    each.line > 0 ? `${each.file}:${each.line}: ` : '', each.message, each.help ? el('p', {}, each.help) : null));

// trace: of `plan --trace`, null without a pipeline. kept: the plan to compare with, {plan, trace}.
function showPlan(plan, trace, kept) {
  const other = kept && kept.plan;
  const lines = [[kept && kept.trace, 'kept: '], [trace, kept ? 'now: ' : '']].filter(each => each[0])
      .flatMap(([each, name]) => lanesOf(each).map(lane => timeLine({...lane, name: name + lane.name})));
  return [planTiles(plan), other ? [el('h2', {}, 'Compared with the plan that was kept'), comparison(other, plan)] : null,
    plan.memory ? memory(plan, other) : null, plan.time ? time(plan, other) : null,
    lines.length ? [el('h2', {}, 'Time line of a step'), timeLineLegend(), lines] : null, plan.pipeline ? stages(plan) : null, notes(plan)];
}
function startPlan() {
  document.body.append(el('h1', {}, boot.title), el('main', {}, showPlan(boot.plan, boot.trace).flat(9).filter(Boolean)), el('footer', {}, `automodel ${boot.version} plan`));
}
