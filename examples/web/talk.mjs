// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// node talk.mjs superslm.wasm model.sslm "A prompt": the page without a page. Streams the continuation of a prompt.
import { readFile } from 'node:fs/promises';
import { Model, Pool, Sequence, SuperSLM } from './superslm.mjs';

const BUDGET = 256, LENGTH = 32;

const [wasm, artifact, prompt] = process.argv.slice(2);
const library = await SuperSLM.load(await readFile(wasm));
const model = await Model.load(library, await readFile(artifact));
const pool = new Pool(model, model.pagesFor(BUDGET));
const sequence = new Sequence(pool, BUDGET);
for await (const piece of sequence.generate(model.tokenize(prompt), { maxTokens: LENGTH })) process.stdout.write(piece);
console.log(`\n[${library.tier} kernels, self-check: ${model.verify() ?? 'verified'}]`);
for (const thing of [sequence, pool, model]) thing.close();
