// The studio: a recipe with what is changed in it, its plan as it follows, the plans that a search finds, and runs.
const kPowers = most => Array.from({length: Math.floor(Math.log2(most)) + 1}, (_, i) => 2 ** i);
const divisors = n => Array.from({length: Math.min(n, 512)}, (_, i) => i + 1).filter(i => n % i === 0);

// What can be changed. key: of the recipe; now(plan): its value in the plan that is shown; list(boot, plan): what there is
// to choose from, on a slider if `slides`.
const kMeshKeys = ['tp_size', 'pp_size', 'cp_size', 'ep_size', 'dp_replicate_size'].map(key => 'distributed.' + key);
const kControls = [
  {key: 'model', title: 'Model', list: boot => boot.models, now: () => '', value: name => `{pretrained_model_name_or_path: ${name}}`},
  {key: 'world_size', title: 'Ranks', slides: true, list: () => kPowers(16384), now: plan => plan.mesh.world_size, parameter: true},
  {key: 'distributed.tp_size', title: 'Tensor parallel', slides: true, list: (boot, plan) => divisors(plan.mesh.world_size).filter(n => n <= 64), now: plan => plan.mesh.sizes.tp},
  {key: 'distributed.pp_size', title: 'Pipeline parallel', slides: true, list: (boot, plan) => divisors(plan.mesh.world_size).filter(n => n <= 128), now: plan => plan.mesh.sizes.pp},
  {key: 'distributed.cp_size', title: 'Context parallel', slides: true, list: (boot, plan) => divisors(plan.mesh.world_size).filter(n => n <= 64), now: plan => plan.mesh.sizes.cp},
  {key: 'distributed.ep_size', title: 'Expert parallel', slides: true, list: (boot, plan) => divisors(plan.mesh.world_size).filter(n => n <= 256), now: plan => plan.mesh.sizes.ep},
  {key: 'distributed.dp_replicate_size', title: 'Replicas of the sharded model', slides: true, list: (boot, plan) => divisors(plan.mesh.sizes.dp), now: plan => plan.mesh.sizes.dp_replicate},
  {key: 'distributed.strategy', title: 'Data parallel strategy', list: boot => boot.values['distributed.strategy'], now: plan => plan.mesh.strategy},
  {key: 'distributed.pipeline.pp_schedule', title: 'Schedule', list: boot => boot.values['distributed.pipeline.pp_schedule'], now: plan => plan.pipeline ? plan.pipeline.schedule : 'no pipeline'},
  {key: 'distributed.pipeline.pp_microbatch_size', title: 'Sequences of a microbatch', slides: true, list: () => kPowers(64), now: plan => plan.batch.microbatch, when: plan => plan.pipeline},
  {key: 'step_scheduler.local_batch_size', title: 'Sequences of a rank at once', slides: true, list: () => kPowers(1024), now: plan => plan.batch.local},
  {key: 'step_scheduler.global_batch_size', title: 'Sequences of a step', slides: true, list: () => kPowers(16384), now: plan => plan.batch.global},
  {key: 'dataset.seq_length', title: 'Tokens of a sequence', slides: true, list: () => kPowers(1 << 20).slice(6), now: plan => plan.batch.sequence_length, when: plan => plan.settings.dataset && 'seq_length' in plan.settings.dataset},
  {key: 'distributed.activation_checkpointing', title: 'Recomputation', list: () => ['false', 'selective', 'full'], now: plan => plan.execution.recompute},
  {key: 'model.torch_dtype', title: 'Type of the model', list: () => ['bfloat16', 'float16', 'float32'], now: () => ''},
  {key: 'distributed.mp_policy.param_dtype', title: 'Compute in', list: () => ['bfloat16', 'float16', 'float32'], now: plan => plan.dtypes.compute},
  {key: 'hardware.profile', title: 'Hardware', list: boot => boot.devices, now: plan => plan.hardware ? plan.hardware.name : ''},
  {key: 'gpus_per_node', title: 'Ranks of a machine', slides: true, list: () => [1, 2, 4, 8, 16, 32, 64, 72], now: plan => plan.hardware ? plan.hardware.ranks_per_node : 8, parameter: true},
];

// What a person changed; in the address behind '#', so that a page can be loaded again.
const studio = {recipe: '', changed: new Map(), plan: null, trace: null, kept: null, tab: 'plan', turn: 0, runs: new Map(), shown: new Set()};

async function ask(path, query, body) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`, {method: body === undefined ? 'GET' : 'POST', body,
    headers: {Authorization: 'Bearer ' + boot.token}, cache: 'no-store'});
  const text = await answer.text();
  if (!answer.ok && !text.startsWith('{')) throw new Error(text.trim());
  return text;
}
function wanted() {
  const query = studio.recipe ? [['recipe', studio.recipe]] : [];
  for (const [key, value] of studio.changed) {
    const control = kControls.find(each => each.key === key);
    if (control && control.parameter || key === 'no_files') query.push([key, value]);
    else query.push(['set', `${key}=${control && control.value ? control.value(value) : value}`]);
  }
  return query;
}
// The ranks stay when the mesh changes and the mesh's own sizes stay when the ranks do: data parallelism takes up the rest.
function change(key, value) {
  const {changed, plan} = studio;
  if (value === null) changed.delete(key);
  else changed.set(key, String(value));
  const resized = key === 'world_size' || kMeshKeys.includes(key);
  if (resized && value !== null) {
    if (!changed.has('world_size') && plan) changed.set('world_size', String(plan.mesh.world_size));
    changed.set('distributed.dp_size', 'none');
  }
  follow();
}
// One pass at a time, since the program answers one request after another: what is changed meanwhile is asked once, as
// it stands then.
const kStill = 20;  // ms without which a slider that is dragged would ask for every position
const wait = ms => new Promise(done => setTimeout(done, ms));
async function follow() {
  ++studio.turn;
  if (studio.following) return;
  studio.following = true;
  try {
    for (let turn = 0; turn !== studio.turn;) {
      await wait(kStill);
      turn = studio.turn;
      await pass(turn);
    }
  } finally {
    studio.following = false;
  }
}
async function pass(turn) {
  const query = wanted();
  history.replaceState(null, '', '#' + new URLSearchParams([...(studio.recipe ? [['recipe', studio.recipe]] : []), ...studio.changed]));
  try {
    const plan = JSON.parse(await ask('/api/plan', query));
    if (turn !== studio.turn) return;  // something else has been changed since
    studio.errors = plan.errors;
    if (!plan.errors) {
      studio.plan = plan;
      // The time line of many microbatches is megabytes: the rest does not wait for it.
      const traced = ask('/api/trace', query).catch(() => '{"traceEvents":[]}');
      let trace = await Promise.race([traced, wait(50)]);
      if (trace === undefined) {
        show();
        trace = await traced;
      }
      if (turn !== studio.turn) return;
      studio.trace = JSON.parse(trace);
    }
  } catch (error) {
    if (turn !== studio.turn) return;
    studio.errors = [{id: 'no answer', message: error.message || String(error), help: 'is automodel studio still running?', line: 0}];
  }
  show();
}

const quoted = word => /^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
function command() {
  const words = ['automodel', 'plan', studio.recipe || 'studio.yaml'];
  for (const [key, value] of wanted()) {
    if (key === 'world_size') words.push('--world-size', value);
    else if (key === 'gpus_per_node') words.push('--gpus-per-node', value);
    else if (key === 'no_files') words.push('--no-files');
    else if (key === 'set') words.push(value);
  }
  return words.map(quoted).join(' ');
}
const say = text => { document.getElementById('said').textContent = text; };
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(what + ' copied');
  } catch {
    // Without the permission: shown, to be copied by hand.
    document.getElementById('copied').replaceChildren(el('pre', {tabindex: 0}, text));
    say(what + ':');
  }
}

function control({key, title, slides, list, now, when}, plan) {
  const touched = studio.changed.get(key), id = 'control ' + key;
  // Before there is any plan, what depends on one offers powers of two.
  const known = (read, other) => { try { return read(); } catch { return plan ? [] : other; } };
  const value = touched ?? String(known(() => now(plan), slides ? 1 : '')), choices = known(() => list(boot, plan), kPowers(1024)).map(String);
  const off = plan && when && !when(plan) && touched === undefined;
  const label = el('label', {for: id}, title, el('b', {}, touched === undefined && !slides ? '' : value));
  const back = touched === undefined ? null : el('button', {type: 'button', title: 'as the recipe says', 'aria-label': title + ': as the recipe says', onclick: () => change(key, null)}, '\u21ba');
  let input;
  if (slides) {
    if (!choices.includes(value)) choices.push(value);
    choices.sort((a, b) => a - b);
    input = el('input', {id, type: 'range', min: 0, max: choices.length - 1, step: 1, disabled: off, 'aria-valuetext': value});
    input.value = choices.indexOf(value);
    input.addEventListener('input', () => change(key, choices[input.value]));
  } else {
    input = el('select', {id, disabled: off, onchange: () => change(key, input.value || null)},
        el('option', {value: ''}, touched === undefined && value ? `${value} (recipe)` : 'as the recipe says'),
        choices.map(each => el('option', {value: each, selected: each === touched}, each)));
    if (touched !== undefined && !choices.includes(touched)) input.append(el('option', {value: touched, selected: true}, touched));
  }
  return el('div', {class: 'control', 'data-key': key}, label, el('div', {class: 'row'}, input, back));
}
function furtherKeys() {
  const key = el('input', {id: 'other-key', list: 'keys', placeholder: 'a.b.c', 'aria-label': 'another key'}), value = el('input', {id: 'other-value', placeholder: 'value', 'aria-label': 'its value'});
  const set = () => key.value && change(key.value.trim(), value.value);
  const known = new Set([...kControls.map(each => each.key), 'no_files']);
  return el('div', {class: 'control'}, el('label', {for: 'other-key'}, 'Any other key'),
      el('form', {class: 'row', onsubmit: event => { event.preventDefault(); document.activeElement.blur(); set(); }}, key, value, el('button', {}, 'Set')),
      el('datalist', {id: 'keys'}, boot.keys.map(each => el('option', {value: each}))),
      [...studio.changed].filter(([key]) => !known.has(key)).map(([key, value]) => el('div', {class: 'row'}, el('code', {}, `${key}=${value}`),
          el('button', {type: 'button', 'aria-label': 'remove ' + key, onclick: () => change(key, null)}, '\u00d7'))));
}
function controls() {
  const plan = studio.plan, recipes = boot.recipes;
  const choice = recipes.length > 1 ? el('div', {class: 'control'}, el('label', {for: 'recipe'}, 'Recipe'),
      el('select', {id: 'recipe', onchange: event => { studio.recipe = event.target.value; follow(); }},
          recipes.map(each => el('option', {value: each, selected: each === studio.recipe}, each)))) : null;
  const elsewhere = el('label', {class: 'pick'}, el('input', {type: 'checkbox', id: 'no-files', checked: studio.changed.has('no_files'),
    onchange: event => change('no_files', event.target.checked ? '1' : null)}), ' Do not look at files');
  return [choice, kControls.map(each => control(each, plan)), furtherKeys(), elsewhere,
    el('button', {type: 'button', onclick: () => { studio.changed.clear(); follow(); }}, 'All as the recipe says')];
}

function planButtons() {
  const {plan, trace, kept} = studio;
  return el('div', {class: 'row'},
      el('button', {type: 'button', id: 'keep', onclick: () => { studio.kept = kept ? null : {plan, trace}; show(); }}, kept ? 'Stop comparing' : 'Keep to compare'),
      el('button', {type: 'button', id: 'copy-command', onclick: () => copy(command(), 'command')}, 'Copy command'),
      el('button', {type: 'button', id: 'copy-recipe', onclick: async () => copy(await ask('/api/recipe', wanted()), 'recipe')}, 'Copy recipe'),
      el('form', {class: 'row', onsubmit: async event => {
        event.preventDefault();
        try {
          say(await ask('/api/save', [...wanted(), ['name', event.target.name.value]], ''));
        } catch (error) {
          say(error.message);
        }
      }}, el('input', {name: 'name', 'aria-label': 'file in the working directory', value: 'studio.yaml', size: 14}), el('button', {id: 'save'}, 'Save recipe')),
      el('span', {id: 'said', role: 'status'}));
}
// Memory against speed: what a search found, each a point that sets it.
function searched() {
  const {found} = studio;
  if (!found) return el('p', {}, 'Looks for the mesh, schedule, microbatch and recomputation that train fastest on these ranks.');
  if (found.errors) return refusals(found.errors);
  const points = found.best.map(each => ({...each, best: true}));
  if (found.recipe) points.push(found.recipe);
  if (!points.length) return el('p', {}, 'Nothing fits.');
  const memory = points.map(each => each.memory / 2 ** 30), speed = points.map(each => each.tokens_per_second);
  const x = scale(Math.min(...memory), Math.max(...memory)), y = scale(Math.min(...speed), Math.max(...speed));
  const frame = plot('Tokens per second against GiB per rank', x, y, [], x.marks);
  const words = each => `${each.best ? '' : 'this plan: '}${shortNumber(each.tokens_per_second)} tokens/s, ${bytes(each.memory)}, pp ${each.sizes.pp}, tp ${each.sizes.tp}, dp ${each.sizes.dp}` +
      `${each.sizes.cp > 1 ? ', cp ' + each.sizes.cp : ''}${each.sizes.ep > 1 ? ', ep ' + each.sizes.ep : ''}, ${each.schedule}, microbatch ${each.microbatch}, recompute ${each.recompute}`;
  const take = each => {
    if (!each.best) return;
    for (const [key, value] of Object.entries(each.overrides)) studio.changed.set(key, value);
    studio.changed.set('world_size', String(found.world_size));
    follow();
  };
  // Circles stand over the stretched drawing, in pixels.
  const over = points.map((each, i) => {
    const tell = () => showBeside(frame.box, x.place(memory[i]), words(each));
    return el('button', {type: 'button', class: 'spot' + (each.best ? '' : ' own'), 'aria-label': words(each), style: {left: 100 * x.place(memory[i]) + '%', top: 100 * (1 - y.place(speed[i])) + '%'},
      onclick: () => take(each), onpointerenter: tell, onfocus: tell, onpointerleave: () => showBeside(frame.box, 0, ''), onblur: () => showBeside(frame.box, 0, '')});
  });
  frame.node.append(...over);
  return [el('p', {}, `${found.considered} candidates, ${found.planned} planned in full, in ${seconds(found.seconds)}: memory per rank in GiB against tokens per second. A point sets its plan.`),
    el('figure', {class: 'search'}, frame.node), found.why ? el('p', {}, `This plan: ${found.why}`) : null,
    found.refused.length ? el('details', {}, el('summary', {}, 'Refused'), el('ul', {}, found.refused.map(each => el('li', {}, `${each.count} x ${each.reason} (${each.example})`)))) : null];
}
async function search() {
  studio.searching = document.getElementById('search').disabled = true;
  try {
    studio.found = JSON.parse(await ask('/api/search', wanted()));
  } catch (error) {
    studio.found = {errors: [{id: 'no answer', message: error.message, line: 0}]};
  }
  studio.searching = false;
  show();
}

// The parts of the page are replaced as a whole; what had the focus has it again.
function fill(node, ...content) {
  const active = document.activeElement, id = node.contains(active) ? active.id : '';
  const hidden = new Map([...node.querySelectorAll('details')].map((each, i) => [i, each.open]));
  node.replaceChildren(...content.flat(9).filter(Boolean));
  node.querySelectorAll('details').forEach((each, i) => { each.open = hidden.get(i) || false; });
  if (id && document.getElementById(id)) document.getElementById(id).focus();
  repaint(node);
}
// A control that is being dragged or typed in stays as it is.
function fillControls(node, items) {
  if (node.children.length !== items.length) return fill(node, items);
  items.forEach((item, i) => {
    const old = node.children[i], active = old.contains(document.activeElement) ? document.activeElement : null;
    if (!active || !['range', 'text'].includes(active.type)) {
      old.replaceWith(item);
      if (active && active.id && document.getElementById(active.id)) document.getElementById(active.id).focus();
    } else if (active.type === 'range') {
      old.querySelector('label').replaceWith(item.querySelector('label'));
      active.setAttribute('aria-valuetext', old.querySelector('b').textContent);
      const back = item.querySelector('button');
      if (back && !old.querySelector('button')) active.parentNode.append(back);
    }
  });
}
function show() {
  const {plan, trace, errors, kept, tab} = studio;
  for (const name of ['plan', 'runs']) document.getElementById('part-' + name).hidden = name !== tab;
  document.querySelectorAll('[role=tab]').forEach(each => each.setAttribute('aria-selected', String(each.dataset.tab === tab)));
  if (tab === 'runs') return repaint(document.getElementById('part-runs'));
  fillControls(document.getElementById('controls'), controls().flat().filter(Boolean));
  fill(document.getElementById('refused'), errors ? refusals(errors) : []);
  const place = document.getElementById('plan');
  place.classList.toggle('stale', Boolean(errors));
  if (!plan) return;
  fill(place, planButtons(), el('div', {id: 'copied'}), showPlan(plan, trace, kept), el('h2', {}, 'Search'),
      el('button', {type: 'button', id: 'search', class: 'main', disabled: studio.searching, onclick: search}, 'Search plans'), searched());
}

// Runs: what the folders hold is looked at every few seconds, a run that is shown as often as it may have changed.
const kSilent = 120;  // seconds without a record after which a run may not be running
function runState({run, age}) {
  const starts = run.events.map(each => each.event).lastIndexOf('start'), end = run.events.findLast((each, i) => i > starts && each.event === 'end');
  if (end) {
    const fields = new Map(end.fields), code = fields.get('exit_code');
    return el('p', {class: code === '0' ? 'good' : 'bad'}, `ended with exit code ${code}${fields.get('cause') ? ': ' + fields.get('cause') : ''}`);
  }
  return age < kSilent ? el('p', {class: 'good', 'data-live': true}, 'running') : el('p', {}, `no record for ${seconds(age)}, and no end: stopped from outside, or in a long step`);
}
async function readRun(path) {
  const known = studio.runs.get(path), got = JSON.parse(await ask('/api/run', [['run', path], ...(known ? [['stamp', known.stamp]] : [])]));
  if (got.errors) { studio.runs.set(path, {errors: got.errors}); return true; }
  if (!got.unchanged) { studio.runs.set(path, got); return true; }
  const fell = known.age < kSilent && got.age >= kSilent;
  known.age = got.age;
  return fell;
}
async function followRuns() {
  if (studio.tab !== 'runs' || document.hidden || studio.looking) return;
  studio.looking = true;
  try {
    const places = JSON.parse(await ask('/api/places', []));
    const more = places.runs.join('\n') !== boot.runs.join('\n');
    boot.runs = places.runs;
    const changed = await Promise.all([...studio.shown].map(readRun));
    if (more || changed.some(Boolean)) showRunPart();
  } catch (error) {
    fill(document.getElementById('run-state'), el('p', {class: 'bad'}, error.message || String(error)));
  } finally {
    studio.looking = false;
  }
}
async function watchRuns() {
  for (;;) {
    await wait(2000);
    await followRuns();
  }
}
async function pick(path, shown) {
  if (shown) studio.shown.add(path);
  else studio.shown.delete(path);
  try {
    if (shown) await readRun(path);
  } catch (error) {
    studio.runs.set(path, {errors: [{id: 'no answer', message: error.message, line: 0}]});
  }
  showRunPart();
}
function showRunPart() {
  fill(document.getElementById('run-list'), boot.runs.map((path, i) => el('label', {class: 'pick'},
      el('input', {type: 'checkbox', id: 'run ' + i, checked: studio.shown.has(path), onchange: event => pick(path, event.target.checked)}), ' ', path)));
  const read = boot.runs.filter(path => studio.shown.has(path) && studio.runs.has(path)).map(path => studio.runs.get(path));
  const whole = read.filter(each => each.run), states = new Map(whole.map(each => [each.run, each]));
  fill(document.getElementById('run-state'), read.filter(each => each.errors).map(each => refusals(each.errors)));
  fill(document.getElementById('shown-runs'), whole.length ? [showRuns(whole.map(each => each.run), run => runState(states.get(run))), el('p', {}, kReading)] :
      el('p', {}, boot.runs.length ? 'Choose runs: several are drawn over each other.' : 'There is no run yet.'));
}

function startStudio() {
  const given = new URLSearchParams(location.hash.slice(1));
  studio.recipe = given.get('recipe') || boot.recipes[0] || '';
  given.forEach((value, key) => key === 'recipe' || studio.changed.set(key, value));
  const open = name => () => { studio.tab = name; show(); followRuns(); };
  const tabs = el('nav', {role: 'tablist'}, [['plan', 'Plan'], ['runs', 'Runs']].map(([name, title]) =>
      el('button', {type: 'button', role: 'tab', 'data-tab': name, 'aria-controls': 'part-' + name, onclick: open(name)}, title)));
  document.body.append(el('h1', {}, 'automodel studio'), boot.folders ? tabs : '',
      el('main', {id: 'part-plan', class: 'studio'}, el('div', {class: 'controls', id: 'controls'}),
          el('div', {}, el('div', {id: 'refused', 'aria-live': 'polite'}), el('div', {id: 'plan'}))),
      el('main', {id: 'part-runs', hidden: true}, el('div', {id: 'run-list'}), el('div', {id: 'run-state', 'aria-live': 'polite'}), el('div', {id: 'shown-runs'})), el('footer', {}, `automodel ${boot.version}`));
  studio.tab = boot.runs.length && !boot.recipes.length ? 'runs' : 'plan';
  follow();
  if (boot.runs.length) pick(boot.runs[0], true);
  watchRuns();
}
