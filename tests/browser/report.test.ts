// The report in a real browser, opened from disk.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { colours, frame, launch, open, readoutBytes, type Visit, type VisitOptions } from './chromium.ts';
import { Reports } from './reports.ts';

const MIB = 1024 * 1024;
let reports: Reports;
let browser: Browser;

before(async () => {
  reports = new Reports();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  reports?.remove();
});

// Opens the report of a recording, and afterwards holds the page to what every page must keep.
async function visit(path: string, look: (page: Page, visit: Visit) => Promise<void>, options: VisitOptions = {}): Promise<void> {
  const visited = await open(browser, path, options);
  try {
    await look(visited.page, visited);
    assert.deepEqual(visited.requests, [], 'the page asked for something');
    assert.deepEqual(visited.complaints, [], 'the browser complained');
  } finally {
    await visited.page.context().close();
  }
}

const state = (page: Page): Promise<string | undefined> => page.evaluate(() => document.body.dataset['state']);
const digits = (text: string | null): number => Number(text?.replace(/[^0-9]/g, ''));

// What the time axis spans, in the words of the table twin.
async function rowsOfTwin(page: Page): Promise<string[][]> {
  await frame(page);
  return page.locator('.twin-table tbody tr').evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent ?? '')));
}

test('a report opens from disk without a request or a complaint', async () => {
  await visit(reports.make('small', 'A small run'), async (page) => {
    assert.equal(await state(page), 'exact');
    assert.equal(await page.title(), 'A small run \u2013 Offcut');
    assert.equal(await page.locator('h1').textContent(), 'A small run');
    assert.equal(await page.locator('#banner').textContent(), '');
  });
});

test('the pictures are painted', async () => {
  await visit(reports.make('small'), async (page) => {
    assert.ok((await colours(page, 'canvas.plot')) > 10);
    assert.ok((await colours(page, 'canvas.minimap')) > 3);
  });
});

test('the first picture is painted before the data is decoded', async () => {
  const hold = 'globalThis.Worker = class { postMessage() {} terminate() {} };';
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.addInitScript(hold);
  await page.goto(`file://${reports.make('three')}`);
  await frame(page);
  assert.equal(await state(page), 'overview');
  assert.ok((await colours(page, 'canvas.plot')) > 10);
  await context.close();
});

test('canvases have one dot per dot of the screen', async () => {
  await visit(
    reports.make('small'),
    async (page) => {
      const [backing, shown] = await page.locator('canvas.plot').evaluate((element) => {
        const canvas = element as HTMLCanvasElement;
        return [canvas.width, canvas.getBoundingClientRect().width];
      });
      assert.equal(backing, Math.round(shown * 2));
    },
    { scale: 2 },
  );
});

test('the readout at the peak is what inspect says, to the byte', async () => {
  const path = reports.make('three');
  const devices = reports.inspect('three').devices;
  await visit(path, async (page) => {
    assert.equal(await page.locator('#device option').count(), 3);
    for (const [index, device] of devices.entries()) {
      await page.locator('#device').selectOption(String(index));
      await page.waitForFunction(() => document.body.dataset['state'] === 'exact');
      await page.locator('.stage').press('p');
      assert.equal(await readoutBytes(page, 'live'), device.accounting['live_bytes']);
      assert.equal(await readoutBytes(page, 'reserved'), device.peak_reserved_bytes);
      assert.equal(await readoutBytes(page, 'device_used'), device.accounting['device_used_bytes']);
    }
  });
});

test('the device that reserved most is shown first', async () => {
  await visit(reports.make('three'), async (page) => {
    assert.match((await page.locator('.facts').textContent()) ?? '', /Busy card/);
  });
});

test('the pointer is told what was there at that time', async () => {
  await visit(reports.make('small'), async (page) => {
    // The script of make_recordings: an event each millisecond from 1 to 20; two blocks are live from 10 to 11 ms.
    const box = (await page.locator('canvas.plot').boundingBox())!;
    const [left, right] = [box.x + 72, box.x + box.width - 14];
    const at = (ms: number): number => left + ((ms - 1) / 19) * (right - left);
    for (const [ms, live, reserved] of [[3.5, 0, 0], [10.5, 30_000_001, 64 * MIB], [11.5, 20_000_000, 64 * MIB], [17.5, 27_000_000, 96 * MIB]] as const) {
      await page.mouse.move(at(ms), box.y + 120);
      assert.equal(await readoutBytes(page, 'live'), live, `${ms} ms`);
      assert.equal(await readoutBytes(page, 'reserved'), reserved, `${ms} ms`);
    }
    await page.mouse.move(box.x + 100, box.y - 60);
    await frame(page);
    assert.equal(await page.locator('.readout').isVisible(), false);
  });
});

test('events are visited one by one with the keys, and told to screen readers', async () => {
  await visit(reports.make('small'), async (page) => {
    const stage = page.locator('.stage');
    await stage.press('p');
    const seen: number[] = [];
    for (let i = 0; i < 3; ++i) {
      await stage.press('Shift+ArrowRight');
      seen.push(await readoutBytes(page, 'live'));
    }
    assert.deepEqual(seen, [27_000_000, 7_000_000, 7_000_000]);
    await stage.press('Shift+ArrowLeft');
    assert.equal(await readoutBytes(page, 'live'), 27_000_000);
    assert.match((await page.locator('[aria-live]').textContent()) ?? '', /live 25\.75 MiB, reserved 96 MiB/);
  });
});

test('wheel, drag, buttons, keys and double click change what is shown', async () => {
  await visit(reports.make('three'), async (page) => {
    await page.locator('summary').first().click();
    const span = async (): Promise<string> => (await rowsOfTwin(page))[0][2];
    const whole = await span();
    const box = (await page.locator('canvas.plot').boundingBox())!;
    const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    const changes: [string, () => Promise<void>][] = [
      ['wheel', async () => { await page.mouse.move(middle.x, middle.y); await page.mouse.wheel(0, -400); }],
      ['drag', async () => {
        await page.mouse.move(middle.x - 200, middle.y);
        await page.mouse.down();
        await page.mouse.move(middle.x - 100, middle.y);
        await page.mouse.move(middle.x + 100, middle.y);
        await page.mouse.up();
      }],
      ['button', () => page.getByRole('button', { name: 'Zoom in' }).click()],
      ['key', () => page.locator('.stage').press('+')],
      ['minimap', async () => { await page.locator('.stage').press('+'); await page.locator('canvas.minimap').click({ position: { x: 300, y: 10 } }); }],
    ];
    for (const [name, change] of changes) {
      await change();
      assert.notEqual(await span(), whole, name);
      await page.locator('.stage').press('Home');
      assert.equal(await span(), whole, `Home after ${name}`);
    }
    await page.locator('.stage').press('+');
    await page.mouse.dblclick(middle.x, middle.y);
    assert.equal(await span(), whole, 'double click');
  });
});

test('the arrows move the window and stop at its ends', async () => {
  await visit(reports.make('three'), async (page) => {
    await page.locator('summary').first().click();
    const from = async (): Promise<string> => (await rowsOfTwin(page))[0][1];
    const stage = page.locator('.stage');
    await stage.press('+');
    const before_pan = await from();
    await stage.press('ArrowRight');
    assert.notEqual(await from(), before_pan);
    for (let i = 0; i < 20; ++i) await stage.press('ArrowLeft');
    assert.equal(await from(), '0.0 s');
  });
});

test('the twin of the picture has a row for each step with its extremes', async () => {
  await visit(reports.make('small'), async (page) => {
    await page.locator('summary').first().click();
    const rows = await rowsOfTwin(page);
    assert.deepEqual(rows.map((row) => row[0]), ['before the first', '0', '1']);
    assert.equal(rows[1][4], '28.61 MiB');
    assert.equal(rows[2][5], '96.00 MiB');
  });
});

test('the sum adds up to the byte, and agrees with inspect', async () => {
  const accounting = reports.inspect('small').devices[0].accounting;
  await visit(reports.make('small'), async (page) => {
    const rows = await page.locator('.sum tbody tr').evaluateAll((all) =>
      all.map((row) => [row.querySelector('th')?.textContent ?? '', row.querySelector('.exact')?.textContent ?? '']),
    );
    const bytes = new Map(rows.map(([name, text]) => [name, digits(text)]));
    const terms = ['live', 'rounding', 'pending', 'private pools, free', 'pinned', 'idle', 'driver pool, free'];
    assert.equal(terms.reduce((sum, term) => sum + bytes.get(term)!, 0), bytes.get('reserved'));
    assert.equal(bytes.get('reserved')! + bytes.get('outside')!, bytes.get('device used'));
    assert.equal(bytes.get('pinned'), accounting['pinned_bytes']);
    assert.equal(bytes.get('pending'), accounting['pending_bytes']);
    assert.equal(bytes.get('live'), accounting['live_bytes']);
  });
});

test('all blocks that were live at the peak are listed, and sort by each column', async () => {
  await visit(reports.make('small'), async (page) => {
    assert.match((await page.locator('.live-blocks .aside').textContent()) ?? '', /^2 blocks, .*27,000,000 bytes: all of them/);
    const requested = (): Promise<string[]> => page.locator('.blocks tbody tr:not(.spacer) td:nth-child(2)').allTextContents();
    assert.deepEqual(await requested(), ['20,000,000', '7,000,000']);
    await page.getByRole('button', { name: 'Requested' }).click();
    assert.deepEqual(await requested(), ['7,000,000', '20,000,000']);
    await page.getByRole('button', { name: 'Stream' }).click();
    assert.deepEqual(await requested(), ['20,000,000', '7,000,000']);
    assert.equal(await page.locator('[aria-sort]').textContent(), 'Stream \u2191');
  });
});

test('markup in names stays text', async () => {
  const title = '<img src=x onerror="document.title=\'owned\'"></script><script>document.title="owned"</script>';
  await visit(reports.make('hostile', title), async (page) => {
    assert.equal(await page.locator('h1').textContent(), title);
    assert.match((await page.locator('.facts').textContent()) ?? '', /<\/script><img src=x onerror=/);
    assert.equal(await page.locator('img').count(), 0);
    assert.doesNotMatch(await page.title(), /^owned/);
  });
});

test('the security policy stops a program that somebody adds to the file', async () => {
  const path = reports.make('small');
  const html = readFileSync(path, 'utf8');
  writeFileSync(path, html.replace('</body>', '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'"></body>'));
  const { page, complaints } = await open(browser, path);
  assert.doesNotMatch(await page.title(), /owned/);
  assert.ok(complaints.some((complaint) => complaint.includes('Content Security Policy')));
  await page.context().close();
});

test('a recording without events says so', async () => {
  await visit(reports.make('empty'), async (page) => {
    assert.equal(await state(page), 'exact');
    assert.match((await page.locator('.accounting').textContent()) ?? '', /Nothing was reserved/);
    await page.locator('.stage').press('p');
    await page.locator('.stage').press('+');
  });
});

test('a recording of a killed process is shown whole, with a word about it', async () => {
  await visit(reports.make('torn'), async (page) => {
    assert.match((await page.locator('#banner').textContent()) ?? '', /was not closed/);
    await page.locator('.stage').press('p');
    assert.equal(await readoutBytes(page, 'live'), 27_000_000);
  });
});

test('a failed request is marked and counted', async () => {
  await visit(reports.make('small'), async (page) => {
    assert.match((await page.locator('.legend').textContent()) ?? '', /request failed/);
    assert.match((await page.locator('.tiles').textContent()) ?? '', /1 failed/);
  });
});

test('where workers are forbidden the page decodes by itself', async () => {
  await visit(
    reports.make('three'),
    async (page) => {
      assert.equal(await state(page), 'exact');
      await page.locator('.stage').press('p');
      assert.equal(await readoutBytes(page, 'reserved'), 128 * MIB);
    },
    { before: 'globalThis.Worker = class { constructor() { throw new Error("forbidden"); } };' },
  );
});

test('a file that was cut short says so and shows the overview', async () => {
  const path = reports.make('three');
  const html = readFileSync(path, 'utf8');
  writeFileSync(path, html.slice(0, html.indexOf('class="offcut-data">') + 1000));
  const { page } = await open(browser, path);
  assert.equal(await state(page), 'failed');
  assert.match((await page.locator('[role=alert]').textContent()) ?? '', /end of this file is missing/);
  assert.ok((await colours(page, 'canvas.plot')) > 10);
  await page.context().close();
});

test('everything fits from 900 to 2500 pixels', async () => {
  const path = reports.make('small');
  for (const width of [900, 1300, 1900, 2500]) {
    await visit(path, async (page) => {
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `${width} pixels`);
    }, { width });
  }
});

test('the printed page lists blocks and has no controls', async () => {
  await visit(reports.make('small'), async (page) => {
    await page.emulateMedia({ media: 'print' });
    assert.equal(await page.locator('.buttons').isVisible(), false);
    assert.ok((await page.pdf()).length > 20_000);
  });
});

test('every control has a name, and the picture can be reached by key', async () => {
  await visit(reports.make('three'), async (page) => {
    const nameless = await page.locator('button, select, [tabindex="0"]').evaluateAll((elements) =>
      elements.filter((element) => !(element.getAttribute('aria-label') ?? element.textContent?.trim() ?? '')).length,
    );
    assert.equal(nameless, 0);
    assert.match((await page.locator('canvas.plot').getAttribute('aria-label')) ?? '', /Reserved memory peaks at 128 MiB/);
    let reached = false;
    for (let i = 0; i < 12 && !reached; ++i) {
      await page.keyboard.press('Tab');
      reached = await page.evaluate(() => document.activeElement?.classList.contains('stage') === true);
    }
    assert.ok(reached);
  });
});
