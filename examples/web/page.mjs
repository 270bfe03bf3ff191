// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// A conversation in a page: the reply appears token by token, a few layers of the model in each animation frame.
//   ?model=model.sslm   the artifact      &layers=10   layers of one frame      &say=Hello   speaks at once
import { Model, Pool, Sequence, SuperSLM } from './superslm.mjs';

const BUDGET = 1024, REPLY = 128;

const options = new URLSearchParams(location.search);
const [log, form, line, status] = ['log', 'form', 'line', 'status'].map((id) => document.getElementById(id));
const [button] = form.getElementsByTagName('button');

function paragraph(kind, text) {
  const element = document.createElement('p');
  element.className = kind;
  element.textContent = text;
  log.append(element);
  return element;
}

async function start() {
  const library = await SuperSLM.load();
  const model = await Model.load(library, options.get('model') ?? 'model.sslm', {
    onProgress: (done, all) => { status.textContent = `loading ${Math.floor(100 * done / all)} %`; },
  });
  const pool = new Pool(model, model.pagesFor(BUDGET));
  const sequence = new Sequence(pool, BUDGET);
  const layers = Math.min(Number(options.get('layers')) || 10, model.info.layers);
  let before = model.chat('system', 'opening'); // ids that stand in front of the next turn

  async function say(text) {
    paragraph('user', text);
    const reply = paragraph('reply', '');
    const prompt = [...before, ...model.chat('user', 'prefix'), ...model.tokenize(text),
      ...model.chat('user', 'suffix'), ...model.chat('assistant', 'prefix')];
    const begin = performance.now();
    let tokens = 0;
    for await (const piece of sequence.generate(prompt, { maxTokens: REPLY, layers })) {
      reply.append(piece);
      tokens += 1;
      const rate = 1000 * tokens / (performance.now() - begin);
      status.textContent = `${tokens} tokens, ${rate.toFixed(1)} per second, ${layers} of ${model.info.layers} layers a frame, ${library.tier} kernels`;
    }
    if (model.stopIds.has(sequence.pending)) sequence.pending = null; // it stands in the suffix already
    before = model.chat('assistant', 'suffix');
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (button.disabled || line.value === '') return;
    const text = line.value;
    line.value = '';
    busy(() => say(text));
  });
  if (options.has('say')) await say(options.get('say'));
  else status.textContent = `ready, ${library.tier} kernels`;
}

// While `work` goes on nothing else may be said; what fails is shown.
async function busy(work) {
  button.disabled = true;
  document.body.dataset.state = 'busy';
  try {
    await work();
    button.disabled = false;
    document.body.dataset.state = 'done';
  } catch (error) {
    status.textContent = error.message;
    document.body.dataset.state = 'failed';
  }
}

busy(start);
