// Makes the picture that opens the README: `node tests/browser/screenshot.ts REPORT.html OUT.png`.

import { resolve } from 'node:path';
import { frame, launch, open } from './chromium.ts';

const [report, out] = process.argv.slice(2);
if (report === undefined || out === undefined) throw new Error('usage: screenshot.ts REPORT.html OUT.png');
const browser = await launch();
const { page } = await open(browser, resolve(report), { width: 1440 });
await page.setViewportSize({ width: 1440, height: 1370 });
await frame(page);
await page.screenshot({ path: out });
await browser.close();
