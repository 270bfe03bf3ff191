// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// node tavern.js model.sslm: three characters answer at once in a loop of frames, and are saved and restored in
// mid-sentence. Prints what was read and said, as ids and as text.
'use strict';

const { Model, Pool, Prefix, Sequence, Workspace, tier } = require('./superslm.js');

const WORLD = 'You are in the Drowned Lantern, a tavern on the quay of Saltreach. Outside a storm pulls at the ' +
  'shutters, and the ferry will not sail tonight. The stove is hot, a lame gull named Commodore sleeps on the ' +
  'counter, and at dusk the bell of the lighthouse rang by itself. Nobody trusts the tax collector, who ' +
  'sits by the window with wet boots and a locked chest, and nobody knows why the harbour master has not been seen ' +
  'since noon. The soup is thin, the stories are long, and so is the night. Stay in your part and answer in one or two short sentences.';
const CAST = [
  ['Marta', ' You are Marta, who keeps the tavern.', 'What do you serve tonight?'],
  ['Oren', ' You are Oren, an old sailor.', 'Have you ever seen a storm like this?'],
  ['Pip', ' You are Pip, a young thief.', 'Who is the man by the window?'],
];
const BUDGET = 256, REPLY = 40, LAYERS = 6;

async function main(path) {
  const model = new Model(path);
  const frame = new Workspace(model, CAST.length, 64), reading = new Workspace(model, 1, 64);
  const pool = new Pool(model, model.pages(BUDGET) * (1 + 2 * CAST.length));
  const worldIds = [...model.chat('system', 'prefix'), ...model.tokenize(WORLD)];
  const world = new Prefix(pool, worldIds, BUDGET, frame);
  const cast = CAST.map(([name, persona, line]) => {
    const sequence = new Sequence(pool, BUDGET);
    sequence.adopt(world);
    const prompt = [...model.tokenize(persona), ...model.chat('system', 'suffix'), ...model.chat('user', 'prefix'),
      ...model.tokenize(line), ...model.chat('user', 'suffix'), ...model.chat('assistant', 'prefix')];
    return { name, sequence, prompt, reply: [], text: '', stream: model.detokenizer(), layer: 0, speaking: false, done: false };
  });

  // Prompts are read one after the other, beside the frames.
  const readers = (async () => {
    for (const character of cast) {
      await character.sequence.prefill(character.prompt, reading);
      character.speaking = true;
    }
  })();

  let frames = 0, saved = 0;
  while (cast.some((c) => !c.done)) {
    const layer = Math.max(0, ...cast.filter((c) => c.speaking).map((c) => c.layer));
    const batch = cast.filter((c) => c.speaking && c.layer === layer);
    if (batch.length > 0) {
      const ids = model.decode(batch.map((c) => c.sequence), LAYERS, frame);
      batch.forEach((c, i) => hear(model, c, ids[i]));
    }
    if (saved === 0 && cast[0].reply.length > 5 && cast[0].layer > 0) {
      for (const c of cast.filter((c) => c.speaking)) saved += saveAndRestore(pool, world, c);
    }
    frames += 1;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await readers;

  for (const c of cast) {
    console.log('prompt', worldIds.join(' '), c.prompt.join(' '));
    console.log('reply', c.reply.join(' '));
    console.log(`${c.name}: ${c.text}`);
  }
  console.log(`${frames} frames, ${saved} bytes saved and restored in mid-sentence, ${tier()} kernels`);
  console.log(`self-check: ${model.verify() ?? 'verified'}`);
  for (const thing of [...cast.map((c) => c.sequence), world, pool, reading, frame, model]) thing.close();
}

function hear(model, character, id) {
  character.layer = id === null ? character.layer + LAYERS : 0;
  if (id === null) return;
  if (!model.stop.has(id)) {
    character.reply.push(id);
    character.text += character.stream.push(id);
  }
  character.done = model.stop.has(id) || character.reply.length === REPLY;
  character.speaking = !character.done;
}

function saveAndRestore(pool, world, character) {
  const blob = character.sequence.save(), pending = character.sequence.pending;
  character.sequence.close();
  character.sequence = Sequence.restore(pool, blob, world, pending);
  return blob.length;
}

main(process.argv[2]).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
