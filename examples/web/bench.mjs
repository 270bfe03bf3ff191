// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// node bench.mjs superslm.wasm model.sslm: the speed of a model in WebAssembly on this machine.
import { readFile } from 'node:fs/promises';
import { Model, Pool, Sequence, SuperSLM } from './superslm.mjs';

const PROMPT = 128, REPLY = 32, CHUNK = 64;

const [wasm, artifact] = process.argv.slice(2);
const [code, bytes] = [await readFile(wasm), await readFile(artifact)];
const library = await SuperSLM.load(code);

function timed(what, count, work) {
  const begin = performance.now();
  work();
  const seconds = (performance.now() - begin) / 1000;
  console.log(`${what}: ${(count / seconds).toFixed(1)} tokens per second`);
}

const begin = performance.now();
const model = await Model.load(library, bytes, { chunk: CHUNK });
console.log(`${library.tier} kernels, ${bytes.length >> 20} MiB mapped in ${(performance.now() - begin).toFixed(0)} ms`);
const pool = new Pool(model, model.pagesFor(PROMPT + REPLY));
const sequence = new Sequence(pool, PROMPT + REPLY);
const ids = Array.from({ length: PROMPT }, (_, i) => i * 7919 % model.info.vocab);
timed(`reading a prompt of ${PROMPT}`, PROMPT, () => {
  for (let rest = ids; rest.length > 0;) rest = rest.slice(sequence.feed(rest));
});
timed('writing', REPLY, () => {
  for (let i = 0; i < REPLY; ++i) sequence.step();
});
