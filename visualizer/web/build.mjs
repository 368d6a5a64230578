// Makes viewer.html, the template that `offcut report` fills: one file with its styles, its program and its worker inline.
//
//   node build.mjs [OUT]
//
// The content security policy names the hashes of exactly these styles and this program, so nothing else can run.

import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, '../../build/viewer.html');
const PLACEHOLDERS = ['<!--offcut:overview-->', '<!--offcut:data-->'];

async function bundle(entry, define = {}) {
  const result = await build({
    entryPoints: [join(here, entry)],
    bundle: true,
    minify: true,
    write: false,
    format: 'iife',
    target: 'es2022',
    charset: 'ascii',
    legalComments: 'none',
    define,
  });
  return result.outputFiles[0].text.trim();
}

function hash(text) {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

// Unlike String.replace, gives no meaning to `$&` in the text.
function put(html, place, text) {
  const parts = html.split(place);
  if (parts.length !== 2) throw new Error(`index.html holds ${place} ${parts.length - 1} times instead of once`);
  return parts.join(text);
}

const style = (await readFile(join(here, 'style.css'), 'utf8')).trim();
const worker = await bundle('src/trace/worker.ts');
const script = await bundle('src/main.ts', { WORKER_SOURCE: JSON.stringify(worker) });
for (const text of [style, script]) {
  if (/<\/(script|style)|<!--/i.test(text)) throw new Error('the bundle holds text that would end its element');
}

const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  'worker-src blob:',
  'img-src data: blob:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

let html = await readFile(join(here, 'index.html'), 'utf8');
html = put(html, 'offcut:csp', policy);
html = put(html, '/*offcut:style*/', style);
html = put(html, '/*offcut:script*/', script);
for (const place of PLACEHOLDERS) {
  if (html.split(place).length !== 2) throw new Error(`the page must hold ${place} once`);
}
await mkdir(dirname(out), { recursive: true });
await writeFile(out, html);
console.log(`${out}: ${Math.ceil(html.length / 1024)} KiB`);
