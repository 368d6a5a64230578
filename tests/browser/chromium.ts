// A real Chromium that looks at a page as a person would who double-clicked it, and notes what it must not do.

import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';

const require = createRequire(new URL('../../visualizer/web/package.json', import.meta.url));
const { chromium } = require('playwright-core') as typeof import('playwright-core');

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

// With a fresh profile, which playwright deletes in the end.
export function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: process.env['OFFCUT_CHROMIUM'] ?? '/usr/bin/chromium', args: FLAGS });
}

export interface Visit {
  readonly page: Page;
  readonly requests: string[]; // other than for the file itself and for what it holds
  readonly complaints: string[]; // errors and warnings, violations of the security policy among them
}

export interface VisitOptions {
  readonly width?: number;
  readonly scale?: number;
  readonly before?: string; // a program to run before the page's own
}

// Opens a report and waits until all of it has been decoded.
export async function open(browser: Browser, path: string, options: VisitOptions = {}): Promise<Visit> {
  const context = await browser.newContext({
    viewport: { width: options.width ?? 1400, height: 1000 },
    deviceScaleFactor: options.scale ?? 1,
  });
  const page = await context.newPage();
  const requests: string[] = [];
  const complaints: string[] = [];
  page.on('request', (request) => {
    const url = request.url();
    if (url !== `file://${path}` && !url.startsWith('blob:')) requests.push(url);
  });
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  if (options.before !== undefined) await page.addInitScript(options.before);
  await page.goto(`file://${path}`);
  await page.waitForFunction(() => ['exact', 'failed'].includes(document.body.dataset['state'] ?? ''));
  await frame(page);
  return { page, requests, complaints };
}

// Until what was changed has been drawn.
export async function frame(page: Page): Promise<void> {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

export async function readoutBytes(page: Page, kind: 'live' | 'reserved' | 'device_used'): Promise<number> {
  await frame(page);
  const text = await page.locator(`[data-exact="${kind}"]`).textContent();
  return Number(text?.replaceAll(',', ''));
}

// How many different colours there are in a part of a canvas: 1 is an empty one.
export function colours(page: Page, selector: string): Promise<number> {
  return page.locator(selector).evaluate((element) => {
    const canvas = element as HTMLCanvasElement;
    const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
}
