// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// node talk_check.mjs superslm.mjs superslm.wasm model.sslm: what the Python package must say too, as JSON.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';

const [script, wasm, artifact] = process.argv.slice(2);
const { Model, Pool, Prefix, Sequence, SuperSLM, SuperSLMError } = await import(script);
const digest = (bytes) => createHash('sha256').update(bytes).digest('hex');
const refusal = async (work) => {
  try {
    await work();
  } catch (error) {
    return `${error.constructor.name} ${error.message}`;
  }
  return null;
};

const module = await WebAssembly.compile(await readFile(wasm));
const library = await SuperSLM.load(module);
const model = await Model.load(library, await readFile(artifact), { batch: 2 });
const pool = new Pool(model, 4 * model.pagesFor(256));
const prompt = model.tokenize('Marta opened the door of the inn. “Come in,” she said, 雨が');

// A prefix that two sequences adopt; one is saved in mid-token, restored, and goes on beside the other.
const world = new Prefix(pool, 256);
for (let rest = prompt; rest.length > 0;) rest = rest.slice(world.feed(rest, 5));
world.freeze();
const [first, second] = [new Sequence(pool, 128), new Sequence(pool, 128)];
for (const sequence of [first, second]) sequence.adopt(world);
const ids = Array.from({ length: 8 }, () => first.step());
if (first.step(7) !== null) throw new Error('seven layers made a token');
const blob = first.save();
first.close();
let restored = Sequence.restore(pool, blob, ids.at(-1));
const again = digest(restored.save()) === digest(blob);
for (let id = null; ids.length < 16; id = restored.step(9)) if (id !== null) ids.push(id);
const together = [];
restored.reset();
restored.adopt(world);
while (together.length < 16) {
  const [a, b] = model.decode([restored, second], 11);
  if (a !== b) throw new Error('two alike in one batch differ');
  if (a !== null) together.push(a);
}
second.reset();
let text = '';
for await (const piece of second.generate(prompt, { maxTokens: 24, layers: 10 })) text += piece;

const refusals = await Promise.all([
  refusal(() => Model.load(library, new Uint8Array(2000))),
  refusal(() => second.step(0)),
  refusal(() => new Sequence(pool, 1 << 30)),
  refusal(() => library.allocate(2 ** 32 - 128)),
]);
console.log(JSON.stringify({
  imports: WebAssembly.Module.imports(module), tier: library.tier, prompt, ids, together, text, again,
  blob: digest(blob), check: model.verify(), refusals, info: model.info,
}));
for (const thing of [second, restored, world, pool, model]) thing.close();
